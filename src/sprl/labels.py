"""Which labels are wrong: what a training run recorded of each sample, and the verdict drawn from it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sprl.core import Batch, Memory
from sprl.errors import InputError, SprlWarning

if TYPE_CHECKING:
    import pandas as pd


def new_record(previous: Tensor) -> Memory:
    """What is kept of samples, whatever the method; previous [N, C] is zeros where it is to be kept (see tables.place_table)."""
    device = previous.device
    return {
        "previous": previous,  # p^{t-1}: the prediction of the last visit; zeros: none yet
        "likely": torch.zeros(len(previous), device=device),  # the sum over visits of p[given label]
        "visits": torch.zeros(len(previous), device=device),
    }


@torch.no_grad()
def record(memory: Memory, logits: Tensor, batch: Batch) -> None:
    """Note the predictions of a batch from its logits [M, B, C]."""
    p = logits.float().softmax(-1).mean(0)
    memory["previous"][batch.index] = p.to(memory["previous"].dtype)
    memory["likely"].index_add_(0, batch.index, p.gather(1, batch.y.unsqueeze(1)).squeeze(1))
    memory["visits"].index_add_(0, batch.index, torch.ones_like(p[:, 0]))


class Recorder:
    """Remembers what a network predicted for each sample while it trained, under any loss.

    Call `update(logits, index)` with each training batch's logits [B, C] and the samples' positions; then `label_issues()`.
    """

    def __init__(self, y: Sequence[int] | Tensor, num_classes: int) -> None:
        self.y = as_labels(y, num_classes)
        self.memory = new_record(torch.zeros(len(self.y), num_classes))

    def update(self, logits: Tensor, index: Tensor) -> None:
        if self.y.device != logits.device:
            self.y, self.memory = self.y.to(logits.device), {k: v.to(logits.device) for k, v in self.memory.items()}
        index = torch.as_tensor(index, device=logits.device)
        record(self.memory, logits.unsqueeze(0), Batch(index, self.y[index]))

    def label_issues(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """A row for each sample: `is_label_issue, label_quality, given_label, predicted_label` (cleanlab's words)."""
        return label_issues(self.memory, self.y, classes)


def as_labels(y: Sequence[int] | Tensor, num_classes: int) -> Tensor:
    """Class numbers as int64 [N], checked."""
    labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise InputError(f"labels must be one whole number a sample, got {labels.dtype} of shape {labels.shape}")
    if not 0 <= labels.min() <= labels.max() < num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, got {labels.min()}..{labels.max()}")
    return torch.from_numpy(labels.astype(np.int64))


def label_quality(memory: Memory) -> Tensor:
    """The mean probability of the given label over the visits, in [0, 1]. [N]

    The mean remembers what was thought before a label was memorised; the last prediction alone does not (docs/log.md).
    1 for a sample that was never visited: nothing speaks against its label.
    """
    visits = memory["visits"]
    return torch.where(visits > 0, memory["likely"] / visits.clamp(min=1), 1.0).clamp(0, 1)


def predicted_label(memory: Memory, y: Tensor) -> Tensor:
    r"""argmax over k of $p[k] / \sqrt{s_k}$: p the latest prediction, s_k the mean of p[k] over the samples given k. [N]

    A network is unsure of a rare class, so plain argmax takes its samples for common ones: measured on digits with a 10:1 tail, right
    labels of the rarest three classes were flagged 3.3 times as often as others, with this correction 2.2 times, for 0.003 of F1.
    """
    p, visited = memory["previous"], memory["visits"] > 0
    size = torch.bincount(y[visited], minlength=p.shape[1])
    own = torch.zeros_like(p[0], dtype=torch.float32).index_add_(0, y, p.gather(1, y.unsqueeze(1)).squeeze(1).float()) / size.clamp(min=1)
    own = torch.where(size > 0, own.clamp(min=1 / p.shape[1]), 1.0)
    best = torch.cat([(part / own.sqrt()).argmax(1) for part in p.split(2**18)])  # in parts: p may be all that memory holds
    return torch.where(visited, best, y)


FEW = 3  # samples of so small a class are not flagged: who is to say that they are wrong?


def is_label_issue(memory: Memory, y: Tensor) -> Tensor:
    """Whether another class than the given one is predicted. [N] bool"""
    enough = torch.bincount(y, minlength=memory["previous"].shape[1])[y] > FEW
    return (predicted_label(memory, y) != y) & enough


def label_issues(memory: Memory, y: Tensor, classes: Iterable[Any] | None = None) -> pd.DataFrame:
    import pandas as pd

    names = pd.Series(list(range(memory["previous"].shape[1]) if classes is None else classes))
    return pd.DataFrame(
        {
            "is_label_issue": is_label_issue(memory, y).cpu().numpy(),
            "label_quality": label_quality(memory).double().cpu().numpy(),
            "given_label": names.iloc[y.cpu().numpy()].to_numpy(),
            "predicted_label": names.iloc[predicted_label(memory, y).cpu().numpy()].to_numpy(),
        }
    )


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
