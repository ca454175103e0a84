"""SPRL: self-paced resistance learning (Shi et al. 2021, arXiv 2105.03059), Algorithm 1."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Search, Step
from sprl.curriculum import Choice, curriculum, longest_warmup, suiting_gamma_d, suits_limit
from sprl.errors import check_rate, ensure
from sprl.functional import accuracy, cross_entropy, distillation, masked_mean, one_standard_error, resistance, smoothing, spread

AFRESH_FROM = 9  # epochs on nine tenths: by then the rows held out, and the network, have missed one; docs/log.md has what that costs
AGAINST = {"resistance": resistance, "distillation": distillation, "label-smoothing": smoothing, "nothing": resistance}


@dataclass(frozen=True)
class SPRL:
    """Warm up for T1 epochs, then train on a growing curriculum of likely labels (Eq. 6, 13) plus a resistance loss (Eq. 7, 10, 11).

    Paper and released code differ in four choices, each a field: `SPRL.as_published()`, `SPRL.as_released()`; the default takes what
    measured best at no extra cost. Ours: the limit, and every "auto". Differences from the references: none in what `as_released` chooses;
    what the code's training does otherwise is not the method's (docs/method.md).
    """

    T1: int | Literal["auto"] = "auto"
    """Warm-up epochs. "auto": the first epoch within one standard error of the best accuracy on a held-out noisy tenth, in means over T/40
    epochs. From nine on the run then begins anew, on all rows."""
    gamma_d: float | Literal["auto"] = "auto"
    """Strength of the resistance: gamma_max = gamma_d (10 - ceil(m / 0.1n)). "auto": the paper's values for CIFAR, 50 for pair noise and 10
    for any other, told apart at T1; less where few labels are contradicted, and under 60 epochs."""
    K: int = 10
    """Number of subsets in which the curriculum grows (Eq. 6)."""
    noise_rate: float | None = None
    """Share of wrong labels, if known: then m = 0.65 (1 - rate) n instead of the count of confident samples."""
    choice: Choice = "per-class"
    """Choose the same share of each given class, or the smallest losses of all samples (paper). "tenths": as the released code, the same
    number of tenths of each class, a tenth rounded down, so that up to nine samples of a class never enter: on average 1 % of classes of
    500, 5 % of classes of 100."""
    predictions: Literal["recorded", "evaluated"] = "recorded"
    """Rank by the predictions recorded while training (paper), or by an extra pass in evaluation mode after each epoch (released code)."""
    growth: Literal["eq6", "released"] = "eq6"
    """Grow by Eq. 6, or as the released code: m in tenths plus one, at most five, steps of a tenth counted from T1 + 1, all in about 0.15 T
    early, and mu one epoch late."""
    start: Literal["all", "last-class"] = "all"
    """Whose confident samples make m: all, or, by an accident of the released code, each class's own at T1 + 2, whatever that comes to, and
    from T1 + 3 on the last class's alone."""
    limit: Literal["none", "agreement", "auto"] = "auto"
    """Not the paper's: never choose more of a given class than there are samples whose prediction agrees with their label.
    "auto" decides at T1: limit where many are contradicted and wrong ones gather in few classes. With choice="all": than agree in all."""
    normalised: bool = False
    """Divide the loss by 1 + gamma(t), for optimizers that feel its scale (SGD). Adam does not: the paper's recipes keep Eq. 10."""
    against: Literal["resistance", "distillation", "label-smoothing", "nothing"] = "resistance"
    """What holds against wrong labels in the curriculum: Eq. 7 or, to compare, Eq. 15, Eq. 16, or nothing (Eq. 5 alone)."""

    networks: ClassVar[int] = 1
    later: ClassVar[dict[str, Any]] = {"start": "all"}

    @property
    def edition(self) -> int:
        """2: T1 is found by means over T/40 epochs, and from nine on the run begins anew; gamma_d is 10 for people's mistakes. 3: released
        growth one epoch later, as in the code."""
        return 3 if self.growth == "released" else 2 if "auto" in (self.T1, self.gamma_d) else 1

    @classmethod
    def as_published(cls, **fields: Any) -> "SPRL":
        """The paper's reading, no limit."""
        return cls(**{"choice": "all", "predictions": "recorded", "growth": "eq6", "limit": "none", **fields})

    @classmethod
    def as_released(cls, **fields: Any) -> "SPRL":
        """The reading of the authors' code, whose curves match the paper's table II, with its accidents; no limit."""
        reading = {"choice": "tenths", "predictions": "evaluated", "growth": "released", "start": "last-class", "limit": "none"}
        return cls(**{**reading, **fields})

    def search(self, epochs: int) -> Search:
        patience, few, over = max(3, epochs // 20), max(1, epochs // 10), max(1, epochs // 40)
        return Search("T1", longest_warmup(epochs), patience, accuracy, over, one_standard_error, AFRESH_FROM, otherwise=few)

    def found(self, t: int, p: Tensor) -> int:
        return t

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        fits = self.T1 == "auto" or 1 <= self.T1 < max(epochs, 2)
        ensure(fits, f"T1 is {self.T1} but must be at least 1 and less than the {epochs} epochs; lower T1 or raise the epochs")
        ensure(self.gamma_d == "auto" or self.gamma_d >= 0, f"gamma_d is {self.gamma_d} but must not be negative")
        ensure(self.K >= 1, f"K is {self.K} but must be at least 1")
        check_rate(self.noise_rate or 0.0)
        return {
            "chosen": torch.ones_like(y, dtype=torch.bool),  # v
            "confident": torch.zeros_like(y[0]),  # largest count of p[y] >= 0.5 so far, scaled to n
            "m": torch.zeros_like(y[0]),
            "gamma": torch.zeros((), device=y.device),
            "gamma_d": torch.tensor(10.0 if self.gamma_d == "auto" else self.gamma_d, device=y.device),
            "limited": torch.tensor(self.limit == "agreement", device=y.device),
            "spread": torch.full((), torch.nan, device=y.device),  # not known yet
        }

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        t, T, n = clock.t, clock.T, len(y)
        T1 = T if self.T1 == "auto" else self.T1  # the training loop has not ended the warm-up yet
        if t == 1:
            return {}
        p = predict() if self.predictions == "evaluated" else memory["previous"]
        counted = torch.ones_like(y, dtype=torch.bool) if self.start == "all" else y == p.shape[1] - 1
        new: Memory = {}
        if t <= T1 + 1:
            sure = p.gather(1, y.unsqueeze(1)).squeeze(1) >= 0.5
            count = int((sure & counted).sum()) * n // max(int((counted & (p.sum(1) > 0)).sum()), 1)
            new["confident"] = memory["confident"].clamp(min=count)
        if t <= T1:
            return new
        if t == T1 + 1:
            new["spread"] = spread(p, y).float()
            if self.limit == "auto":
                new["limited"] = suits_limit(new["spread"], p, y)
        if self.gamma_d == "auto" and t <= max(T1 + 1, schedules.decay_start(T)):  # later on, less is contradicted as more is memorised
            new["gamma_d"] = suiting_gamma_d((memory | new)["spread"], p, y, T)
        state = memory | new
        start = int(state["confident"]) if self.noise_rate is None else schedules.start_size_known(self.noise_rate, n)
        size: int | None
        if self.growth == "eq6":
            size, gamma = schedules.published(t, start=start, gamma_d=float(state["gamma_d"]), n=n, T=T, T1=T1, K=self.K)
        else:
            of = n if self.noise_rate is not None else max(1, int(counted.sum()))
            tenths = schedules.start_tenths(start, n, of)
            size, gamma = schedules.released(t, tenths=tenths, gamma_d=float(state["gamma_d"]), n=n, T=T, T1=T1)
        if t == T1 + 2 and self.start == "last-class" and self.noise_rate is None:
            size = None
        if t == T1 + 1:  # all, also what a loop held out
            new["chosen"] = torch.ones_like(memory["chosen"])
        else:
            new["chosen"] = curriculum(p, y, size, self.choice, bool(state["limited"]))
        new["m"] = torch.full_like(memory["m"], schedules.start_size(start, n))
        new["gamma"] = torch.full_like(memory["gamma"], gamma if self.against != "nothing" else 0.0)
        return new

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        """Eq. 12b: cross-entropy over the chosen, resistance over all."""
        chosen = memory["chosen"][batch.index].expand(logits.shape[:2])
        gamma, previous = memory["gamma"], memory["previous"][batch.index]
        supervised = masked_mean(cross_entropy(logits, batch.y), chosen)
        loss = (supervised + gamma * AGAINST[self.against](logits, previous).mean(-1)).sum()
        return Step(loss / (1 + gamma) if self.normalised else loss, chosen, idle=~chosen.any() & (gamma == 0))
