"""SPRL's curriculum: what can be told of the noise from predictions p [N, C], and which samples an epoch trains on."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from sprl.functional import choose, likeliest

# Where "auto" draws its lines in functional.spread; docs/log.md has what symmetric, pair and people's noise measure.
LIMIT_BELOW, PAIRWISE_BELOW = 0.85, 0.6
LIMIT_FROM = 0.25  # of labels contradicted at T1; fewer are mostly hard samples with right labels, which the limit would keep out
HEAVY = 0.4  # of labels contradicted: from here on the paper's gamma_d; docs/log.md has what less is worth, and the power
WORSE = 0.02  # of the least cross-entropy on labels held out; docs/log.md has what less and more are worth

Choice = Literal["per-class", "tenths", "all"]


def longest_warmup(T: int) -> int:
    return max(1, T // 4)


def warmed_up(losses: Sequence[float], T: int) -> bool:
    """Whether the warm-up of a loop, which cannot go back, is over; losses: the cross-entropy on labels held out, an epoch each.

    It falls while a network learns and rises once it memorises. By how much it exceeds its least is summed up over the epochs since, so
    that one clear rise counts as much as several slight ones, and a new least forgets them. Half of the epochs is the longest.
    """
    least = min(losses)
    since = losses[losses.index(least) :]
    return sum(since) - least * len(since) >= WORSE * least or len(losses) >= max(1, T // 2)


def contradicted(p: Tensor, y: Tensor) -> Tensor:
    """The share of the samples seen whose label is not the one predicted."""
    seen = p.sum(1) > 0
    return ((likeliest(p) != y) & seen).sum() / seen.sum()


def suits_limit(spreading: Tensor, p: Tensor, y: Tensor) -> Tensor:
    """Whether wrong labels are many and gather in few classes, or nothing can be told of that (NaN)."""
    return ~(spreading >= LIMIT_BELOW) & (contradicted(p, y) >= LIMIT_FROM)


def suiting_gamma_d(spreading: Tensor, p: Tensor, y: Tensor, T: int) -> Tensor:
    """The paper's values, which are for heavy noise; less where fewer labels are contradicted and, in proportion, under 60 epochs."""
    heavy = torch.where(spreading < PAIRWISE_BELOW, 50.0, 10.0) * min(1.0, T / 60)
    return heavy * (contradicted(p, y) / HEAVY).clamp(max=1) ** 1.5


def curriculum(p: Tensor, y: Tensor, size: int | None, choice: Choice, limited: bool) -> Tensor:
    """v [N]: the `size` samples of the likeliest labels, shared among the given classes as `choice` says; None: of each as many tenths as
    are confident, and one more. A tenth is rounded down. limited: no more than agree with p [N, C]."""
    group = torch.zeros_like(y) if choice == "all" else y
    likely = p.gather(1, y.unsqueeze(1)).squeeze(1)
    counts: int | Tensor
    if size is not None and choice != "tenths":
        counts = size
    else:
        sizes = torch.bincount(group, minlength=p.shape[1])
        if size is None:
            sure = torch.bincount(group[likely >= 0.5], minlength=p.shape[1])
            counts = sizes // 10 * (10 * sure // sizes.clamp(min=1) + 1)
        else:
            counts = sizes // 10 * -(-10 * size // len(y))
    if not limited:
        return choose(likely, group, counts)
    agree = torch.bincount(group[(likeliest(p) == y) & (p.sum(1) > 0)], minlength=p.shape[1])
    return choose(likely, group, counts, agree)
