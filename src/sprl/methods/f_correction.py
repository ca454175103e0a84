"""F-correction: forward loss correction (Patrini et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sprl.core import Batch, Clock, Matrix, Memory, Predict, Search, Step
from sprl.errors import ensure
from sprl.functional import likelihood, no_slack
from sprl.transition import anchor_percentile, as_transition, estimate, forward_loss, noise_rate


@dataclass(frozen=True)
class FCorrection:
    """Estimate which class is labelled as which, then train a new network whose predictions, passed through that, fit the labels.

    Patrini et al. 2017 (arXiv 1609.03683), the forward correction, in two stages. The first network trains on nine tenths with plain
    cross-entropy, under the same schedule, until the likelihood of the noisy rest has not risen for `patience` epochs; what its best epoch
    predicts for that rest gives the matrix. The second has all T epochs and all samples, and the loss -log sum_i p_i T[i, y]. So a run
    costs the first network's epochs more: a few where labels are wrong, for it soon learns those by heart, T - 1 at most.

    Differences from the reference: it estimates on all training samples; those held out cannot have been learned by heart (and are what
    the comparisons of later papers use). It draws new weights for the second network, here they are the first's before training.
    Outliers are left out by rank, and of the matrix, not of p, zeros are raised. Fewer than three epochs leave nothing to estimate from.
    """

    matrix: Matrix | Literal["auto", "identity"] = "auto"
    """T[i][j] = P(given class j | true class i), rows that sum to 1; "identity": plain cross-entropy. "auto": estimated."""
    percentile: float | Literal["auto"] = "auto"
    """Where a class's anchor stands among the samples by how sure of the class they are; those above are outliers. "auto": 97 where
    every class has at least 6 % of the samples, else 100 (the surest): three in a hundred may be most of what a class has."""
    longest: int | Literal["auto"] = "auto"
    """Epochs of the first network at most. "auto": T - 1."""
    patience: int | Literal["auto"] = "auto"
    """Epochs without a likelier rest after which the first network stops. "auto": T // 20, at least 3."""

    networks: ClassVar[int] = 1

    def search(self, epochs: int) -> Search:
        longest = epochs - 1 if self.longest == "auto" else self.longest  # not T: a run of T epochs has ended
        patience = max(3, epochs // 20) if self.patience == "auto" else self.patience
        return Search("matrix", longest, patience, likelihood, 1, no_slack, afresh_from=1, otherwise="identity")

    def found(self, t: int, p: Tensor) -> Matrix:
        percentile = anchor_percentile(p) if self.percentile == "auto" else self.percentile
        return tuple(tuple(row) for row in estimate(p, percentile).tolist())

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        at = self.percentile
        ensure(at == "auto" or 0 <= at <= 100, f"percentile is {at} but must be at least 0 and at most 100")
        fits = self.longest == "auto" or 2 <= self.longest < epochs
        ensure(fits, f"longest is {self.longest} but must be at least 2 and less than the {epochs} epochs; change it or raise the epochs")
        ensure(self.patience == "auto" or self.patience >= 1, f"patience is {self.patience} but must be at least 1")
        T = torch.eye(num_classes) if isinstance(self.matrix, str) else as_transition(self.matrix, num_classes)
        rate = torch.tensor(torch.nan) if self.matrix == "auto" else noise_rate(T, y)
        return {"transition": T.to(y.device), "estimated_rate": rate.to(y.device)}

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        return {}

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        everyone = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Step(forward_loss(logits, batch.y, memory["transition"]).mean(-1).sum(), everyone)
