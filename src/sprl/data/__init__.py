"""Data as training sees it, whatever it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, pick_rows
from sprl.errors import InputError, ensure
from sprl.functional import choose
from sprl.seeds import stream_seed

Array = NDArray[Any]


@dataclass(frozen=True)
class Preprocess:
    """From an array as a user has it to what a network takes. Rows keep their order; nothing is dropped.

    Tables [N, D]: each feature less its mean, over its deviation. Pictures [N, H, W] or [N, H, W, C] of uint8 stay pixels (the engine
    scales them to [0, 1] batch by batch); pictures of floats are standardised by channel.
    """

    shape: tuple[int, ...]  # of a network's input: (features,) or (channels, height, width)
    mean: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None

    @classmethod
    def fit(cls, x: Array) -> Preprocess:
        """Learn shape, mean and deviation from training rows."""
        rows = channels_first(x)
        if rows.dtype == np.uint8 and rows.ndim == 4:
            return cls(rows.shape[1:])
        sides = (0, *range(2, rows.ndim))
        rows = finite(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = rows.mean(sides, dtype=np.float64), rows.std(sides, dtype=np.float64)
        if not (np.isfinite(mean) & np.isfinite(deviation)).all():
            raise InputError("the features are too large to standardise: scale them down first")
        deviation[deviation <= 1e-12 * np.maximum(1, np.abs(mean))] = 1.0  # constant, but for rounding
        return cls(rows.shape[1:], tuple(mean.tolist()), tuple(deviation.tolist()))

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Preprocess:
        """What `vars` of one gave, read from a file that may not be ours."""
        shape = tuple(int(side) for side in stored["shape"])
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise ValueError(f"the shape {shape} is none of a row")
        if stored["mean"] is None:
            return cls(shape)
        mean, deviation = (tuple(float(v) for v in stored[name]) for name in ("mean", "deviation"))
        if len(mean) != shape[0] or len(deviation) != shape[0] or not all(0 < d < float("inf") for d in deviation):
            raise ValueError("mean and deviation do not fit the shape")
        return cls(shape, mean, deviation)

    @property
    def form(self) -> str:
        """What a user is to give, in words."""
        if len(self.shape) == 1:
            return f"{self.shape[0]} features, as (N, {self.shape[0]})"
        channels, height, width = self.shape
        grey = f"(N, {height}, {width}) or " if channels == 1 else ""
        kind = ", uint8" if self.mean is None else ""
        return f"pictures of {height} x {width} pixels, as {grey}(N, {height}, {width}, {channels}){kind}"

    def __call__(self, x: Array) -> torch.Tensor:
        rows = channels_first(x)
        if rows.shape[1:] != self.shape:
            raise InputError(f"the model was trained on {self.form}; got an array of shape {np.shape(x)}")
        if self.mean is None:
            if rows.dtype != np.uint8:
                raise InputError(f"the model was trained on uint8 pictures, these are {rows.dtype}: give pixels from 0 to 255 as uint8")
            return torch.from_numpy(np.ascontiguousarray(rows))
        if rows.dtype == np.uint8 and rows.ndim == 4:
            rule = "give them as in training, such as x / 255 where those went from 0 to 1"
            raise InputError(f"the model was trained on pictures of other numbers than uint8 pixels, these are uint8: {rule}")
        sides = (1, -1) + (1,) * (rows.ndim - 2)
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        return torch.from_numpy(((finite(rows) - mean.reshape(sides)) / deviation.reshape(sides)).astype(np.float32))


def channels_first(x: Array) -> Array:
    """[N, D] as it is; [N, H, W] and [N, H, W, C] as [N, C, H, W]."""
    x = np.asarray(x)
    if x.dtype.kind not in "uifb":
        raise InputError(f"features must be numbers, got {x.dtype}")
    if x.ndim > 1 and 0 in x.shape[1:]:
        raise InputError(f"rows must hold something, got an array of shape {x.shape}")
    if x.ndim == 2:
        return x
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3):
        return x.transpose(0, 3, 1, 2)
    raise InputError(f"rows must be features (N, D) or pictures (N, H, W) or (N, H, W, 1 or 3), got an array of shape {x.shape}")


def finite(rows: Array) -> Array:
    """`rows`, or an error that says where the first NaN or infinity stands."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        place = tuple(np.argwhere(~np.isfinite(rows))[0])
        value = "NaN" if np.isnan(rows[place]) else "inf"
        column = f"column {place[1]}" if rows.ndim == 2 else "the picture"
        raise InputError(f"{column} holds {value} in row {place[0]}: fill or drop such values first")
    return rows


Progress = Callable[[str, int, int | None], None]  # what is being done, how far, of how many where that is known


def quiet(*anything: object) -> None:
    pass


@dataclass(frozen=True)
class How:
    """How to read what can be read in more than one way, and whom to tell."""

    resize: Resize | None = None  # of picture files; None: by the sizes that are found
    skip_bad: bool = False  # go on without pictures that cannot be read
    label: str = "label"  # the column of a table
    say: Callable[[str], None] = quiet
    progress: Progress = quiet
    mend: str = "Mend or remove them, or go on without them: --skip-bad (skip_bad=True)"  # what to do about pictures that cannot be read


PLAIN = How()


class Part(NamedTuple):
    """Some training rows of a set."""

    whole: Data
    rows: Array  # [N] which of its training rows


@dataclass(frozen=True)
class Data:
    """Training rows with given labels and, where there are trusted ones, test rows."""

    name: str
    x: torch.Tensor | FileRows  # [N, *shape]
    y: Array  # [N] given labels as class numbers
    classes: tuple[str, ...]
    index: Array  # [N] position in the input before any split
    ids: tuple[str, ...]  # [N] a row's name
    preprocess: Preprocess
    x_test: torch.Tensor | FileRows | None = None
    y_test: Array | None = None
    clean: Array | None = None  # [N] true labels, where the harness knows them; no method sees them
    resize: Resize | None = None  # how picture files became rows
    columns: Columns | None = None  # how the columns of a table became features
    skipped: tuple[str, ...] = ()  # ids of what was left out because it cannot be read
    part: Part | None = None  # of which set these are some rows; None: all there are

    @property
    def shape(self) -> tuple[int, ...]:
        return self.preprocess.shape

    def take(self, rows: Array) -> Data:
        """The training rows at these positions; test rows stay."""
        return replace(
            self,
            x=pick_rows(self.x, torch.from_numpy(rows)),
            y=self.y[rows],
            clean=None if self.clean is None else self.clean[rows],
            index=self.index[rows],
            ids=tuple(self.ids[row] for row in rows.tolist()),
            part=Part(self, rows),
        )

    def draw(self, count: int | None) -> Data:
        """`count` training rows drawn at random, in their order: as near as it goes the same share of each class, at least one. Always the
        same ones: neither a run's seed nor the labels that it is given decide. None: as they are."""
        if count is None or count == len(self.y):
            return self
        if self.part is not None:
            return self.part.whole.draw(count)
        own = self.y if self.clean is None else self.clean
        most, least = len(own), 2 * len(np.unique(own))
        ensure(count <= most, f"--rows {count:,} is more than the {most:,} training rows of {self.name}: give at most that many")
        ensure(count >= least, f"--rows {count:,} is too few: give at least {least:,}, two for each class of {self.name}")
        order = np.random.default_rng(stream_seed(0, "rows")).permutation(most)
        return self.take(choose(torch.from_numpy(order), torch.from_numpy(own), count).numpy().nonzero()[0])


def encode(labels: Sequence[Any] | Array) -> tuple[Array, Array]:
    """Class numbers [N], and the classes they stand for: sorted where they can be, else in the order of their first appearance."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    try:
        known: list[Any] = sorted(set(values))
    except TypeError:
        known = list(dict.fromkeys(values))
    number = {value: i for i, value in enumerate(known)}
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        classes = np.asarray(known, dtype=labels.dtype)
    else:
        classes = np.empty(len(known), dtype=object)
        classes[:] = known
        if len({type(value) for value in known}) == 1 and not isinstance(known[0], tuple):  # else numpy would merge them
            classes = np.asarray(known)
    return np.fromiter((number[v] for v in values), np.int64, len(values)), classes


TELLING = 20  # so many rows, each with a label of its own, are hardly labelled by classes


def check_learnable(y: Array, num_classes: int) -> None:
    """At least two samples of at least two classes, and not as many classes as samples."""
    if len(y) < 2:
        raise InputError(f"{len(y)} sample is too few to train on: give at least two, of at least two classes")
    if num_classes < 2 or len(np.unique(y)) < 2:
        raise InputError("all labels are of one class: a classifier needs at least two classes")
    if len(np.unique(y)) == len(y) > TELLING:
        raise InputError(f"each of the {len(y):,} rows has a label of its own: give labels that name classes, each with several rows")
