"""Which labels are wrong: what a training run recorded of each sample, and the verdict drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sprl.core import Memory
from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


class Recorder:
    """Remembers what a network predicted for each sample while it trained, under any loss.

    Call `update(logits, index)` with each batch's logits [B, C] (or [M, B, C]) and the samples' positions; then `label_issues()`.
    """

    def __init__(self, y: Sequence[int] | Tensor, num_classes: int) -> None:
        self.y = as_labels(y, num_classes)
        self.num_classes = num_classes
        self.memory: Memory = {
            "total": torch.zeros(len(self.y), num_classes),  # the sum of its predictions over its visits
            "visits": torch.zeros(len(self.y)),
        }

    def to(self, device: torch.device) -> Recorder:
        self.y = self.y.to(device)
        self.memory = {name: value.to(device) for name, value in self.memory.items()}
        return self

    @torch.no_grad()
    def update(self, logits: Tensor, index: Tensor) -> None:
        p = logits.detach().float().softmax(-1)
        self.add(p.mean(0) if p.ndim == 3 else p, index)

    def add(self, p: Tensor, index: Tensor) -> None:
        """Record probabilities [B, C]."""
        self.memory["total"].index_add_(0, index, p)
        self.memory["visits"].index_add_(0, index, torch.ones_like(p[:, 0]))

    def probabilities(self) -> Tensor:
        """The mean prediction of each sample over its visits [N, C]; the classes' equal share where it was never visited."""
        visits = self.memory["visits"].unsqueeze(1)
        return torch.where(visits > 0, self.memory["total"] / visits.clamp(min=1), 1 / self.num_classes)

    def label_issues(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """A row for each sample: `is_label_issue, label_quality, given_label, predicted_label` (cleanlab's words)."""
        return label_issues(self.probabilities(), self.y, classes)


def as_labels(y: Sequence[int] | Tensor, num_classes: int) -> Tensor:
    """Class numbers as int64 [N], checked."""
    labels = torch.as_tensor(y)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must be one whole number a sample, got {labels.dtype} of shape {tuple(labels.shape)}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, got {int(labels.min())}..{int(labels.max())}")
    return labels.long()


def label_quality(p: Tensor, y: Tensor) -> Tensor:
    """The mean probability of the given label over the epochs, in [0, 1]: what accumulates ranks better than any last epoch. [N]"""
    return p.gather(1, y.unsqueeze(1)).squeeze(1).clamp(0, 1)


FEW = 3  # a class of so few samples cannot be told from a wrong label: its samples are not flagged


def is_label_issue(p: Tensor, y: Tensor) -> Tensor:
    """Whether the mean prediction names another class than the given one. [N] bool"""
    enough = torch.bincount(y, minlength=p.shape[1])[y] > FEW
    return (p.argmax(1) != y) & enough


def label_issues(p: Tensor, y: Tensor, classes: Sequence[Any] | None = None) -> pd.DataFrame:
    import pandas as pd

    names = pd.Series(list(range(p.shape[1]) if classes is None else classes))
    p, y = p.cpu(), y.cpu()
    return pd.DataFrame(
        {
            "is_label_issue": is_label_issue(p, y).numpy(),
            "label_quality": label_quality(p, y).double().numpy(),
            "given_label": names.iloc[y.numpy()].to_numpy(),
            "predicted_label": names.iloc[p.argmax(1).numpy()].to_numpy(),
        }
    )
