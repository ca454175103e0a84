"""Clothing1M (Xiao et al. 2015): pictures below images/, lists of their names, and files of NAME LABEL.

Training labels were taken from the text around a picture, many of them wrong; test labels people gave.
"""

from __future__ import annotations

from pathlib import Path

from sprl.data.cifar import class_names
from sprl.data.listed import PictureSet, lines, place, root_of
from sprl.data.pictures import File
from sprl.errors import InputError

NAMES = "T-Shirt Shirt Knitwear Chiffon Sweater Hoodie Windbreaker Jacket Downcoat Suit Shawl Dress Vest Underwear"


def read(folder: Path) -> tuple[list[File], tuple[str, ...]]:
    classes = class_names(folder / "category_names_eng.txt", tuple(NAMES.split()))
    root, files = root_of(folder), list[File]()
    for keys, labels, test in (("noisy_train_key_list", "noisy_label_kv", False), ("clean_test_key_list", "clean_label_kv", True)):
        path, given = folder / f"{keys}.txt", read_labels(folder / f"{labels}.txt", classes)
        for key in lines(path):
            if key not in given:
                raise InputError(f"{labels}.txt in {folder} has no label for {key[:200]}, which {keys}.txt names")
            files.append(File(place(root, key, path), key, given[key], test))
    return files, classes


def read_labels(path: Path, classes: tuple[str, ...]) -> dict[str, str]:
    """The class of each picture that a file of NAME LABEL names."""
    number, given = {str(i): name for i, name in enumerate(classes)}, {}
    for line in lines(path):
        key, _, label = line.rpartition(" ")
        if label not in number:
            raise InputError(f"{path}: {line[:200]!r} is no picture with a label from 0 to {len(classes) - 1}")
        given[key.rstrip()] = number[label]
    return given


CLOTHING1M = PictureSet("clothing1m", read, classes=14, train=1_000_000, test=10_526, even=False)
