"""What DATA on the command line may be, and other labels for it."""

import csv
import os
import warnings
from collections import Counter
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path

import numpy as np

from sprl.cells import refuse_separators, unguard
from sprl.data import PLAIN, Array, Data, How, arrays, cifar, digits, folder, huggingface, human, idx, sets, table
from sprl.data.given import check_classes
from sprl.errors import InputError, SprlWarning, pick

# To add a data set: a module with load(), and a line in sets.BENCHMARKS.
SETS = ("digits", *sets.BENCHMARKS)
NOTE = ("# sprl labels", '"# sprl labels')  # above what `sprl apply` writes
KINDS = f"data is a set ({', '.join(SETS)}), a folder with a folder of pictures for each class, a .csv or .parquet table, or an .npz file"


def load(data: str, data_dir: str | None = None, how: How = PLAIN) -> Data:
    """A set by its name, a folder or a file, looked for in `data_dir` too."""
    found = find(data, data_dir, how)
    return replace(found, name=folder.text(os.fsencode(found.name)))  # that of a file need not be text


def find(data: str, data_dir: str | None, how: How) -> Data:
    """The same, named as its file or folder is."""
    if data == "digits":
        return digits.load()
    if data in SETS:
        return sets.load(data, data_dir, how)
    places = [Path(data), *([Path(data_dir) / data] if data_dir else [])]
    path = next((p for p in places if p.exists()), None)
    if path is None:
        if "." in Path(data).name or "/" in data:
            raise InputError(f"no such file or folder: {' or '.join(map(str, places))}")
        pick("file, folder or set", data, SETS)
    assert path is not None
    if path.is_dir():
        return load_folder(path, how)
    if path.suffix.lower() == ".npz":
        return arrays.load(path)
    if path.suffix.lower() in table.SUFFIXES:
        return table.load(path, how)
    raise InputError(f"cannot read {path}: {KINDS}")


def load_folder(path: Path, how: How) -> Data:
    """Whatever kind of data the folder holds."""
    if huggingface.is_saved(path):
        return huggingface.load(path, how)
    if (path / "metadata.csv").is_file():
        return table.load(path / "metadata.csv", how)
    if (path / "train" / "metadata.csv").is_file():
        return table.load_parts(path, how)
    if (path / "data_batch_1.bin").is_file():
        return cifar.load(path)
    if (path / "train.bin").is_file():
        return cifar.load(path, cifar.CIFAR100)
    if any(path.glob("train-images*ubyte*")):
        return idx.load(path, path.resolve().name)
    return folder.load(path, how)


def relabel(data: Data, labels: str, data_dir: str | None = None) -> Array:
    """Other labels for the same rows: a CSV with the columns id and label, matched by id; an .npy with one label a row, in order; or
    human:NAME, those that people gave. Where the data is a part, the latter two are labels of the whole, of which it gets its own."""
    whole, rows = (data, np.arange(len(data.y))) if data.part is None else data.part
    kind, colon, which = labels.partition(":")
    if colon and kind == "human":
        return human.read(sets.data_folder(data_dir), which, whole.y if whole.clean is None else whole.clean, data.name)[rows]
    path = Path(labels)
    if not path.is_file():
        raise InputError(f"no such file of labels: {path}")
    if path.suffix.lower() == ".npy":
        given = arrays.check_labels(path, "the array", arrays.read_npy(path))
        if len(given) != len(whole.y):
            raise InputError(f"{path} holds {len(given)} labels, but {data.name} has {len(whole.y)} training rows")
        names = [str(v) for v in given[rows].tolist()]
    else:
        names = read_csv(data, set(whole.ids), path)
    number = {c: i for i, c in enumerate(data.classes)}
    check_classes(f"label in {path}:", names, data.classes, new="the data")
    return np.array([number[name] for name in names], dtype=np.int64)


def read_csv(data: Data, ids: set[str], path: Path) -> list[str]:
    """The label of each row; `ids` are those of the whole set. Cells that are no id or class as they are may be so once unguarded; in a
    file of ours all are guarded."""
    classes = set(data.classes)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            ours = file.readline().startswith(NOTE)
            file.seek(0)
            reader = csv.DictReader(dropwhile(lambda line: line.startswith(("#", '"#')), file))  # a note may stand above the header
            refuse_separators(path, reader.fieldnames or ())
            if not {"id", "label"} <= set(reader.fieldnames or ()):
                raise InputError(f"{path} must have the columns id and label, it has: {', '.join(reader.fieldnames or ()) or 'none'}")
            rows = [(row["id"] or "", row["label"] or "") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV file: {error}") from error
    rows = [(unguard(i) if ours or i not in ids else i, unguard(c) if ours or c not in classes else c) for i, c in rows]
    labels = dict(rows)
    if len(labels) < len(rows):
        twice = next(key for key, count in Counter(key for key, _ in rows).items() if count > 1)
        raise InputError(f"{path} has more than one label for {twice!r}")
    missing = [i for i in data.ids if i not in labels]
    if missing:
        told = "every row needs one"
        raise InputError(f"{path} lacks labels for {len(missing)} of {len(data.ids)} rows, the first of them {missing[0]!r}: {told}")
    unknown = labels.keys() - ids - set(data.skipped)
    if unknown:
        some = ", ".join(map(repr, sorted(unknown)[:3]))
        warnings.warn(
            f"{path} has labels for ids that {data.name} lacks, {len(unknown)} of them, such as {some}", SprlWarning, stacklevel=4
        )
    return [labels[i] for i in data.ids]
