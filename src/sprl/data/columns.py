"""How the columns of a table become features."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sprl.errors import InputError, SprlWarning, nearest

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

EXACT = 2**53  # below which a float tells each whole number from the next
MOST_VALUES = 50  # of a column of text that becomes features
NUMBER, TEXT, LIST = KINDS = ("number", "text", "list")
SCALARS = (str, bool, int, float, Decimal, np.number, np.bool_)


class Unusable(Exception):
    """Why no features can be had from a column."""


@dataclass(frozen=True)
class Column:
    """A column and the features it gives: a number, the numbers of a list, or for text a 0 or 1 for each known value."""

    name: str
    kind: str
    mean: tuple[float, ...] = ()  # of numbers in the training rows: what stands for missing ones
    values: tuple[str, ...] = ()  # of text in the training rows, sorted

    @classmethod
    def fit(cls, name: str, cells: pd.Series) -> Column:
        if not cells.notna().any():
            raise Unusable("all missing")
        kind = kind_of(cells)
        if kind == TEXT:
            return cls.fit_text(name, cells)
        if kind == NUMBER:
            return cls(name, NUMBER, mean_of(name, numbers(cells)[0][:, None], cells))
        if kind == LIST:
            return cls(name, LIST, mean_of(name, lists(cells), cells))
        raise Unusable(f"{kind} cells")

    @classmethod
    def fit_text(cls, name: str, cells: pd.Series) -> Column:
        why = ""
        if not hasattr(cells, "cat"):  # of a category the values are names, even if they look like numbers
            found, odd = numbers(cells)
            if not odd.any():
                return cls(name, NUMBER, mean_of(name, found[:, None], cells))
            if odd.sum() < (~np.isnan(found)).sum():
                why = f", no number in {odd.sum()} of {len(cells)} rows, such as {cells[odd].iloc[0]!r}"
        values = sorted(set(texts(cells)[1]))
        if len(values) > min(MOST_VALUES, len(cells) / 2):
            raise Unusable(f"text with {len(values)} different values{why}")
        return cls(name, TEXT, values=tuple(values))

    @classmethod
    def from_json(cls, stored: Any) -> Column:
        name, kind, mean, values = (stored[field] for field in ("name", "kind", "mean", "values"))
        if not isinstance(name, str) or not isinstance(mean, (list, tuple)) or not isinstance(values, (list, tuple)):
            raise ValueError(f"{name!r} is no column")
        fits = {NUMBER: len(mean) == 1 and not values, LIST: len(mean) > 0 and not values, TEXT: len(values) > 0 and not mean}
        sound = all(type(m) in (int, float) and math.isfinite(m) for m in mean) and all(isinstance(v, str) for v in values)
        if not fits.get(kind) or not sound or len(set(values)) < len(values):
            raise ValueError(f"the column {name!r} is not as one of the kind {kind!r} should be")
        return cls(name, kind, tuple(map(float, mean)), tuple(values))

    @property
    def features(self) -> list[str]:
        if self.kind == NUMBER:
            return [self.name]
        return [f"{self.name}={v}" for v in self.values] if self.kind == TEXT else [f"{self.name}[{i}]" for i in range(len(self.mean))]

    def read(self, cells: pd.Series) -> tuple[Array, int]:
        """Features [N, D], and in how many rows something was missing or not known."""
        kind = kind_of(cells) if cells.notna().any() else self.kind
        if (kind == LIST) != (self.kind == LIST) or kind not in KINDS:
            raise InputError(f"the column {self.name!r} holds {kind} cells, but in training its cells were of the kind {self.kind}")
        if self.kind == TEXT:
            codes, known = texts(cells)
            place = {value: i for i, value in enumerate(self.values)}
            which = np.array([*(place.get(value, -1) for value in known), -1])[codes]  # a missing cell's code is -1: the last
            return (which[:, None] == np.arange(len(place))).astype(np.float64), int((which < 0).sum())
        x = self.read_numbers(cells) if self.kind == NUMBER else self.read_lists(cells)
        refuse_infinite(self.name, x, cells)
        missing = np.isnan(x)
        return np.where(missing, self.mean, x), int(missing.any(1).sum())

    def read_numbers(self, cells: pd.Series) -> Array:
        found, odd = numbers(cells)
        if odd.any():
            row, cell = cells.index[odd][0], cells[odd].iloc[0]
            raise InputError(f"the column {self.name!r} held numbers in training, but here {cell!r} in row {row}")
        return found[:, None]

    def read_lists(self, cells: pd.Series) -> Array:
        try:
            return lists(cells, len(self.mean))
        except Unusable as error:
            raise InputError(f"the column {self.name!r} cannot be read as in training: {error}") from None


@dataclass(frozen=True)
class Columns:
    """From a table (a pandas DataFrame) to features [N, D]: those of each usable column in turn. Rows keep their order.

    Numbers and booleans as they are, the training mean where they are missing; a 0 or 1 for each value of text with few of them; lists of
    equal length as that many numbers. Dates, and text with many values, are left out.
    """

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> Columns:
        """Learn from training rows which columns can be used, and how. A warning names those that cannot."""
        columns, left_out = [], []
        for name, cells in by_name(frame).items():
            try:
                columns.append(Column.fit(name, cells))
            except Unusable as error:
                left_out.append(f"{name!r} ({error})")
        if not columns:
            why = f": {some(left_out)}; texts must be made numbers first, for instance by a sentence embedding" if left_out else ""
            raise InputError(f"the table has no column that can be used as a feature{why}")
        if left_out:
            warnings.warn(f"columns left out: {some(left_out)}", SprlWarning, stacklevel=2)
        return cls(tuple(columns))

    @classmethod
    def from_json(cls, stored: Any) -> Columns:
        """What `to_json` gave, read from a file that may not be ours. ValueError where it cannot be that."""
        try:
            columns = tuple(Column.from_json(column) for column in stored["columns"])
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"this does not describe the columns of a table: {error!r}") from error
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("a table needs columns, each with a name of its own")
        return cls(columns)

    def to_json(self) -> dict[str, Any]:
        return {"columns": [asdict(column) for column in self.columns]}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
        return tuple(feature for column in self.columns for feature in column.features)

    def __call__(self, frame: pd.DataFrame) -> Array:
        """Features [N, D]. Other columns are ignored; a warning tells where cells were missing, or text was not seen in training."""
        cells = by_name(frame)
        lacking = [column.name for column in self.columns if column.name not in cells]
        if lacking:
            raise InputError(f"the table lacks {some(map(repr, lacking))}, which the model was trained on{hint(lacking, cells)}")
        x = np.empty((len(frame), len(self.names)))
        bounds = np.cumsum([0, *(len(column.features) for column in self.columns)])
        gaps = []
        for column, (first, last) in zip(self.columns, pairwise(bounds), strict=True):
            x[:, first:last], gap = column.read(cells[column.name])
            if gap:
                gaps.append(f"{column.name!r} ({gap} of {len(frame)} rows)")
        if gaps:
            rule = "the training mean stands for missing numbers, no value for missing or unknown text"
            warnings.warn(f"cells are missing or unknown in {some(gaps)}: {rule}", SprlWarning, stacklevel=2)
        return x


def by_name(frame: pd.DataFrame) -> dict[str, pd.Series]:
    names = [str(name) for name in frame.columns]
    columns = {name: frame.iloc[:, i] for i, name in enumerate(names)}
    if len(columns) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"the table has more than one column {twice!r}: rename them")
    return columns


def kind_of(cells: pd.Series) -> str:
    """number, text (which may turn out to be numbers) or list; for what cannot be used, its type."""
    from pandas import CategoricalDtype
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(cells.dtype) and cells.dtype.kind != "c":
        return NUMBER
    if cells.dtype.type is str or isinstance(cells.dtype, CategoricalDtype):
        return TEXT
    if cells.dtype != object:
        return "date" if cells.dtype.kind == "M" else str(cells.dtype)
    types = {type(cell) for cell in cells[cells.notna()]}
    if types and all(issubclass(t, (list, tuple, np.ndarray)) for t in types):
        return LIST
    return next((t.__name__ for t in types if not issubclass(t, SCALARS)), TEXT)


def numbers(cells: pd.Series) -> tuple[Array, Array]:
    """float64 [N] with NaN for what is missing or no number, and which cells are there but no number."""
    import pandas as pd

    if kind_of(cells) == NUMBER:
        return cells.to_numpy(np.float64, na_value=np.nan), np.zeros(len(cells), dtype=bool)
    there = cells.notna().to_numpy()
    found = np.full(len(cells), np.nan)
    found[there] = pd.to_numeric(cells[there].astype(object), errors="coerce")
    return found, there & np.isnan(found)


def lists(cells: pd.Series, width: int | None = None) -> Array:
    """float64 [N, width], a row of NaN for a missing cell."""
    there = cells.notna().to_numpy()
    try:
        rows = [np.asarray(cell, dtype=np.float64) for cell in cells[there]]
    except (ValueError, TypeError):
        raise Unusable("lists of other things than numbers") from None
    if width is None:
        width = rows[0].size
    if not width:
        raise Unusable("empty lists")
    for i, row in enumerate(rows):
        if row.shape != (width,):
            raise Unusable(f"a list of {' x '.join(map(str, row.shape))} numbers in row {cells.index[there][i]}, not of {width}")
    x = np.full((len(cells), width), np.nan)
    if rows:
        x[there] = rows
    return x


def texts(cells: pd.Series) -> tuple[Array, list[str]]:
    """For each cell the place of its text in the list, -1 where it is missing."""
    import pandas as pd

    if kind_of(cells) not in (NUMBER, TEXT):
        raise InputError(f"the column {cells.name!r} holds {kind_of(cells)} cells: names or whole numbers are needed there")
    if cells.dtype == object:
        cells = cells.map(text, na_action="ignore")  # else True and 1 would be one
    codes, known = pd.factorize(cells)
    return codes, [text(value) for value in known]


def text(value: Any) -> str:
    """Whole floats read as whole numbers while they are exact: a gap in a column of whole numbers makes them floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else str(value)


def mean_of(name: str, x: Array, cells: pd.Series) -> tuple[float, ...]:
    """Of each feature, over the rows that have it; 0 for one that none has."""
    refuse_infinite(name, x, cells)
    there = ~np.isnan(x)
    with np.errstate(over="ignore"):
        mean = np.where(there, x, 0).sum(0) / np.maximum(1, there.sum(0))
    if not np.isfinite(mean).all():
        raise InputError(f"the numbers of the column {name!r} are too large to standardise: scale them down first")
    return tuple(mean.tolist())


def refuse_infinite(name: str, x: Array, cells: pd.Series) -> None:
    infinite = np.isinf(x).any(1)
    if infinite.any():
        raise InputError(f"the column {name!r} holds inf in row {cells.index[infinite][0]}: fill or drop such values first")


def some(names: Iterable[str], most: int = 10) -> str:
    """The first of them, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def hint(lacking: Sequence[str], there: Iterable[str]) -> str:
    """Which of the columns that are there may be meant."""
    near = {name: nearest(name, list(there)) for name in lacking[:10]}
    found = [f"{match[0]!r} for {name!r}" for name, match in near.items() if match]
    return f"; did you mean {', '.join(found)}?" if found else ""
