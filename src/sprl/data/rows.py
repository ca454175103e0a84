"""Where the rows of a data set are while it trains: on the device, or streamed to it batch by batch."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sprl.errors import InputError


@dataclass(frozen=True)
class FileRows:
    """Rows of uint8 in a file, read by position: to whoever indexes it, a tensor on the CPU."""

    path: Path
    places: np.ndarray[tuple[int], np.dtype[np.int64]]  # [N] which row of the file
    stride: int  # bytes from one row of the file to the next
    shape_of_row: tuple[int, ...]  # what is read of each, from its first byte on
    dtype = torch.uint8
    device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.shape_of_row

    @property
    def nbytes(self) -> int:
        return len(self) * self.row_bytes

    def __getitem__(self, index: Tensor) -> Tensor:
        places = torch.from_numpy(self.places[index.numpy()])
        rows = torch.empty(len(places), self.row_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available() and len(places) < 4096)
        if len(places):
            count = self.path.stat().st_size // self.stride
            if int(places.max()) >= count:
                raise InputError(f"{self.path} has been cut short: clear the cache with `sprl data --clear-cache`")
            # Mapped for this reading only: pages that stay mapped would count as this process's memory.
            file = torch.from_file(str(self.path), shared=False, size=count * self.stride, dtype=torch.uint8)
            torch.index_select(file.view(count, self.stride)[:, : self.row_bytes], 0, places, out=rows)
        return rows.view(len(places), *self.shape_of_row)

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
        wanted = torch.cat(list(parts)).cpu().split([len(part) for part in parts])  # one transfer of all positions
        with ThreadPoolExecutor(self.ahead, "sprl-read") as readers:
            coming = deque(readers.submit(self.rows.__getitem__, index) for index in wanted[: self.ahead])
            try:
                for i in range(len(wanted)):
                    batch = coming.popleft().result()
                    if i + self.ahead < len(wanted):
                        coming.append(readers.submit(self.rows.__getitem__, wanted[i + self.ahead]))
                    yield batch.to(self.device, non_blocking=True)
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
    if isinstance(rows, Tensor) and rows.device.type == device.type == "cpu":
        return rows  # there already
    if stream or rows.nbytes > free_memory(device) // 2:
        return Streamed(rows, device)
    return rows.to(device) if isinstance(rows, Tensor) else rows[torch.arange(len(rows))].to(device)


def free_memory(device: torch.device) -> int:
    """Bytes that can be had on the device; on the CPU, what the machine has available and the container allows."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = [2**63]
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):  # no Linux
        free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    for group in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                free.append(int((group / most).read_text()) - int((group / used).read_text()))
            except (OSError, ValueError):  # no such group, or "max"
                continue
    return max(0, min(free))
