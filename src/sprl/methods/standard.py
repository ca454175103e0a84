"""Standard: plain training on the given labels."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.functional import cross_entropy


@dataclass(frozen=True)
class Standard:
    """Cross-entropy to the given labels (Eq. 4), all samples, every epoch.

    Differences from the reference: none.
    """

    networks: ClassVar[int] = 1

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        return {}

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        return {}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        everyone = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Step(cross_entropy(logits, batch.y).mean(-1).sum(), everyone)
