"""What torch.save wrote, perhaps a stranger: read without unpickling it.

torch.save writes a zip archive. One member is a pickle, a program that makes what was saved again; the others are storages, the bytes of
its tensors. The program is followed here as far as plain values need it. A name in it is a word that is looked up nowhere, so nothing is
imported or called; no instruction makes more than its part of the file accounts for.
"""

from __future__ import annotations

import math
import pickletools
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprl.errors import printable
from sprl.tensors import check_memory, start_of

PICKLE_BYTES, INSTRUCTIONS = 2**24, 2**20  # of a pickle; an instruction of one byte can make a value of 64
MERSENNE = 2**61 - 1  # Python takes the hash of a number by it
DIMENSIONS = 64  # of a tensor; torch's own bound
CONVERT = "python -c \"import torch; torch.save(torch.load('OLD', weights_only=True), 'NEW')\""
STORAGES = {
    f"torch {name}Storage": dtype
    for name, dtype in {
        "Bool": torch.bool,
        "Byte": torch.uint8,
        "Char": torch.int8,
        "Short": torch.int16,
        "Int": torch.int32,
        "Long": torch.int64,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Float": torch.float32,
        "Double": torch.float64,
    }.items()
}
WHOLE = re.compile(r"[iu][1248]")


class Foreign(ValueError):
    """Something else than plain values, tensors and arrays, so perhaps code."""


class Word(str):
    """A name in a pickle, as "MODULE NAME"."""


class Kind:
    """Of an array's numbers: numpy's code for them, and the order of their bytes."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, ""

    def build(self, state: Any) -> None:
        self.order = state[1] if isinstance(state[1], str) else ""


class Array:
    """An array of whole numbers."""

    values: NDArray[Any] = np.empty(0)

    def build(self, state: Any) -> None:
        _, shape, kind, by_column, content = state
        if not isinstance(kind, Kind) or kind.order not in ("<", ">", "|", "=") or not WHOLE.fullmatch(kind.code):
            raise Foreign("an array of something else than whole numbers")
        self.values = np.frombuffer(content, np.dtype(kind.order + kind.code)).reshape(shape, order="F" if by_column else "C")


def read_torch(file: Path) -> Any:
    """What torch.save wrote: dicts, lists, tuples, numbers, text, tensors, and an `Array` for each of numpy's. Foreign for anything else,
    other errors for a damaged file."""
    check_memory(file)
    if start_of(file, 4) != b"PK\3\4":
        raise Foreign(f"a bare pickle, or torch's format of before 1.6 (to convert one that you trust: {CONVERT})")
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) < len(archive.infolist()):
            raise ValueError("two members have one name")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("its members are compressed, as torch.save never writes them")
        if sum(entry.file_size for entry in entries.values()) > file.stat().st_size:
            raise ValueError("it claims to hold more than it does")
        roots = [name.removesuffix("data.pkl") for name in entries if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(roots) != 1 or entries[f"{roots[0]}data.pkl"].file_size > PICKLE_BYTES:
            raise ValueError("it is not an archive of torch.save, or too large for one")
        if f"{roots[0]}byteorder" in entries and archive.read(f"{roots[0]}byteorder") != b"little":
            raise ValueError("its bytes are in the order of another kind of machine")
        storages: dict[str, bytearray] = {}

        def storage(word: Word, key: str, count: int) -> Tensor:
            if key not in storages:
                with archive.open(f"{roots[0]}data/{key}") as member:
                    storages[key] = bytearray(member.read())
            content, dtype = storages[key], STORAGES[word]
            if len(content) != count * dtype.itemsize:
                raise ValueError("a storage is not of the size that the pickle says")
            return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)

        return value_of(archive.read(f"{roots[0]}data.pkl"), storage)


def value_of(pickle: bytes, storage: Callable[[Word, str, int], Tensor]) -> Any:
    """What a pickle describes. `storage` gives one by the word for its type, its key and how many numbers it holds."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    encoded: dict[str, bytes] = {}  # each text once, however often the pickle says so

    def taken(count: int) -> list[Any]:
        if count > len(stack):
            raise ValueError("the pickle is damaged")
        first = len(stack) - count
        found = stack[first:]
        del stack[first:]
        return found

    def marked() -> list[Any]:
        return taken(len(stack) - marks.pop())

    def set_items(items: list[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            plain = isinstance(key, str) or (type(key) is int and abs(key) < MERSENNE)
            if type(stack[-1]) is not dict or not plain:  # the hash of nested tuples can take for ever, numbers beyond share theirs
                raise Foreign("a dict with other keys than names and numbers")
            stack[-1][key] = value

    def called(word: Any, arguments: Any) -> Any:
        match word, arguments:
            case Word("collections OrderedDict"), ():
                return {}
            case Word("collections Counter"), (dict() as counted,):
                return counted
            case Word("torch._utils _rebuild_tensor_v2"), (Tensor() as numbers, offset, tuple() as size, stride, *_):
                whole = isinstance(stride, tuple) and all(type(number) is int for number in (offset, *size, *stride))
                if not whole or len(size) > DIMENSIONS or math.prod(size) > len(numbers):
                    raise ValueError("a tensor is larger than its storage")
                return numbers.as_strided(size, stride, offset)
            case Word("torch._utils _rebuild_parameter"), (Tensor() as tensor, *_):
                return tensor
            case Word("numpy._core.multiarray _reconstruct" | "numpy.core.multiarray _reconstruct"), _:
                return Array()
            case Word("numpy dtype"), (str() as code, *_):
                return Kind(code)
            case Word("_codecs encode"), (str() as text, "latin1"):  # how protocol 2 writes bytes
                if text not in encoded:
                    encoded[text] = text.encode("latin1")
                return encoded[text]
        raise Foreign(f"{printable(word)[:80] if isinstance(word, Word) else 'a call'}, which no tensor needs")

    for number, (code, argument, _) in enumerate(pickletools.genops(pickle)):
        if number > INSTRUCTIONS:
            raise ValueError("the pickle is too long")
        match code.name:
            case "PROTO":
                pass
            case "STOP":
                break
            case "MARK":
                marks.append(len(stack))
            case "NONE" | "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(code.name == "NEWTRUE")
            case "GLOBAL":
                stack.append(Word(argument))
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(taken(int(code.name[-1]))))
            case "TUPLE":
                stack.append(tuple(marked()))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "APPEND" | "APPENDS":
                items = taken(1) if code.name == "APPEND" else marked()
                if type(stack[-1]) is not list:
                    raise Foreign("something like a list")
                stack[-1].extend(items)
            case "SETITEM":
                set_items(taken(2))
            case "SETITEMS":
                set_items(marked())
            case "REDUCE":
                stack.append(called(*taken(2)))
            case "BUILD":
                (state,) = taken(1)
                if isinstance(stack[-1], Array | Kind):
                    stack[-1].build(state)
                elif type(stack[-1]) is not dict:  # of an OrderedDict the state is what else was noted on it
                    raise Foreign("an object")
            case "BINPERSID":
                match taken(1):
                    case [("storage", Word() as word, str() as key, _, int() as count)]:
                        stack.append(storage(word, key, count))
                    case _:
                        raise ValueError("the pickle is damaged")
            case _:
                raise Foreign(f"the instruction {code.name}, which no tensor needs")
    (value,) = stack
    return value
