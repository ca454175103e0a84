"""Resistance alone: what the resistance loss does to predictions (Shi et al. 2021, arXiv 2105.03059, figure 4)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import ensure
from sprl.functional import cross_entropy, resistance


@dataclass(frozen=True)
class Resistance:
    """A demonstration: cross-entropy (Eq. 4) for T1 epochs, then resistance (Eq. 7) alone, which drives predictions towards uniform.

    From then on no label is trained on; the loss rises towards log C, that of predictions that are the same for every class (Shi et al.
    2021, figure 4: 100 epochs, then 200). Differences from the reference: none.
    """

    T1: int = 100
    """Epochs of cross-entropy before the resistance."""

    networks: ClassVar[int] = 1

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        fits = 1 <= self.T1 < epochs
        ensure(fits, f"T1 is {self.T1} but must be at least 1 and less than the {epochs} epochs; lower T1 or raise the epochs")
        return {"resisting": torch.zeros((), dtype=torch.bool, device=y.device)}

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        return {"resisting": torch.full_like(memory["resisting"], clock.t > self.T1)}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        resisting, previous = memory["resisting"], memory["previous"][batch.index]
        loss = torch.where(resisting, resistance(logits, previous), cross_entropy(logits, batch.y))  # [M, B]
        return Step(loss.mean(-1).sum(), chosen=~resisting.expand(logits.shape[:2]))
