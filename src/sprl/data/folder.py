"""A folder of pictures with one folder a class: train/ and test/, or one tree."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sprl.data import Data, How
from sprl.data.pictures import File
from sprl.data.pictures import load as load_pictures
from sprl.errors import InputError, SprlWarning

SUFFIXES = frozenset(b".png .jpg .jpeg .jpe .jfif .webp .gif .bmp .tif .tiff .ppm .pgm .pbm .mpo .avif .jp2".split())
TRAIN, TEST = (b"train", b"training"), (b"test", b"testing", b"val", b"valid", b"validation")  # the first that is there
SOME = 5  # folders that a message names


def load(folder: Path, how: How) -> Data:
    """Every picture under a class's folder, however deep. Its id is its path in `folder`."""
    root = os.path.abspath(os.fsencode(folder))
    parts = {name.lower(): name for name, is_folder in entries(root) if is_folder}
    train = next((parts[name] for name in TRAIN if name in parts), None)
    test = next((parts[name] for name in TEST if name in parts), None) if train is not None else None
    others: Counter[str] = Counter()
    files = class_files(root, train, others)
    classes = sorted({file.label for file in files})
    if train is not None:
        check_beside(folder, root, train, test, empty=not files)
    if not files:
        raise InputError(explain_empty(folder, root, train))
    if test is not None:
        held = class_files(root, test, others, test=True)
        unknown = sorted({file.label for file in held} - set(classes))
        if unknown:
            raise InputError(f"{text(test)}/ holds the class {unknown[0]!r}, of which {text(train or b'')}/ holds no picture")
        files += held
    tell_of_others(others)
    return load_pictures(text(os.path.basename(root)) or "pictures", files, classes, how)


def check_beside(folder: Path, root: bytes, train: bytes, test: bytes | None, empty: bool) -> None:
    """Tell of folders with pictures beside train/ and test/. Refused where train may be a class like them: without a test/, or `empty`."""
    beside = [name for name, is_folder in entries(root) if is_folder and name not in (train, test)]
    beside = [name for name in beside if any(pictures_below(os.path.join(root, name), Counter(), {identity(root)}))]
    if not beside:
        return
    named = ", ".join(text(name) for name in beside[:SOME]) + (f" and {len(beside) - SOME} more" if len(beside) > SOME else "")
    if any(name.lower() not in TRAIN + TEST for name in beside) and (test is None or empty):
        raise InputError(
            f"{folder} holds pictures in {named} beside {text(train)}/, which is taken for all that is to be trained on: "
            f"if {text(train)} is a class, rename its folder, such as to {text(train)}_; if not, move the others elsewhere"
        )
    serves = f"{text(train)} serves to train on" + (f" and {text(test)} to test on" if test is not None else "")
    warnings.warn(f"folders with pictures are left out: {named}, as {serves}", SprlWarning, stacklevel=4)


def tell_of_others(others: Counter[str]) -> None:
    if others:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(5))
        warnings.warn(f"files that are no pictures by their names are left out: {kinds}", SprlWarning, stacklevel=4)


def class_files(root: bytes, part: bytes | None, others: Counter[str], test: bool = False) -> list[File]:
    """The pictures below root/part, in order, each labelled by its class's folder."""
    top = os.path.join(root, part) if part else root
    files, empty = list[File](), list[str]()
    for name, is_folder in entries(top):
        if not is_folder:
            continue
        before = len(files)
        for path in pictures_below(os.path.join(top, name), others, {identity(root), identity(top)}):
            files.append(File(path, text(path[len(root) + 1 :]), text(name), test))
        if len(files) == before:
            empty.append(text(name))
    if empty and files:
        warnings.warn(f"class folders without pictures are left out: {', '.join(empty)}", SprlWarning, stacklevel=4)
    return files


def entries(folder: bytes) -> list[tuple[bytes, bool]]:
    """Names in a folder in order, each with whether it is a folder, but for what computers leave there (.DS_Store, ._x.jpg, __MACOSX)."""
    try:
        with os.scandir(folder) as found:
            names = [(entry.name, is_folder(entry)) for entry in found if not entry.name.startswith((b".", b"__MACOSX"))]
    except OSError as error:
        raise InputError(f"cannot read the folder {text(folder)}: {error.strerror}") from error
    return sorted(names)


def is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def pictures_below(folder: bytes, others: Counter[str], seen: set[tuple[int, int]]) -> Iterator[bytes]:
    """Paths of all pictures. Links are followed, but into no folder that has been `seen`."""
    left = [(folder, True)]
    while left:
        path, is_folder = left.pop()
        suffix = os.path.splitext(path)[1].lower()
        if is_folder:
            here = identity(path)
            if here not in seen:
                seen.add(here)
                left += [(os.path.join(path, name), below) for name, below in reversed(entries(path))]
        elif suffix in SUFFIXES:
            yield path
        elif os.path.basename(path).lower() not in (b"thumbs.db", b"desktop.ini"):
            others[text(suffix) or "without a suffix"] += 1


def identity(folder: bytes) -> tuple[int, int]:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def text(name: bytes) -> str:
    """A name as text; bytes that are no UTF-8 as \\xff."""
    return name.decode("utf-8", "backslashreplace")


def explain_empty(folder: Path, root: bytes, train: bytes | None) -> str:
    where = folder if train is None else folder / text(train)
    top = os.fsencode(where)
    if any(os.path.splitext(name)[1].lower() in SUFFIXES for name, _ in entries(top)):
        return f"{where} holds pictures but no folder a class: put each class into a folder of its own, or give a CSV with path,label"
    if train is None and not entries(root):
        return f"{folder} is empty: it should hold a folder of pictures for each class"
    return f"{where} holds no pictures in class folders (CLASS/x.jpg); pictures end in {', '.join(text(s) for s in sorted(SUFFIXES))}"
