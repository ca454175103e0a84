"""CIFAR's binary files: rows of label bytes and 3 x 32 x 32 pixels, a plane a colour. The pickled version is not read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sprl.data import Array, Data, Preprocess
from sprl.errors import InputError, printable

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """What a set's files are called and what they hold."""

    name: str
    train: dict[str, int]  # files, and the rows of each
    test: dict[str, int]
    classes: tuple[str, ...]
    names: str  # a file with the names of the classes, a line each
    pickled: str  # the folder of the pickled version
    sha256: str  # of the training pixels, [N, 32, 32, 3]
    label_bytes: int = 1  # of which the last is the label

    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: rows * (self.label_bytes + PIXELS) for name, rows in (self.train | self.test).items()}


CIFAR10 = Layout(
    name="cifar10",
    train={f"data_batch_{i}.bin": 10_000 for i in range(1, 6)},
    test={"test_batch.bin": 10_000},
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    names="batches.meta.txt",
    pickled="cifar-10-batches-py",
    sha256="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
)


def load(folder: Path, layout: Layout = CIFAR10) -> Data:
    """All rows in the order of the files; the given labels are the true ones."""
    faults = []
    for name, size in layout.sizes().items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing")
        elif path.stat().st_size != size:
            faults.append(f"{name} has {path.stat().st_size:,} bytes, not {size:,}")
    if faults:
        raise InputError(f"{layout.name} in {folder}: {'; '.join(faults)}{remark(folder, layout)}")
    x, y = read(folder, layout.train, layout)
    x_test, y_test = read(folder, layout.test, layout)
    return Data(
        name=layout.name,
        x=torch.from_numpy(x),
        y=y,
        classes=class_names(folder / layout.names, layout.classes),
        index=np.arange(len(y)),
        ids=tuple(f"{layout.name}/{i}" for i in range(len(y))),
        preprocess=Preprocess(SHAPE),
        x_test=torch.from_numpy(x_test),
        y_test=y_test,
        clean=y,
    )


def read(folder: Path, files: dict[str, int], layout: Layout) -> tuple[Array, Array]:
    """Pixels [N, 3, 32, 32] and labels [N]."""
    x = np.empty((sum(files.values()), PIXELS), np.uint8)
    y = np.empty(len(x), np.int64)
    first = 0
    for name, count in files.items():
        path, part = folder / name, slice(first, first + count)
        try:
            rows = np.fromfile(path, np.uint8).reshape(count, layout.label_bytes + PIXELS)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        y[part] = rows[:, layout.label_bytes - 1]
        x[part] = rows[:, layout.label_bytes :]
        unknown = np.flatnonzero(y[part] >= len(layout.classes))
        if len(unknown):
            row = unknown[0]
            raise InputError(f"{path}: row {row} has the label {y[part][row]}, but labels end at {len(layout.classes) - 1}: get it again")
        first += count
    return x.reshape(-1, *SHAPE), y


def class_names(path: Path, known: tuple[str, ...]) -> tuple[str, ...]:
    """As the file tells them, or the known ones where it does not tell as many."""
    try:
        with path.open(encoding="utf-8") as file:
            names = tuple(line.strip() for line in file.read(100_000).splitlines() if line.strip())
    except (OSError, UnicodeDecodeError):
        return known
    return names if len(set(names)) == len(names) == len(known) and all(printable(name) == name for name in names) else known


def remark(folder: Path, layout: Layout = CIFAR10) -> str:
    """Words on the pickled version, where it lies in `folder` or beside it."""
    places = [folder, folder / layout.pickled, folder.parent / layout.pickled]
    found = next((place for place in places if (place / "data_batch_1").is_file() or (place / "batches.meta").is_file()), None)
    return f"; {found} holds the pickled version, which is not read, as pickles can run code: the binary version is needed" if found else ""


def check(folder: Path, layout: Layout = CIFAR10) -> dict[str, str]:
    """What is wrong with the rows themselves."""
    data = load(folder, layout)
    assert isinstance(data.x, torch.Tensor)
    assert data.y_test is not None
    digest = hashlib.sha256()
    for part in data.x.split(10_000):
        digest.update(part.permute(0, 2, 3, 1).contiguous().numpy())
    wrong = {}
    if digest.hexdigest() != layout.sha256:
        wrong["training pictures"] = f"their sha256 is {digest.hexdigest()}, not {layout.sha256}"
    for which, y in (("training labels", data.y), ("test labels", data.y_test)):
        if len(set(np.bincount(y, minlength=len(layout.classes)))) > 1:
            wrong[which] = "not as many of each class"
    return wrong
