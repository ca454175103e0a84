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
CHUNK = 10_000  # rows read at a time


@dataclass(frozen=True)
class Layout:
    """What a set's files are called and what they hold."""

    name: str
    train: dict[str, int]  # files, and the rows of each
    test: dict[str, int]
    classes: tuple[str, ...]
    names: str  # a file with the names of the classes, a line each
    pickled: str  # the folder of the pickled version
    pickles: tuple[str, ...]  # files that only the pickled version has
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
    pickles=("data_batch_1", "batches.meta"),
    sha256="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
)
FINE = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle caterpillar "
    "cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster "
    "house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree "
    "orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose "
    "sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television "
    "tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CIFAR100 = Layout(
    name="cifar100",
    train={"train.bin": 50_000},
    test={"test.bin": 10_000},
    classes=tuple(FINE.split()),
    names="fine_label_names.txt",
    pickled="cifar-100-python",
    pickles=("meta",),
    sha256="4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
    label_bytes=2,  # the superclass, then the class
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
    stride, first = layout.label_bytes + PIXELS, 0
    for name, count in files.items():
        path = folder / name
        for start in range(0, count, CHUNK):
            part = slice(first + start, first + min(start + CHUNK, count))
            try:
                rows = np.fromfile(path, np.uint8, CHUNK * stride, offset=start * stride).reshape(-1, stride)
                y[part] = rows[:, layout.label_bytes - 1]
                x[part] = rows[:, layout.label_bytes :]
            except (OSError, ValueError) as error:
                raise InputError(f"{path} cannot be read: {error}") from error
        labels = y[first : first + count]
        unknown = np.flatnonzero(labels >= len(layout.classes))
        if len(unknown):
            row = unknown[0]
            raise InputError(f"{path}: row {row} has the label {labels[row]}, but labels end at {len(layout.classes) - 1}: get it again")
        first += count
    return x.reshape(-1, *SHAPE), y


def class_names(path: Path, known: tuple[str, ...]) -> tuple[str, ...]:
    """As the file tells them, or the known ones where it does not tell as many."""
    if not path.is_file():
        return known
    try:
        with path.open(encoding="utf-8") as file:
            names = tuple(line.strip() for line in file.read(100_000).splitlines() if line.strip())
    except (OSError, UnicodeDecodeError):
        return known
    return names if len(set(names)) == len(names) == len(known) and all(printable(name) == name for name in names) else known


def remark(folder: Path, layout: Layout = CIFAR10) -> str:
    """Words on the pickled version, where it lies in `folder` or beside it."""
    places = [folder, folder / layout.pickled, folder.parent / layout.pickled]
    found = next((place for place in places if any((place / name).is_file() for name in layout.pickles)), None)
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
