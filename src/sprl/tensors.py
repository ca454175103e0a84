"""Files of tensors by name (safetensors), with words in their header. Nothing is taken from one but what it really holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

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
HEADER_BYTES = 2**25  # that a header may have: 300,000 names, or as many rows of metrics; read, it takes up to twenty times that


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
    file.write(len(head).to_bytes(8, "little") + head)
    for name in names:
        file.write(bytes_of(tensors[name]))


def bytes_of(tensor: Tensor) -> memoryview:
    """Of a plain tensor."""
    return tensor.view(-1).view(torch.uint8).numpy().data


class Source:
    """An open file, each of whose tensors is taken once."""

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        check_header(path)
        self.file: Any = safe_open(path, framework="pt")  # maps it: tensors take no memory until they are copied
        self.words: dict[str, str] = self.file.metadata() or {}
        self.names = set(self.file.keys())

    def tensors(self) -> list[Tensor]:
        """All, by name."""
        return [self.file.get_tensor(name) for name in sorted(self.names)]

    def take(self, name: str, like: Tensor) -> Tensor:
        """A copy that lies in memory as `like` does. ValueError where it has another shape or other numbers."""
        given = self.look(name)
        if given.shape != like.shape or given.dtype != like.dtype:
            raise ValueError(f"{name} is not {kind(like)}")
        self.names.discard(name)
        return torch.empty_like(like, device="cpu").copy_(given)

    def look(self, name: str) -> Tensor:
        """As it lies in the file."""
        if name not in self.names:
            raise ValueError(f"it lacks {name}")
        return self.file.get_tensor(name)


def check_header(path: Path) -> None:
    """ValueError where the header claims more than the file has, or more than any of ours needs."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, HEADER_BYTES):
        raise ValueError("it is no file of safetensors, or has been cut short")


def kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
