"""The transition matrix of wrong labels, T[i, j] = P(given = j | true = i): checked, estimated from predictions, and its loss."""

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from sprl.core import Matrix
from sprl.errors import SprlWarning, ensure

FLOOR = 1e-8  # of an entry: a class that no other is taken for, nor itself, would have an infinite loss
OUTLIERS = 0.03  # the share of samples surest of a class that the reference leaves out


def forward_loss(logits: Tensor, y: Tensor, T: Tensor) -> Tensor:
    r"""$-\log \sum_i p_i T_{iy}$ for each sample: the cross-entropy of the given label where p is the true one's. With T = I, Eq. 4.

    logits [..., B, C], y [B], T [C, C] -> [..., B]
    """
    return -(F.log_softmax(logits.float(), dim=-1) + T[:, y].T.log()).logsumexp(-1)


def as_transition(matrix: Matrix, num_classes: int) -> Tensor:
    """[C, C], its zeros raised to FLOOR; InputError where it cannot be a transition matrix."""
    shaped = len(matrix) == num_classes and all(len(row) == num_classes for row in matrix)
    ensure(
        shaped, f"matrix must have {num_classes} rows of {num_classes} numbers, a row for each true class and a number for each given one"
    )
    T = torch.tensor(matrix, dtype=torch.float64)
    ensure(bool((T.isfinite() & (T >= 0)).all()), "matrix has entries that are no probabilities: give numbers of at least 0")
    off = (T.sum(1) - 1).abs()
    row = int(off.argmax())
    ensure(
        float(off[row]) <= 1e-3,
        f"row {row} of matrix sums to {float(T[row].sum()):.4g} but must sum to 1: what a sample of class {row} may be labelled as",
    )
    T = T.clamp(min=FLOOR)
    return (T / T.sum(1, keepdim=True)).float()


def anchor_percentile(p: Tensor) -> float:
    """97 where every class's share of p [H, C] is well above what that leaves out (the reference's ten classes), else 100 (its hundred)."""
    return 100 * (1 - OUTLIERS) if float(p.mean(0).min()) >= 2 * OUTLIERS else 100.0


def estimate(p: Tensor, percentile: float) -> Tensor:
    """T from p [H, C], predictions of given labels: row i is the prediction for the anchor of class i (Patrini et al. 2017, Eq. 12, 13).

    The anchor is the sample surest of the class; with a percentile below 100, of those that are left when the surest are taken for
    outliers. They are left out by rank: many may be as sure, and a threshold would leave out the whole class.
    """
    p = p.detach().double().cpu()
    count, num_classes = p.shape
    dropped = min(math.ceil(count * (100 - percentile) / 100 - 1e-9), count - 1)
    T = p[p.argsort(dim=0, descending=True, stable=True)[dropped]]  # a new tensor: p stays as it is
    T = T / T.sum(1, keepdim=True)
    never = torch.bincount(p.argmax(1), minlength=num_classes) == 0
    T[never] = torch.eye(num_classes, dtype=T.dtype)[never]
    warn_of("predicted for no sample, so that labels are taken as right", never)
    warn_of("the estimated matrix may mislead: mostly labelled as another class", T.argmax(1) != torch.arange(num_classes))
    return T


def warn_of(what: str, classes: Tensor) -> None:
    numbers = classes.nonzero().flatten().tolist()
    if numbers:
        more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
        warnings.warn(f"{what}: class {', '.join(map(str, numbers[:8]))}{more}, counted from 0", SprlWarning, stacklevel=3)


def noise_rate(T: Tensor, y: Tensor) -> Tensor:
    r"""The share of wrong labels, $1 - \sum_i \pi_i T_{ii}$, 0-d; the shares $\pi$ of the true classes solve $\pi T$ = those of y."""
    T, given = T.double().cpu(), torch.bincount(y.cpu(), minlength=len(T)).double()
    solved = torch.linalg.lstsq(T.T, given.unsqueeze(1), driver="gelsd")  # the usual one solves what is nearly singular anew each time
    true = solved.solution.squeeze(1).clamp(min=0)
    return (1 - (true / true.sum() * T.diagonal()).sum()).float()
