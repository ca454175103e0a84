"""Co-teaching+ (Yu et al. 2019, arXiv 1901.04215): Co-teaching on the samples that divide the networks."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Predict, Step
from sprl.errors import check_rate, ensure
from sprl.functional import cross_entropy, disagreement, kept, masked_mean, small_loss


@dataclass(frozen=True)
class CoTeachingPlus:
    """Co-teaching among the samples for which the two networks predict different classes (Yu et al. 2019, Algorithm 1).

    lambda(e) is kept of those, not of the batch; `disagreeing` in the metrics is their share of an epoch's samples. Differences from the
    reference: of lambda(e) |S|, the floor, as in the released code, but at least one where the code then keeps all. Not taken from that
    code: it divides the mean by the number of samples once more, loses a sample of a batch in which the data set's first one
    disagrees and, unless asked for, its loss.
    """

    noise_rate: float
    """Share of wrong labels: tau, the share that is dropped in the end."""
    E_k: int = 10
    """Epochs until that share is dropped."""
    init_epoch: int | Literal["auto"] = "auto"
    """Epochs of plain Co-teaching at first. "auto": a tenth of all, the released code's 20 of 200 for CIFAR-10; it has 5 for CIFAR-100,
    100 for Tiny-ImageNet, 0 for MNIST and News."""
    empty: Literal["skip", "co-teach"] = "skip"
    """Where the networks agree on the whole batch: learn nothing from it, or co-teach on all of it."""
    released_loss: bool = False
    """After the first epochs, probabilities in place of logits in the cross-entropy, as in the released code: a bounded loss of small
    gradients, on which the published numbers partly rest."""

    networks: ClassVar[int] = 2

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        check_rate(self.noise_rate)
        ensure(self.E_k >= 0, f"E_k is {self.E_k} but must not be negative")
        ensure(self.init_epoch == "auto" or self.init_epoch >= 0, f"init_epoch is {self.init_epoch} but must not be negative")
        return {
            "forget": torch.zeros((), dtype=torch.float64, device=y.device),  # 1 - lambda(e); float64: counts are exact
            "initial": torch.ones((), dtype=torch.bool, device=y.device),
            "disagreeing": torch.zeros((), device=y.device),  # of this epoch's samples, so far
        }

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        init_epoch = clock.T // 10 if self.init_epoch == "auto" else self.init_epoch
        return {
            "forget": torch.full_like(memory["forget"], schedules.forget_rate(clock.t, tau=self.noise_rate, T_k=self.E_k)),
            "initial": torch.full_like(memory["initial"], clock.t <= init_epoch),
            "disagreeing": torch.zeros_like(memory["disagreeing"]),
        }

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        initial, disagree = memory["initial"], disagreement(logits)
        among = disagree | initial
        if self.empty == "co-teach":
            among = among | ~disagree.any()
        if self.released_loss:
            logits = torch.where(initial, logits, logits.softmax(-1))
        losses = cross_entropy(logits, batch.y)
        chosen = small_loss(losses.detach(), kept(memory["forget"], among.sum()), among).flip(0)  # by the peer
        disagreeing = memory["disagreeing"] + disagree.sum() / len(memory["previous"])
        return Step(masked_mean(losses, chosen).sum(), chosen, idle=~among.any(), changes={"disagreeing": disagreeing})
