"""The folder of a run, and what is in it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from sprl import cells
from sprl.atomic import PART, cannot_write, check_kind, flush, part, written
from sprl.data.given import check_classes
from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from sprl.run import Row, Run

CONFIG, METRICS, SUMMARY, MODEL, BACKBONE, LABELS, REPORT, CURVES, CHECKPOINT, PREVIOUS = FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "backbone.safetensors",
    "labels.csv",
    "report.html",
    "curves.png",
    "checkpoint.safetensors",
    "checkpoint-previous.safetensors",
)
OLDER = ("checkpoint.pt", "checkpoint-previous.pt")  # of earlier versions: they go where a run is replaced
NAMES, PROBABILITIES, FLAG, TRUTH = (  # the columns of labels.csv
    ("id", "given_label", "predicted_label"),
    ("confidence", "label_quality", "wrong_probability"),
    "is_label_issue",
    "true_label",  # only where it is known
)
LARGEST = 2**20  # bytes of a summary
LOCK = ".lock"
NEW = ".new"  # a folder: the beginning of a run that is about to replace the one that is here


class Busy(InputError):
    """Another process has the folder."""


def make_folder(out: str | None, data: str, overwrite: bool) -> Path:
    """A folder for a new run: `out`, or runs/<data>-<n> with a fresh number. What is in it stays as it is."""
    check_folder(out, overwrite)
    path, number = Path(out or f"runs/{data}-1"), 1
    while True:
        try:
            path.mkdir(parents=True, exist_ok=out is not None)
            return path
        except FileExistsError as error:
            if out is not None:
                raise cannot_write(path, error) from error
            number += 1
            path = Path("runs") / f"{data}-{number}"
        except OSError as error:
            raise cannot_write(path, error) from error


def check_folder(out: str | None, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is to stay."""
    path = Path(out) if out is not None else None
    check_place(path or Path("runs"))
    if path is not None:
        check_inside(path)
    try:
        if path is None or not path.exists() or all(is_left_over(entry.name) for entry in path.iterdir()):
            return
    except OSError as error:
        raise cannot_write(path, error) from error
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} holds other files and no run: choose another --out")
    if not overwrite:
        raise InputError(f"{path} holds a run already: choose another --out, --overwrite it, or go on with --resume")


def check_place(path: Path) -> None:
    """Refuse a folder that cannot be made or written to."""
    place = path.absolute()
    try:
        nearest = next(folder for folder in (place, *place.parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise InputError(f"cannot write to {path}: {nearest} is {'write-protected' if nearest.is_dir() else 'a file'}")
    except OSError as error:
        raise cannot_write(path, error) from error


def make_place(path: Path) -> None:
    """The folder, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def is_left_over(name: str) -> bool:
    """What a process that was killed may leave in a folder that is empty otherwise."""
    return name == LOCK or name.startswith(PART)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The folder is this process's alone, can be written to, and holds no links in place of our files. The lock goes with the process."""
    check_inside(path)
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise Busy(f"another process is training in {path}: let it end, or stop it first") from None
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        raise cannot_write(path, error if isinstance(error, OSError) else OSError(str(error))) from error
    try:
        try:
            with part(path / CONFIG):
                pass  # it can be written to: better known now than after an epoch
        except OSError as error:
            raise cannot_write(path, error) from error
        yield
    finally:
        lock.release()


@contextmanager
def held_to_train(path: Path) -> Iterator[None]:
    """The same, and what a process that was killed left half done is put right: the run in NEW takes its place, or goes."""
    with held(path):
        try:
            tidy(path)
        except OSError as error:
            raise cannot_write(path, error) from error
        yield


def check_inside(path: Path) -> None:
    """The user may name a folder by a link. What is in it must be there itself: a stranger's link would lead to the user's own files."""
    check_kind(path / NEW, "a folder")
    for name in (LOCK, *FILES):
        check_kind(path / name)
        check_kind(path / NEW / name)


def tidy(path: Path) -> None:
    if (path / NEW / CHECKPOINT).is_file():
        adopt(path)
    elif (path / NEW).is_dir():
        shutil.rmtree(path / NEW)


def adopt(path: Path) -> None:
    """Let the run in NEW, once it has a checkpoint, take the place of the one in `path`. Broken off anywhere, it can be done again: each
    step is on the disk before the next."""
    flush(path)
    for name in (*FILES, *OLDER):
        if name not in (CONFIG, CHECKPOINT):
            (path / name).unlink(missing_ok=True)
    for name in (CONFIG, CHECKPOINT):  # the checkpoint last: while it is in NEW, this is still to be done
        if (path / NEW / name).is_file():
            os.replace(path / NEW / name, path / name)
        flush(path)
    shutil.rmtree(path / NEW)


def discard(path: Path) -> None:
    """Remove the folder of a run that came to nothing; other files in it stay."""
    with suppress(OSError):
        for name in (CONFIG, LOCK):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def write_config(path: Path, run: Run) -> None:
    """What repeats the run, and what `load` needs to build its network again."""
    from sprl.config import counts_from_here

    data = run.data
    model = {
        "classes": list(data.classes),
        "preprocess": vars(data.preprocess),
        "resize": None if data.resize is None else data.resize._asdict(),
        "columns": None if data.columns is None else data.columns.to_json(),
    }
    started = {"started_in": os.getcwd()} if counts_from_here(run.config) else {}
    write_json(path / CONFIG, {**run.config.to_json(), "model": model, **started})


def write_metrics(path: Path, rows: list[Row], durable: bool = False) -> None:
    """Of a run under way they need not be on the disk: the rows are in the checkpoints too."""
    with written(path / METRICS, durable=durable) as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)


def write_results(path: Path, run: Run, write_page: Callable[[Path, Run, pd.DataFrame], None]) -> tuple[pd.DataFrame, Row]:
    """Model, labels, the page to review them, curves and summary of a run that has ended; the summary last, so it marks the end. Returns
    labels and summary."""
    from safetensors.torch import save

    from sprl.curves import draw

    labels = run.labels()
    summary = run.summary(labels)
    write_metrics(path, run.rows, durable=True)
    cells.write(path / LABELS, cells.guarded(labels))
    for module, name in ((run.state.networks, MODEL), (run.backbone, BACKBONE)):
        if module is not None:
            with written(path / name) as file:
                file.write(save({k: v.contiguous().cpu() for k, v in module.state_dict().items()}))
    write_page(path, run, labels)
    draw(run, path / CURVES)
    write_json(path / SUMMARY, summary)
    return labels, summary


class Labels(NamedTuple):
    """labels.csv: its cells as they are written there, and what they mean."""

    cells: pd.DataFrame
    table: pd.DataFrame  # names are text; probabilities float64; is_label_issue bool


def read_labels(path: Path, classes: Sequence[str]) -> Labels:
    """labels.csv of the run in `path`, whose classes these are; the file may be a stranger's."""
    file = path / LABELS
    if not file.is_file():
        raise InputError(f"{path} holds no {LABELS}: let the run end, or go on with it: sprl train --resume {shlex.quote(str(path))}")
    written = cells.read(file).cells
    lacking = [name for name in (*NAMES, *PROBABILITIES, FLAG) if name not in written]
    if lacking:
        raise InputError(f"{file} lacks {', '.join(lacking)}: it is not as this version of sprl writes it; train anew")
    if not len(written):
        raise InputError(f"{file} holds no rows")
    table = written.copy(deep=False)
    for name in (*NAMES, *([TRUTH] if TRUTH in written else [])):
        table[name] = written[name].map(cells.unguard).astype(object)  # text of pandas' own kind is slow to go through
        if name != "id":
            check_classes(f"{name} in {file}:", table[name].unique(), classes)
    for name in PROBABILITIES:
        table[name] = probabilities(file, name, written[name].tolist())
    flags = written[FLAG].str.lower()  # spreadsheets shout
    if not flags.isin(("true", "false")).all():
        raise InputError(f"{file}: {FLAG} must be True or False, not {written[FLAG][~flags.isin(('true', 'false'))].iloc[0]!r}")
    table[FLAG] = flags == "true"
    twice = table["id"][table["id"].duplicated()]
    if len(twice):
        raise InputError(f"{file} has more than one row with the id {twice.iloc[0]!r}")
    return Labels(written, table)


def probabilities(file: Path, name: str, written: list[str]) -> list[float]:
    for row, cell in enumerate(written):
        if not cells.NUMBER.fullmatch(cell) or not 0 <= float(cell) <= 1:
            raise InputError(f"{file}: {name} in row {row} (counted from 0) is {cell[:40]!r}, but must be a number from 0 to 1")
    return [float(cell) for cell in written]


def last_checkpoint(path: Path) -> str | None:
    return next((file for file in (CHECKPOINT, PREVIOUS) if (path / file).is_file()), None)


def started_in(path: Path) -> Path:
    """The folder from which the run's relative paths count: where it was started, if it has any and that is still there; else this one."""
    stored = json.loads((path / CONFIG).read_text()).get("started_in")
    return Path(stored) if isinstance(stored, str) and os.path.isdir(stored) else Path.cwd()


def has_ended(path: Path) -> bool:
    """Whether the run in the folder was trained to its last epoch, and all its results are there."""
    return was_interrupted(path) is False and all((path / name).is_file() for name in (METRICS, MODEL, LABELS, CURVES))


def was_interrupted(path: Path) -> bool | None:
    """What the summary of the run in the folder, which may be a stranger's, says; None where it says nothing."""
    file = Path(os.path.realpath(path / SUMMARY))
    check_kind(file)
    try:
        with file.open("rb") as opened:
            told = json.loads(opened.read(LARGEST))["interrupted"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if isinstance(told, bool) else None


def write_json(path: Path, value: Any) -> None:
    with written(path) as file:
        file.write(json.dumps(value, indent=2).encode() + b"\n")
