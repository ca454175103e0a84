"""SPRL for other people's training loops: a loss that is called with a batch's logits and the samples' positions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sprl.core import Batch, Clock, Predict
from sprl.curriculum import warmed_up
from sprl.errors import InputError, SprlWarning, ensure
from sprl.fields import read_fields
from sprl.labels import (
    as_labels,
    as_positions,
    label_issues,
    new_record,
    pred_probs,
    record,
    restored,
    saved,
    see,
    warn_if_unclear,
    warn_of_positions,
)
from sprl.methods.sprl import SPRL
from sprl.validation import FEWEST_PICTURES, a_tenth

if TYPE_CHECKING:
    import pandas as pd


CLOSE = 1e-2  # how far from 1 probabilities may sum: bfloat16 is coarse
DOUBT = 1e-6  # the least that a label's probability counts, so that no single one held out decides


class SPRLLoss(nn.Module):
    """The loss of SPRL (Eq. 12b) with its memory.

        loss = SPRLLoss(y, num_classes, epochs)
        for epoch in range(epochs):
            for x, index in loader:               # index [B]: each sample's position in y
                loss(network(x), index).backward()
                ...
            loss.end_epoch()
        loss.label_issues()

    "Previous epoch" is a sample's previous visit, so weighted samplers, accumulated gradients and samples that an epoch leaves out work.
    Fields are SPRL's, with two differences:

    normalised=True is the default, so the loss keeps the scale of cross-entropy. The paper's Eq. 10 (normalised=False) grows with gamma to
    tens or hundreds: SGD diverges, clipped gradients are all resistance, other losses added to it go under. Adam bears that, and was up to
    two points better with it under heavy noise (docs/log.md).

    T1="auto" ends the warm-up by what the loop shows. A tenth of each class has no part in the loss until then. The cross-entropy of the
    predictions recorded for it falls while the network learns and rises once it memorises; when it has risen by 2 %, summed over the
    epochs since its least, or after half of the epochs, the tenth joins and T1 is in `method.T1`. How far predictions agree with labels
    trained on would not tell: that grows all along. Under 200 samples, or five of a class, T1 is a tenth of the epochs. Where several
    processes have a loss each, as under DistributedDataParallel, give a number, else each finds its own.

    The state travels in `state_dict()` as extra state, not as buffers, which DistributedDataParallel would overwrite.
    """

    def __init__(self, y: Sequence[int] | Tensor, num_classes: int, epochs: int, **fields: Any) -> None:
        super().__init__()
        self.asked = self.method = SPRL(**read_fields(SPRL, "sprl", {"normalised": True, **fields}))
        self.y = as_labels(y, num_classes)
        self.clock = Clock(1, epochs)
        self.memory = new_record(torch.zeros(len(self.y), num_classes)) | self.method.init(self.y, num_classes, epochs)
        self.held_out: list[float] = []  # the cross-entropy on the tenth held out, an epoch of the warm-up each
        if self.method.T1 == "auto":
            tenth = a_tenth(self.y, num_classes, FEWEST_PICTURES, seed=0) if epochs > 1 else None
            if tenth is None:
                self.method = replace(self.method, T1=max(1, epochs // 10))
            else:
                self.memory["chosen"] = ~tenth

    def forward(self, logits: Tensor, index: Tensor) -> Tensor:
        """The loss of logits [B, C]. In training mode the predictions are recorded; in evaluation mode nothing changes."""
        if self.training and self.clock.t > self.clock.T:
            raise InputError(f"all {self.clock.T} epochs are over: make SPRLLoss with as many epochs as the loop runs")
        index = as_positions(index, logits, self.memory)
        if self.y.device != logits.device:
            self.y, self.memory = self.y.to(logits.device), {k: v.to(logits.device) for k, v in self.memory.items()}
        if not len(index):
            return logits.float().sum()  # 0, with a gradient; the mean of nothing is NaN
        stacked, batch = logits.unsqueeze(0), Batch(index, self.y[index])
        loss, seen = self.method.step(stacked, batch, self.memory).loss, see(stacked, batch.y)
        if self.training:
            record(self.memory, seen, index)
        # a row left out hides a logit that is not finite from the loss, not from its gradient
        return torch.where(seen.support.isfinite().all(), loss, torch.nan)

    def end_epoch(self, predict: Predict | None = None) -> None:
        """Choose the next epoch's curriculum. `predict` () -> probabilities [N, C] is needed with predictions="evaluated" alone."""
        if self.clock.t == 1:
            warn_of_positions(self.memory)
        clock, method, held_out = Clock(self.clock.t + 1, self.clock.T), self.method, self.held_out
        if method.T1 == "auto":
            held_out = [*held_out, self._held_out_loss()]
            if warmed_up(held_out, clock.T):
                method = replace(method, T1=self.clock.t)
        if clock.t <= clock.T:
            self.memory |= method.refresh(self.memory, self.y, clock, lambda: self._evaluated(predict))
        self.clock, self.method, self.held_out = clock, method, held_out  # last: an end that was refused can be tried again

    def _held_out_loss(self) -> float:
        """The cross-entropy of the predictions recorded for what has no part in the loss; never visited: all classes as likely."""
        held = ~self.memory["chosen"]
        p, y = self.memory["previous"][held], self.y[held]
        given = torch.where(p.sum(1) > 0, p.gather(1, y.unsqueeze(1)).squeeze(1), 1 / p.shape[1])
        return -float(given.clamp(min=DOUBT).log().mean())

    def _evaluated(self, predict: Predict | None) -> Tensor:
        """What `predict` returns, checked and where the labels are."""
        if predict is None:
            raise InputError('predictions="evaluated" needs end_epoch(predict), a function that returns probabilities [N, C]')
        p, shape = predict(), tuple(self.memory["previous"].shape)
        p = torch.tensor(p) if isinstance(p, np.ndarray) else p
        what = f"predict must return probabilities {list(shape)}, a row for each sample in the order of y"
        ensure(isinstance(p, Tensor), f"{what}, as a tensor; got a {type(p).__name__}")
        ensure(p.shape == shape, f"{what}; got the shape {tuple(p.shape)}")
        if not ((p >= 0).all() and ((p.sum(1, dtype=torch.float32) - 1).abs() <= CLOSE).all()):
            got = f"numbers in {p.min():.3g}..{p.max():.3g}"
            raise InputError(f"{what}, none negative and their sum 1; got {got}: if they are logits, apply softmax(1)")
        return p.detach().to(self.y.device)

    def label_issues(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """A row for each sample: `is_label_issue, label_quality, wrong_probability, given_label, predicted_label, confidence`."""
        issues = label_issues(self.memory, self.y, classes)
        if self.clock.t == 1 < self.clock.T:
            told = f"end_epoch was never called: call it after each of the {self.clock.T} epochs, else the loss stays plain cross-entropy"
            warnings.warn(told, SprlWarning, stacklevel=2)
        else:
            warn_if_unclear(issues, self.y)
        return issues

    def pred_probs(self) -> NDArray[np.float32]:
        """The last recorded probabilities [N, C] of each sample, in-sample, in the form that cleanlab takes."""
        return pred_probs(self.memory)

    def get_extra_state(self) -> dict[str, Any]:
        warmup = {"T1": self.method.T1, "held_out": list(self.held_out)}
        return {"memory": saved(self.memory, self.y), "t": self.clock.t, "T": self.clock.T, "fields": asdict(self.asked), **warmup}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["T"] != self.clock.T:
            raise InputError(f"the saved state is of {state['T']} epochs, this loss of {self.clock.T}")
        ours, saved_as = asdict(self.asked), state.get("fields", {})  # states of old have none
        theirs = {name: value for name, value in saved_as.items() if name in ours and value != ours[name]}
        if theirs:
            there, here = (", ".join(f"{name}={values[name]!r}" for name in theirs) for values in (theirs, ours))
            raise InputError(f"the saved state is of {there}, this loss of {here}: make SPRLLoss(..., {there}) to resume it")
        if self.asked.T1 == "auto" and "held_out" not in state:
            was = f"as it was saved with (by default T1={max(1, self.clock.T // 10)}, normalised=False)"
            raise InputError(f'the saved state is of an older version, which had no T1="auto": make SPRLLoss {was} to resume it')
        self.memory = restored(self.memory, state["memory"], self.y)
        self.clock = Clock(int(state["t"]), self.clock.T)
        self.method = replace(self.asked, T1=state.get("T1", self.asked.T1))
        self.held_out = list(state.get("held_out", ()))
