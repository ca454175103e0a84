"""MNIST's idx files, plain or packed with gzip: type, number of sides, the sides, then the bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprl.data import Data, Preprocess
from sprl.errors import InputError

Bytes = NDArray[np.uint8]

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
UNSIGNED_BYTE = 0x08
RATIO = 1032  # the most that deflate can make of a byte
CHUNK = 2**20


def spellings(name: str) -> tuple[str, str, str, str]:
    """What copies of a file are called: packed or not, and with a dot before idx or not. The published one is the first."""
    dotted = name.replace("-idx", ".idx")
    return f"{name}.gz", f"{dotted}.gz", name, dotted


def find(folder: Path, name: str) -> Path | None:
    return next((folder / spelling for spelling in spellings(name) if (folder / spelling).is_file()), None)


def read(path: Path) -> Bytes:
    """The array in the file, of one to four sides."""
    packed = path.suffix == ".gz"
    try:
        most = path.stat().st_size * (RATIO if packed else 1)
        with gzip.open(path) if packed else path.open("rb") as file:
            shape = read_shape(path, file)
            count = math.prod(shape)
            if 4 + 4 * len(shape) + count > most:  # before memory is asked for what cannot be there
                raise InputError(f"{path} should hold {count:,} values by its header, which is more than it can: get it again")
            values = np.empty(count, np.uint8)
            found = fill(values, file)
            if found < count:
                raise InputError(f"{path} ends after {found:,} of {count:,} values: get it again")
            if file.read(1):  # to the end of the file, where gzip's checksum is
                raise InputError(f"{path} holds more than the {count:,} values of its header: get it again")
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path} cannot be read: {reason}") from error
    return values.reshape(shape)


def read_shape(path: Path, file: BufferedIOBase) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or not 1 <= magic[3] <= 4:
        raise InputError(f"{path} is no idx file of one to four sides: it begins with {magic.hex(' ') or 'nothing'}")
    if magic[2] != UNSIGNED_BYTE:
        raise InputError(f"{path} holds values of type 0x{magic[2]:02x}: only unsigned bytes (0x08) are read")
    sides = file.read(4 * magic[3])
    if len(sides) < 4 * magic[3]:
        raise InputError(f"{path} ends within its header: get it again")
    shape = struct.unpack(f">{magic[3]}I", sides)
    if not all(shape):
        raise InputError(f"{path} holds nothing: its shape is {shape}")
    return shape


def fill(values: Bytes, file: BufferedIOBase) -> int:
    """Read as many values as the file has, and tell how many."""
    found = 0
    while found < len(values):
        chunk = file.read(min(CHUNK, len(values) - found))
        if not chunk:
            break
        values[found : found + len(chunk)] = np.frombuffer(chunk, np.uint8)
        found += len(chunk)
    return found


def load(folder: Path, name: str, names: tuple[str, ...] | None = None) -> Data:
    """Any set in MNIST's four files; those of the test rows may both be left out. `names`: of the classes, else their numbers."""
    stems = TRAIN + TEST if any(find(folder, stem) for stem in TEST) else TRAIN
    arrays: dict[str, Bytes] = {}
    faults = []
    for stem in stems:
        path = find(folder, stem)
        try:
            if path is None:
                raise InputError(f"{stem}[.gz] is missing")
            arrays[stem] = read(path)
            sides = 3 if stem.endswith("idx3-ubyte") else 1
            if arrays[stem].ndim != sides:
                raise InputError(f"{path} has the shape {arrays[stem].shape}, but {sides} side{'s' * (sides > 1)} by its name")
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError(f"{name} in {folder}: {'; '.join(faults)}")
    x, y = pair(folder, arrays, *TRAIN)
    classes = int(y.max()) + 1 if names is None else len(names)
    if y.max() >= classes:
        raise InputError(f"{folder}: the training labels go up to {y.max()}, but {name} has {classes} classes")
    preprocess = Preprocess.fit(x)
    test: dict[str, Any] = {}
    if stems != TRAIN:
        x_test, y_test = pair(folder, arrays, *TEST)
        if x_test.shape[1:] != x.shape[1:]:
            raise InputError(f"{folder}: test pictures are {x_test.shape[1:]} pixels large, training pictures {x.shape[1:]}")
        if y_test.max() >= classes:
            raise InputError(f"{folder}: the test labels go up to {y_test.max()}, the training labels only to {classes - 1}")
        test = {"x_test": preprocess(x_test), "y_test": y_test.astype(np.int64)}
    return Data(
        name=name,
        x=preprocess(x),
        y=y.astype(np.int64),
        classes=names or tuple(map(str, range(classes))),
        index=np.arange(len(y)),
        ids=tuple(f"{name}/{i}" for i in range(len(y))),
        preprocess=preprocess,
        **test,
    )


def pair(folder: Path, arrays: dict[str, Bytes], images: str, labels: str) -> tuple[Bytes, Bytes]:
    x, y = arrays[images], arrays[labels]
    if len(x) != len(y):
        raise InputError(f"{folder}: {images} holds {len(x):,} pictures, but {labels} {len(y):,} labels")
    return x, y
