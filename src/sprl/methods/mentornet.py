"""MentorNet (Jiang et al. 2018) with a predefined curriculum: weights of samples by how their loss compares with the others'."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import check_rate, ensure
from sprl.functional import cross_entropy, kept, masked_mean, ranked, small_loss
from sprl.mentor import Curriculum, learn, optimal, score

EARLY = 17  # percent of training with the first dropout
NEGLIGIBLE = 1e-3  # the learned mentor gives no weight of 0; below this the released code counts none


@dataclass(frozen=True)
class MentorNet:
    """Keep the samples whose loss is at most a moving percentile of the batches' losses, about 0.7 of them, or weigh them by it.

    Jiang et al. 2018 (arXiv 1712.05055) without clean data, Eq. 5-7: the student's loss is (1/B) sum_i v_i l_i, with v = 1[l <= m] in the
    "self-paced" curriculum; "pd" begins with all samples and random dropout (18 %), then goes on so, and ends (from 90 %) with
    v = 1 - (l - m) / gamma, cut off at 0 and 1. The noise rate is not told: it keeps the same share of each batch whatever the noise.

    Differences from the reference: m begins with the first batch's percentile, not 0; the percentage of training that is done changes
    with the epoch, not the batch; the closed form of v in place of the network that learns it ("learned" brings that back); batches of
    which nothing is kept are skipped, and losses that are not finite; at least one sample of a batch stays under dropout. A percentile
    halfway between two losses, such as 0.5 of an even batch, may be the one above, where TensorFlow's is the one below.
    """

    curriculum: Curriculum = "self-paced"
    """The weights: 1 up to the moving percentile and 0 above; or MentorNet PD's three phases."""
    percentile: float = 0.7
    """Which percentile of a batch's losses is followed, from 0 to 1. The paper chose it by cross-validation."""
    decay: float = 0.5
    """How much of the moving percentile stays at each batch, from 0 (none) to below 1. 0.5 is the released script's default."""
    gamma: float = 1.0
    """lambda_2, how far above the moving percentile a loss still has weight, in the last phase of "pd"."""
    burn_in: int = 0
    """Percent of training at first with weight 1 for all."""
    first_dropout: float | Literal["auto"] = "auto"
    """Share of each batch left out at random in the first 17 % of training. "auto": 0.5 for "pd", none for "self-paced"."""
    dropout: float | Literal["auto"] = "auto"
    """The same for the rest of it. "auto": 0.05 for "pd", none for "self-paced"."""
    mentor: Literal["closed-form", "learned"] = "closed-form"
    """The weights by their formula, or by the paper's small network that has learned it, which takes about 20 s first."""
    mentor_steps: int = 30_000
    """Steps of training it."""
    mentor_lr: float = 0.1
    """Learning rate at its first step."""
    rate: float | None = None
    """Share of wrong labels. If given, another reading of self-paced MentorNet, that of the Co-teaching papers: train on the samples
    of smallest loss, all in the first epoch, 1 - rate of each batch from the eleventh on: Co-teaching without the peer."""

    networks: ClassVar[int] = 1

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        ensure(0 <= self.percentile <= 1, f"percentile is {self.percentile} but must be at least 0 and at most 1")
        ensure(0 <= self.decay < 1, f"decay is {self.decay} but must be at least 0 and below 1")
        ensure(self.gamma > 0, f"gamma is {self.gamma} but must be above 0")
        ensure(0 <= self.burn_in <= 100, f"burn_in is {self.burn_in} but must be a percentage, 0 to 100")
        for name, share in zip(("first_dropout", "dropout"), self.dropouts(), strict=True):
            ensure(0 <= share < 1, f"{name} is {share} but must be at least 0 and below 1")
        ensure(self.mentor_steps >= 1, f"mentor_steps is {self.mentor_steps} but must be at least 1")
        ensure(self.mentor_lr > 0, f"mentor_lr is {self.mentor_lr} but must be above 0")
        check_rate(self.rate or 0.0)
        learned = self.mentor == "learned"
        alone = self.rate is None or (self.curriculum == "self-paced" and not learned)
        ensure(alone, 'rate replaces the curriculum: leave out rate, or curriculum="pd" and mentor="learned"')
        weights = learn(self.curriculum, self.gamma, self.mentor_steps, self.mentor_lr) if learned else {}
        return {
            "threshold": torch.full((), torch.nan, device=y.device),  # m, lambda_1; none yet
            "percent": torch.zeros_like(y[0]),  # of training done
            "dropped": torch.zeros((), dtype=torch.float64, device=y.device),  # share of each batch; float64: counts are exact
            **{f"mentor.{name}": weight.to(y.device, copy=True) for name, weight in weights.items()},
        }

    def dropouts(self) -> tuple[float, float]:
        first, later = (0.5, 0.05) if self.curriculum == "pd" else (0.0, 0.0)
        return first if self.first_dropout == "auto" else self.first_dropout, later if self.dropout == "auto" else self.dropout

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        percent = 100 * (clock.t - 1) // clock.T
        dropped = self.dropouts()[percent >= EARLY] if self.rate is None else schedules.forget_rate(clock.t, tau=self.rate, T_k=10)
        return {"percent": torch.full_like(memory["percent"], percent), "dropped": torch.full_like(memory["dropped"], dropped)}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        count = len(batch.y)
        finite = cross_entropy(logits.detach(), batch.y).isfinite()
        losses = cross_entropy(torch.where(finite.unsqueeze(-1), logits, 0.0), batch.y)  # [1, B]
        seen = losses.detach().masked_fill(~finite, torch.inf)
        if self.rate is not None:
            chosen = small_loss(seen, kept(memory["dropped"], count), finite)
            return Step(masked_mean(losses, chosen).sum(), chosen, idle=~chosen.any())

        at = ranked(seen) == round(self.percentile * (count - 1))
        now, before = torch.where(at, seen, 0.0).sum(), memory["threshold"]
        moved = torch.where(before.isnan(), now, self.decay * before + (1 - self.decay) * now)
        threshold = torch.where(now.isfinite(), moved, before)
        v = self.weigh(seen[0], seen[0] - threshold, memory) * finite
        if any(self.dropouts()):
            v = v * small_loss(torch.rand_like(seen), kept(memory["dropped"], count))
        chosen = v > (NEGLIGIBLE if self.mentor == "learned" else 0)
        return Step((v * losses).mean(-1).sum(), chosen, idle=~(v > 0).any(), changes={"threshold": threshold})

    def weigh(self, loss: Tensor, diff: Tensor, memory: Memory) -> Tensor:
        """v [B], which carries no gradient; 0 while no threshold is known."""
        percent = memory["percent"]
        if self.mentor == "learned":
            weights = {name.removeprefix("mentor."): value for name, value in memory.items() if name.startswith("mentor.")}
            v = score(weights, loss, diff, percent).sigmoid()
        else:
            v = optimal(self.curriculum, diff, percent, self.gamma)
        return torch.where(diff.isnan(), 0.0, torch.where(percent < self.burn_in, 1.0, v))
