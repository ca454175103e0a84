"""The verdict on labels: how likely each is wrong, how many are, and which to look at.

All of it follows from `label_quality` [N], so that a table that was written and read again gives the same verdict (docs/labels.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

SHARPNESS = 1.5  # measured (docs/labels.md): how much more than itself a network's odds mean
Z90 = 1.645  # of a two-sided interval of 90 %


@dataclass(frozen=True)
class Verdict:
    """`wrong` [N]: the probability that each label is wrong; `rate`: the share of wrong labels, from `low` to `high` with 90 %."""

    wrong: Array
    rate: float
    low: float
    high: float


def judge(quality: Array) -> Verdict:
    """From label_quality, where 1/2 is a tie between the given label and another."""
    against = odds(quality)
    rate = mixture_share(against)
    tied = float((quality < 0.5).mean())
    # what the mixture says and what plain counting says, each as sure as its number of labels allows
    spans = [(found, Z90 * math.sqrt(max(found * (1 - found), 0.0) / len(quality))) for found in (rate, tied)]
    low, high = min(found - by for found, by in spans), max(found + by for found, by in spans)
    return Verdict(posterior(against, rate), rate, max(low, 0.0), min(high, 1.0))


def odds(quality: Array) -> Array:
    """How much more likely the evidence is if the label is wrong than if it is right."""
    q = np.clip(np.asarray(quality, dtype=np.float64), 1e-6, 1 - 1e-6)
    return ((1 - q) / q) ** SHARPNESS


def posterior(against: Array, rate: float) -> Array:
    return rate * against / (1 - rate + rate * against)


def mixture_share(against: Array) -> float:
    r"""The maximum over r of $\sum_i \log(1 - r + r L_i)$, which is concave: the share of wrong labels under which L is most likely."""

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
    """`wrong` after a person has checked `rows` [K] and `found` [K] them wrong or not: all log odds moved by what fits the verdicts best.

    Two imagined verdicts, one of each kind at the mean probability, keep few verdicts from moving it far. What was checked is known.
    """
    logit = np.log(np.clip(wrong, 1e-9, 1 - 1e-9)) - np.log1p(-np.clip(wrong, 1e-9, 1 - 1e-9))
    low, high = -20.0, 20.0
    target = found.sum() + float(wrong[rows].mean()) if len(rows) else 0.0
    while len(rows) and high - low > 1e-6:
        shift = (low + high) / 2
        moved = 1 / (1 + np.exp(-(logit[rows] + shift)))
        low, high = (shift, high) if moved.sum() + moved.mean() < target else (low, shift)
    after = 1 / (1 + np.exp(-(logit + (low + high) / 2)))
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
