"""A PyTorch Dataset, read whole: its rows as one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from sprl.data import Array, decode
from sprl.data.decode import Resize
from sprl.data.pictures import rule_for
from sprl.errors import InputError


def read(dataset: Dataset[Any], y: Any = None, shape: Sequence[int] | None = None) -> tuple[Array, Any]:
    """The rows of a map-style dataset of (x, label), and its labels where y is None.

    Pictures [C, H, W] of tensors become [H, W, C]. PIL images are brought to one size as picture files are, with one channel where all are
    grey; `shape`, the (C, H, W) that a trained model takes, settles both.
    """
    count = length(dataset)
    resize = Resize(shape[1], shape[2]) if shape is not None and len(shape) == 3 else None
    x: Array = np.empty(0)
    labels: list[Any] = []
    grey = True
    for i in range(count):
        value, *rest = item(dataset, i)
        if isinstance(value, Image.Image):
            resize = resize or find_size(dataset, count)
            row, is_grey = picture(value, resize, i)
            grey = grey and is_grey
        else:
            row, grey = array(value, i), False
        if i == 0:
            x = np.empty((count, *row.shape), row.dtype)
        if row.shape != x.shape[1:]:
            raise InputError("the rows of the dataset differ in shape: resize them to one")
        x = x.astype(np.result_type(x.dtype, row.dtype), copy=False)  # numbers that turn out to be floats
        x[i] = row
        if y is None:
            labels.append(to_label(rest, i))
    one = grey and (shape is None or shape[0] == 1)
    return x[..., :1] if one else x, labels if y is None else y


def length(dataset: Dataset[Any]) -> int:
    try:
        count = None if isinstance(dataset, IterableDataset) else len(dataset)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        count = None
    if count is None:
        raise InputError("the dataset has no length: give a map-style one, with len(dataset) and dataset[i]")
    if not count:
        raise InputError("the dataset is empty")
    return count


def item(dataset: Dataset[Any], i: int) -> Sequence[Any]:
    """(x, label), or (x,) where there is no label."""
    try:
        found = dataset[i]
    except IndexError as error:
        raise InputError(f"the dataset has no item {i}, though its length is {len(dataset)}") from error  # type: ignore[arg-type]
    if isinstance(found, Mapping):
        raise InputError("the items of the dataset are dicts, but must be (x, label): wrap it in a Dataset that takes them apart")
    found = found if isinstance(found, (tuple, list)) else (found,)
    if not found:
        raise InputError(f"item {i} of the dataset is empty: it must be (x, label)")
    return found


def array(value: Any, i: int) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        return value.transpose(1, 2, 0) if value.ndim == 3 else value
    row = np.asarray(value)
    if row.dtype.kind not in "uifb":
        raise InputError(f"item {i} of the dataset is of the type {type(value).__name__}: numbers, a tensor or a picture are needed")
    return row


def picture(image: Image.Image, resize: Resize, i: int) -> tuple[Array, bool]:
    """[H, W, 3], and whether it is grey."""
    try:
        planes, grey = decode.planes(image.copy(), resize)  # which may change what it is given
    except (decode.BadPicture, OSError) as error:
        raise InputError(f"item {i} of the dataset is a picture that cannot be used: {error}") from error
    return np.frombuffer(planes, np.uint8).reshape(3, resize.height, resize.width).transpose(1, 2, 0), grey


def find_size(dataset: Dataset[Any], count: int) -> Resize:
    """By the rule for picture files."""
    images = [item(dataset, i)[0] for i in range(0, count, max(1, count // 100))]
    return rule_for([decode.seen_size(image) for image in images if isinstance(image, Image.Image)])


def to_label(rest: Sequence[Any], i: int) -> Any:
    if not rest:
        raise InputError("the dataset gives no labels: its items must be (x, label), or pass y")
    label = rest[0]
    if label is None:
        raise InputError(f"item {i} of the dataset has no label: every row needs one")
    if not isinstance(label, (torch.Tensor, np.generic, np.ndarray)):
        return label
    try:
        return label.item()
    except (ValueError, RuntimeError):
        raise InputError(f"the label of item {i} of the dataset has the shape {tuple(label.shape)}: one class is needed") from None
