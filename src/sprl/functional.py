"""Losses and choices as pure functions on tensors. None of them syncs with the host."""

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
    return -(previous.detach() * F.log_softmax(logits.float(), dim=-1)).sum(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the last side where mask holds; 0, not NaN, where it holds nowhere."""
    mask = mask.to(values.dtype)
    return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


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


def spread(p: Tensor, y: Tensor) -> Tensor:
    r"""How evenly the given labels spread over the other classes where prediction and label disagree, in [0, 1].

    For each predicted class k the entropy of the given labels j != k, over log(C - 1), weighted by count. Near 1: symmetric noise, any
    wrong class is as likely; near 0: each class is taken for one other. The entropy of few samples comes out too low (by about
    (occupied bins - 1) / 2 count, Miller 1955), which is put back. NaN where nothing disagrees or there are two classes, which cannot tell.
    p [N, C], y [N] -> 0-d
    """
    num_classes = p.shape[-1]
    predicted = p.argmax(-1)
    wrong = (predicted != y).float()
    table = torch.zeros(num_classes, num_classes, device=p.device).index_put_((predicted, y), wrong, accumulate=True)
    count = table.sum(1)
    q = table / count.clamp(min=1).unsqueeze(1)
    bias = ((table > 0).sum(1) - 1).clamp(min=0) / (2 * count.clamp(min=1))
    entropy = -torch.xlogy(q, q).sum(1) + bias
    most = torch.log(torch.tensor(float(num_classes - 1), device=p.device))
    return (torch.minimum(entropy, most) * count).sum() / (count.sum() * most)
