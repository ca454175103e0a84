"""Labels that people gave: CIFAR-N (Wei et al. 2022, http://noisylabels.com; CC BY-NC 4.0, for research), in a file a user brings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from sprl import torchfile
from sprl.data import Array, arrays
from sprl.errors import InputError, pick


@dataclass(frozen=True)
class Source:
    """Where the labels of a set are, and what they are called there."""

    arrays: str  # .npz with `clean` and the keys of `labels`
    published: str  # torch.save of a dict with `clean_label` and the values of `labels`
    classes: int
    labels: dict[str, str]


SOURCES = {
    "cifar10": Source(
        "cifar10n.npz",
        "CIFAR-10_human.pt",
        10,
        {
            "worse": "worse_label",
            "aggre": "aggre_label",
            "random1": "random_label1",
            "random2": "random_label2",
            "random3": "random_label3",
        },
    ),
    "cifar100": Source("cifar100n.npz", "CIFAR-100_human.pt", 100, {"noisy": "noisy_label"}),
}


def read(folder: Path, which: str, clean: Array, name: str = "cifar10") -> Array:
    """The class numbers [N] that people gave to the rows whose true labels are `clean`."""
    source = SOURCES[pick("set with labels that people gave", name, SOURCES)]
    pick(f"kind of labels that people gave to {name}", which, source.labels)
    places = [folder / below / file for below in ("", "cifar-n") for file in (source.arrays, source.published)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise InputError(
            f"no labels that people gave to {name}: get {source.published} from http://noisylabels.com (CC BY-NC 4.0, for research) "
            f"and put it in {folder} or {folder / 'cifar-n'}"
        )
    if path.suffix == ".npz":
        found, true, given = arrays.read(path, ("clean", which)), "clean", which
    else:
        found, true, given = read_published(path), "clean_label", source.labels[which]
    for key in (true, given):
        if key not in found:
            others = f", only: {', '.join(map(str, found)) or 'none'}" if path.suffix == ".pt" else ""
            raise InputError(f"{path} holds no labels {key!r}{others}")
        y = found[key]
        if y.dtype.kind not in "iu" or y.shape != clean.shape or ((y < 0) | (y >= source.classes)).any():
            raise InputError(f"{path}: {key} must hold {len(clean):,} numbers from 0 to {source.classes - 1}")
    differ = int((found[true] != clean).sum())
    if differ:
        raise InputError(
            f"{path}: {differ:,} of its {len(clean):,} true labels differ from those of {name}: "
            "its rows have another order, or are of other data"
        )
    return found[given].astype(np.int64)


def read_published(path: Path) -> dict[str, Array]:
    """The arrays of the publishers' file."""
    try:
        found = torchfile.read_torch(path)
        return {str(key): array_of(value) for key, value in found.items()}
    except InputError:
        raise
    except Exception as error:  # of damaged and of hostile files there are many kinds
        raise InputError(f"{path} holds something else than plain arrays, or is damaged; nothing in it was run: get it again") from error


def array_of(value: object) -> Array:
    if isinstance(value, torchfile.Array):
        return value.values
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value):
        return np.array(value)
    raise ValueError("a value is not a row of numbers")
