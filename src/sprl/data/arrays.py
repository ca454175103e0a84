"""Arrays in an .npz file: x, y and, with trusted labels, x_test, y_test. Files with pickled objects are refused."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sprl.data import Array, Data, Preprocess, encode
from sprl.errors import InputError


def read(path: Path) -> dict[str, Array]:
    """All arrays of the file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, AttributeError, TypeError, zlib.error) as error:
        raise InputError(f"{path} is not a readable .npz file without pickled objects: {error}") from error


def read_rows(path: Path) -> Array:
    """The rows to predict: x of an .npz file, or an .npy file."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is not a readable .npy file without pickled objects: {error}") from error
    arrays = read(path)
    if "x" not in arrays:
        raise InputError(f"{path} holds no array 'x': save it with numpy.savez(path, x=...)")
    return arrays["x"]


def load(path: Path) -> Data:
    arrays = read(path)
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
    if len(x) != len(y) or not len(y):
        raise InputError(f"{path} holds {len(x)} rows of x_test and {len(y)} of y_test: as many of both are needed, or neither")
    number = {c: i for i, c in enumerate(classes.tolist())}
    unknown = set(y.tolist()) - number.keys()
    if unknown:
        raise InputError(f"{path}: y_test holds {sorted(unknown)[0]!r}, which is no label of y")
    return {"x_test": preprocess(x), "y_test": np.fromiter((number[v] for v in y.tolist()), np.int64, len(y))}


def check_labels(path: Path, name: str, y: Array) -> Array:
    """y, bytes as text."""
    if y.ndim != 1 or y.dtype.kind not in "iuUSb":
        raise InputError(f"{path}: {name} must be one whole number or string a row, got {y.dtype} of shape {y.shape}")
    try:
        return np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {name} holds bytes that are not UTF-8: {error}") from error
