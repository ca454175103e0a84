"""What a person sees of a run's labels: the page to review them, with each row's picture, or its features by name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sprl.audit import judge
from sprl.corrections import CORRECTIONS, labels_hash, run_id
from sprl.data import Array, Data, Preprocess
from sprl.data.columns import TEXT, Column
from sprl.files import REPORT
from sprl.report import Page, thumbnail, write

if TYPE_CHECKING:
    import pandas as pd

    from sprl.run import Run


def write_page(path: Path, run: Run, labels: pd.DataFrame) -> None:
    """report.html of a run that has ended in the folder `path`, with its config."""
    write(path / REPORT, page_of(path, run, labels))


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
        command=f"sprl apply {shlex.quote(os.path.basename(os.path.abspath(path)))} {CORRECTIONS}",
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


def features_of(data: Data) -> Callable[[int], Iterator[tuple[str, str]]] | None:
    """From a row's position to names and values, one by one, as few may be wanted of many; None where rows are pictures."""
    if len(data.shape) != 1:
        return None
    if data.columns is None:
        return lambda row: ((f"feature {i}", f"{value:.5g}") for i, value in enumerate(as_given(data, row)))
    columns, mean, deviation = data.columns.columns, np.array(data.preprocess.mean), np.array(data.preprocess.deviation)
    assert isinstance(data.x, torch.Tensor)  # as tables are
    varies = data.x.ne(data.x[:1]).any(0).numpy()  # elsewhere every cell is the mean
    bounds = list(pairwise(accumulate((len(column.features) for column in columns), initial=0)))

    def features(row: int) -> Iterator[tuple[str, str]]:
        values = as_given(data, row)
        at_mean = varies & (np.abs(values - mean) <= 1e-6 * deviation)
        for column, (first, last) in zip(columns, bounds, strict=True):
            yield from cells_of(column, values[first:last], at_mean[first:last])

    return features


def cells_of(column: Column, values: Array, at_mean: Array) -> list[tuple[str, str]]:
    """What the table held. The mean stands for numbers that are missing, so that where it is found nobody can be sure."""
    if column.kind == TEXT:
        return [(column.name, next(compress(column.values, values > 0.5), "missing"))]
    forms = np.where(at_mean, "missing? ({:.5g})", "{:.5g}")
    return [(name, form.format(value)) for name, form, value in zip(column.features, forms, values, strict=True)]


def as_given(data: Data, row: int) -> Array:
    """A row's values before they were standardised."""
    found = data.x[torch.tensor([row], device=data.x.device)][0].cpu().numpy()
    preprocess = data.preprocess
    if preprocess.mean is None or preprocess.deviation is None:
        return found
    mean, deviation = (np.array(part).reshape((-1,) + (1,) * (found.ndim - 1)) for part in (preprocess.mean, preprocess.deviation))
    given = found * deviation + mean
    return np.where(np.abs(given) < 1e-6 * (np.abs(mean) + deviation), 0.0, given)  # what rounding left of a zero
