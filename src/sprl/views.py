"""What a person sees of a run's labels: the page to review them, with each row's picture, or its features by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sprl.audit import judge
from sprl.corrections import CORRECTIONS, labels_hash, run_id
from sprl.data import Array, Data, Preprocess
from sprl.report import Page, thumbnail

if TYPE_CHECKING:
    import pandas as pd

    from sprl.run import Run


def page_of(path: Path, run: Run, labels: pd.DataFrame) -> Page:
    """Of a run that has ended in the folder `path`, with its config."""
    pictures = picture_of(run.pictures or run.data)
    return Page(
        title=run.data.name,
        classes=list(run.data.classes),
        labels=labels,
        verdict=judge(labels["label_quality"].to_numpy(), run.data.y),
        rows=run.rows,
        run_id=run_id(path),
        labels_hash=labels_hash(labels["id"], labels["given_label"]),
        picture=pictures,
        features=features_of(run.data) if pictures is None else None,
        command=f"sprl apply {shlex.quote(str(path))} {CORRECTIONS}",
    )


def picture_of(data: Data) -> Callable[[int], bytes | None] | None:
    """From a row's position to a small picture file; None where rows are no pictures."""
    if len(data.shape) != 3 or data.shape[0] not in (1, 3):
        return None
    return lambda row: thumbnail(pixels(as_given(data, row), data.preprocess))


def pixels(values: Array, preprocess: Preprocess) -> Array:
    """uint8 [C, H, W]. Numbers that are no pixels are stretched from black to white, each picture for itself."""
    if preprocess.mean is None:
        return values
    low, high = float(values.min()), float(values.max())
    return np.round((values - low) / (high - low or 1.0) * 255).astype(np.uint8)


def features_of(data: Data) -> Callable[[int], list[tuple[str, str]]] | None:
    """From a row's position to names and values; None where rows are pictures."""
    if len(data.shape) != 1:
        return None
    names = data.columns.names if data.columns is not None else [f"feature {i}" for i in range(data.shape[0])]
    return lambda row: [(name, f"{value:.5g}") for name, value in zip(names, as_given(data, row), strict=True)]


def as_given(data: Data, row: int) -> Array:
    """A row's values before they were standardised."""
    found = data.x[torch.tensor([row], device=data.x.device)][0].cpu().numpy()
    preprocess = data.preprocess
    if preprocess.mean is None or preprocess.deviation is None:
        return found
    mean, deviation = (np.array(part).reshape((-1,) + (1,) * (found.ndim - 1)) for part in (preprocess.mean, preprocess.deviation))
    given = found * deviation + mean
    return np.where(np.abs(given) < 1e-6 * (np.abs(mean) + deviation), 0.0, given)  # what rounding left of a zero
