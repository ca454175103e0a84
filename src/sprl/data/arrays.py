"""Arrays in an .npz file: x, y and, with trusted labels, x_test, y_test. Files with pickled objects are refused."""

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from sprl.data import Array, Data, Preprocess, channels_first, encode
from sprl.data.columns import EXACT
from sprl.errors import InputError, check_file

MOST = 1032  # deflate cannot shrink bytes more than so many times


def read(path: Path, names: Collection[str]) -> dict[str, Array]:
    """Those of the arrays that an .npz file holds. Others are not unpacked."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name not in names:
                    continue
                if name in arrays:
                    raise ValueError(f"{name} stands there twice")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError("compressed in a way that numpy does not use")
                size = min(member.file_size, MOST * member.compress_size)
                with archive.open(member) as file:
                    arrays[name] = read_array(file, size, name)
            return arrays
    except Exception as error:  # zipfile, zlib and numpy raise many kinds for damaged files
        raise InputError(f"{path} is not a readable .npz file without pickled objects: {reason(error)}") from error


def read_npy(path: Path) -> Array:
    check_file(path)
    try:
        with path.open("rb") as file:
            return read_array(file, path.stat().st_size)
    except Exception as error:
        raise InputError(f"{path} is not a readable .npy file without pickled objects: {reason(error)}") from error


def reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__


def read_array(file: IO[bytes], size: int, name: str = "the array") -> Array:
    """An array in numpy's format, of which at most `size` bytes are there: numpy itself would allocate whatever the header claims."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of numpy's format is not known here")
    shape, in_columns, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; save it as text, such as y.astype(str), or as numbers")
    length = math.prod(shape) * dtype.itemsize
    if length > size or any(side < 0 for side in shape):
        raise ValueError(f"its header claims {length:,} bytes, more than there are")
    array = np.empty(length, np.uint8)
    view, done = memoryview(array.data), 0
    while done < length:
        count = file.readinto(view[done : done + 2**24])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends too early")
        done += count
    return array.view(dtype).reshape(shape, order="F" if in_columns else "C")


def read_rows(path: Path) -> Array:
    """The rows to predict: x of an .npz file, or an .npy file."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    arrays = {"x": read_npy(path)} if path.suffix.lower() == ".npy" else read(path, ("x",))
    if "x" not in arrays or arrays["x"].ndim == 0:
        raise InputError(f"{path} holds no array 'x' of rows: save it with numpy.savez(path, x=...)")
    return arrays["x"]


def load(path: Path) -> Data:
    arrays = read(path, ("x", "y", "x_test", "y_test"))
    for name in ("x", "y"):
        if name not in arrays:
            raise InputError(f"{path} holds no array {name!r}: save it with numpy.savez(path, x=..., y=...)")
    x, y = arrays["x"], arrays["y"]
    y = check_labels(path, "y", y)
    if x.ndim == 0 or len(x) != len(y):
        raise InputError(f"{path} holds x of shape {x.shape} but y of shape {y.shape}: one label a row is needed")
    if len(y) == 0:
        raise InputError(f"{path} holds no rows")
    number, classes = encode(y)
    preprocess = Preprocess.fit(x)
    test: dict[str, Any] = {}
    if "x_test" in arrays or "y_test" in arrays:
        test = read_test(path, arrays, classes, preprocess)
    return Data(
        name=path.stem,
        x=preprocess(x),
        y=number,
        classes=tuple(str(c) for c in classes),
        index=np.arange(len(y)),
        ids=tuple(str(i) for i in range(len(y))),
        preprocess=preprocess,
        **test,
    )


def read_test(path: Path, arrays: dict[str, Array], classes: Array, preprocess: Preprocess) -> dict[str, Any]:
    if not {"x_test", "y_test"} <= arrays.keys():
        raise InputError(f"{path} holds only one of x_test and y_test: give both or neither")
    x, y = arrays["x_test"], arrays["y_test"]
    y = check_labels(path, "y_test", y)
    if x.ndim == 0 or len(x) != len(y) or not len(y):
        raise InputError(
            f"{path} holds {len(x) if x.ndim else 'no'} rows of x_test and {len(y)} of y_test: as many of both are needed, or neither"
        )
    if channels_first(x).shape[1:] != preprocess.shape:
        raise InputError(f"{path}: x_test has {in_words(x)} where x has {in_words(arrays['x'])}: both need the same")
    number = {c: i for i, c in enumerate(classes.tolist())}
    unknown = set(y.tolist()) - number.keys()
    if unknown:
        raise InputError(f"{path}: y_test holds {sorted(unknown)[0]!r}, which is no label of y")
    return {"x_test": preprocess(x), "y_test": np.fromiter((number[v] for v in y.tolist()), np.int64, len(y))}


def in_words(x: Array) -> str:
    """What the rows of x are."""
    return f"{x.shape[1]} features" if x.ndim == 2 else f"pictures of shape {x.shape[1:]}"


def check_labels(path: Path, name: str, y: Array) -> Array:
    """y [N], which may be stored as a column: bytes as text, whole floats as whole numbers."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.ravel()
    if y.ndim == 1 and y.dtype.kind == "f":
        odd = ~((np.trunc(y) == y) & (np.abs(y.astype(np.float64)) < EXACT))
        if odd.any():
            row = int(odd.argmax())
            raise InputError(
                f"{path}: {name} must be one whole number or string a row, got {y[row]} in row {row}: "
                "drop such rows, or save y.astype(int) if its fractions mean nothing"
            )
        return y.astype(np.int64)
    if y.ndim != 1 or y.dtype.kind not in "iuUSb":
        told = f": of one-hot labels take {name}.argmax(1)" if y.ndim == 2 else ""
        raise InputError(f"{path}: {name} must be one whole number or string a row, got {y.dtype} of shape {y.shape}{told}")
    try:
        y = np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {name} holds bytes that are not UTF-8: {error}") from error
    try:
        "".join(map(str, set(y.tolist()))).encode()
    except ValueError as error:  # half a character, or a number that stands for none
        raise InputError(f"{path}: {name} holds text that cannot be written as UTF-8: {error}") from error
    return y
