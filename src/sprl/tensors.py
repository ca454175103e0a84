"""Files of tensors by name (safetensors), with words in their header. Nothing is taken from one but what it really holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sprl.errors import InputError
from sprl.machine import free_memory

KINDS = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
HEADER_BYTES = 2**22  # of a file of weights: 40,000 tensors; read, it takes up to twenty times that
NOTED_BYTES, NOTED_VALUES = 2**25, 2**21  # of a checkpoint, whose header has the metrics of all epochs too; a value can take 64 bytes


def plain(tensor: Tensor) -> Tensor:
    """On the CPU, in one piece, alone in its memory: a file holds neither strides nor views."""
    tensor = tensor.detach().cpu().contiguous()
    alone = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if alone else tensor.clone()


def write(file: BinaryIO, tensors: Mapping[str, Tensor], words: dict[str, str]) -> None:
    """Tensors that are `plain`, one after the other. The library's own writers copy them all first, or write to a file of their own."""
    header, end = dict[str, Any](__metadata__=words), 0
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())  # so that each begins at a multiple of its numbers' size
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    if len(head) > NOTED_BYTES:
        raise InputError(f"metrics of {len(head) / 1e6:,.0f} MB are more than a checkpoint can hold: run fewer epochs")
    file.write(len(head).to_bytes(8, "little") + head)
    for name in names:
        file.write(bytes_of(tensors[name]))


def bytes_of(tensor: Tensor) -> memoryview:
    """Of a plain tensor."""
    return tensor.view(-1).view(torch.uint8).numpy().data


class Source:
    """What a file holds, each of its tensors to be taken once."""

    def __init__(self, path: Path) -> None:
        check_header(path, NOTED_BYTES)
        header = start_of(path, 8 + int.from_bytes(start_of(path, 8), "little"))[8:]
        if sum(map(header.count, (b",", b"[", b"{"))) > NOTED_VALUES:
            raise ValueError("its header holds more values than any of ours needs")
        self.left = read(path, NOTED_BYTES)
        self.words: dict[str, str] = json.loads(header).get("__metadata__", {})

    def take(self, name: str, like: Tensor) -> Tensor:
        """A copy that lies in memory as `like` does. ValueError where it has another shape or other numbers."""
        given = self.look(name)
        if given.shape != like.shape or given.dtype != like.dtype:
            raise ValueError(f"{name} is not {kind(like)}")
        del self.left[name]
        return torch.empty_like(like, device="cpu").copy_(given)

    def look(self, name: str) -> Tensor:
        """As it lies in the file."""
        if name not in self.left:
            raise ValueError(f"it lacks {name}")
        return self.left[name]


def read(path: Path, most: int = HEADER_BYTES) -> dict[str, Tensor]:
    """The tensors of a file whose header has at most so many bytes, mapped: they take memory as they are looked at. ValueError where it is
    not one."""
    from safetensors.torch import load, load_file

    check_header(path, most)
    check_memory(path)
    try:
        str(path).encode()
    except UnicodeEncodeError:  # a path that load_file does not take
        return load(path.read_bytes())
    return load_file(path)


def check_header(path: Path, most: int) -> None:
    """ValueError where the header claims more than the file has, or more than any of ours needs."""
    length = int.from_bytes(start_of(path, 8), "little")
    if not 0 < length <= min(path.stat().st_size - 8, most):
        raise ValueError(f"{path.name} is not a file of safetensors, or has been cut short")


def check_memory(path: Path) -> None:
    """InputError for a file that is larger than the memory: it can be larger than what it takes on the disk."""
    size, free = path.stat().st_size, free_memory(torch.device("cpu"))
    if size > free:
        raise InputError(f"{path.name} takes {size / 1e6:,.0f} MB, but {free / 1e6:,.0f} MB of memory are free: use a larger machine")


def start_of(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
