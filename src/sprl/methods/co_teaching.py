"""Co-teaching (Han et al. 2018, arXiv 1804.06872): each network chooses what its peer learns from."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import check_rate, ensure
from sprl.functional import cross_entropy, kept, masked_mean, small_loss


@dataclass(frozen=True)
class CoTeaching:
    """Two networks, each trained on the samples of the batch for which the other has the smallest losses (Han et al. 2018, Algorithm 1).

    R(t) of the batch is kept, from all of it in the first epoch down to 1 - tau. Differences from the reference: of R(t) B, the floor, as
    in the released code, but exact, where its rounding errors cost a sample now and then, and at least one. Not taken from that code: it
    divides the mean by the number of samples once more, raises tau rather than the epoch to the power c, and is ahead of Algorithm 1: with
    T_k 10 its first epoch drops tau / 9, its ninth tau, where these drop nothing and 0.8 tau.
    """

    noise_rate: float
    """Share of wrong labels."""
    tau_factor: float = 1.0
    """tau, the share of each batch that is dropped in the end, as a multiple of the noise rate. The paper studied 0.5 to 1.5."""
    T_k: int = 10
    """R(t) = 1 - tau min((t - 1)^c / T_k, 1): with c = 1, epochs until that share is dropped. The paper studied 5 to 15."""
    c: float = 1.0
    """Power of the epoch there: the larger, the sooner. The paper studied 0.5 to 2."""

    networks: ClassVar[int] = 2

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        check_rate(self.noise_rate)
        tau = self.tau_factor * self.noise_rate
        ensure(0 <= tau < 1, f"tau_factor times noise_rate is {tau:g} but must be at least 0 and below 1")
        ensure(self.T_k >= 0, f"T_k is {self.T_k} but must not be negative")
        ensure(self.c > 0, f"c is {self.c} but must be above 0")
        return {"forget": torch.zeros((), dtype=torch.float64, device=y.device)}  # 1 - R(t); float64: counts are exact

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        forget = schedules.forget_rate(clock.t, tau=self.tau_factor * self.noise_rate, T_k=self.T_k, c=self.c)
        return {"forget": torch.full_like(memory["forget"], forget)}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        losses = cross_entropy(logits, batch.y)
        chosen = small_loss(losses.detach(), kept(memory["forget"], len(batch.y))).flip(0)  # by the peer
        return Step(masked_mean(losses, chosen).sum(), chosen)
