"""Label noise for experiments: transition matrices Q[i, j] = Pr(given = j | true = i) and labels drawn from them.

What `--corrupt KIND:VALUE` means is said here; labels of the kind `generated` need more than the true ones, and are made in generated.py.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sprl.data.given import class_numbers
from sprl.errors import InputError, blamed, ensure, pick, printable
from sprl.registry import Registry
from sprl.seeds import stream_seed

if TYPE_CHECKING:
    from torch import Tensor

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

MATRIX, GENERATED = "matrix", "generated"  # the kinds that are not asked for by a rate
LARGEST = 2**26  # bytes of a matrix in a file
CLOSE = 1e-6  # how far from 1 a row may sum


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


def symmetric_all(rate: float, num_classes: int) -> Matrix:
    """The other convention (DivideMix and its followers): a share `rate` of labels is drawn anew from all classes, the true one among
    them. So only rate (c - 1)/c of them are wrong. rate < 1."""
    if not 0 <= rate < 1:
        raise InputError(
            f"symmetric-all noise of {rate:g} is out of bounds: the share of labels that are drawn anew must be at least 0 and below 1; "
            f"with {num_classes} classes {(num_classes - 1) / num_classes:.3g} of these become wrong"
        )
    return (1 - rate) * np.eye(num_classes) + rate / num_classes


def pair(rate: float, num_classes: int) -> Matrix:
    """Eq. 14b: a wrong label is always the next class, the last one's the first. rate < 0.5."""
    if not 0 <= rate < 0.5:
        raise InputError(f"pair noise of {rate:g} is out of bounds: the rate must be at least 0 and below 0.5")
    return (1 - rate) * np.eye(num_classes) + rate * np.roll(np.eye(num_classes), 1, axis=1)


Kind = Callable[[float, int], Matrix]


def adopted(name: str, found: Any) -> Kind:
    """Of another package."""
    ensure(callable(found), "it is no function (rate, num_classes) -> Q")
    return found


# To add a kind of noise: a function (rate, num_classes) -> Q, and its name here; or, from another package, an entry point of `sprl.noises`.
OURS: dict[str, Kind] = {"symmetric": symmetric, "symmetric-all": symmetric_all, "pair": pair}
NOISES = Registry("noise", "sprl.noises", OURS, adopted)


def parse(spec: str) -> tuple[str, float | str]:
    """The kind, and its value: a rate, a file, or the number of right labels a class. "symmetric:0.5" -> ("symmetric", 0.5)."""
    kind, colon, value = spec.partition(":")
    if not colon and is_number(kind):
        raise InputError(
            f"{spec!r} does not say which noise: --corrupt symmetric:{spec} damages labels for an experiment, "
            f"--noise-rate {spec} tells what is known about labels as they are"
        )
    pick("kind of noise", kind, (*NOISES, MATRIX, GENERATED))
    if kind == MATRIX:
        ensure(value != "", f"noise {spec!r} lacks a file: write {kind}:Q.csv")
        return kind, value
    if kind == GENERATED:
        right = is_number(value) and float(value) >= 1 and float(value).is_integer()
        ensure(right, f"noise {spec!r} lacks the number of right labels a class, 1 or more: write {kind}:400")
        return kind, float(value)
    ensure(is_number(value), f"noise {spec!r} lacks a rate: write {kind}:0.2")
    return kind, float(value)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def requested(spec: str) -> float | None:
    """The rate that was asked for, in the convention of its kind; None of a kind that has none."""
    kind, value = parse(spec)
    return float(value) if kind in NOISES else None


def canonical(spec: str) -> str:
    """The noise in the one way that recipes write it: "pair:.40" -> "pair:0.4"."""
    kind, value = parse(spec)
    return spec if isinstance(value, str) else f"{kind}:{value!r}".removesuffix(".0")


def expected(spec: str, clean: Labels, num_classes: int) -> float | None:
    """The share of labels that are wrong on average where a rate was asked for: of symmetric-all:0.5 on ten classes 0.45."""
    if requested(spec) is None:
        return None
    wrong = 1 - transition(spec, num_classes).diagonal()
    return round(float(wrong[clean].mean()), 12)  # 1 - (1 - 0.2) is not quite 0.2


def transition(spec: str, num_classes: int) -> Matrix:
    """Q of whatever has one."""
    kind, value = parse(spec)
    if kind == GENERATED:
        raise InputError(f"{spec} needs data to train a network on, and has no matrix: sprl train DATA --corrupt {spec}")
    if kind == MATRIX:
        return checked(read_matrix(Path(str(value))), num_classes, str(value))
    ensure(num_classes > 1, f"{kind} noise needs two classes or more: with {num_classes} no label can be wrong")
    with blamed(f"{kind} noise"):
        Q = NOISES[kind](float(value), num_classes)
    return checked(Q, num_classes, f"{kind} noise")


def corrupt(clean: Sequence[int] | Labels | Tensor, spec: str, num_classes: int, seed: int) -> Labels:
    """Labels drawn from the rows of Q, one draw a sample. They depend on the labels, the noise and the seed alone, never on the method."""
    labels = class_numbers(clean, num_classes) if len(clean) else np.zeros(0, np.int64)
    cumulative = transition(spec, num_classes).cumsum(1)
    cumulative /= cumulative[:, -1:]  # to exactly 1, which no u reaches: rounding cannot name a class that Q excludes
    u = np.random.default_rng(stream_seed(seed, "noise")).random(len(labels))
    return (u[:, None] >= cumulative[labels]).sum(1)


def checked(Q: Any, num_classes: int, source: str) -> Matrix:
    """Q, each of whose rows must be a distribution over the classes."""
    source, Q = printable(source), np.asarray(Q)
    ensure(Q.dtype.kind in "iuf", f"{source} must be numbers, not {Q.dtype}")
    shape = (num_classes, num_classes)
    ensure(Q.shape == shape, f"{source} has the shape {Q.shape}, but must have {shape}: a row a true class, a column a given one")
    Q = Q.astype(np.float64)
    for row, column in np.argwhere(~((Q >= 0) & (Q <= 1))):
        raise InputError(f"{source} has {Q[row, column]:g} in row {row}, column {column} (from 0), which is no probability")
    for row in np.flatnonzero(abs(Q.sum(1) - 1) > CLOSE):
        raise InputError(f"row {row} (from 0) of {source} sums to {Q[row].sum():.6g}, not to 1")
    return Q


def read_matrix(path: Path) -> Any:
    """What the file holds: .npy, without pickles; .csv, a line a row; or .json, a list of rows."""
    from sprl.data.arrays import read_npy

    kind = path.suffix.lower()
    ensure(kind in (".csv", ".npy", ".json"), f"a matrix of noise comes in a .csv, .npy or .json file, not in {path}")
    ensure(path.is_file(), f"no such file: {path}, which is to hold a matrix of noise")
    ensure(path.stat().st_size <= LARGEST, f"{path} is too large for a matrix of noise")
    if kind == ".npy":
        return read_npy(path)
    try:
        text = path.read_text("utf-8-sig")
        found = json.loads(text) if kind == ".json" else [row for row in csv.reader(text.splitlines()) if row]
        return np.array(found, np.float64)
    except (OSError, ValueError, TypeError, RecursionError, OverflowError, csv.Error) as error:
        shape = "a list of rows, [[0.9, 0.1], [0.2, 0.8]]" if kind == ".json" else "a line a row, numbers with commas between them"
        raise InputError(f"{path} does not hold a matrix, {shape}: {printable(str(error))[:120]}") from error
