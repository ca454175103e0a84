"""SPRL's curriculum: what can be told of the noise at the end of the warm-up, and which samples an epoch trains on."""

import torch
from torch import Tensor

from sprl.core import Memory
from sprl.functional import choose, spread

# Where "auto" draws its lines in functional.spread; docs/log.md has what symmetric, pair and people's noise measure.
LIMIT_BELOW, PAIRWISE_BELOW = 0.85, 0.6
LIMIT_FROM = 0.25  # of labels contradicted at T1; fewer are mostly hard samples with right labels, which the limit would keep out


def longest_warmup(T: int) -> int:
    return max(1, T // 4)


def tell_apart(p: Tensor, y: Tensor, T: int) -> Memory:
    """From the predictions [N, C] at T1: how wrong labels spread over classes, and the limit and gamma_d that suit."""
    visited = p.sum(1) > 0
    spreading = spread(p, y).float()
    contradicted = ((p.argmax(1) != y) & visited).sum() / visited.sum()
    return {
        "spread": spreading,
        "limited": ~(spreading >= LIMIT_BELOW) & (contradicted >= LIMIT_FROM),  # also where no spread can be told (NaN)
        "gamma_d": torch.where(spreading < PAIRWISE_BELOW, 50.0, 10.0) * min(1.0, T / 60),
    }


def curriculum(p: Tensor, y: Tensor, size: int, per_class: bool, limited: bool) -> Tensor:
    """v [N]: the `size` samples of the likeliest labels, of each given class the same share; limited: no more than agree with p [N, C]."""
    group = y if per_class else torch.zeros_like(y)
    likely = p.gather(1, y.unsqueeze(1)).squeeze(1)
    agree = torch.bincount(group[(p.argmax(1) == y) & (p.sum(1) > 0)], minlength=p.shape[1])
    return choose(likely, group, size, agree if limited else None)
