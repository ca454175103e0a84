"""Where the rows of a data set are while it trains: on the device, or streamed to it batch by batch."""

from __future__ import annotations

import math
import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprl.errors import InputError
from sprl.machine import free_memory

Array = NDArray[Any]


class File:
    """A file that stays open, also where its name is removed; several threads read it."""

    def __init__(self, path: Path) -> None:
        try:
            self.opened = FileIO(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read any more ({error.strerror}): has the cache been cleared?") from error
        self.turn = Lock()
        weakref.finalize(self, self.opened.close)

    def fill(self, view: memoryview, place: int) -> None:
        """With the bytes from `place` on."""
        done = 0
        while done < len(view):  # one reading stops at 2 GB
            count = self.read(view[done:], place + done)
            if not count:
                raise InputError(f"{self.opened.name} has been cut short: clear the cache with `sprl data --clear-cache`")
            done += count

    def read(self, view: memoryview, place: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.opened.fileno(), [view], place)
        with self.turn:
            self.opened.seek(place)
            return self.opened.readinto(view) or 0


@dataclass(frozen=True)
class FileRows:
    """Rows of uint8 in a file, read by position: to whoever indexes it, a tensor on the CPU."""

    path: Path
    places: Array  # [N] which row of the file
    stride: int  # bytes from one row of the file to the next
    shape_of_row: tuple[int, ...]  # what is read of each, from its first byte on
    file: File | None = field(default=None, repr=False, compare=False)  # opened once, so that nobody can take it away
    dtype = torch.uint8
    device = torch.device("cpu")

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", self.file or File(self.path))

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.shape_of_row

    @property
    def nbytes(self) -> int:
        return len(self) * self.row_bytes

    def __getitem__(self, index: Tensor) -> Tensor:
        rows = torch.empty(len(index), *self.shape_of_row, dtype=torch.uint8)
        self.read(index, rows)
        return rows

    def read(self, index: Tensor, into: Tensor) -> None:
        """Fill `into` [B, *shape]. By reading, not mapping: mapped pages would count as this process's memory."""
        places, rows = self.places[index.numpy()], into.flatten(1).numpy()
        assert self.file is not None
        if self.row_bytes == self.stride and len(places) and (np.diff(places) == 1).all():  # in order, as when predicting
            self.file.fill(rows.reshape(-1).data, int(places[0]) * self.stride)
            return
        for place, row in zip(places.tolist(), rows, strict=True):
            self.file.fill(row.data, place * self.stride)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape_of_row)


@dataclass(frozen=True)
class Streamed:
    """Rows that stay in a file or in the host's memory and reach the device when they are asked for.

    The same numbers as a tensor on the device, and as much of its interface as training needs.
    """

    rows: Tensor | FileRows
    device: torch.device
    ahead: int = 4  # batches read in advance, each by a thread of its own

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.rows.shape)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.rows[index.cpu()].to(self.device, non_blocking=True)

    def fetch(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """The rows of each part in turn; on a CPU they are good until the next are asked for.

        A few buffers serve all, so that memory does not grow with the number of parts.
        """
        wanted = torch.cat(list(parts)).cpu().split([len(part) for part in parts])  # one transfer of all positions
        on_gpu = self.device.type == "cuda"
        largest = max(map(len, wanted))
        buffers = [torch.empty(largest, *self.shape[1:], dtype=self.rows.dtype, pin_memory=on_gpu) for _ in range(self.ahead + 1)]
        copied = [torch.cuda.Event() if on_gpu else None for _ in buffers]

        def read(i: int) -> Tensor:
            slot = i % len(buffers)
            event = copied[slot]
            if event is not None:
                event.synchronize()  # the GPU may still be fetching what lay there
            rows = buffers[slot][: len(wanted[i])]
            if isinstance(self.rows, FileRows):
                self.rows.read(wanted[i], rows)
            else:
                torch.index_select(self.rows, 0, wanted[i], out=rows)
            return rows

        with ThreadPoolExecutor(self.ahead, "sprl-read") as readers:
            coming = deque(readers.submit(read, i) for i in range(min(self.ahead, len(wanted))))
            try:
                for i in range(len(wanted)):
                    batch = coming.popleft().result().to(self.device, non_blocking=True)
                    event = copied[i % len(buffers)]
                    if event is not None:
                        event.record()
                    if i + self.ahead < len(wanted):  # into the buffer of the batch before this one, which the caller has done with
                        coming.append(readers.submit(read, i + self.ahead))
                    yield batch
            finally:
                readers.shutdown(wait=False, cancel_futures=True)


Rows = Tensor | Streamed


def fetch(x: Rows, parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """The rows of each part in turn, on the device; read ahead where they are streamed."""
    return x.fetch(parts) if isinstance(x, Streamed) else (x[part] for part in parts)


def select(x: Rows, index: Tensor) -> Rows:
    """Some of the rows, in the place where they are."""
    if not isinstance(x, Streamed):
        return x[index]
    return replace(x, rows=pick_rows(x.rows, index.cpu()))


def pick_rows(rows: Tensor | FileRows, index: Tensor) -> Tensor | FileRows:
    return replace(rows, places=rows.places[index.numpy()]) if isinstance(rows, FileRows) else rows[index]


def place(rows: Tensor | FileRows, device: torch.device, stream: bool = False) -> Rows:
    """On the device where they take at most half of what is free there; else, or if asked, streamed to it."""
    if isinstance(rows, Tensor) and rows.device.type == device.type and device.index in (None, rows.device.index):
        return rows  # there already
    if stream or rows.nbytes > free_memory(device) // 2:
        return Streamed(rows, device)
    return rows.to(device) if isinstance(rows, Tensor) else rows[torch.arange(len(rows))].to(device)
