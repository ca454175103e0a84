"""Published sets of picture files, as their lists or folders name them: whole or not, and decoded at the paper's size."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sprl.data import Data, How, pictures
from sprl.data.decode import Resize
from sprl.data.pictures import File
from sprl.errors import InputError, SprlWarning, check_file

SIZE = Resize(32, 32, squash=True)  # as in the paper: every picture, whatever its sides
SOME = 3  # missing pictures that a message names


@dataclass(frozen=True)
class PictureSet:
    """A set whose pictures are files: how they are found, and how many there should be."""

    name: str
    read: Callable[[Path], tuple[list[File], tuple[str, ...]]]  # training and test files of a folder, and the classes
    classes: int
    train: int  # pictures
    test: int
    even: bool = True  # as many of each class
    clean: bool = False  # its labels count as true

    def load(self, folder: Path, how: How) -> Data:
        """Made 32 x 32 pixels large unless `how` asks for another size. Where pictures are missing, none is decoded first."""
        files, classes = self.listing(folder)
        wrong = self.miscounted(files) | ({} if how.skip_bad else self.missing(files))
        if wrong:
            told = f"{self.name} in {folder}: " + "; ".join(f"{what} {why}" for what, why in wrong.items())
            if not how.skip_bad:
                raise InputError(f"{told}. Complete it, or go on with what is there: --skip-bad (skip_bad=True)")
            warnings.warn(told, SprlWarning, stacklevel=3)
        data = pictures.load(self.name, files, classes, replace(how, resize=how.resize or SIZE))
        return replace(data, clean=data.y) if self.clean else data

    def check(self, folder: Path) -> dict[str, str]:
        """What is wrong: pictures that are missing or too many. None is decoded."""
        files, _ = self.listing(folder)
        return self.miscounted(files) | self.missing(files)

    def listing(self, folder: Path) -> tuple[list[File], tuple[str, ...]]:
        files, classes = self.read(folder)
        if len(classes) != self.classes:
            raise InputError(f"{folder} holds {len(classes)} classes, but {self.name} has {self.classes}")
        if len({file.id for file in files}) < len(files):
            twice, _ = Counter(file.id for file in files).most_common(1)[0]
            raise InputError(f"the lists of {self.name} in {folder} name {twice} more than once")
        return files, classes

    def missing(self, files: Sequence[File]) -> dict[str, str]:
        lost = [file for file in files if not os.path.isfile(file.path)]
        if not lost:
            return {}
        more = f" and {len(lost) - SOME:,} more" if len(lost) > SOME else ""
        return {"pictures": f"missing: {', '.join(file.id for file in lost[:SOME])}{more} of {len(files):,}"}

    def miscounted(self, files: Sequence[File]) -> dict[str, str]:
        wrong = {}
        for what, held, right in (("training pictures", False, self.train), ("test pictures", True, self.test)):
            count = Counter(file.label for file in files if file.test == held)
            if count.total() != right:
                wrong[what] = f"number {count.total():,}, not {right:,}"
            elif self.even and len(set(count.values())) > 1:
                wrong[what] = "are not as many of each class"
        return wrong


def lines(path: Path) -> list[str]:
    """Of a text file, those that are not blank."""
    check_file(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: byte {error.start:,} is none of it") from None
    return [line for line in map(str.strip, text.split("\n")) if line]


def place(root: bytes, name: str, source: Path) -> bytes:
    """The path of a picture that the list `source` names, which must lie below `root`."""
    if "\0" in name or os.path.isabs(name) or ".." in name.split("/"):
        raise InputError(f"{source} names a file outside of its folder: {name[:200]!r}")
    try:
        return os.path.join(root, name.encode())
    except UnicodeEncodeError:  # half of a pair, as JSON can spell it
        raise InputError(f"{source} names a file that cannot be: {name[:200]!r}") from None


def root_of(folder: Path) -> bytes:
    return os.path.abspath(os.fsencode(folder))
