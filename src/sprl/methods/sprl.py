"""SPRL: self-paced resistance learning (Shi et al. 2021, arXiv 2105.03059), Algorithm 1."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import InputError
from sprl.functional import cross_entropy, masked_mean, resistance, shares, smallest, spread

# Measured at T1. Spread of symmetric noise: 0.87 to 1; of people's labels on CIFAR-10: 0.65 to 0.79; of pair noise: 0 to 0.55.
LIMIT_BELOW = 0.85
PAIRWISE_BELOW = 0.6


@dataclass(frozen=True)
class SPRL:
    """Warm up for T1 epochs, then train on a growing curriculum of likely labels (Eq. 6, 13) plus a resistance loss (Eq. 7, 10, 11).

    The paper and the authors' released code differ in three choices, each a field here. `SPRL.as_published()` is the paper's reading,
    `SPRL.as_released()` the code's; the default takes what measured best at no extra cost. Differences from both: with
    growth="released" the curriculum's start counts all classes, where the code by accident counts the last one only. The limit is ours.
    """

    T1: int | Literal["auto"] = "auto"
    """Warm-up epochs. "auto": the first epoch within one standard error of the best accuracy on a held-out noisy tenth."""
    gamma_d: float | Literal["auto"] = "auto"
    """Strength of the resistance: gamma_max = gamma_d (10 - ceil(m / 0.1n)). "auto", ours: the paper's values for CIFAR, 50 for pair noise
    and 10 for any other, told apart at T1 by functional.spread; less in schedules under 60 epochs, in proportion, which strong
    resistance would freeze before they have learned."""
    K: int = 10
    """Number of subsets in which the curriculum grows (Eq. 6)."""
    noise_rate: float | None = None
    """Share of wrong labels, if known: then m = 0.65 (1 - rate) n instead of the count of confident samples."""
    choice: Literal["per-class", "all"] = "per-class"
    """Choose the same share of each given class (released code), or the smallest losses of all samples (paper)."""
    predictions: Literal["recorded", "evaluated"] = "recorded"
    """Rank by the predictions recorded while training (paper), or by an extra pass in evaluation mode after each epoch (released code)."""
    growth: Literal["eq6", "released"] = "eq6"
    """Grow by Eq. 6, or as the released code: start, steps of a tenth, all in 0.15 T early, and mu one epoch late."""
    limit: Literal["none", "agreement", "auto"] = "auto"
    """Ours, not the paper's: never choose more of a given class than there are samples whose prediction agrees with their label.
    "auto" decides at T1: limit where wrong labels gather in few classes (functional.spread), as people's do."""
    normalised: bool = False
    """Divide the loss by 1 + gamma(t), for optimizers that feel its scale (SGD). Adam does not: the paper's recipes keep Eq. 10."""

    networks: ClassVar[int] = 1

    @classmethod
    def as_published(cls, **fields: Any) -> "SPRL":
        """The paper's reading, no limit."""
        return cls(**{"choice": "all", "predictions": "recorded", "growth": "eq6", "limit": "none", **fields})

    @classmethod
    def as_released(cls, **fields: Any) -> "SPRL":
        """The reading of the authors' code, whose curves match the paper's table II, no limit."""
        return cls(**{"choice": "per-class", "predictions": "evaluated", "growth": "released", "limit": "none", **fields})

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        if self.T1 != "auto" and not 1 <= self.T1 < epochs:
            raise InputError(f"T1 is {self.T1} but must be at least 1 and less than the {epochs} epochs; lower T1 or raise the epochs")
        if self.gamma_d != "auto" and self.gamma_d < 0:
            raise InputError(f"gamma_d is {self.gamma_d} but must not be negative")
        if not 1 <= self.K <= len(y):
            raise InputError(f"K is {self.K} but must be at least 1 and at most the {len(y)} samples")
        if self.noise_rate is not None and not 0 <= self.noise_rate < 1:
            raise InputError(f"the noise rate is {self.noise_rate} but must be at least 0 and below 1")
        n, device = len(y), y.device
        return {
            "chosen": torch.ones(n, dtype=torch.bool, device=device),  # v
            "gamma": torch.zeros((), device=device),
            "confident": torch.zeros((), dtype=torch.int64, device=device),  # largest count of p[y] >= 0.5, scaled to n
            "limited": torch.tensor(self.limit == "agreement", device=device),
            "gamma_d": torch.tensor(10.0 if self.gamma_d == "auto" else self.gamma_d, device=device),
        }

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        t, T, n = clock.t, clock.T, len(y)
        T1 = T if self.T1 == "auto" else self.T1  # the training loop has not ended the warm-up yet
        if t == 1:
            return {}
        p = predict() if self.predictions == "evaluated" else memory["previous"]
        likely = p.gather(1, y.unsqueeze(1)).squeeze(1)  # p^{t-1}[given label]
        new: Memory = {}
        if t <= T1 + 1:
            visited = int((p.sum(1) > 0).sum())
            count = int((likely >= 0.5).sum()) * n // max(visited, 1)
            new["confident"] = memory["confident"].clamp(min=count)
        if t <= T1:
            return new
        if t == T1 + 1:
            evenness = spread(p, y)  # NaN, which cannot tell, is below nothing
            if self.limit == "auto":
                new["limited"] = evenness < LIMIT_BELOW
            if self.gamma_d == "auto":
                new["gamma_d"] = torch.where(evenness < PAIRWISE_BELOW, 50.0, 10.0) * min(1.0, T / 60)
        state = memory | new

        size, gamma = self._curriculum(int(state["confident"]), float(state["gamma_d"]), n, t, T, T1)
        new["gamma"] = torch.full_like(memory["gamma"], gamma)
        group = y if self.choice == "per-class" else torch.zeros_like(y)
        counts = shares(size, torch.bincount(group, minlength=p.shape[1]))
        if t > T1 + 1 and bool(state["limited"]):
            agree = torch.bincount(group[(p.argmax(1) == y) & (p.sum(1) > 0)], minlength=len(counts))
            counts = torch.minimum(counts, agree.clamp(min=1))
        new["chosen"] = smallest(-likely, group, counts)
        return new

    def _curriculum(self, confident: int, gamma_d: float, n: int, t: int, T: int, T1: int) -> tuple[int, float]:
        """delta(t - 1) and gamma(t)."""
        if self.noise_rate is not None:
            confident = schedules.start_size_known(self.noise_rate, n)
        if self.growth == "released":
            tenths = min(10 * confident // n + 1, 5)
            size = schedules.curriculum_size_released(t - 1, n=n, tenths=tenths, T=T, T1=T1)
            late = (t - 1 - T1) / (T - T1)
            return size, gamma_d * (10 - tenths) * schedules.resistance_ramp(late) if t > T1 + 1 else 0.0
        m = schedules.start_size(confident, n)
        gamma_max = schedules.largest_resistance(gamma_d, m=m, n=n)
        size = schedules.curriculum_size(t - 1, n=n, m=m, T=T, T1=T1, K=self.K)
        return size, schedules.resistance_weight(t, gamma_max=gamma_max, T=T, T1=T1)

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        """Eq. 12b: cross-entropy over the chosen, resistance over all."""
        chosen = memory["chosen"][batch.index].expand(logits.shape[:2])
        gamma = memory["gamma"]
        supervised = masked_mean(cross_entropy(logits, batch.y), chosen)
        resisting = resistance(logits, memory["previous"][batch.index]).mean(-1)
        loss = (supervised + gamma * resisting).sum()
        return Step(loss / (1 + gamma) if self.normalised else loss, chosen)
