"""Decoupling (Malach & Shalev-Shwartz 2017, arXiv 1706.02613): when to update apart from how to update."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import ensure
from sprl.functional import cross_entropy, disagreement


@dataclass(frozen=True)
class Decoupling:
    """Two networks, both trained on the samples for which they predict different classes (Malach & Shalev-Shwartz 2017, Algorithm 1).

    The labels play no part in the choice. Where the two agree on a whole batch nothing is learned from it. Differences from the reference:
    an initial phase of one epoch by default, where the code has none: networks that begin by predicting one and the same class for
    everything would never learn; the code's balancing of its two classes is left out.
    """

    init_epochs: int = 1
    """Epochs on all samples at first. Published: 0."""
    min_share: float = 0.1
    """The sum of losses is divided by at least this share of the batch, so that few samples make no great step; 0: by their number."""

    networks: ClassVar[int] = 2

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        ensure(self.init_epochs >= 0, f"init_epochs is {self.init_epochs} but must not be negative")
        ensure(0 <= self.min_share <= 1, f"min_share is {self.min_share} but must be from 0 to 1")
        return {"initial": torch.ones((), dtype=torch.bool, device=y.device)}

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        return {"initial": torch.full_like(memory["initial"], clock.t <= self.init_epochs)}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        chosen = disagreement(logits) | memory["initial"]
        least = max(self.min_share * len(batch.y), 1.0)  # one: no division by zero
        losses = torch.where(chosen, cross_entropy(logits, batch.y), 0.0)
        return Step(losses.sum() / chosen.sum().clamp(min=least), chosen.expand(logits.shape[:2]), idle=~chosen.any())
