"""Labels as they are given, by number or by name: refused where one is not a class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sprl.errors import InputError, pick

LONG = 300  # characters of a name


def class_numbers(y: Sequence[int] | NDArray[Any] | Tensor, num_classes: int) -> NDArray[np.int64]:
    """As int64 [N], checked."""
    labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise InputError(f"labels must be one whole number a sample, got {labels.dtype} of shape {labels.shape}")
    if not 0 <= labels.min() <= labels.max() < num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, got {labels.min()}..{labels.max()}")
    return labels.astype(np.int64)


def check_classes(what: str, labels: Iterable[str], classes: Sequence[str], new: str = "") -> None:
    """InputError for the first label that is not a class. `new`: what has to hold a class that is to be new."""
    known = set(classes)
    for label in labels:
        if label not in known:
            if len(label) > LONG:  # which of the classes is nearest to it would take long to find
                raise InputError(f"unknown {what} {label[:40]!r}, and {len(label) - 40:,} characters more")
            try:
                pick(what, label, classes)
            except InputError as error:
                raise InputError(f"{error}{f'; a new class cannot be brought in here, only with {new}' if new else ''}") from None
