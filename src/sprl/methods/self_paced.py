"""Self-paced learning (Kumar, Packer & Koller 2010): easy samples first."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import ensure
from sprl.functional import cross_entropy, masked_mean, smallest

LEAST, MOST = 0.01, 100.0  # of lambda: so that it can grow where losses are zero; no loss in float32 is above


@dataclass(frozen=True)
class SelfPaced:
    """Train on the samples whose loss is below a growing threshold (Kumar et al. 2010; Eq. 1 of the SPRL paper: v = 1 where l < lambda).

    v is found anew before each epoch from the losses recorded in the last one. In the end every sample is chosen, wrong labels included,
    unless `end` is lower. Differences from the reference, which trains to the optimum between two choices: an epoch in its place and, by
    default, a threshold that lets in a given share of the samples, because a network's losses shrink as it learns.
    """

    growth: Literal["quantile", "threshold"] = "quantile"
    """The share of samples grows in equal steps to `end` in the last epoch, or the threshold by a factor mu each epoch (original)."""
    start: float = 0.5
    """Share of the samples that is chosen first."""
    end: float = 1.0
    """Share of the samples that is never exceeded."""
    mu: float = 1.3
    """Factor of the threshold with growth="threshold"."""
    warmup: int = 2
    """Epochs on all samples at first: without them a loss says nothing."""

    networks: ClassVar[int] = 1

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        ensure(0 < self.start <= self.end <= 1, f"start is {self.start} and end {self.end} but they must be 0 < start <= end <= 1")
        ensure(self.mu >= 1, f"mu is {self.mu} but must be at least 1: the threshold grows")
        ensure(self.warmup >= 1, f"warmup is {self.warmup} but must be at least 1: the first choice needs losses")
        return {
            "chosen": torch.ones_like(y, dtype=torch.bool),  # v
            "threshold": torch.full((), torch.nan, device=y.device),  # lambda, where it is what grows
        }

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        t, n = clock.t, len(y)
        if t <= self.warmup:
            return {}
        p = memory["previous"].gather(1, y.unsqueeze(1)).squeeze(1).float()
        losses = -p.clamp(min=torch.finfo(p.dtype).tiny).log()
        if self.growth == "quantile":
            share = schedules.self_paced_share(t, start=self.start, end=self.end, T=clock.T, warmup=self.warmup)
            return {"chosen": easiest(losses, count(share, n))}
        if t == self.warmup + 1:  # the least threshold that lets the first share in
            threshold = losses.kthvalue(count(self.start, n)).values.nextafter(losses.new_tensor(torch.inf))
        else:
            threshold = memory["threshold"] * self.mu
        threshold = threshold.clamp(LEAST, MOST)
        below = int((losses < threshold).sum())
        return {"chosen": easiest(losses, min(max(below, 1), count(self.end, n))), "threshold": threshold}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        chosen = memory["chosen"][batch.index].expand(logits.shape[:2])
        return Step(masked_mean(cross_entropy(logits, batch.y), chosen).sum(), chosen, idle=~chosen.any())


def count(share: float, n: int) -> int:
    """floor(share n), at least one."""
    return max(1, int(share * n + 1e-9))


def easiest(losses: Tensor, size: int) -> Tensor:
    """The `size` smallest of losses [N]; ties: the lower index. -> bool [N]"""
    everyone = torch.zeros(len(losses), dtype=torch.int64, device=losses.device)
    return smallest(losses, everyone, torch.tensor([size], device=losses.device))
