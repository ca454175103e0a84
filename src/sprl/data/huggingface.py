"""Hugging Face data sets as `save_to_disk` writes them: pictures, or columns of numbers, text and embeddings. Nothing is downloaded."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from sprl.data import Array, Data, How, decode, pictures, table
from sprl.data.columns import some
from sprl.data.decode import Resize
from sprl.errors import InputError, SprlWarning

BLOCK = 256  # pictures read at a time
LARGE = 2**22  # pixels of one that is decoded while no other such is


def is_saved(folder: Path) -> bool:
    """Whether the folder looks like a saved DatasetDict or Dataset."""
    return (folder / "dataset_dict.json").is_file() or all((folder / name).is_file() for name in ("state.json", "dataset_info.json"))


def load(folder: Path, how: How) -> Data:
    """A Dataset, or of a DatasetDict the parts to train and to test on."""
    import pandas as pd

    try:
        import datasets
    except ImportError:
        raise InputError("reading Hugging Face data sets needs datasets: pip install datasets") from None
    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as error:  # of many kinds for a damaged folder
        raise InputError(f"{folder} is not a readable Hugging Face data set: {' '.join(str(error).split())}") from error
    sources, parts = choose(folder, saved)
    first = parts[0].features
    for source, part in zip(sources, parts, strict=True):
        table.need_label(source, how.label, part.column_names)
        if lacking := [name for name in first if name not in part.features and name != "id"]:
            raise InputError(f"{source} lacks the columns {some(lacking)}, which the rows to train on have")
    given = np.concatenate([labels_of(source, part, how.label) for source, part in zip(sources, parts, strict=True)])
    held = np.arange(len(given)) >= len(parts[0])
    classes = table.classes_of(folder, how.label, given, held, getattr(first[how.label], "names", None))
    ids = [*table.ids_of(folder, to_frame(parts[0], {"id"})), *(f"test/{i}" for i in range(held.sum()))]
    name = folder.resolve().name
    picture = next((column for column, feature in first.items() if isinstance(feature, datasets.Image)), None)
    if picture is None:
        frame = pd.concat([to_frame(part, first.keys() - {how.label, "id"}) for part in parts], ignore_index=True)
        return table.features(name, frame, given, held, classes, ids)
    cells = [part.select_columns(picture).rename_column(picture, "picture") for part in parts]
    cells = [part.cast_column("picture", datasets.Image(decode=False)) for part in cells]
    files = [pictures.File("", id, label, test) for id, label, test in zip(ids, given, held.tolist(), strict=True)]
    return load_pictures(name, cells, files, classes, how)


def choose(folder: Path, saved: Any) -> tuple[list[Path], list[Any]]:
    """The part to train on and, where there is one, the part to test on: validation where there is no test."""
    if not isinstance(saved, dict):
        names, saved = [""], {"": saved}
    else:
        names = [name for name in table.SPLITS if name in saved]  # train comes first there, then test
    if names[:1] not in ([""], ["train"]) or not len(saved[names[0]]):
        raise InputError(f"{folder} holds no rows to train on; they are looked for in a part named train")
    if left := [name for name in saved if name not in names[:2]]:
        serve = "train serves to train on" + "".join(f" and {name} to test on" for name in names[1:2])
        warnings.warn(f"left out: {some(left)}, as {serve}", SprlWarning, stacklevel=3)
    return [folder / name for name in names[:2]], [saved[name].with_format(None) for name in names[:2]]


def to_frame(part: Any, columns: set[str]) -> Any:
    """Some of the columns as a DataFrame, with a row for each even if there are none of them."""
    import pandas as pd

    kept = [name for name in part.column_names if name in columns]
    return part.select_columns(kept).to_pandas() if kept else pd.DataFrame(index=range(len(part)))


def labels_of(source: Path, part: Any, label: str) -> Array:
    """The classes' names [N]; those of a ClassLabel as they are."""
    cells = to_frame(part, {label})[label]
    names = getattr(part.features[label], "names", None)
    if names is None:
        return table.labels_of(source, cells)
    number = cells.fillna(-1).to_numpy(np.int64)  # -1 is Hugging Face's, too, for a missing label
    table.refuse_missing(source, "label", np.flatnonzero(number < 0))
    return np.array(names, dtype=object)[number]


def load_pictures(name: str, parts: Sequence[Any], files: Sequence[pictures.File], classes: tuple[str, ...], how: How) -> Data:
    """Decode the column `picture`, whose cells hold the bytes of files or else their paths, and keep those that can be used."""
    resize = how.resize or pictures.find_size(sample(parts[0]))
    x = np.zeros((len(files), 3, resize.height, resize.width), dtype=np.uint8)
    bad: dict[int, str] = {}
    all_grey, one = True, Lock()

    def room(pixels: int) -> AbstractContextManager[Any]:
        return one if pixels > LARGE else nullcontext()

    with warnings.catch_warnings(), ThreadPoolExecutor() as threads:  # Pillow decodes without Python's lock
        warnings.simplefilter("ignore")  # of odd metadata; what is bad is reported
        made = partial(pixels, resize=resize, room=room)
        for i, found in enumerate(result for block in blocks(parts) for result in threads.map(made, block)):
            if isinstance(found, str):
                bad[i] = found
            else:
                x[i] = np.frombuffer(found[0], np.uint8).reshape(x.shape[1:])
                all_grey = all_grey and found[1]
            if (i + 1) % BLOCK == 0 or i + 1 == len(files):
                how.progress("decoding pictures", i + 1, len(files))
    rows = torch.from_numpy(np.ascontiguousarray(x[:, :1]) if all_grey else x)
    return pictures.assemble(name, files, classes, rows, bad, resize, how)


def blocks(parts: Sequence[Any]) -> Iterator[list[Any]]:
    return (block["picture"] for part in parts for block in part.iter(BLOCK))


def sample(part: Any) -> list[Any]:
    """Some of the pictures, as what Pillow can open."""
    cells = part.select(range(0, len(part), max(1, len(part) // 100)))["picture"]
    return [file for file in map(file_of, cells) if file]


def file_of(cell: Any) -> io.BytesIO | str | None:
    if cell is None:
        return None
    return io.BytesIO(cell["bytes"]) if cell["bytes"] else cell["path"]


def pixels(cell: Any, resize: Resize, room: decode.Room) -> tuple[bytes, bool] | str:
    """What `decode` gives, or why there is nothing."""
    file = file_of(cell)
    try:
        return decode.decode(file, resize, room) if file else "no picture"
    except decode.BadPicture as error:
        return str(error)
