"""SPRL for other people's training loops: a loss that is called with a batch's logits and the samples' positions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sprl.core import Batch, Clock, Predict
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

if TYPE_CHECKING:
    import pandas as pd


CLOSE = 1e-2  # how far from 1 probabilities may sum: bfloat16 is coarse


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
    With SGD, clipped gradients, or other losses added to it: normalised=True; otherwise the loss grows with gamma to tens or hundreds and
    SGD diverges.
    Fields are SPRL's; T1 must be a number here (a tenth of the epochs if not given), since a loss cannot hold samples out.
    The state travels in `state_dict()` as extra state, not as buffers, which DistributedDataParallel would overwrite.
    """

    def __init__(self, y: Sequence[int] | Tensor, num_classes: int, epochs: int, **fields: Any) -> None:
        super().__init__()
        self.method = SPRL(**read_fields(SPRL, "sprl", {"T1": max(1, epochs // 10), **fields}))
        if self.method.T1 == "auto":
            raise InputError("SPRLLoss needs a number of epochs for T1: it cannot hold samples out to find one")
        self.y = as_labels(y, num_classes)
        self.clock = Clock(1, epochs)
        self.memory = new_record(torch.zeros(len(self.y), num_classes)) | self.method.init(self.y, num_classes, epochs)

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
        clock = Clock(self.clock.t + 1, self.clock.T)
        if clock.t <= clock.T:
            self.memory |= self.method.refresh(self.memory, self.y, clock, lambda: self._evaluated(predict))
        self.clock = clock  # last: an end that was refused can be tried again

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
        return {"memory": saved(self.memory, self.y), "t": self.clock.t, "T": self.clock.T, "fields": asdict(self.method)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["T"] != self.clock.T:
            raise InputError(f"the saved state is of {state['T']} epochs, this loss of {self.clock.T}")
        for name, ours in asdict(self.method).items():
            theirs = state.get("fields", {}).get(name, ours)  # states of old have none
            ensure(theirs == ours, f"the saved state is of {name}={theirs!r}, this loss of {name}={ours!r}")
        self.memory = restored(self.memory, state["memory"], self.y)
        self.clock = Clock(int(state["t"]), self.clock.T)
