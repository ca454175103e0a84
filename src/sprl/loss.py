"""SPRL for other people's training loops: a loss that is called with a batch's logits and the samples' positions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sprl.core import Batch, Clock, Predict
from sprl.errors import InputError, SprlWarning
from sprl.fields import read_fields
from sprl.labels import as_labels, as_positions, label_issues, new_record, pred_probs, record, restored, see, warn_of_positions
from sprl.methods.sprl import SPRL

if TYPE_CHECKING:
    import pandas as pd


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
        if self.y.device != logits.device:
            self.y, self.memory = self.y.to(logits.device), {k: v.to(logits.device) for k, v in self.memory.items()}
        index = as_positions(index, logits, self.memory)
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
        self.clock = Clock(self.clock.t + 1, self.clock.T)
        if self.clock.t <= self.clock.T:
            self.memory |= self.method.refresh(self.memory, self.y, self.clock, predict or _no_predictions)

    def label_issues(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """A row for each sample: `is_label_issue, label_quality, wrong_probability, given_label, predicted_label, confidence`."""
        if self.clock.t == 1 < self.clock.T:
            told = f"end_epoch was never called: call it after each of the {self.clock.T} epochs, else the loss stays plain cross-entropy"
            warnings.warn(told, SprlWarning, stacklevel=2)
        return label_issues(self.memory, self.y, classes)

    def pred_probs(self) -> NDArray[np.float32]:
        """The last recorded probabilities [N, C] of each sample, in-sample, in the form that cleanlab takes."""
        return pred_probs(self.memory)

    def get_extra_state(self) -> dict[str, Any]:
        return {"memory": {name: value.clone() for name, value in self.memory.items()}, "t": self.clock.t, "T": self.clock.T}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["T"] != self.clock.T:
            raise InputError(f"the saved state is of {state['T']} epochs, this loss of {self.clock.T}")
        self.memory = restored(self.memory, state["memory"])
        self.clock = Clock(int(state["t"]), self.clock.T)


def _no_predictions() -> Tensor:
    raise InputError('predictions="evaluated" needs end_epoch(predict), a function that returns probabilities [N, C]')
