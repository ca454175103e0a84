"""Picture files to rows: decoded once by a process a core into the cache, whatever their sizes and kinds."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from sprl.data import Array, Data, How, Preprocess, Progress, cache, decode
from sprl.data.decode import Resize
from sprl.data.rows import FileRows
from sprl.errors import InputError, SprlWarning

LARGEST = 64  # pixels of a side, where nobody asked for another size
BLOCK = 256  # files a worker takes on at a time


class File(NamedTuple):
    """A picture file: its absolute path, its name for people, and its label."""

    path: bytes | str
    id: str
    label: str
    test: bool = False


def load(name: str, files: Sequence[File], classes: Sequence[str], how: How) -> Data:
    """Decode `files` and keep those that can be used. Positions count all training files, the damaged ones too."""
    resize = how.resize or find_size([file.path for file in files])
    rows, bad = decoded([file.path for file in files], resize, how)
    if bad:
        tell_of_bad(files, bad, how)
    number = {c: i for i, c in enumerate(classes)}
    y = np.array([number[file.label] for file in files], dtype=np.int64)
    test = np.array([file.test for file in files], dtype=bool)
    good = np.ones(len(files), dtype=bool)
    good[list(bad)] = False
    position = np.cumsum(~test) - 1  # among the training files

    def part(which: Array) -> FileRows:
        return FileRows(rows.path, rows.places[which], rows.stride, rows.shape_of_row)

    train = np.flatnonzero(good & ~test)
    held = np.flatnonzero(good & test)
    if not len(train):
        raise InputError(f"{name} holds no picture to train on")
    return Data(
        name=name,
        x=part(train),
        y=y[train],
        classes=tuple(classes),
        index=position[train],
        ids=tuple(files[i].id for i in train.tolist()),
        preprocess=Preprocess(rows.shape_of_row),
        x_test=part(held) if len(held) else None,
        y_test=y[held] if len(held) else None,
        resize=resize,
        skipped=tuple(files[i].id for i in bad),
    )


def find_size(paths: Sequence[bytes | str]) -> Resize:
    """The size of all, where a sample of them has one of at most 64 pixels; else a square, its side the median short side, at most 64."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = [decode.size_of(path) for path in paths[:: max(1, len(paths) // 100)]]
    sizes = [size for size in sample if size is not None]
    if not sizes:
        return Resize(LARGEST, LARGEST)
    if len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST:
        return Resize(*sizes[0])
    side = min(LARGEST, int(median(min(size) for size in sizes)))
    return Resize(side, side)


def decoded(paths: Sequence[bytes | str], resize: Resize, how: How) -> tuple[FileRows, dict[int, str]]:
    """All pictures as rows of the cache's file, with a row of zeros and a reason for each that cannot be used."""
    names = [os.fsencode(path) for path in paths]
    stamps = []
    for name in names:
        try:
            stat = os.stat(name)
            stamps.append(f"{stat.st_size} {stat.st_mtime_ns}".encode())
        except OSError:
            stamps.append(b"missing")
    stride = 3 * resize.height * resize.width
    rule = f"pictures {resize}".encode()
    path, note = cache.entry(
        cache.key([rule, b"\0".join(names), b"\0".join(stamps)]),
        len(names) * stride,
        lambda path: decode_all(names, resize, path, how.progress),
        how.say,
    )
    bad = {int(i): str(reason) for i, reason in note["bad"]}
    channels = 1 if note["grey"] else 3  # of a grey picture the three planes are equal: one is read
    return FileRows(path, np.arange(len(names)), stride, (channels, resize.height, resize.width)), bad


def decode_all(names: Sequence[bytes], resize: Resize, path: Path, progress: Progress) -> dict[str, Any]:
    """Fill the file at `path`. Workers take blocks in turn, so that a folder of large photos does not fall to one of them."""
    count = max(1, min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(names) // 100))
    blocks = [(first, names[first : first + BLOCK]) for first in range(0, len(names), BLOCK)]
    bad: list[tuple[int, str]] = []
    done, all_grey = 0, True

    def drive(worker: subprocess.Popen[bytes], blocks: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        nonlocal done, all_grey
        assert worker.stdin is not None
        assert worker.stdout is not None
        rule = f"{resize.height} {resize.width} {resize.crop} {resize.filter}".encode()
        words = [rule, os.fsencode(path), *(word for first, part in blocks for word in (b"%d" % first, b"%d" % len(part), *part)), b""]
        with suppress(BrokenPipeError), worker.stdin:  # it may be dead already
            worker.stdin.write(b"\0".join(words))
        finished = 0
        for line in worker.stdout:
            kind, number, rest = line.decode().rstrip("\n").split(" ", 2)
            if kind == "BAD":
                bad.append((int(number), rest))
            else:
                finished += 1
                done += int(number)
                all_grey = all_grey and rest == "1"
                progress("decoding pictures", done, len(names))
        if worker.wait() or finished < len(blocks):
            first, part = blocks[min(finished, len(blocks) - 1)]
            suspects = f"{os.fsdecode(part[0])} to {os.fsdecode(part[-1])}"
            raise InputError(f"the decoder ended with status {worker.returncode} on one of the pictures {suspects}: leave it out")

    # -P: the folder of decode.py must not come before the standard library
    command = [sys.executable, "-P", decode.__file__]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        with ThreadPoolExecutor(count) as threads:
            for result in [threads.submit(drive, worker, blocks[k::count]) for k, worker in enumerate(workers)]:
                result.result()
    finally:
        for worker in workers:
            with worker:
                worker.kill()
    return {"bad": sorted(bad), "grey": all_grey}


def tell_of_bad(files: Sequence[File], bad: dict[int, str], how: How) -> None:
    """All of them in one message: an error, or with skip_bad a warning."""
    many = f"{len(bad)} of {len(files)} pictures" if len(bad) > 1 else "one picture"
    names = "; ".join(f"{files[i].id} ({reason})" for i, reason in bad.items())
    if not how.skip_bad:
        raise InputError(f"{many} cannot be read: {names}. Mend or remove them, or go on without them: --skip-bad")
    warnings.warn(f"{many} cannot be read and are left out: {names}", SprlWarning, stacklevel=4)
