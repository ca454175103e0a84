"""Which labels are wrong: what a training run recorded of each sample, and the verdict drawn from it."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprl.audit import UNCLEAR, judge
from sprl.core import Memory
from sprl.data.given import class_numbers
from sprl.errors import InputError, SprlWarning, ensure
from sprl.validation import FEWEST_ROWS

if TYPE_CHECKING:
    import pandas as pd


GUESSES = f"{UNCLEAR}; is_label_issue and wrong_probability are guesses then: review by rank, the lowest label_quality first"
CALM = 256  # samples over which the share of contradicted labels is smoothed: batches may be small
FLOOR = 1e-3  # what a visit counts at a time that contradicts no label
FORGET = 0.05  # of what was noted before, at a visit that counts as much as those


def new_record(previous: Tensor) -> Memory:
    """What is kept of samples, whatever the method; previous [N, C] is zeros where it is to be kept (see tables.place_table)."""
    device = previous.device
    return {
        "previous": previous,  # p^{t-1}: the prediction of the last visit; zeros: none yet
        "support": torch.zeros(len(previous), device=device),  # the sum over visits of weight times support (docs/labels.md)
        "weight": torch.zeros(len(previous), device=device),
        "visits": torch.zeros(len(previous), device=device),
        "contradicted": torch.zeros((), device=device),  # the share of labels that lose against another class, of late
    }


class Seen(NamedTuple):
    """What a batch's predictions say of its labels."""

    p: Tensor  # [B, C] probabilities, the mean over networks
    support: Tensor  # [B] of the given label: p[label] / (p[label] + p[strongest other]); 1/2 is a tie
    contradicted: Tensor  # 0-d: the share of labels below a tie


@torch.no_grad()
def see(logits: Tensor, y: Tensor) -> Seen:
    """From logits [M, B, C] and given labels [B]."""
    p = logits.float().softmax(-1).mean(0)
    given = p.gather(1, y.unsqueeze(1)).squeeze(1)
    rival = p.scatter(1, y.unsqueeze(1), 0.0).amax(1)
    return Seen(p, given / (given + rival), (rival > given).float().mean())


@torch.no_grad()
def record(memory: Memory, seen: Seen, index: Tensor) -> None:
    """Note a visit to the samples `index` [B]; not where a logit was not finite, which says nothing of the label.

    It counts by the square of the share of labels that are contradicted at that time: a network that agrees with every label, having
    memorised them, has nothing to say of any. While it goes on contradicting, it knows better than before, and the past fades.
    """
    share = memory["contradicted"]
    share += (seen.contradicted - share) * (len(index) / (len(index) + CALM))
    told = seen.support.isfinite()
    now = torch.where(told, share.square() + FLOOR, 0.0)
    weight, visits = memory["weight"][index], memory["visits"][index]
    left = 1 - FORGET * (now * visits / weight.clamp(min=1e-12)).clamp(max=1)
    previous = memory["previous"]
    previous[index] = torch.where(told.unsqueeze(1), seen.p.to(previous.dtype), previous[index])
    for name, more in (("support", torch.where(told, now * seen.support, 0.0)), ("weight", now)):
        memory[name][index] = memory[name][index] * left
        memory[name].index_add_(0, index, more)  # not set: a sample may be in a batch twice
    memory["visits"].index_add_(0, index, told.float())


class Recorder:
    """Remembers what a network predicted for each sample while it trained, under any loss.

    Call `update(logits, index)` with each training batch's logits [B, C] and the samples' positions; then `label_issues()`.
    """

    def __init__(self, y: Sequence[int] | Tensor, num_classes: int) -> None:
        self.y = as_labels(y, num_classes)
        self.memory = new_record(torch.zeros(len(self.y), num_classes))

    def update(self, logits: Tensor, index: Tensor) -> None:
        index = as_positions(index, logits, self.memory)
        if self.y.device != logits.device:
            self.y, self.memory = self.y.to(logits.device), {k: v.to(logits.device) for k, v in self.memory.items()}
        if len(index):
            record(self.memory, see(logits.unsqueeze(0), self.y[index]), index)

    def label_issues(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """A row for each sample: `is_label_issue, label_quality, wrong_probability, given_label, predicted_label, confidence`."""
        issues = label_issues(self.memory, self.y, classes)
        if not warn_of_positions(self.memory):
            warn_if_unclear(issues, self.y)
        return issues

    def pred_probs(self) -> NDArray[np.float32]:
        """The last recorded probabilities [N, C] of each sample, in-sample, in the form that cleanlab takes."""
        return pred_probs(self.memory)

    def state_dict(self) -> Memory:
        """A copy of what was recorded, for a checkpoint."""
        return saved(self.memory, self.y)

    def load_state_dict(self, state: Memory) -> None:
        self.memory = restored(self.memory, state, self.y)


def saved(memory: Memory, y: Tensor) -> Memory:
    """A copy of `memory`, and a checksum of the labels that it is about."""
    return {name: value.clone() for name, value in memory.items()} | {"labels": torch.tensor(checksum(y))}


def restored(memory: Memory, state: Memory, y: Tensor) -> Memory:
    """A copy of what was saved, where `memory` is; InputError if it is of other data."""
    for name, value in memory.items():
        ensure(name in state, f"the saved state has no {name!r}: it is of something else")
        there, needed = tuple(state[name].shape), tuple(value.shape)
        ensure(there == needed, f"the saved {name!r} has the shape {there}, not {needed}: it is of other data")
    same = "labels" not in state or int(state["labels"]) == checksum(y)  # states of old have none
    ensure(same, "the saved state is of other labels, or of these in another order: give y as it was when the state was saved")
    return {name: state[name].to(value.device, copy=True) for name, value in memory.items()}


def checksum(y: Tensor) -> int:
    return zlib.crc32(y.cpu().numpy().tobytes())


def as_positions(index: Sequence[int] | Tensor, logits: Tensor, memory: Memory) -> Tensor:
    """Where a batch's samples stand, on the device of its logits. Values are looked at on the host alone: a GPU would have to wait."""
    n, num_classes = memory["previous"].shape
    if not isinstance(logits, Tensor):
        raise InputError(f"logits must be a tensor [B, {num_classes}], got a {type(logits).__name__}: give the logits in it alone")
    index = torch.as_tensor(index)
    if index.ndim != 1 or logits.shape != (len(index), num_classes):
        given = f"logits {tuple(logits.shape)} and an index {tuple(index.shape)}"
        raise InputError(f"a batch is logits [B, {num_classes}] and an index [B], the samples' positions in y; got {given}")
    if len(index) and index.dtype not in (torch.int64, torch.int32):
        raise InputError(f"index must be int64, the samples' positions in y, got {str(index.dtype).removeprefix('torch.')}")
    if len(index) and index.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = (int(end) for end in index.aminmax())
        if not 0 <= low <= high < n:
            raise InputError(f"index must be the samples' positions in y, which lie in 0..{n - 1}, got {low}..{high}")
    return index.to(logits.device, torch.int64)


def warn_of_positions(memory: Memory) -> bool:
    """Whether it had to: where no more samples were visited than there are classes, or half of them, something else was given in the place
    of positions."""
    n, num_classes = memory["previous"].shape
    visited = int((memory["visits"] > 0).sum())
    odd = visited <= num_classes < n or 2 * visited < n
    if odd:
        told = f"only {visited} of {n} samples were ever visited: index must be positions in y, not labels or places in the batch"
        warnings.warn(told, SprlWarning, stacklevel=3)
    return odd


def warn_if_unclear(issues: pd.DataFrame, y: Tensor) -> None:
    """The table does not tell how sure it is as a whole."""
    if not judge(issues["label_quality"].to_numpy(), y.cpu().numpy()).clear:
        warnings.warn(GUESSES, SprlWarning, stacklevel=3)


def as_labels(y: Sequence[int] | NDArray[Any] | Tensor, num_classes: int) -> Tensor:
    """Class numbers as int64 [N], checked."""
    return torch.from_numpy(class_numbers(y, num_classes))


def label_quality(memory: Memory) -> Tensor:
    """The weighted mean of a label's support over the visits, in [0, 1]. [N]

    1 for a sample that was never visited: nothing speaks against its label.
    """
    weight = memory["weight"]
    return torch.where(weight > 0, memory["support"] / weight.clamp(min=1e-12), 1.0).clamp(0, 1)


def pred_probs(memory: Memory) -> NDArray[np.float32]:
    """The prediction of each sample's last visit [N, C], in-sample: the network trained on these labels. Equal for all classes where none
    was made."""
    p = memory["previous"].to("cpu", torch.float32, copy=True)  # the one copy: all else is done in its place
    total = p.sum(1, keepdim=True)
    return p.div_(total.clamp(min=1e-12)).masked_fill_(~(total > 0), 1 / p.shape[1]).numpy()


FEW = 3  # samples of so small a class are not flagged: who is to say that they are wrong?
PART = 2**20  # predictions of the table that are looked at together: it may fill the memory, and its classes may be many


def label_issues(memory: Memory, y: Tensor, classes: Iterable[Any] | None = None) -> pd.DataFrame:
    """A row for each sample: what was given, what is suggested, and how sure of it a careful reader may be."""
    import pandas as pd

    num_classes = memory["previous"].shape[1]
    names = pd.Series(list(range(num_classes) if classes is None else classes))
    ensure(len(names) >= num_classes, f"{len(names)} names are too few for {num_classes} classes: give one for each, in their order")
    quality = label_quality(memory).double().cpu().numpy()
    wrong = judge(quality, y.cpu().numpy()).wrong
    few = (torch.bincount(y, minlength=num_classes)[y] <= FEW).cpu().numpy()
    best, confidence = suggest(memory["previous"], y, torch.from_numpy(wrong))
    return pd.DataFrame(
        {
            "is_label_issue": (wrong > 0.5) & ~few,
            "label_quality": quality,
            "wrong_probability": wrong,
            "given_label": names.iloc[y.cpu().numpy()].to_numpy(),
            "predicted_label": names.iloc[best.numpy()].to_numpy(),
            "confidence": confidence.numpy(),
        }
    )


def suggest(previous: Tensor, y: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """A class for each sample and its probability [N]: the given one where it is rather right than `wrong` [N], else the likeliest other,
    by the square of the latest prediction, since resistance keeps networks less sure than they could be."""
    best, confidence = torch.empty(len(y), dtype=torch.int64), torch.empty(len(y), dtype=torch.float64)
    size = max(1, PART // previous.shape[1])
    for part in (slice(i, i + size) for i in range(0, len(y), size)):
        given, doubt = y[part], wrong[part]
        others = previous[part].to(torch.float64, copy=True).square_().scatter_(1, given.unsqueeze(1), 0.0).cpu()
        share, other = (others / others.sum(1, keepdim=True).clamp(min=1e-300)).max(1)
        keep = doubt <= 0.5
        best[part] = torch.where(keep, given.cpu(), other)
        confidence[part] = torch.where(keep, 1 - doubt, doubt * share)
    return best, confidence


def warn_if_few(y: NDArray[np.int64]) -> None:
    """Of the labels [N] of a run that is to begin. Those of a class too small to be flagged do not count."""
    sizes = np.bincount(y)
    many = int(sizes[sizes > FEW].sum())
    if many < FEWEST_ROWS:
        told = f"{len(y)} rows, of which {many} are in classes of more than {FEW}, are too few to learn from or to judge"
        warnings.warn(f"{told}; take all results as guesses", SprlWarning, stacklevel=3)


def warn_of_doubts(issues: pd.DataFrame, memory: Memory) -> None:
    """Say where the verdict on the labels stands on weak ground."""
    flagged = issues.groupby("given_label", sort=False)["is_label_issue"].mean()
    flagged = flagged[flagged > 0.8].sort_values(ascending=False, kind="stable")
    if len(flagged):
        worst = ", ".join(f"{share:.0%} of class {name!r}" for name, share in flagged[:5].items())
        more = f", and more than 80 % of {len(flagged) - 5} other classes" if len(flagged) > 5 else ""
        warnings.warn(f"flagged are {worst}{more}: check some of these labels before trusting the flags", SprlWarning, stacklevel=3)
    n = len(issues)
    if int(memory.get("m", -1)) == max(1, n // 10):
        warnings.warn(
            f"the curriculum began at its lower bound, a tenth (after warm-up the network was sure of {int(memory['confident'])} "
            f"of {n} labels): usual under heavy noise, otherwise a sign that T1 or the network is too small",
            SprlWarning,
            stacklevel=3,
        )
