"""What the true labels, where they are known, tell of an epoch. No method sees them."""

from __future__ import annotations

import torch
from torch import Tensor

from sprl.functional import masked_mean


def told(chosen: Tensor, p: Tensor, y: Tensor, clean: Tensor, seen: Tensor) -> dict[str, float]:
    """Facts of an epoch, where there is something to tell; labels in percent. Of `N` rows: which were `chosen`, the predictions `p`
    [N, C] recorded of those that were `seen`, given and true labels.

    precision, recall: of the labels trained on, the share that is right, and of the right ones the share trained on.
    half_precision: of the half with the likeliest labels, the share that is right (figure A7).
    p_true_right, p_true_wrong: mean probability of the true class, of rows labelled rightly and wrongly (figure 5).
    """
    right = y == clean
    share = right.double()
    of_true = p.gather(1, clean.unsqueeze(1)).squeeze(1).double()
    of_given = p.gather(1, y.unsqueeze(1)).squeeze(1).masked_fill(~seen, -1)
    half = of_given.topk(max(int(seen.sum()) // 2, 1)).indices
    found = {
        "precision": (100 * masked_mean(share, chosen), chosen.any()),
        "recall": (100 * masked_mean(chosen.double(), right), torch.ones_like(right[0])),
        "half_precision": (100 * share[half].mean(), seen.any()),
        "p_true_right": (masked_mean(of_true, seen & right), (seen & right).any()),
        "p_true_wrong": (masked_mean(of_true, seen & ~right), (seen & ~right).any()),
    }
    values = torch.stack([torch.stack([value, known.double()]) for value, known in found.values()]).tolist()
    return {name: value for name, (value, known) in zip(found, values, strict=True) if known}
