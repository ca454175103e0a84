"""Losses and choices as pure functions on tensors. Only `shares`, which runs once an epoch, syncs with the host."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""Eq. 4 for each sample: $-\log p[y]$. logits [..., B, C], y [B] -> [..., B]."""
    log_p = F.log_softmax(logits.float(), dim=-1)
    return -log_p.gather(-1, y.expand(log_p.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def resistance(logits: Tensor, previous: Tensor) -> Tensor:
    r"""Eq. 7 for each sample: $-\sum_j p^{t-1}[j] \log p[j]$.

    The cross-entropy to the prediction of the previous visit, which carries no gradient. A row of zeros (never visited) gives 0.
    logits [..., B, C], previous [..., B, C] -> [..., B].
    """
    log_p = F.log_softmax(logits.float(), dim=-1)
    return -torch.where(previous > 0, previous.detach() * log_p, 0.0).sum(-1)  # 0 log 0 = 0, for classes masked by -inf


def distillation(logits: Tensor, previous: Tensor) -> Tensor:
    r"""Eq. 15 for each sample: $\sum_j p^{t-1}[j] \log (p^{t-1}[j] / p[j])$.

    Eq. 7 less the entropy of the previous prediction, which no weight can change: the gradients are the same. Shapes as above.
    """
    return resistance(logits, previous) + torch.special.xlogy(previous, previous).sum(-1)


def smoothing(logits: Tensor, previous: Tensor | None = None) -> Tensor:
    r"""Eq. 16 for each sample: $\sum_j u[j] \log (u[j] / p[j])$ with $u[j] = 1/C$. logits [..., B, C] -> [..., B]."""
    return -F.log_softmax(logits.float(), dim=-1).mean(-1) - math.log(logits.shape[-1])


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the last side where mask holds; 0, not NaN, where it holds nowhere."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)  # not times 0: a loss left out may be infinite


def smallest(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """Which of values [N] are among the counts[g] smallest of their group g = group[i]; ties: the lower index. -> bool [N]"""
    order = torch.argsort(values, stable=True)
    order = order[torch.argsort(group[order], stable=True)]  # by group, then value, then index
    sizes = torch.bincount(group, minlength=len(counts))
    starts = sizes.cumsum(0) - sizes
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - starts[group[order]]
    return rank < counts[group]


def shares(total: int, sizes: Tensor) -> Tensor:
    """Split `total` over groups of the given sizes [G]: the same share of each, at least one of each that has any, the sum exact.

    By largest remainders (ties: the lower group), in integers. Only where there are more groups than `total` does the sum exceed it.
    """
    n = int(sizes.sum())
    counts = sizes * total // max(n, 1)
    remainders = sizes * total - counts * n
    counts[torch.argsort(remainders, descending=True, stable=True)[: total - int(counts.sum())]] += 1
    lacking = (counts == 0) & (sizes > 0)
    counts[lacking] = 1
    for _ in range(int(counts.sum()) - total):  # whoever has the most above one gives one back
        most = counts.argmax()
        if counts[most] <= 1:
            break
        counts[most] -= 1
    return counts


def choose(likely: Tensor, group: Tensor, size: int | Tensor, most: Tensor | None = None) -> Tensor:
    """Eq. 13: v, the `size` samples of largest p[given label] (least loss), the same share of each group and at least one. -> bool [N]

    likely [N], group [N]; size [G]: so many of each group instead; with most [G], no more than that of each group, but still one.
    """
    counts = size if isinstance(size, Tensor) else shares(size, torch.bincount(group, minlength=0 if most is None else len(most)))
    if most is not None:
        counts = torch.minimum(counts, most.clamp(min=1))
    return smallest(-likely, group, counts)


def likeliest(p: Tensor) -> Tensor:
    """The class of the largest p[..., C]; ties: the lower one."""
    return p.max(-1).indices  # not argmax, which takes a CPU up to four times as long where p is in 16 bits


def spread(p: Tensor, y: Tensor) -> Tensor:
    r"""How evenly the given labels spread over the other classes where prediction and label disagree, in [0, 1].

    1: any wrong class is as likely (symmetric noise); 0: each class is taken for one other (pair noise). Two samples predicted as the
    same class, both labelled otherwise, share their label with probability $q$; evenly spread, $1/(C - 1)$. The spread is
    $\log(1/q) / \log(C - 1)$. Counting pairs estimates q without bias from any number of samples; entropy, which serves as well on
    large sets, comes out far too low on small ones. Rows never visited (zeros) do not count. NaN where too little can be told: under five
    pairs expected to share their label if evenly spread, or two classes.
    p [N, C], y [N] -> 0-d
    """
    num_classes = p.shape[-1]
    predicted = likeliest(p)
    wrong = ((predicted != y) & (p.sum(-1) > 0)).double()
    table = torch.zeros(num_classes, num_classes, dtype=torch.float64, device=p.device)
    table.index_put_((predicted, y), wrong, accumulate=True)
    count = table.sum(1)
    pairs = (count * (count - 1)).sum() / 2
    collision = (table * (table - 1)).sum() / 2 / torch.where(pairs < 5 * (num_classes - 1), torch.nan, pairs)
    most = torch.log(torch.tensor(num_classes - 1.0, dtype=torch.float64, device=p.device))
    return (-collision.log() / most).clamp(0, 1)


def disagreement(logits: Tensor) -> Tensor:
    """Which rows two networks take for different classes, whatever their labels. logits [2, B, C] -> bool [B]"""
    first, second = logits.argmax(-1)
    return first != second


def kept(forget: Tensor, count: Tensor | int) -> Tensor:
    """How many of `count` rows are kept: floor((1 - forget) count), at least one. Exact where forget is float64."""
    return ((1 - forget) * count + 1e-9).floor().clamp(min=1).long()


def ranked(values: Tensor) -> Tensor:
    """The place of each value in its row, from 0 for the smallest; ties: the lower position first. [M, B] -> [M, B]"""
    return counted(values) if torch.compiler.is_compiling() else torch.argsort(torch.argsort(values, stable=True), stable=True)


def counted(values: Tensor) -> Tensor:
    """The same without a sort, which the compiler cannot combine with other kernels; without a compiler it would fill B x B tables."""
    one, other = values.unsqueeze(-1), values.unsqueeze(-2)
    place = torch.arange(values.shape[-1], device=values.device)
    return ((other < one) | ((other == one) & (place < place.unsqueeze(-1)))).sum(-1)


def small_loss(losses: Tensor, keep: Tensor, among: Tensor | None = None) -> Tensor:
    """Which rows have the `keep` smallest losses of those in the mask `among`, for each network; ties: the lower position.

    losses [M, B], keep 0-d or [M], among [B] or [M, B] -> bool [M, B]
    """
    among = torch.ones_like(losses, dtype=torch.bool) if among is None else among
    return (ranked(losses.masked_fill(~among, torch.inf)) < keep.unsqueeze(-1)) & among


def accuracy(p: Tensor, y: Tensor) -> Tensor:
    return (p.argmax(1) == y).float().mean()


def likelihood(p: Tensor, y: Tensor) -> Tensor:
    """The geometric mean of p[label]: largest where the cross-entropy is least."""
    return p.gather(1, y.unsqueeze(1)).clamp(min=1e-30).log().mean().exp()


def one_standard_error(best: float, count: int) -> float:
    """Of an accuracy. The plain argmax is a lottery on small sets, where the best of many near-equal epochs is chance."""
    return math.sqrt(best * (1 - best) / count)


def no_slack(best: float, count: int) -> float:
    return 0.0
