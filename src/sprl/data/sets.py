"""The benchmark sets: what their files are, where they are looked for, whether they are right, and where they can be had."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sprl.data import Data, cifar, idx
from sprl.errors import InputError, pick


@dataclass(frozen=True)
class File:
    """A file that a set needs."""

    name: str  # as it is published
    size: int  # bytes
    md5: str = ""
    copies: tuple[File, ...] = ()  # the same under other names, or unpacked

    def find(self, folder: Path) -> File | None:
        """Itself or the first of its copies that is there."""
        return next((file for file in (self, *self.copies) if (folder / file.name).is_file()), None)

    def fault(self, folder: Path, thorough: bool) -> str:
        """What is wrong with it, if anything is: its size or, if thorough, its content."""
        path = folder / self.name
        try:
            size = path.stat().st_size
            if size != self.size:
                return f"has {size:,} bytes, not {self.size:,}"
            if thorough and self.md5 and (found := md5(path)) != self.md5:
                return f"its md5 is {found}, not {self.md5}"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        return ""


@dataclass(frozen=True)
class Download:
    """A file of a set, or an archive of them, on the web."""

    url: str
    size: int
    md5: str
    unpacks_to: str = ""  # of an archive, the folder in it that holds the files

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def nothing_wrong(folder: Path) -> dict[str, str]:
    return {}


def no_remark(folder: Path) -> str:
    return ""


@dataclass(frozen=True)
class BenchmarkSet:
    """A published set. To add one: a reader, and an entry of BENCHMARKS."""

    name: str
    description: str
    licence: str
    folders: tuple[str, ...]  # below the data folder; the first is where a download goes
    files: tuple[File, ...]
    downloads: tuple[Download, ...]
    load: Callable[[Path], Data]
    check: Callable[[Path], dict[str, str]] = nothing_wrong  # of what files of the right sizes hold: what is wrong, and why
    remark: Callable[[Path], str] = no_remark  # on what else lies in the data folder, for a message that files are missing


@dataclass(frozen=True)
class Status:
    """What there is of a set."""

    where: Path | None
    missing: tuple[str, ...] = ()
    wrong: dict[str, str] = field(default_factory=dict)  # what, and why

    @property
    def complete(self) -> bool:
        return self.where is not None and not self.missing and not self.wrong


def idx_file(name: str, size: int, digest: str, unpacked: int, unpacked_digest: str) -> File:
    packed, packed_dotted, plain, plain_dotted = idx.spellings(name)
    plain_files = File(plain, unpacked, unpacked_digest), File(plain_dotted, unpacked, unpacked_digest)
    return File(packed, size, digest, (File(packed_dotted, size, digest), *plain_files))


def load_mnist(folder: Path) -> Data:
    data = idx.load(folder, "mnist")
    return replace(data, clean=data.y)


MNIST = (
    idx_file("train-images-idx3-ubyte", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873", 47040016, "6bbc9ace898e44ae57da46a324031adb"),
    idx_file("train-labels-idx1-ubyte", 28881, "d53e105ee54ea40749a09fcbcd1e9432", 60008, "a25bea736e30d166cdddb491f175f624"),
    idx_file("t10k-images-idx3-ubyte", 1648877, "9fb629c4189551a2d022fa330f9573f3", 7840016, "2646ac647ad5339dbf082846283269ea"),
    idx_file("t10k-labels-idx1-ubyte", 4542, "ec29112dd5afa0611ce80d1b7f02629c", 10008, "27ae3e4e09519cfbb04c329615203637"),
)

BENCHMARKS = {
    "mnist": BenchmarkSet(
        name="mnist",
        description="handwritten digits: 60,000 + 10,000 grey pictures of 28 x 28 pixels, 10 classes, 12 MB",
        licence="CC BY-SA 3.0; made from NIST's Special Databases 1 and 3 (LeCun et al. 1998)",
        folders=("MNIST/raw", "mnist", "mnist/raw"),
        files=MNIST,
        downloads=tuple(Download(f"https://ossci-datasets.s3.amazonaws.com/mnist/{file.name}", file.size, file.md5) for file in MNIST),
        load=load_mnist,
    ),
    "cifar10": BenchmarkSet(
        name="cifar10",
        description="animals and vehicles: 50,000 + 10,000 pictures of 32 x 32 pixels, 10 classes, 184 MB (170 MB to download)",
        licence="none stated by its authors; cite Krizhevsky 2009, Learning multiple layers of features from tiny images",
        folders=("cifar-10-batches-bin",),
        files=tuple(File(name, size) for name, size in cifar.CIFAR10.sizes().items()),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                170052171,
                "c32a1d4ab5d03f1284b67883e8d87530",
                unpacks_to="cifar-10-batches-bin",
            ),
        ),
        load=cifar.load,
        check=cifar.check,
        remark=cifar.remark,
    ),
}


def data_folder(data_dir: str | None) -> Path:
    """`data_dir`, else $SPRL_DATA, else ./data."""
    return Path(data_dir or os.environ.get("SPRL_DATA") or "data")


def places(which: BenchmarkSet, data_dir: str | None) -> list[Path]:
    """Where the set is looked for."""
    folder = data_folder(data_dir)
    return [*(folder / below for below in which.folders), folder]


def find(which: BenchmarkSet, data_dir: str | None) -> Path | None:
    """The first place that holds any of the set's files."""
    try:
        return next((place for place in places(which, data_dir) if any(file.find(place) for file in which.files)), None)
    except OSError as error:
        raise InputError(f"cannot look for {which.name} in {data_folder(data_dir)}: {error.strerror or error}") from error


def status(which: BenchmarkSet, data_dir: str | None, thorough: bool = False) -> Status:
    """Which files are there, and of the right size."""
    where = find(which, data_dir)
    if where is None:
        return Status(None, missing=tuple(file.name for file in which.files))
    found = {file.name: file.find(where) for file in which.files}
    wrong = {file.name: reason for file in found.values() if file and (reason := file.fault(where, thorough))}
    return Status(where, tuple(name for name, file in found.items() if file is None), wrong)


def check(which: BenchmarkSet, data_dir: str | None) -> Status:
    """As `status`, but what the files hold is compared too."""
    state = status(which, data_dir, thorough=True)
    if state.where is None or not state.complete:
        return state
    try:
        return replace(state, wrong=which.check(state.where))
    except InputError as error:
        return replace(state, wrong={which.name: str(error)})


def load(name: str, data_dir: str | None = None) -> Data:
    """A set by its name, from the data folder."""
    which = BENCHMARKS[pick("benchmark set", name, BENCHMARKS)]
    folder, state = data_folder(data_dir), status(which, data_dir)
    command = f"sprl data {name} --download" + (f" --data-dir {shlex.quote(data_dir)}" if data_dir else "")
    if state.where is None or state.missing:
        looked = ", ".join(map(str, [state.where] if state.where else places(which, data_dir)))
        raise InputError(f"{name} needs {', '.join(state.missing)}, not found in {looked}{which.remark(folder)}. Fetch with: {command}")
    try:
        return which.load(state.where)
    except InputError as error:
        raise InputError(f"{error}. Fetch again with: {command}") from error


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
