"""Label noise for experiments: transition matrices Q[i, j] = Pr(given = j | true = i) and labels drawn from them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sprl.errors import InputError, pick
from sprl.seeds import stream_seed

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]


def symmetric(rate: float, num_classes: int) -> Matrix:
    """Eq. 14a: a wrong label is any of the other classes, each as likely. rate < (c - 1)/c."""
    if not 0 <= rate < (num_classes - 1) / num_classes:
        raise InputError(
            f"symmetric noise of {rate:g} is out of bounds: with {num_classes} classes the rate must be at least 0 and below "
            f"(c - 1)/c = {(num_classes - 1) / num_classes:.3g}"
        )
    Q = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(Q, 1 - rate)
    return Q


def pair(rate: float, num_classes: int) -> Matrix:
    """Eq. 14b: a wrong label is always the next class, the last one's the first. rate < 0.5."""
    if not 0 <= rate < 0.5:
        raise InputError(f"pair noise of {rate:g} is out of bounds: the rate must be at least 0 and below 0.5")
    return (1 - rate) * np.eye(num_classes) + rate * np.roll(np.eye(num_classes), 1, axis=1)


# To add a kind of noise: a function (rate, num_classes) -> Q, and a line here.
NOISES: dict[str, Callable[[float, int], Matrix]] = {"symmetric": symmetric, "pair": pair}


def parse(spec: str) -> tuple[str, float]:
    """ "symmetric:0.5" -> ("symmetric", 0.5)."""
    kind, colon, rate = spec.partition(":")
    try:
        number = float(rate if colon else kind)
    except ValueError:
        pick("kind of noise", kind, NOISES)
        raise InputError(f"noise {spec!r} lacks a rate: write {kind}:0.2") from None
    if not colon:
        raise InputError(
            f"{spec!r} does not say which noise: --corrupt symmetric:{spec} damages labels for an experiment, "
            f"--noise-rate {spec} tells what is known about labels as they are"
        )
    return pick("kind of noise", kind, NOISES), number


def corrupt(clean: Labels, spec: str, num_classes: int, seed: int) -> Labels:
    """Labels drawn from the rows of Q, one draw a sample. They depend on the labels, the noise and the seed alone, never on the method."""
    if len(clean) and not 0 <= np.min(clean) <= np.max(clean) < num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, got {np.min(clean)}..{np.max(clean)}")
    kind, rate = parse(spec)
    Q = NOISES[kind](rate, num_classes)
    u = np.random.default_rng(stream_seed(seed, "noise")).random(len(clean))
    cumulative = Q.cumsum(1)
    cumulative[:, -1] = 1.0  # u < 1, so that rounding cannot name a class beyond the last
    return (u[:, None] >= cumulative[clean]).sum(1)
