"""The folder of a run, and what is in it. Every file is written aside and moved into place: whoever looks sees it whole, or its elder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from filelock import FileLock, Timeout

from sprl import cells
from sprl.errors import InputError, pick

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
    "checkpoint.pt",
    "checkpoint-previous.pt",
)
NAMES, PROBABILITIES, FLAG, TRUTH = (  # the columns of labels.csv
    ("id", "given_label", "predicted_label"),
    ("confidence", "label_quality", "wrong_probability"),
    "is_label_issue",
    "true_label",  # only where it is known
)
LONG = 300  # characters of a name
LOCK = ".lock"
PART = ".part-"  # and the name of the file that it is to become; first, so that the suffix stays
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


def cannot_write(path: Path | None, error: OSError) -> InputError:
    return InputError(f"cannot write to {path}: {error.strerror or error}")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The folder is this process's alone, can be written to, and is rid of what a killed one left. The lock goes with the process."""
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise Busy(f"another process is training in {path}: let it end, or stop it first") from None
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        raise cannot_write(path, error if isinstance(error, OSError) else OSError(str(error))) from error
    try:
        try:
            tidy(path)
            (path / f"{PART}{CONFIG}").touch()  # better now than after an epoch
            (path / f"{PART}{CONFIG}").unlink()
        except OSError as error:
            raise cannot_write(path, error) from error
        yield
    finally:
        lock.release()


def tidy(path: Path) -> None:
    """Put right what a process that was killed left half done."""
    for name in FILES:
        (path / f"{PART}{name}").unlink(missing_ok=True)
    if (path / NEW / CHECKPOINT).is_file():
        adopt(path)
    elif (path / NEW).is_dir():
        shutil.rmtree(path / NEW)


def adopt(path: Path) -> None:
    """Let the run in NEW, once it has a checkpoint, take the place of the one in `path`. Broken off anywhere, it can be done again."""
    for name in FILES:
        if name not in (CONFIG, CHECKPOINT):
            (path / name).unlink(missing_ok=True)
    for name in (CONFIG, CHECKPOINT):  # the checkpoint last: while it is in NEW, this is still to be done
        if (path / NEW / name).is_file():
            os.replace(path / NEW / name, path / name)
    shutil.rmtree(path / NEW)


def discard(path: Path) -> None:
    """Remove the folder of a run that came to nothing; other files in it stay."""
    with suppress(OSError):
        for name in (CONFIG, LOCK):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


@contextmanager
def aside(path: Path, previous: Path | None = None, durable: bool = True, shared: bool = False) -> Iterator[Path]:
    """Yields where to write what is to stand at `path`; it is moved there once it is whole and, if durable, on the disk.

    `previous` is where to keep what stood at `path` before. `shared`: no lock keeps others from writing the same file at once.
    """
    part = path.with_name(f"{PART}{uuid4().hex + '-' if shared else ''}{path.name}")
    try:
        yield part
        if durable:
            flush(part)
        if previous is not None and path.exists():
            keep(path, previous)
        os.replace(part, path)
        if durable:
            flush(path.parent)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):  # a full disk, a folder taken away
            raise cannot_write(path, error) from error
        raise


def keep(path: Path, previous: Path) -> None:
    """As `previous` too, so that there is always one at `path`; where the file system has no links, it is moved."""
    link = previous.with_name(f"{PART}{previous.name}")
    try:
        link.unlink(missing_ok=True)
        os.link(path, link)
    except OSError:
        os.replace(path, previous)
    else:
        os.replace(link, previous)
        link.unlink(missing_ok=True)  # still there where `previous` was this very file


def flush(path: Path) -> None:
    """A file, or the names in a folder, onto the disk. Not every system can do the latter."""
    folder = path.is_dir()
    with suppress(OSError) if folder else nullcontext():
        handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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


def write_metrics(path: Path, rows: list[Row]) -> None:
    """Not durable: the rows are in the checkpoints too."""
    with aside(path / METRICS, durable=False) as part:
        part.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_results(path: Path, run: Run) -> tuple[pd.DataFrame, Row]:
    """Model, labels, their report, curves and summary of a run that has ended; the summary last, so it marks the end. Returns labels and
    summary."""
    from safetensors.torch import save

    from sprl import report
    from sprl.curves import draw
    from sprl.views import page_of

    labels = run.labels()
    summary = run.summary(labels)
    write_metrics(path, run.rows)
    write_table(path / LABELS, cells.guarded(labels))
    for module, name in ((run.state.networks, MODEL), (run.backbone, BACKBONE)):
        if module is not None:
            with aside(path / name) as part:
                part.write_bytes(save({k: v.contiguous().cpu() for k, v in module.state_dict().items()}))
    with aside(path / REPORT) as part:
        report.write(part, page_of(path, run, labels))
    with aside(path / CURVES) as part:
        draw(run, part)
    write_json(path / SUMMARY, summary)
    return labels, summary


def write_table(path: Path, table: pd.DataFrame, note: str = "") -> None:
    with aside(path) as part:
        cells.write(part, table, note)


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


def check_classes(what: str, labels: Iterable[str], classes: Sequence[str], new: str = "") -> None:
    """InputError for the first label that is no class. `new`: what has to hold a class that is to be new."""
    known = set(classes)
    for label in labels:
        if label not in known:
            if len(label) > LONG:  # which of the classes is nearest to it would take long to find
                raise InputError(f"unknown {what} {label[:40]!r}, and {len(label) - 40:,} characters more")
            try:
                pick(what, label, classes)
            except InputError as error:
                raise InputError(f"{error}{f'; a new class cannot be brought in here, only with {new}' if new else ''}") from None


def probabilities(file: Path, name: str, written: list[str]) -> list[float]:
    for row, cell in enumerate(written):
        if not cells.NUMBER.fullmatch(cell) or not 0 <= float(cell) <= 1:
            raise InputError(f"{file}: {name} in row {row} (counted from 0) is {cell[:40]!r}, but must be a number from 0 to 1")
    return [float(cell) for cell in written]


def has_ended(path: Path) -> bool:
    """Whether the run in the folder was trained to its last epoch, and all its results are there."""
    try:
        ended = json.loads((path / SUMMARY).read_text())["interrupted"] is False
        return ended and all((path / name).is_file() for name in (METRICS, MODEL, LABELS, CURVES))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_json(path: Path, value: Any, shared: bool = False) -> None:
    with aside(path, shared=shared) as part:
        part.write_text(json.dumps(value, indent=2) + "\n")
