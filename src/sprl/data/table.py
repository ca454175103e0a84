"""Tables in CSV, TSV or Parquet files: a row a sample, with features or with the path of a picture.

The column of labels goes by `How.label`. Three more have a meaning where they are there: split (train, test or validation), id, and path
(or file_name), which makes the table a list of picture files.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sprl.cells import refuse_separators
from sprl.data import TELLING, Array, Data, How, Preprocess, pictures
from sprl.data.columns import EXACT, TEXT, Columns, some, texts
from sprl.errors import InputError, SprlWarning, check_file

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".tsv", ".parquet")
PATHS = ("path", "file_name")  # the latter in Hugging Face's metadata.csv
SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}
WHOLE = re.compile(r"[+-]?[0-9]{1,100}")  # int() refuses numbers of thousands of digits
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
UNNAMED = re.compile(r"Unnamed: [0-9]+")  # pandas' name for a column without one
# What stands for a missing cell in CSV files of most programs; in labels, ids and paths only "" does.
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"]
MISSING += ["1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"]


def load(path: Path, how: How) -> Data:
    """A table of features, or of picture files where it has a column path or file_name."""
    return assemble(path, read(path, exact=(how.label, "split", "id", *PATHS)), how)


def load_parts(folder: Path, how: How) -> Data:
    """Hugging Face's form with a metadata.csv in each of train/ and test/ (or validation/)."""
    import pandas as pd

    frames = []
    for name in SPLITS:
        path = folder / name / "metadata.csv"
        if path.is_file():
            frame = read(path, exact=(how.label, "id", *PATHS))
            place = next((column for column in PATHS if column in frame), None)
            if place is None:
                raise InputError(f"{path} has no column file_name, the pictures' paths")
            frames.append(
                frame.assign(**{place: [f"{name}/{file}" if file else file for file in words(path, frame[place])], "split": name})
            )
    return assemble(folder / "metadata.csv", pd.concat(frames, ignore_index=True), how)


def assemble(path: Path, frame: pd.DataFrame, how: How) -> Data:
    need_label(path, how.label, frame.columns)
    train, test = split(path, frame)
    frame = frame.iloc[np.concatenate([train, test])]
    given = labels_of(path, frame[how.label])
    held = np.arange(len(frame)) >= len(train)
    classes = classes_of(path, how.label, given, held)
    name = path.resolve().parent.name if path.stem == "metadata" else path.stem  # Hugging Face's metadata.csv is its folder's
    place = next((name for name in PATHS if name in frame), None)
    if place is None:
        ids = ids_of(path, frame)
        return features(name, frame.drop(columns=[how.label, "split", "id"], errors="ignore"), given, held, classes, ids)
    paths = words(path, frame[place])
    ids = ids_of(path, frame, paths)
    files = [
        pictures.File(os.path.abspath(path.parent / file), id, label, test)
        for file, id, label, test in zip(paths, ids, given, held.tolist(), strict=True)
    ]
    data = pictures.load(name, files, classes, how)
    row = dict(zip(ids, frame.index, strict=True))
    return replace(data, index=np.array([row[id] for id in data.ids]))


def read_new(path: Path, columns: Columns) -> tuple[tuple[str, ...], Array]:
    """Ids and features [N, D] of new rows, which need no labels."""
    known = [column.name for column in columns.columns if column.kind == TEXT]  # numbers, too, may be values of text
    frame = read(path, exact=("id",), text=known)
    return ids_of(path, frame), columns(frame)


def list_pictures(path: Path) -> list[pictures.File]:
    """The picture files that a table lists, which need no labels."""
    frame = read(path, exact=("id", *PATHS))
    place = next((name for name in PATHS if name in frame), None)
    if place is None:
        raise InputError(f"{path} has no column path or file_name: this model takes pictures")
    paths = words(path, frame[place])
    return [pictures.File(os.path.abspath(path.parent / file), id, "") for file, id in zip(paths, ids_of(path, frame, paths), strict=True)]


def features(name: str, frame: pd.DataFrame, given: Array, held: Array, classes: tuple[str, ...], ids: Iterable[str]) -> Data:
    """Data of the rows of a table, all of whose columns are features; of those that are `held` no column is learned from."""
    unnamed = [column for column in frame.columns if UNNAMED.fullmatch(str(column))]
    if unnamed:
        warnings.warn(f"columns without a name, such as row numbers have, are left out: {len(unnamed)}", SprlWarning, stacklevel=2)
        frame = frame.drop(columns=unnamed)
    columns = Columns.fit(frame[~held])
    x = columns(frame)  # all rows at once: one warning of missing cells
    preprocess = Preprocess.fit(x[~held])
    number = {c: i for i, c in enumerate(classes)}
    y = np.array([number[label] for label in given], dtype=np.int64)
    return Data(
        name=name,
        x=preprocess(x[~held]),
        y=y[~held],
        classes=classes,
        index=frame.index.to_numpy()[~held],
        ids=tuple(id for id, out in zip(ids, held, strict=True) if not out),
        preprocess=preprocess,
        x_test=preprocess(x[held]) if held.any() else None,
        y_test=y[held] if held.any() else None,
        columns=columns,
    )


def need_label(source: object, label: str, columns: Iterable[str]) -> None:
    if label not in columns:
        told = "say which holds the labels: --label-column NAME (in Python: label_column=)"
        raise InputError(f"{source} has no column {label!r}, only {some(columns, 20)}: {told}")


def split(path: Path, frame: pd.DataFrame) -> tuple[Array, Array]:
    """Positions of the training and of the test rows. Validation rows are test rows where there are no others, else left out."""
    if "split" not in frame:
        return np.arange(len(frame)), np.arange(0)
    codes, known = texts(frame["split"])
    known = [*known, ""]  # a missing cell's code is -1: the last
    parts = np.array([SPLITS.get(word.strip().lower(), "") for word in known])[codes]
    if (parts == "").any():
        row = int(np.flatnonzero(parts == "")[0])
        raise InputError(f"{path}: the split in row {row} is {known[codes[row]]!r}: it must be train, test or validation")
    train, test, validation = (np.flatnonzero(parts == part) for part in ("train", "test", "validation"))
    if not len(train):
        raise InputError(f"{path} holds no rows to train on: in none the split is train")
    if len(test) and len(validation):
        warnings.warn(f"rows for validation are left out, as there are test rows: {len(validation)}", SprlWarning, stacklevel=3)
    return train, test if len(test) else validation


def labels_of(source: object, cells: pd.Series) -> Array:
    """The classes' names [N]. Whole numbers may be stored as floats that are exact; quantities and missing labels are refused."""
    codes, known = texts(cells)
    names = [word.strip() for word in known]
    gaps = np.array([*(not name for name in names), True])[codes]  # a missing cell's code is -1: the last
    refuse_missing(source, "label", cells.index[gaps])
    if all(map(NUMBER.fullmatch, names)) and not all(map(WHOLE.fullmatch, names)):
        names = [whole(source, name) for name in names]
    return np.array(names, dtype=object)[codes]


def whole(source: object, name: str) -> str:
    """The label as a whole number, digit by digit: a float would merge those of more than 15 digits."""
    if WHOLE.fullmatch(name):
        return str(int(name))
    value = float(name)
    if not value.is_integer():
        told = "name another column as the labels, or make classes of its values"
        raise InputError(f"{source}: the label {name} looks like a quantity, not a class: {told}")
    if abs(value) >= EXACT:
        raise InputError(f"{source}: the label {name} is a float too large to tell whole numbers apart: store labels as integers or text")
    return str(int(value))


def classes_of(source: object, label: str, given: Array, held: Array, named: Iterable[str] | None = None) -> tuple[str, ...]:
    """All classes, `named` or sorted: whole numbers by their value, else as text. A test row of another class is refused."""
    classes = sorted(set(given[~held]))
    if len(classes) == np.sum(~held) > TELLING:
        raise InputError(
            f"{source}: each of the {len(classes):,} rows has a label of its own: is {label!r} the column of labels? "
            "Say which is: --label-column NAME"
        )
    if all(WHOLE.fullmatch(name) for name in classes):
        classes.sort(key=int)
    known = classes if named is None else list(named)
    other = set(given[held]) - set(known)
    if other:
        raise InputError(f"{source}: {some(map(repr, sorted(other)))} is the label of test rows, but of no row to train on")
    return tuple(known)


def words(source: object, cells: pd.Series) -> list[str]:
    """Cells that must not be missing, as text."""
    codes, known = texts(cells)
    known = [*known, ""]
    found = [known[code] for code in codes]
    refuse_missing(source, str(cells.name), cells.index[[not word for word in found]])
    if any("\0" in word for word in known):
        raise InputError(f"{source}: a cell in the column {cells.name} holds a NUL character")
    return found


def ids_of(source: object, frame: pd.DataFrame, paths: list[str] | None = None) -> tuple[str, ...]:
    """The column id; without one the paths, each with its row's number where it stands there twice, or the rows' numbers."""
    if "id" not in frame:
        again = set(repeated(paths or ()))
        told = [f"{path} (row {row})" if path in again else path for path, row in zip(paths or (), frame.index, strict=False)]
        return tuple(told if told and len(set(told)) == len(told) else map(str, frame.index))
    ids = words(source, frame["id"])
    for twice in repeated(ids):
        raise InputError(f"{source} has more than one row with the id {twice!r}: each needs its own")
    return tuple(ids)


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def refuse_missing(source: object, what: str, rows: Collection[Any]) -> None:
    if len(rows):
        many = "one row" if len(rows) == 1 else f"{len(rows)} rows"
        raise InputError(f"{source}: the {what} is missing in {many} ({some(map(str, rows), 5)}, counted from 0): fill it in or drop them")


def read(path: Path, exact: Collection[str], text: Collection[str] = ()) -> pd.DataFrame:
    """The table as it is. Of CSV files the columns `exact` are text in which "NA" is a name like another, and `text` text."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot read {path}: a table is a file named {', '.join(SUFFIXES)}")
    check_file(path)
    try:
        frame = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path, exact, text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not len(frame):
        raise InputError(f"{path} holds no rows")
    return frame


def read_csv(path: Path, exact: Collection[str], text: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    raw = path.read_bytes()
    try:
        if "\0" in raw.decode("utf-8"):
            raise InputError(f"{path} holds a NUL byte at position {raw.index(0)}: it is no text, or not UTF-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start}; save it as UTF-8") from None
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    header = next((row for _, row in rows_of(raw, separator)), [])
    if not header:
        raise InputError(f"{path} is empty")
    refuse_separators(path, header, tabs=", or with tabs as .tsv")
    for twice in repeated(filter(None, header)):
        raise InputError(f"{path} has more than one column {twice!r}: rename them")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", pd.errors.ParserWarning)  # of rows longer than the header
            frame = pd.read_csv(
                io.BytesIO(raw),
                sep=separator,
                dtype={name: str for name in header if name in exact or name in text},
                keep_default_na=False,
                na_values={name: MISSING for name in header if name not in exact},
                index_col=False,
                skipinitialspace=True,
                low_memory=False,  # would guess a column's type piece by piece
            )
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} holds nothing but blanks") from None
    except pd.errors.ParserError as error:
        refuse_ragged(path, raw, separator, len(header))
        raise InputError(f"{path} is not a readable CSV file: {str(error).strip().split('C error: ')[-1]}") from None
    last = frame.iloc[:, -1]
    if told or (last.isna() | (last == "")).any():  # pandas fills up rows that are too short
        refuse_ragged(path, raw, separator, len(header))
    return frame


def rows_of(raw: bytes, separator: str) -> Iterable[tuple[int, list[str]]]:
    """The rows that are not blank, and in which line each ends."""
    with io.TextIOWrapper(io.BytesIO(raw), "utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        try:
            yield from ((reader.line_num, row) for row in reader if row)
        except csv.Error:  # the tale of quotes is pandas' to tell
            return


def refuse_ragged(path: Path, raw: bytes, separator: str, width: int) -> None:
    for line, row in rows_of(raw, separator):
        if len(row) < width or any(row[width:]):
            told = f"mend it, or put quotes around cells with a {separator!r}"
            raise InputError(f"{path}: line {line} has {len(row)} of the header's {width} cells: {told}")


def read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        from pyarrow import ArrowException
    except ImportError:
        raise InputError("reading Parquet needs pyarrow: pip install pyarrow") from None
    with path.open("rb") as file:
        try:
            frame = pd.read_parquet(file, engine="pyarrow")
        except (ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from error
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()  # a column that pandas kept as the index
    frame.columns = [str(name) for name in frame.columns]
    for name in frame.columns:
        cell = next((cell for cell in frame[name] if cell is not None), None) if frame[name].dtype == object else None
        if isinstance(cell, dict) and "bytes" in cell:
            raise InputError(
                f"{path}: the column {name!r} holds the pictures themselves, which are not read from Parquet: save them as a folder of "
                "files, or as a Hugging Face data set with save_to_disk, and give that folder"
            )
    return frame.reset_index(drop=True)
