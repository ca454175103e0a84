"""Picture files to rows: decoded once by a process a core into the cache, whatever their sizes and kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import mkstemp
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from sprl.data import Data, How, Preprocess, Progress, cache, decode
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, pick_rows
from sprl.errors import InputError, SprlWarning

LARGEST = 64  # pixels of a side, where nobody asked for another size
MOST = 1000  # bad pictures that a message names
BLOCK = 256  # files a worker takes on at a time


class File(NamedTuple):
    """A picture file: its absolute path, its name for people, and its label."""

    path: bytes | str
    id: str
    label: str
    test: bool = False


def load(name: str, files: Sequence[File], classes: Sequence[str], how: How) -> Data:
    """Decode `files` and keep those that can be used."""
    resize = how.resize or find_size([file.path for file in files])
    rows, bad = decoded([file.path for file in files], resize, how)
    return assemble(name, files, classes, rows, bad, resize, how)


def assemble(
    name: str,
    files: Sequence[File],
    classes: Sequence[str],
    rows: torch.Tensor | FileRows,
    bad: dict[int, str],
    resize: Resize,
    how: How,
) -> Data:
    """Data of decoded pictures, a row of `rows` each. Positions count all training files, the damaged ones too."""
    if len(bad) == len(files) and how.skip_bad:
        raise InputError(f"{name}: none of {len(files)} pictures can be read, such as {files[0].id} ({bad[0]})")
    if bad:
        tell_of_bad(files, bad, how)
    number = {c: i for i, c in enumerate(classes)}
    y = np.array([number[file.label] for file in files], dtype=np.int64)
    test = np.array([file.test for file in files], dtype=bool)
    good = np.ones(len(files), dtype=bool)
    good[list(bad)] = False
    train, held = np.flatnonzero(good & ~test), np.flatnonzero(good & test)
    if not len(train):
        raise InputError(f"{name} holds no picture to train on")
    return Data(
        name=name,
        x=pick_rows(rows, torch.from_numpy(train)),
        y=y[train],
        classes=tuple(classes),
        index=(np.cumsum(~test) - 1)[train],
        ids=tuple(files[i].id for i in train.tolist()),
        preprocess=Preprocess(tuple(rows.shape[1:])),
        x_test=pick_rows(rows, torch.from_numpy(held)) if len(held) else None,
        y_test=y[held] if len(held) else None,
        resize=resize,
        skipped=tuple(files[i].id for i in bad),
    )


def find_size(files: Sequence[str | bytes | IO[bytes]]) -> Resize:
    """The rule for a sample of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = [decode.size_of(file) for file in files[:: max(1, len(files) // 100)]]
    return rule_for([size for size in sizes if size is not None])


def rule_for(sizes: Sequence[tuple[int, int]]) -> Resize:
    """The size that all have, if at most 64 pixels; else a square, its side the median short side, at most 64."""
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
    greys: list[bool] = []
    sizes: list[int] = []  # of the blocks that are done

    def drive(worker: subprocess.Popen[bytes], blocks: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        assert worker.stdin is not None
        assert worker.stdout is not None
        words = [
            json.dumps(resize).encode(),
            os.fsencode(path),
            os.fsencode(shared),
            *(word for first, part in blocks for word in (b"%d" % first, b"%d" % len(part), *part)),
            b"",
        ]
        with suppress(BrokenPipeError), worker.stdin:  # it may be dead already
            worker.stdin.write(b"\0".join(words))
        finished = 0
        for line in worker.stdout:
            kind, number, rest = line.decode().rstrip("\n").split(" ", 2)
            if kind == "BAD":
                bad.append((int(number), rest))
            else:
                finished += 1
                sizes.append(int(number))
                greys.append(rest == "1")
                progress("decoding pictures", sum(sizes), len(names))
        if worker.wait() or finished < len(blocks):
            part = blocks[min(finished, len(blocks) - 1)][1]
            suspects = f"{os.fsdecode(part[0])} to {os.fsdecode(part[-1])}"
            raise InputError(f"the decoder ended with status {worker.returncode} on one of the pictures {suspects}: leave it out")

    handle, shared = mkstemp()  # not the cache file: to some file systems a lock of it and one of a part of it are the same
    os.close(handle)
    # -P: the folder of decode.py must not come before the standard library
    command = [sys.executable, "-P", decode.__file__]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        with ThreadPoolExecutor(count) as threads:
            try:
                for result in [threads.submit(drive, worker, blocks[k::count]) for k, worker in enumerate(workers)]:
                    result.result()
            except BaseException:  # Ctrl-C: the threads end when the workers do
                for worker in workers:
                    worker.kill()
                raise
    finally:
        for worker in workers:
            with worker:
                worker.kill()
        os.unlink(shared)
    return {"bad": sorted(bad), "grey": all(greys)}


def tell_of_bad(files: Sequence[File], bad: dict[int, str], how: How) -> None:
    """All of them in one message: an error, or with skip_bad a warning."""
    many = f"{len(bad)} of {len(files)} pictures" if len(bad) > 1 else "one picture"
    names = "; ".join(f"{files[i].id} ({reason})" for i, reason in list(bad.items())[:MOST])
    names += f"; and {len(bad) - MOST} more" if len(bad) > MOST else ""
    if not how.skip_bad:
        raise InputError(f"{many} cannot be read: {names}. {how.mend}")
    warnings.warn(f"left out, as they cannot be read, {many}: {names}", SprlWarning, stacklevel=4)
