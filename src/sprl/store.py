"""The store: every finished run as one record, a file named by the hash of what was run. Tables and figures read records alone.

Files may come from anywhere: what is not a record from end to end is left out with a note.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import stat
import subprocess
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sprl.atomic import check_kind, written
from sprl.checkpoint import PLACES
from sprl.config import edition, later
from sprl.errors import InputError, SprlWarning, printable
from sprl.files import make_place
from sprl.run import Run, versions
from sprl.schema import Unreadable, require
from sprl.timm_models import PRETRAINED

FORMAT = 1
LARGEST = 2**24  # bytes of a record; one of 200 epochs has 40,000
KEY = re.compile(r"[0-9a-f]{16}")
MEANS = ("device", "stream", "graph", "compile", "sync_norm")  # fields of a config that say how to compute, not what
TOLD = ("noise_rate",)  # what a method makes of it is in its fields
# Fields of a config that the first records lack, and what those were run with; of a method's fields, its `later` says so.
LATER = {"rows": None, "augment": None, "cutout": 0, "schedule": "published"}
LAST = 10  # epochs whose mean is the result

Curve = list[float | None]


@dataclass(frozen=True)
class Record:
    """A finished run. Percentages from 0 to 100; `None` in a curve where there is nothing to tell yet."""

    key: str
    config: dict[str, Any]  # every default filled in
    edition: int  # of what its method did (config.edition)
    weights: str | None  # hash of the file that it began with, or their name
    data: str  # its name
    fingerprint: str  # of all the data
    labels: str  # hash of the given labels that it was trained on
    n: int
    classes: int
    test: int  # rows
    curves: dict[str, Curve]  # a column an epoch's fact: epoch, loss, chosen, test_accuracy, precision, recall, gamma, ...
    summary: dict[str, Any]
    seconds: float
    seconds_an_epoch: float
    together: int  # runs that shared the device meanwhile
    device: str
    threads: int
    precision: str
    step: str
    versions: dict[str, str]
    revision: str | None  # commit of the source that it ran from, or a hash of it
    finished: str  # UTC

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def epochs(self) -> int:
        return int(self.config["epochs"])

    @property
    def accuracy(self) -> list[float]:
        """On the test rows, by epoch; empty where there are none."""
        return known(self.curves.get("test_accuracy", []))

    @property
    def last10(self) -> float | None:
        """The result: mean accuracy of the last ten epochs."""
        return mean(self.accuracy[-LAST:])

    @property
    def best(self) -> float | None:
        """Accuracy of the best epoch, which only the test labels can tell."""
        return max(self.accuracy, default=None)

    @property
    def chosen_precision(self) -> float | None:
        """Share of right labels among those that it trained on, mean of the last ten epochs; None where the truth is not known."""
        return mean(known(self.curves.get("precision", [])[-LAST:]))

    @property
    def chosen_recall(self) -> float | None:
        """Share of the right labels that it trained on, mean of the last ten epochs."""
        return mean(known(self.curves.get("recall", [])[-LAST:]))


def known(curve: Sequence[float | None]) -> list[float]:
    return [value for value in curve if value is not None]


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def key_of(config: Mapping[str, Any], fingerprint: str, weights: str | None, of: int | None = None) -> str:
    """The name of a run: a hash of its config, as `run.prepare` fills it in, of its data and of the weights that it begins with.

    What the data is counts (Run.fingerprint), and what the weights are (content_of), not where they lie; what is computed, not on which
    device. `of`: the edition of its method, if not what that does now.
    """
    of = edition(config["method"], config["fields"]) if of is None else of
    unset = [name for name, was in LATER.items() if config.get(name) in (None, was)]  # so that records from before keep their names
    meaning = {name: value for name, value in config.items() if name not in (*PLACES, *MEANS, *TOLD, *unset)}
    was = later(config["method"])
    meaning["fields"] = {name: value for name, value in config["fields"].items() if name not in was or value != was[name]}
    parts = [meaning, fingerprint, weights, *([of] if of > 1 else [])]  # the first records have none
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def content_of(weights: str | None) -> str | None:
    """What --weights stands for: the hash of a file, else the text itself."""
    if weights in (None, PRETRAINED) or not os.path.isfile(weights):
        return weights
    found = os.stat(weights)
    try:
        return digest(os.path.abspath(weights), found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise InputError(f"cannot read {weights}: {error.strerror or error}") from error


@cache
def digest(path: str, mtime: int, size: int) -> str:
    """Read once as long as the file stays as it is."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_of(run: Run, together: int = 1, weights: str | None = None) -> Record:
    """Of a run that has ended. `weights`: their content when it began, if the file may have changed since."""
    weights = weights or content_of(run.config.weights)
    labels = run.labels()
    summary = run.summary(labels)
    data = run.data
    config, found = json.loads(json.dumps([run.config.to_json(), asdict(run.state.method)]))  # type: ignore[call-overload]  # as read back
    told = {name: summary[name] for name in SUMMARY if name in summary}
    told["found"] = {name: value for name, value in found.items() if value != config["fields"][name]}
    told["detection"] = detection(run, labels["label_quality"].to_numpy(), labels["is_label_issue"].to_numpy())
    return Record(
        key=key_of(config, run.fingerprint, weights),
        config=config,
        edition=edition(config["method"], config["fields"]),
        weights=weights,
        data=data.name,
        fingerprint=run.fingerprint,
        labels=summary["noise"]["labels_sha256"],
        n=len(data.y),
        classes=len(data.classes),
        test=0 if data.x_test is None else len(data.x_test),
        curves={name: [row.get(name) for row in run.rows] for name in dict.fromkeys(name for row in run.rows for name in row)},
        summary=told,
        seconds=summary["seconds"],
        seconds_an_epoch=summary["seconds"] / run.task.epochs,
        together=together,
        device=summary["device"],
        threads=summary["threads"],
        precision=summary["precision"],
        step=summary["step"],
        versions={name: str(version) for name, version in summary["versions"].items()},
        revision=revision(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def detection(run: Run, quality: np.ndarray[Any, Any], flagged: np.ndarray[Any, Any]) -> dict[str, float] | None:
    """How well wrong labels are told from right ones, where the truth is known and there are both."""
    wrong = np.zeros(0) if run.data.clean is None else run.data.y != run.data.clean
    if len(np.unique(wrong)) < 2:
        return None
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    return {
        "auroc": float(roc_auc_score(wrong, -quality)),
        "average_precision": float(average_precision_score(wrong, -quality)),
        "f1": float(f1_score(wrong, flagged)),
    }


@cache
def revision() -> str:
    """The commit of the source that runs here, marked if it was changed since; where it is no checkout, a hash of its files."""
    package = Path(__file__).parent
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=package, env=surroundings, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # else it is installed within the repository of something else
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        found = hashlib.sha256()
        for path in sorted(package.rglob("*.py")):
            found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
        return f"source:{found.hexdigest()[:16]}"


def path_of(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


def unfinished(folder: Path, key: str) -> Path:
    """The folder of a run that is under way, or was stopped. A store may come from anywhere: a link there would lead to other files."""
    path = folder / "unfinished" / key
    check_kind(path.parent, "a folder")
    check_kind(path, "a folder")
    return path


def write(folder: Path, record: Record) -> Path:
    """A line for each field. Others may write the same record at the same time: whichever comes last stands, whole."""
    path = path_of(folder, record.key)
    make_place(folder)
    lines = [f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in {"format": FORMAT, **asdict(record)}.items()]
    with written(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return path


def read(folder: Path, key: str) -> Record | None:
    """The record of that name. None: there is none, or, with a note, nothing that can be read as one."""
    path = path_of(folder, key)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for whoever writes
            warnings.warn(f"{path} is no record and is left out: it is no file", SprlWarning, stacklevel=2)
            return None
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        record = parse(content)
        require(record.key == key, "its name is another's")
        return record
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        why = printable(str(error))[:200] if isinstance(error, Unreadable) else "it is damaged"
        warnings.warn(f"{path} is no record and is left out: {why}", SprlWarning, stacklevel=2)
        return None


def all(folder: Path) -> list[Record]:
    """Every record of the store, by key."""
    return list(each(folder))


def each(folder: Path) -> Iterator[Record]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}") from error
    for key, dot, kind in (name.partition(".") for name in names):
        record = read(folder, key) if dot + kind == ".json" and KEY.fullmatch(key) else None
        if record is not None:
            yield record


def other_versions(records: Collection[Record], names: Sequence[str] = ("sprl", "torch", "numpy", "python")) -> str:
    """How many were made with other versions of these than are here, and with which; nothing where none was."""
    here = {name: str(version) for name, version in versions().items()}
    others = [record.versions for record in records if any(record.versions.get(name) != here[name] for name in names)]
    which = sorted({printable(f"sprl {found.get('sprl')}, torch {found.get('torch')}")[:60] for found in others})
    return f"records made with other versions: {len(others)} ({'; '.join(which)})" if others else ""


# What a record must be like.
SUMMARY = (
    *("T1", "last10", "best_oracle", "agreement", "label_issues"),
    *("noise_rate_estimated", "noise_rate_interval", "noise_rate_clear", "noise_rate_realised", "noise", "found", "detection"),
)
KINDS: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "str | None": (str, type(None))}


def parse(content: bytes) -> Record:
    """A record from a file's content, every part of it checked."""
    require(len(content) <= LARGEST, "it is too large")
    value = json.loads(content, parse_constant=refuse)
    fields = {f.name: str(f.type) for f in dataclasses.fields(Record)}
    require(type(value) is dict and value.get("format") == FORMAT, f"it is not of format {FORMAT}")
    del value["format"]
    value.setdefault("edition", 1)  # records of old
    require(value.keys() == fields.keys(), "it has other fields")
    for name, kind in fields.items():
        fits = isinstance(value[name], KINDS.get(kind, dict)) and not isinstance(value[name], bool)
        require(fits, f"its {name} is no {kind}")
    for name in ("edition", "n", "classes", "test", "seconds", "seconds_an_epoch", "together", "threads"):
        require(is_number(value[name]) and value[name] >= 0, f"its {name} is {value[name]}")
    record = Record(**value)
    config = record.config
    require(type(config.get("method")) is str and type(config.get("seed")) is int, "its config lacks method or seed")
    require(type(config.get("fields")) is dict, "its config lacks the method's fields")
    require(type(config.get("weights")) in (str, type(None)), "its config lacks weights")
    require((config["weights"] is None) == (record.weights is None), "its weights are not those of its config")
    key = key_of(config, record.fingerprint, record.weights, record.edition)
    require(record.key == key, "its key is not that of its config and data")
    T, epochs = config.get("epochs"), record.curves.get("epoch")
    require(type(T) is int and type(epochs) is list and len(epochs) == T and epochs == list(range(1, T + 1)), "it lacks epochs")
    for name, curve in record.curves.items():
        fits = type(curve) is list and len(curve) == T
        require(fits and not [v for v in curve if v is not None and not is_number(v)], f"its curve {printable(name)[:40]} is none")
    require(record.test == 0 or len(record.accuracy) == T, "its test accuracies have gaps")
    require(not [v for v in record.accuracy if not 0 <= v <= 100], "its test accuracies are no percentages")
    require(record.summary.keys() == set(SUMMARY), "its summary has other fields")
    told, last10 = record.summary["last10"], record.last10
    same = told is None if last10 is None else is_number(told) and math.isclose(told, last10, rel_tol=1e-9)
    require(same, "its result is not that of its curve")
    noise = record.summary["noise"]
    require(type(noise) is dict and noise.get("labels_sha256") == record.labels, "its noise is not that of its labels")
    require(not [v for v in record.versions.values() if type(v) is not str], "its versions are none")
    return record


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def refuse(constant: str) -> None:
    raise Unreadable(f"it holds {constant}")
