"""Where the previous predictions [N, C] are kept: the one thing in a run's memory that can outgrow a GPU."""

from typing import Any

import torch
from torch import Tensor

from sprl.errors import InputError
from sprl.machine import free_memory


def place_table(shape: tuple[int, int], device: torch.device, half: bool = False) -> tuple[Tensor, Tensor | None]:
    """Zeros of this shape for the device: on it where they take at most a quarter of what is free (the search for T1 keeps copies); else,
    for a GPU, in the host's memory, pinned and read by the GPU over the bus. With the latter comes the same memory as the host sees it."""
    dtype = torch.float16 if half else torch.float32
    size = shape[0] * shape[1] * dtype.itemsize
    free = free_memory(device)
    if size <= free // 4:
        return torch.zeros(shape, dtype=dtype, device=device), None
    host = free_memory(torch.device("cpu"))
    if device.type == "cuda" and size <= host // 4:
        pinned = torch.zeros(shape, dtype=dtype, pin_memory=True)
        return torch.as_tensor(OnTheBus(pinned), device=device), pinned
    places = f"of {free / 1e9:.1f} GB free on {device}" + (f" or {host / 1e9:.1f} GB of the host" if device.type == "cuda" else "")
    advice = "take fewer rows or classes" if half else f"--memory half takes {size / 2e9:.1f} GB"
    what = f"the previous predictions of {shape[0]:,} rows in {shape[1]:,} classes"
    raise InputError(f"{what} take {size / 1e9:.1f} GB, more than a quarter {places}: {advice}")


class OnTheBus:
    """Pinned memory shown to torch as the GPU's own: both use the same addresses."""

    def __init__(self, pinned: Tensor) -> None:
        self.pinned = pinned  # kept alive by whoever holds the tensor made from this
        code = {torch.float16: "<f2", torch.float32: "<f4"}[pinned.dtype]
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": tuple(pinned.shape),
            "typestr": code,
            "data": (pinned.data_ptr(), False),
            "version": 2,
        }
