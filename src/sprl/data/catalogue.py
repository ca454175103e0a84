"""What DATA on the command line may be, and other labels for it."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np

from sprl.data import Array, Data, arrays, digits
from sprl.errors import InputError, pick

# To add a data set: a module with load(), and a line here.
SETS = {"digits": digits.load}


def load(data: str, data_dir: str | None = None) -> Data:
    """A set by its name, or a file, looked for in `data_dir` too."""
    if data in SETS:
        return SETS[data]()
    places = [Path(data), *([Path(data_dir) / data] if data_dir else [])]
    path = next((p for p in places if p.exists()), None)
    if path is None:
        if "." in Path(data).name or "/" in data:
            raise InputError(f"no such file: {' or '.join(map(str, places))}")
        pick("data", data, SETS)
    assert path is not None
    if path.is_dir() or path.suffix != ".npz":
        raise InputError(f"cannot read {path}: data is a set ({', '.join(SETS)}) or an .npz file with x, y[, x_test, y_test]")
    return arrays.load(path)


def relabel(data: Data, path: Path) -> Array:
    """Other labels for the same rows: a CSV with the columns id and label, matched by id, or an .npy with one label a row, in order."""
    if not path.is_file():
        raise InputError(f"no such file of labels: {path}")
    if path.suffix == ".npy":
        try:
            given = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is not a readable .npy file without pickled objects: {error}") from error
        given = arrays.check_labels(path, "the array", given)
        if len(given) != len(data.y):
            raise InputError(f"{path} holds {len(given)} labels, but {data.name} has {len(data.y)} training rows")
        names = [str(v) for v in given.tolist()]
    else:
        names = read_csv(data, path)
    number = {c: i for i, c in enumerate(data.classes)}
    for name in names:
        if name not in number:
            pick(f"label in {path}:", name, data.classes)
    return np.array([number[name] for name in names], dtype=np.int64)


def read_csv(data: Data, path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            if not {"id", "label"} <= set(reader.fieldnames or ()):
                raise InputError(f"{path} must have the columns id and label, it has: {', '.join(reader.fieldnames or ()) or 'none'}")
            rows = [(row["id"], row["label"] or "") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV file: {error}") from error
    labels = dict(rows)
    if len(labels) < len(rows):
        twice = next(key for key, count in Counter(key for key, _ in rows).items() if count > 1)
        raise InputError(f"{path} has more than one label for {twice!r}")
    missing = [i for i in data.ids if i not in labels]
    if missing:
        raise InputError(f"{path} lacks labels for {len(missing)} of {len(data.ids)} rows, the first of them {missing[0]!r}")
    return [labels[i] for i in data.ids]
