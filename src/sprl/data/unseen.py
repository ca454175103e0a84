"""New rows for a trained model, read as its training rows were."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sprl.data import Array, How, arrays, huggingface, table
from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.folder import SUFFIXES, pictures_below, tell_of_others, text
from sprl.data.pictures import File, decoded, tell_of_bad
from sprl.data.rows import FileRows
from sprl.errors import InputError

LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R 601, as in Pillow)


def read(
    path: Path, to_rows: Callable[[Array], torch.Tensor], channels: int, resize: Resize | None, columns: Columns | None, how: How
) -> tuple[Sequence[str], torch.Tensor | FileRows]:
    """A name for each row, and the rows as the network takes them; `to_rows` makes them of arrays."""
    if not path.exists():
        raise InputError(f"no such file or folder: {path}")
    if huggingface.is_saved(path):
        instead = "a folder of pictures" if resize else "a table, as its to_csv writes one" if columns else "an .npz with x"
        raise InputError(f"{path} is a saved Hugging Face data set, from which no new rows are read: give {instead}")
    if path.suffix.lower() in (".npy", ".npz"):
        x = arrays.read_rows(path)
        return [str(i) for i in range(len(x))], to_rows(x)
    if columns is not None:
        ids, x = table.read_new(path, columns)
        return ids, to_rows(x)
    if resize is None:
        raise InputError(f"cannot read {path}: this model was trained on arrays; give an .npz with x, or an .npy")
    return read_pictures(path, picture_files(path), resize, channels, how)


def picture_files(path: Path) -> list[File]:
    """Those that a table lists, all below a folder, or one."""
    if path.suffix.lower() in table.SUFFIXES:
        return table.list_pictures(path)
    root = os.path.abspath(os.fsencode(path))
    if path.is_dir():
        others: Counter[str] = Counter()
        files = [File(name, text(name[len(root) + 1 :]), "") for name in sorted(pictures_below(root, others, set()))]
        tell_of_others(others)
        return files
    if os.path.splitext(root)[1].lower() not in SUFFIXES:
        raise InputError(f"{path} is no picture by its name; this model takes a picture, a folder of them, or a table with a column path")
    return [File(root, text(os.fsencode(path)), "")]


def read_pictures(
    path: Path, files: Sequence[File], resize: Resize, channels: int, how: How
) -> tuple[Sequence[str], torch.Tensor | FileRows]:
    if not files:
        raise InputError(f"{path} holds no pictures")
    rows, bad = decoded([file.path for file in files], resize, how)
    if bad and len(bad) < len(files):
        tell_of_bad(files, bad, how)
    good = np.array([i for i in range(len(files)) if i not in bad])
    if not len(good):
        raise InputError(f"{path}: none of {len(files)} pictures can be read, such as {files[0].id} ({bad[0]})")
    ids = [files[i].id for i in good]
    rows = replace(rows, places=good)
    if channels == 1 and rows.shape_of_row[0] == 3:
        return ids, grey(rows)
    return ids, replace(rows, shape_of_row=(channels, resize.height, resize.width))


def grey(rows: FileRows) -> torch.Tensor:
    """Colour pictures for a model that knows grey ones."""
    weights = torch.tensor(LUMINANCE).view(1, 3, 1, 1)
    return torch.cat([(rows[part] * weights).sum(1, keepdim=True).round().to(torch.uint8) for part in torch.arange(len(rows)).split(1024)])
