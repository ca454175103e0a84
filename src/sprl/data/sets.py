"""The benchmark sets: what their files are, where they are looked for, whether they are right, and where they can be had."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sprl.data import PLAIN, Data, How, cifar, idx
from sprl.data.cifar import CIFAR10, CIFAR100
from sprl.data.clothing1m import CLOTHING1M
from sprl.data.food101 import FOOD101
from sprl.data.mini_imagenet import MINI_IMAGENET
from sprl.errors import InputError, pick

PUBLISHED = "what the files hold is what was published"
UNKNOWN = "all files are there; nothing to compare their contents with"
SMALL = 100_000  # bytes of a file that is compared whenever it is looked for


@dataclass(frozen=True)
class File:
    """A file that a set needs, or a folder of them."""

    name: str  # as it is published; of a folder with a slash at its end, which may be a pattern
    size: int | None = None  # bytes, where they are known
    md5: str = ""
    copies: tuple[File, ...] = ()  # the same under other names, or unpacked

    def find(self, folder: Path) -> File | None:
        """Itself or the first of its copies that is there."""
        return next((file for file in (self, *self.copies) if file.is_in(folder)), None)

    def is_in(self, folder: Path) -> bool:
        return any(folder.glob(self.name)) if self.name.endswith("/") else (folder / self.name).is_file()

    def fault(self, folder: Path, thorough: bool) -> str:
        """What is wrong with it, if anything is: its size or, if thorough, its content."""
        path = folder / self.name
        if self.size is None:
            return ""
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
    unpacked: int = 0  # bytes that it may unpack to, where the files' sizes do not tell

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
    load: Callable[[Path, How], Data]
    check: Callable[[Path], dict[str, str]] = nothing_wrong  # of what files of the right sizes hold: what is wrong, and why
    remark: Callable[[Path], str] = no_remark  # on what else lies in the data folder, for a message that files are missing
    origin: str = ""  # where to get what cannot be downloaded, as a sentence
    told_by_folder: bool = False  # its files have names that others' have too: they count in a folder of its name only
    assurance: str = ""  # when the check finds nothing wrong; none: by what the files are compared with

    def assured(self) -> str:
        """What it means that the check found nothing wrong."""
        compared = self.check is not nothing_wrong or all(file.size is not None and file.md5 for file in self.files)
        return self.assurance or (PUBLISHED if compared else UNKNOWN)


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


def load_idx(folder: Path, how: How, name: str, classes: tuple[str, ...] | None = None) -> Data:
    data = idx.load(folder, name, classes)
    return replace(data, clean=data.y)


def load_cifar(folder: Path, how: How, layout: cifar.Layout) -> Data:
    return cifar.load(folder, layout)


LISTED = "every picture that it should have is there; their contents have no published checksums"
MNIST = (
    idx_file("train-images-idx3-ubyte", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873", 47040016, "6bbc9ace898e44ae57da46a324031adb"),
    idx_file("train-labels-idx1-ubyte", 28881, "d53e105ee54ea40749a09fcbcd1e9432", 60008, "a25bea736e30d166cdddb491f175f624"),
    idx_file("t10k-images-idx3-ubyte", 1648877, "9fb629c4189551a2d022fa330f9573f3", 7840016, "2646ac647ad5339dbf082846283269ea"),
    idx_file("t10k-labels-idx1-ubyte", 4542, "ec29112dd5afa0611ce80d1b7f02629c", 10008, "27ae3e4e09519cfbb04c329615203637"),
)
FASHION = (
    idx_file("train-images-idx3-ubyte", 26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 47040016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    idx_file("train-labels-idx1-ubyte", 29515, "25c81989df183df01b3e8a0aad5dffbe", 60008, "9018921c3c673c538a1fc5bad174d6f9"),
    idx_file("t10k-images-idx3-ubyte", 4422102, "bef4ecab320f06d8554ea6380940ec79", 7840016, "8181f5470baa50b63fa0f6fddb340f0a"),
    idx_file("t10k-labels-idx1-ubyte", 5148, "bb300cfdad3c16e7a12a480ee83cd310", 10008, "15d484375f8d13e6eb1aabb0c3f46965"),
)
FASHION_CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
CIFAR_LICENCE = "none stated by its authors; cite Krizhevsky 2009, Learning multiple layers of features from tiny images"

BENCHMARKS = {
    "mnist": BenchmarkSet(
        name="mnist",
        description="handwritten digits: 60,000 + 10,000 grey pictures of 28 x 28 pixels, 10 classes, 12 MB",
        licence="CC BY-SA 3.0; made from NIST's Special Databases 1 and 3 (LeCun et al. 1998)",
        folders=("MNIST/raw", "mnist", "mnist/raw"),
        files=MNIST,
        downloads=tuple(Download(f"https://ossci-datasets.s3.amazonaws.com/mnist/{file.name}", file.size or 0, file.md5) for file in MNIST),
        load=partial(load_idx, name="mnist"),
    ),
    "fashion-mnist": BenchmarkSet(
        name="fashion-mnist",
        description="clothes: 60,000 + 10,000 grey pictures of 28 x 28 pixels, 10 classes, 31 MB",
        licence="MIT, Zalando SE (Xiao, Rasul and Vollgraf 2017)",
        folders=("FashionMNIST/raw", "fashion-mnist", "fashion"),
        files=FASHION,
        downloads=tuple(Download(f"{FASHION_URL}/{file.name}", file.size or 0, file.md5) for file in FASHION),
        load=partial(load_idx, name="fashion-mnist", classes=FASHION_CLASSES),
    ),
    "cifar10": BenchmarkSet(
        name="cifar10",
        description="animals and vehicles: 50,000 + 10,000 pictures of 32 x 32 pixels, 10 classes, 184 MB (170 MB to download)",
        licence=CIFAR_LICENCE,
        folders=("cifar-10-batches-bin",),
        files=tuple(File(name, size) for name, size in CIFAR10.sizes().items()),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                170052171,
                "c32a1d4ab5d03f1284b67883e8d87530",
                unpacks_to="cifar-10-batches-bin",
            ),
        ),
        load=partial(load_cifar, layout=CIFAR10),
        check=cifar.check,
        remark=cifar.remark,
    ),
    "cifar100": BenchmarkSet(
        name="cifar100",
        description="animals, plants, things: 50,000 + 10,000 pictures of 32 x 32 pixels, 100 classes, 184 MB (169 MB to download)",
        licence=CIFAR_LICENCE,
        folders=("cifar-100-binary",),
        files=(
            File("train.bin", CIFAR100.sizes()["train.bin"], "6172c7755cfe09b2fe270c85cebc1b15"),
            File("test.bin", CIFAR100.sizes()["test.bin"], "4499cfba6c016c1be1438163640a0898"),
        ),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                168513733,
                "03b5dce01913d631647c71ecec9e9cb8",
                unpacks_to="cifar-100-binary",
            ),
        ),
        load=partial(load_cifar, layout=CIFAR100),
        check=partial(cifar.check, layout=CIFAR100),
        remark=partial(cifar.remark, layout=CIFAR100),
    ),
    "mini-imagenet": BenchmarkSet(
        name="mini-imagenet",
        description="things and animals: 50,000 + 10,000 pictures, made 32 x 32 pixels large, 100 classes",
        licence="ImageNet's terms: research and teaching only, no commercial use (Vinyals et al. 2016; Russakovsky et al. 2015)",
        folders=("mini-imagenet", "miniImagenet", "miniimagenet", "mini_imagenet"),
        files=tuple(File(name, copies=(File("*/"),)) for name in ("train.csv", "val.csv", "test.csv", "images/")),
        downloads=(),
        load=MINI_IMAGENET.load,
        check=MINI_IMAGENET.check,
        origin="Take its pictures from ImageNet (https://image-net.org) and put them there as train.csv, val.csv, test.csv and images/ "
        "(lists: https://github.com/twitter-research/meta-learning-lstm), as a folder a class, or as train/ and test/ of these",
        told_by_folder=True,
        assurance=LISTED,
    ),
    "food101": BenchmarkSet(
        name="food101",
        description="dishes: 75,750 pictures with labels of which some are wrong + 25,250 that were reviewed, made 32 x 32 pixels large, "
        "101 classes, 5 GB",
        licence="the photographers' (Foodspotting): scientific fair use only (Bossard, Guillaumin and Van Gool 2014)",
        folders=("food-101", "food101"),
        files=(
            *(File(f"meta/{part}.txt", copies=(File(f"meta/{part}.json"),)) for part in ("train", "test")),
            File("images/"),
        ),
        downloads=(
            Download(
                "https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                4996278331,
                "85eeb15f3717b99a5da872d97d918f87",
                unpacks_to="food-101",
                unpacked=6 * 10**9,
            ),
        ),
        load=FOOD101.load,
        check=FOOD101.check,
        told_by_folder=True,
        assurance=LISTED,
    ),
    "clothing1m": BenchmarkSet(
        name="clothing1m",
        description="clothes in shops: 1,000,000 pictures with labels of which many are wrong + 10,526 that people labelled, "
        "made 32 x 32 pixels large, 14 classes",
        licence="research and teaching only, no commercial use, no passing on (Xiao et al. 2015)",
        folders=("clothing1M", "clothing1m", "Clothing1M"),
        files=(
            *map(File, ("noisy_train_key_list.txt", "noisy_label_kv.txt", "clean_test_key_list.txt", "clean_label_kv.txt")),
            File("images/"),
        ),
        downloads=(),
        load=CLOTHING1M.load,
        check=CLOTHING1M.check,
        origin="Its authors send its address to whoever asks: https://github.com/Cysu/noisy_label",
        told_by_folder=True,
        assurance=LISTED,
    ),
}


def data_folder(data_dir: str | None) -> Path:
    """`data_dir`, else $SPRL_DATA, else ./data."""
    return Path(data_dir or os.environ.get("SPRL_DATA") or "data")


def places(which: BenchmarkSet, data_dir: str | None) -> list[Path]:
    """Where the set is looked for."""
    folder = data_folder(data_dir)
    named = [folder / below for below in which.folders]
    return named if which.told_by_folder and folder.resolve().name not in which.folders else [*named, folder]


def find(which: BenchmarkSet, data_dir: str | None) -> Path | None:
    """The first place that holds any of the set's files."""
    try:
        return next((place for place in places(which, data_dir) if holds(which, place)), None)
    except OSError as error:
        raise InputError(f"cannot look for {which.name} in {data_folder(data_dir)}: {error.strerror or error}") from error


def holds(which: BenchmarkSet, place: Path) -> bool:
    return any(file.find(place) for file in which.files) and not namesake(which, place)


def namesake(which: BenchmarkSet, place: Path) -> str:
    """The other set that `place` holds in files of the same names, as MNIST and Fashion-MNIST have: told by the small ones."""
    names = {file.name for file in which.files}
    for other in BENCHMARKS.values():
        found = [file.find(place) for file in other.files if file.name in names and other.name != which.name]
        if any(file and file.md5 and file.size and file.size < SMALL and not file.fault(place, thorough=True) for file in found):
            return other.name
    return ""


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


def require_published(name: str, data_dir: str | None) -> None:
    """InputError where the files of a set are there, and are not what was published."""
    which = BENCHMARKS[name]
    state = check(which, data_dir)
    if state.wrong:
        file, why = next(iter(state.wrong.items()))
        raise InputError(f"{name} in {state.where} is not what was published: {file}: {why}. {source(which, data_dir, 'Fetch again')}")


def load(name: str, data_dir: str | None = None, how: How = PLAIN) -> Data:
    """A set by its name, from the data folder."""
    which = BENCHMARKS[pick("benchmark set", name, BENCHMARKS)]
    state = status(which, data_dir)
    if state.where is None or state.missing:
        raise InputError(
            f"{name} needs {', '.join(state.missing)}, not found in {looked(which, state, data_dir)}. {source(which, data_dir)}"
        )
    try:
        return which.load(state.where, how)
    except InputError as error:
        raise InputError(f"{error}. {source(which, data_dir, 'Fetch again')}" if which.downloads else str(error)) from error


def looked(which: BenchmarkSet, state: Status, data_dir: str | None) -> str:
    """Where what is missing was looked for, and what lies there instead."""
    where = [state.where] if state.where else places(which, data_dir)
    others = {place: other for place in where if (other := namesake(which, place))}
    return ", ".join(f"{place} (holds {others[place]})" if place in others else str(place) for place in where) + which.remark(
        data_folder(data_dir)
    )


def source(which: BenchmarkSet, data_dir: str | None, fetch: str = "Fetch") -> str:
    """How to come by the set, as a sentence."""
    if not which.downloads:
        return which.origin
    return f"{fetch} with: sprl data {which.name} --download" + (f" --data-dir {shlex.quote(data_dir)}" if data_dir else "")


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
