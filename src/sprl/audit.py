"""The verdict on labels: how likely each is wrong, how many are, and which to look at.

All of it follows from `label_quality` [N], so that a table that was written and read again gives the same verdict (docs/labels.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

UNCLEAR = "wrong and right labels do not stand apart: few are wrong, rows are few, or too little was learned"

SHARPNESS = 1.5  # measured (docs/labels.md): how much more than itself a network's odds mean
Z90 = 1.645  # of a two-sided interval of 90 %
WINDOW = (-2.2, 0.8)  # where the boundary between wrong and right labels may lie, in log odds
DEEP, ENOUGH = 0.8, 0.01  # a valley between two peaks is no deeper than this share of the lower one, and leaves so many labels below it
WHOLE, FEW = 0.85, 0.05  # so much of a class flagged is as good as all of it; so little of all labels makes no heap
SEEN, UNSEEN = 0.25, 1.0  # how far off a boundary may be, in log odds: with a valley and without
SMALL = 0.5  # of the mean size of classes: in one below it wrong labels are many beside the right ones, and may be learned


@dataclass(frozen=True)
class Verdict:
    """`wrong` [N]: the probability that each label is wrong; `rate`: the share of wrong labels, from `low` to `high`.

    `clear`: wrong and right labels form two heaps, and the interval is one of 90 %. If not, little can be told: the interval spans what is
    estimated in more than one way, and promises nothing.
    """

    wrong: Array
    rate: float
    low: float
    high: float
    clear: bool


def judge(quality: Array, given: Sequence[Any] | NDArray[Any] | None = None) -> Verdict:
    """From label_quality, where 1/2 is a tie between the given label and another. `given` [N]: the labels, of any kind."""
    for_label = support_logit(quality)
    boundary = valley(for_label)
    clear = boundary is not None
    if boundary is None:
        share = mixture_share(np.exp(-SHARPNESS * for_label))
        if share > 0.5:  # most labels are contradicted and no heap stands out
            return learned_too_little(for_label)
        share = max(share, 1 / (len(quality) + 1))  # so that the ranking stays
        boundary = math.log(share / (1 - share)) / SHARPNESS
    wrong = posterior(for_label, boundary)
    unknown = None if given is None else whole_classes(wrong > 0.5, given)
    if unknown is not None and unknown.any():
        return judge_known(quality, unknown)
    rate = float(wrong.mean())
    spread = SHARPNESS * (SEEN if clear else UNSEEN) * float((wrong * (1 - wrong)).mean())
    chance = Z90 * math.sqrt(max(rate * (1 - rate), 1 / len(quality)) / len(quality))
    # counted, not summed: those on the wrong side of the valley; without one, those that lose to another class
    count = float((wrong > 0.5).mean() if clear else (quality < 0.5).mean())
    unsure = 0.0 if clear else spread
    low, high = min(rate - spread, count - unsure) - chance, max(rate + spread, count + unsure) + chance
    high += 0.0 if given is None else in_small_classes(wrong, given)
    return Verdict(wrong, rate, max(low, 0.0), min(high, 1.0), clear)


def learned_too_little(for_label: Array) -> Verdict:
    """Nothing can be said of any label but how it ranks."""
    doubt = posterior(for_label, 0.0) / 2
    return Verdict(doubt, float(doubt.mean()), 0.0, 1.0, clear=False)


def in_small_classes(wrong: Array, given: Sequence[Any] | NDArray[Any]) -> float:
    """The share of labels that may be wrong besides those that show: a small class may have received as many as the worst of the others,
    and was then learned from them."""
    _, number = np.unique(np.asarray(given), return_inverse=True)
    size, received = np.bincount(number), np.bincount(number, wrong)
    small = size < SMALL * size.mean()
    return float((np.minimum(size, received[~small].max()) - received)[small].clip(0).sum() / len(wrong))


def whole_classes(flagged: NDArray[np.bool_], given: Sequence[Any] | NDArray[Any]) -> NDArray[np.bool_]:
    """The rows [N] of classes of which nearly all is flagged, if they are most of what is flagged and not few: the heaps are then classes,
    those that a network which has learned little more than their sizes never predicts. Else none."""
    _, number = np.unique(np.asarray(given), return_inverse=True)
    count = np.bincount(number, flagged)
    whole = count > WHOLE * np.bincount(number)
    return whole[number] & (count[whole].sum() > max(flagged.sum() / 2, FEW * len(flagged)))


def judge_known(quality: Array, unknown: NDArray[np.bool_]) -> Verdict:
    """A verdict on the labels of the other classes; those of `unknown` [N] may be right or wrong."""
    wrong, share = learned_too_little(support_logit(quality)).wrong, float(unknown.mean())
    known = judge(quality[~unknown]) if share < 1 else learned_too_little(np.zeros(1))
    if share < 1:
        wrong[~unknown] = known.wrong
    return Verdict(wrong, float(wrong.mean()), known.low * (1 - share), known.high * (1 - share) + share, clear=False)


def support_logit(quality: Array) -> Array:
    q = np.clip(np.asarray(quality, dtype=np.float64), 1e-6, 1 - 1e-6)
    return np.log(q / (1 - q))


def posterior(for_label: Array, boundary: float) -> Array:
    return 1 / (1 + np.exp(np.clip(SHARPNESS * (for_label - boundary), -50, 50)))


def valley(for_label: Array) -> float | None:
    """The deepest place between two peaks of a smoothed histogram, where a label is as likely wrong as right; None if there is no such."""
    step, reach = 0.025, 6.0
    grid = np.arange(-reach, reach + step / 2, step)
    spread = min(float(for_label.std()), float(np.subtract(*np.percentile(for_label, [75, 25]))) / 1.34)
    width = max(spread * len(for_label) ** -0.2, step)
    counts = np.histogram(np.clip(for_label, -reach, reach), np.append(grid - step / 2, reach + step / 2))[0]
    half = len(grid) // 2
    kernel = np.exp(-0.5 * (np.arange(-half, half + 1) * step / width) ** 2)
    density = np.convolve(counts, kernel, "same")
    lower_peak = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
    below = np.cumsum(counts) / len(for_label)
    place = (grid > WINDOW[0]) & (grid < WINDOW[1]) & (below >= ENOUGH) & (below <= 1 - ENOUGH)
    depth = np.where(place, density / np.maximum(lower_peak, 1e-12), 1.0)
    return float(grid[depth.argmin()]) if depth.min() < DEEP else None


def mixture_share(against: Array) -> float:
    r"""The maximum over r of $\sum_i \log(1 - r + r L_i)$, which is concave: the share of wrong labels, L_i being how much more likely the
    evidence is for a wrong one."""

    def slope(r: float) -> float:
        return float(((against - 1) / (1 - r + r * against)).mean())

    low, high = 0.0, 1.0
    if slope(low) <= 0:
        return 0.0
    if slope(high) >= 0:
        return 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


class Selection(NamedTuple):
    """The labels to look at: `rows` [K], the most suspicious first, and how many of them are expected to be really wrong."""

    rows: NDArray[np.int64]
    expected: float


def select(wrong: Array, precision: float | None = None, budget: int | None = None) -> Selection:
    """As many as can be named with this expected precision, or so many; without either, those more likely wrong than right."""
    if precision is not None and not 0 < precision <= 1:
        raise InputError(f"a precision of {precision:g} is out of bounds: give one above 0 and up to 1, such as 0.95")
    if budget is not None and budget < 1:
        raise InputError(f"a budget of {budget} labels is too small: give at least 1")
    order = np.argsort(-wrong, kind="stable")
    expected = np.cumsum(wrong[order])
    count = int((wrong > 0.5).sum()) if precision is None and budget is None else len(wrong)
    if precision is not None:
        enough = expected >= precision * np.arange(1, len(wrong) + 1)
        count = int(enough.nonzero()[0][-1]) + 1 if enough.any() else 0
    count = min(count, len(wrong) if budget is None else budget)
    return Selection(order[:count], float(expected[count - 1]) if count else 0.0)


def recalibrate(wrong: Array, rows: NDArray[np.int64], found: NDArray[np.bool_]) -> Array:
    """`wrong` after a person has checked `rows` [K] and `found` [K] them wrong or not: all multiplied by what was found over what was
    expected. One imagined verdict, as expected, keeps few verdicts from moving it far. What was checked is known.
    """
    if not len(rows):
        return wrong
    expected = wrong[rows]
    after = np.clip(wrong * (found.sum() + expected.mean()) / max(expected.sum() + expected.mean(), 1e-12), 0, 1)
    after[rows] = found
    return after


def confusions(table: pd.DataFrame, classes: list[str]) -> Array:
    """How often each class (row) was given as each other (column), expected: [C, C] of labels.csv."""
    place = {name: i for i, name in enumerate(classes)}
    given = table["given_label"].astype(str).map(place).to_numpy()
    predicted = table["predicted_label"].astype(str).map(place).to_numpy()
    wrong = np.where(given == predicted, 0.0, table["wrong_probability"].to_numpy())
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (predicted, given), wrong)
    np.add.at(counts, (given, given), 1 - wrong)
    return counts
