"""Mini-ImageNet (Vinyals et al. 2016): 100 of ImageNet's classes, 600 pictures each.

Its copies are a folder a class, train/, val/ and test/ of these, or Ravi and Larochelle's lists (train.csv, val.csv and test.csv of
filename,label) with the pictures in images/. Most divide the classes, for learning from few examples. To learn all of them, the paper
divides the pictures, 500 and 100 of each class, but does not say which: where a copy does not tell either, they are drawn here.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from pathlib import Path

from sprl.data import table
from sprl.data.folder import class_files, entries
from sprl.data.listed import PictureSet, place, root_of
from sprl.data.pictures import File
from sprl.errors import InputError

PARTS = ("train", "val", "test")
SHARE = 6  # of which one is held for the test: 100 of 600
SEED = "mini-imagenet 0"

Part = list[File]


def read(folder: Path) -> tuple[list[File], tuple[str, ...]]:
    listed = any((folder / f"{part}.csv").is_file() for part in PARTS)
    parts = from_lists(folder) if listed else from_folders(folder)
    held = parts.pop("test", [])
    files = [file for part in parts.values() for file in part]
    if held and {file.label for file in held} <= {file.label for file in files}:
        files += [file._replace(test=True) for file in held]
    else:  # it divides the classes, if anything
        lost = [f"{part}.csv" for part in PARTS if listed and not (folder / f"{part}.csv").is_file()]
        if lost:
            raise InputError(f"{folder} lacks {', '.join(lost)}")
        files = divide(files + held)
    return files, tuple(sorted({file.label for file in files}))


def from_lists(folder: Path) -> dict[str, Part]:
    root, parts = root_of(folder), {}
    for part in PARTS:
        path = folder / f"{part}.csv"
        if not path.is_file():
            continue
        frame = table.read(path, exact=("filename", "label"))
        for column in ("filename", "label"):
            if column not in frame:
                raise InputError(f"{path} has no column {column!r}, only {', '.join(map(str, frame.columns[:20]))}")
        names, labels = table.words(path, frame["filename"]), table.words(path, frame["label"])
        nested = not (folder / "images" / names[0]).is_file() and (folder / "images" / labels[0]).is_dir()
        ids = [f"images/{label}/{name}" if nested else f"images/{name}" for name, label in zip(names, labels, strict=True)]
        parts[part] = [File(place(root, id, path), id, label) for id, label in zip(ids, labels, strict=True)]
    return parts


def from_folders(folder: Path) -> dict[str, Part]:
    root, others = root_of(folder), Counter[str]()
    below = {os.fsdecode(name) for name, is_folder in entries(root) if is_folder}
    parts = {part: class_files(root, part.encode(), others) for part in PARTS if part in below}
    parts = parts or {"": class_files(root, b"images" if below == {"images"} else None, others)}
    if not any(parts.values()):
        raise InputError(f"{folder} holds neither train.csv, val.csv and test.csv nor pictures in a folder a class")
    return parts


def divide(files: Part) -> Part:
    """A sixth of each class for the test: those with the least hashes of class and name, so the same on every machine."""
    classes = defaultdict[str, Part](list)
    for file in files:
        classes[file.label].append(file)
    held = {file.id for some in classes.values() for file in sorted(some, key=lot)[: len(some) // SHARE]}
    return [file._replace(test=file.id in held) for file in files]


def lot(file: File) -> tuple[bytes, str]:
    name = os.path.splitext(os.path.basename(file.id))[0]  # wherever it lies
    return hashlib.sha256(f"{SEED} {file.label} {name}".encode("utf-8", "replace")).digest(), file.id


MINI_IMAGENET = PictureSet("mini-imagenet", read, classes=100, train=50_000, test=10_000, clean=True)
