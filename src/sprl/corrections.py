"""What people found out about a run's labels: read and checked against the run, or taken from its suggestions, and put into the labels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprl import cells, files
from sprl.audit import Array, Selection, Verdict, judge, select
from sprl.config import Config
from sprl.data.given import check_classes
from sprl.errors import InputError, pick
from sprl.labels import FEW
from sprl.model import blaming, names, read_config

if TYPE_CHECKING:
    import pandas as pd

CORRECTIONS, CORRECTED = "corrections.csv", "corrected.csv"
COLUMNS = ("id", "given_label", "corrected_label", "verdict")
ACCEPTED, OTHER, KEPT, SKIPPED = VERDICTS = ("accepted", "other", "kept", "skipped")


def run_id(path: Path) -> str:
    """A run is known by its config."""
    return hashlib.sha256((path / files.CONFIG).read_bytes()).hexdigest()[:12]


def labels_hash(ids: Iterable[str], labels: Iterable[str]) -> str:
    """Labels are known by themselves and the rows that they belong to."""
    return hashlib.sha256("".join(f"{id}\t{label}\n" for id, label in zip(ids, labels, strict=True)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Labelled:
    """The labels of a run in a folder, with the verdict on them."""

    path: Path
    config: Config
    classes: tuple[str, ...]
    cells: pd.DataFrame  # as they are written in labels.csv
    table: pd.DataFrame  # and what they mean

    @classmethod
    def read(cls, path: Path) -> Labelled:
        config, model = read_config(path / files.CONFIG)
        with blaming(path / files.CONFIG, "this is not a run's config"):
            classes = names(model["classes"])
        return cls(path, config, classes, *files.read_labels(path, classes))

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.table["label_quality"].to_numpy(), self.table["given_label"].to_numpy(dtype=str))

    @cached_property
    def hash(self) -> str:
        return labels_hash(self.table["id"], self.table["given_label"])

    def listed(
        self, wrong: Array, precision: float | None = None, budget: int | None = None, checked: NDArray[np.int64] | None = None
    ) -> Selection:
        """The labels to look at by these probabilities, but none that were checked or are of a class so small that nobody can say."""
        given = self.table["given_label"]
        open_to_check = (given.map(given.value_counts()) > FEW).to_numpy(copy=True)
        if checked is not None:
            open_to_check[checked] = False
        rows = np.flatnonzero(open_to_check)
        chosen = select(wrong[rows], precision, budget)
        return Selection(rows[chosen.rows], chosen.expected)


class Corrections(NamedTuple):
    """What was said of K labels: `rows` [K] of the run, the `labels` that these should have, and how each was judged."""

    rows: NDArray[np.int64]
    labels: list[str]  # "" where skipped
    verdicts: NDArray[np.str_]

    def count(self, *verdicts: str) -> int:
        return int(np.isin(self.verdicts, verdicts).sum())

    def checked(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The rows that a person decided on, and which of their labels were found wrong."""
        decided = self.verdicts != SKIPPED
        return self.rows[decided], self.verdicts[decided] != KEPT


def read(path: Path, run: Labelled) -> Corrections:
    """corrections.csv, refused unless it was made for just these labels."""
    note, written = cells.read(path)
    kind, stated = read_note(note)
    if kind != "corrections" or "labels" not in stated:
        told = f"{path} does not say what it corrects: its first line must be # sprl corrections, run=..., labels=..."
        others = f"; labels of all rows, as id,label, are for sprl train ... --labels {path}" if {"id", "label"} <= set(written) else ""
        raise InputError(told + others)
    if stated["labels"] != run.hash:
        made_for = f"run {stated['run']}" if "run" in stated else "another run"
        raise InputError(f"{path} corrects other labels (those of {made_for}) than {run.path} was trained on")
    lacking = [name for name in COLUMNS if name not in written]
    if lacking:
        raise InputError(f"{path} lacks the columns {', '.join(lacking)}")
    ids, given, labels = ([cells.unguard(cell) for cell in written[name]] for name in COLUMNS[:3])
    place = dict(zip(run.table["id"], range(len(run.table)), strict=True))
    seen = set[str]()
    for id in ids:
        if id not in place:
            raise InputError(f"{path}: {run.path} has no row with the id {id[:300]!r}; has a spreadsheet changed it?")
        if id in seen:
            raise InputError(f"{path} has more than one row with the id {id!r}")
        seen.add(id)
    rows = np.array([place[id] for id in ids], dtype=np.int64)
    verdicts = [cell.strip().lower()[:300] for cell in written["verdict"]]
    for id, verdict in zip(ids, verdicts, strict=True):
        pick(f"verdict on {id!r} in {path}:", verdict, VERDICTS)
    decided = (label for label, verdict in zip(labels, verdicts, strict=True) if verdict != SKIPPED)
    check_classes(f"corrected_label in {path}:", decided, run.classes, new="the data of a new run")
    for id, was, now, expected, verdict in zip(ids, given, labels, run.table["given_label"].iloc[rows], verdicts, strict=True):
        check(path, id, was, now, expected, verdict)
    return Corrections(rows, labels, np.array(verdicts, dtype=str))


def check(path: Path, id: str, given: str, corrected: str, expected: str, verdict: str) -> None:
    """A verdict and the labels beside it must say the same."""
    if given != expected:
        raise InputError(f"{path}: the given_label of {id!r} is {given[:300]!r}, but {expected!r} in the run")
    if verdict == SKIPPED and corrected:
        raise InputError(f"{path}: {id!r} is skipped, but has the corrected_label {corrected[:300]!r}: leave that empty, or say other")
    if verdict == KEPT and corrected != given:
        raise InputError(f"{path}: {id!r} is kept, but its corrected_label {corrected!r} is not the given one, {given!r}")
    if verdict in (ACCEPTED, OTHER) and corrected == given:
        raise InputError(f"{path}: {id!r} is {verdict}, but its corrected_label is the given one, {given!r}: say kept")


def suggested(run: Labelled, count: int) -> Corrections:
    """The suggestions for the most suspicious labels, as if all had been accepted; kept is what has no suggestion."""
    rows = run.listed(run.verdict.wrong, budget=count).rows
    chosen = run.table.iloc[rows]
    verdicts = np.where(chosen["predicted_label"] == chosen["given_label"], KEPT, ACCEPTED)
    return Corrections(rows, chosen["predicted_label"].tolist(), verdicts)


def apply(run: Labelled, corrections: Corrections) -> pd.DataFrame:
    """id and label of every row of the run."""
    labels = run.table["given_label"].to_numpy(dtype=object, copy=True)
    changed = np.isin(corrections.verdicts, (ACCEPTED, OTHER))
    labels[corrections.rows[changed]] = np.array(corrections.labels, dtype=object)[changed]
    return run.table[["id"]].assign(label=labels)


def write(path: Path, run: Labelled, corrected: pd.DataFrame) -> None:
    """For `sprl train --labels`. The note says what it came from."""
    count = int((corrected["label"] != run.table["given_label"]).sum())
    note = f"sprl labels, run={run_id(run.path)}, labels={labels_hash(corrected['id'], corrected['label'])}, corrected={count}"
    cells.write(path, cells.guarded(corrected), note)


def read_note(note: str) -> tuple[str, dict[str, str]]:
    """Of which kind the file is, "" if not ours, and what its note states."""
    kind = re.match(r"sprl (corrections|labels)\b", note)
    return (kind[1], dict(re.findall(r"\b(run|labels|corrected)=([0-9a-f]{1,64})\b", note))) if kind else ("", {})
