"""Bootstrap (Reed et al. 2015, arXiv 1412.6596): labels mixed with the network's own predictions."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import ensure
from sprl.functional import cross_entropy


@dataclass(frozen=True)
class Bootstrap:
    """Cross-entropy to a mixture of the given label and the current prediction (Reed et al. 2015), from the first step on.

    Hard: -beta log p[y] - (1 - beta) log p[argmax p]. Soft: the whole of p in place of its largest entry, and the gradient goes through it
    there too, which makes that part the entropy of p. Differences from the reference: none.
    """

    kind: Literal["hard", "soft"] = "hard"
    """What of the prediction joins the target: the likeliest class, or all probabilities."""
    beta: float | Literal["auto"] = "auto"
    """Weight of the given label. "auto": as published, 0.8 for hard and 0.95 for soft."""

    networks: ClassVar[int] = 1

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        ensure(self.beta == "auto" or 0 <= self.beta <= 1, f"beta is {self.beta} but must be from 0 to 1")
        return {}

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        return {}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        hard = self.kind == "hard"
        beta = (0.8 if hard else 0.95) if self.beta == "auto" else self.beta
        own = cross_entropy(logits, logits.argmax(-1)) if hard else entropy(logits)
        loss = beta * cross_entropy(logits, batch.y) + (1 - beta) * own
        everyone = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Step(loss.mean(-1).sum(), everyone)


def entropy(logits: Tensor) -> Tensor:
    """Of the prediction for each sample. logits [..., B, C] -> [..., B]"""
    log_p = logits.float().log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
