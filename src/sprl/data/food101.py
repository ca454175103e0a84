"""Food-101 (Bossard et al. 2014): images/CLASS/ID.jpg, and meta/train and meta/test that name them, as .txt or .json.

Training labels are as they were found, some of them wrong; test labels were reviewed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sprl.data.cifar import class_names
from sprl.data.listed import PictureSet, lines, place, root_of
from sprl.data.pictures import File
from sprl.errors import InputError


def read(folder: Path) -> tuple[list[File], tuple[str, ...]]:
    root, files = root_of(folder), list[File]()
    for part in ("train", "test"):
        path = next((p for p in (folder / "meta" / f"{part}.txt", folder / "meta" / f"{part}.json") if p.is_file()), None)
        if path is None:
            raise InputError(f"{folder} lacks meta/{part}.txt")
        for key in lines(path) if path.suffix == ".txt" else keys_of(path):
            label, slash, number = key.partition("/")
            if not (label and slash and number):
                raise InputError(f"{path} names {key[:200]!r}, which is no CLASS/ID")
            name = f"images/{key}.jpg"
            files.append(File(place(root, name, path), name, label, part == "test"))
    known = tuple(sorted({file.label for file in files}))
    named = class_names(folder / "meta" / "classes.txt", known)
    return files, named if set(named) == set(known) else known


def keys_of(path: Path) -> list[str]:
    """Those of all classes in a file of {CLASS: [CLASS/ID, ...]}."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is not readable JSON: {str(error)[:100]}") from error
    lists: list[Any] = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(some, list) and all(isinstance(key, str) for key in some) for some in lists):
        raise InputError(f"{path} is no list of pictures for each class")
    return [str(key) for some in lists for key in some]


FOOD101 = PictureSet("food101", read, classes=101, train=75_750, test=25_250)
