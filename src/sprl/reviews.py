"""What `sprl audit` and `sprl apply` do: show a person the verdict on a run's labels, and take the person's own verdict in."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from sprl import cells, corrections, files
from sprl.audit import UNCLEAR, Z90, Array, Selection, Verdict, recalibrate
from sprl.config import Config, asked_of, find_device, needs_rate, usual_of
from sprl.corrections import ACCEPTED, CORRECTED, CORRECTIONS, KEPT, OTHER, SKIPPED, Corrections, Labelled
from sprl.data import Preprocess
from sprl.errors import InputError
from sprl.files import CONFIG, FLAG, LABELS, REPORT, TRUTH, started_in
from sprl.methods import METHODS
from sprl.model import blaming, read_config
from sprl.networks import Shape
from sprl.show import console, say, short
from sprl.tensors import start_of

ENOUGH = 50  # labels that a person must have checked before the probabilities follow
PAIRS, SUSPECTS, MOST_CLASSES, WORST_CLASSES = 5, 10, 20, 10  # lines of each
BAR = 20  # characters


def audit(
    path: Path,
    precision: float | None = None,
    budget: int | None = None,
    checked: Path | None = None,
    out: Path | None = None,
    before: Path | None = None,
    reset: bool = False,
) -> None:
    """Tell how many labels are wrong and which; mark those in labels.csv, or write them to `out`, where a list was asked for. `reset`: the
    usual one was."""
    if (precision is not None) + (budget is not None) + reset > 1:
        raise InputError("--precision, --budget and --reset each say how long the list is to be: use one of them")
    if reset and out is not None:
        raise InputError(f"--reset marks the list in {path / LABELS}, --out leaves that as it is: use one of them")
    if out is not None and os.path.lexists(out):
        raise InputError(f"{out} is there already: choose another --out")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"cannot write to {out}: there is no such folder")
    read_config(path / CONFIG)  # before a lock is left in a folder that is no run
    marks = out is None and (precision is not None or budget is not None or reset)
    with files.held(path) if marks else nullcontext():
        run = Labelled.read(path)
        found = find_corrections(run, checked)
        changes = None if before is None else Changes.since(Labelled.read(before), run)
        run.listed(run.verdict.wrong, precision, budget)  # bad options are refused before anything is said
        if precision is not None and not run.verdict.clear:  # nor do checks help, which are of the most suspicious (docs/labels.md)
            raise InputError(f"no precision can be promised in {path}: {UNCLEAR}; review by rank, such as with --budget 100")
        show_run(run)
        show_rate(run)
        wrong = run.verdict.wrong if found is None else show_checked(run, found)
        chosen = run.listed(wrong, precision, budget, None if found is None else found.checked()[0])
        show_list(run, chosen, precision, budget)
        show_pairs(run, wrong)
        show_classes(run, chosen)
        show_suspects(run, wrong, found)
        if changes is not None:
            show_changes(run, changes, chosen, precision, budget)
        if marks:
            flags = np.zeros(len(run.cells), dtype=bool)
            flags[chosen.rows] = True
            cells.write(path / LABELS, run.cells.assign(**{FLAG: flags}))
            say("Written", f"{path / LABELS}: {FLAG} marks this list; nothing else in it is different")
        elif out is not None:
            cells.write(out, run.cells.iloc[chosen.rows].assign(**{FLAG: True}))
            say("Written", f"{out}: the list, the most suspicious first")
        else:
            show_marked(run, chosen, checked)
    show_next(run, chosen if precision is not None or budget is not None else None)


def show_marked(run: Labelled, chosen: Selection, checked: Path | None) -> None:
    """Where labels.csv marks another list than this one: what an earlier audit was asked for, or what was before a review."""
    marked = np.flatnonzero(run.table[FLAG])
    if not np.array_equal(marked, np.sort(chosen.rows)):
        again = shlex.join(["sprl", "audit", str(run.path), "--reset", *([] if checked is None else ["--corrections", str(checked)])])
        say("Note", f"{run.path / LABELS} marks another list, of {len(marked):,} labels; to mark this one: {again}")


def show_next(run: Labelled, asked: Selection | None) -> None:
    """Where to review. The page opens with its own list: `asked` for another, its threshold has to be set."""
    page = run.path / REPORT
    place = str(page) if page.is_file() else "the list"
    if page.is_file() and asked is not None and len(asked.rows):
        least = run.table["wrong_probability"].iloc[asked.rows].min()
        place += f" with its threshold at {min(int(100 * least), 99)} %, which shows all of this list as far as the page holds it"
    say("Next", f"review {place}, then: sprl apply {shlex.quote(str(run.path))} {CORRECTIONS}")


def find_corrections(run: Labelled, asked: Path | None) -> Corrections | None:
    """Those asked for, or those that lie beside the labels, if they fit."""
    beside = run.path / CORRECTIONS
    if asked is not None:
        return corrections.read(asked, run)
    try:
        return corrections.read(beside, run) if beside.is_file() else None
    except InputError as error:
        say("Note", f"left out: {error}")
        return None


def show_run(run: Labelled) -> None:
    """Which run it is, whether it has ended, and whose labels it was trained on."""
    interrupted = files.was_interrupted(run.path)  # which may refuse, before anything is said
    say("Run", f"{run.path}: {len(run.table):,} labels, {len(run.classes)} classes, method {run.config.method}")
    if interrupted:
        say(
            "",
            f"not at its end, so all below is early: unless it is training, go on with sprl train --resume {shlex.quote(str(run.path))}",
        )
    source = made_from(run)
    if source is not None:
        say("", f"trained on {run.config.labels}, the labels of run {source} as they were corrected")


def made_from(run: Labelled) -> str | None:
    """The run whose corrected labels this one was trained on, if it was and they are still there."""
    if run.config.labels is None:
        return None
    file = started_in(run.path) / run.config.labels
    try:
        note, _ = cells.split_note(start_of(file, 1000) if file.is_file() else b"")
    except (OSError, ValueError):
        return None
    kind, stated = corrections.read_note(note)
    return stated.get("run") if kind == "labels" else None


def show_rate(run: Labelled) -> None:
    verdict = run.verdict
    if verdict.clear:
        say("Rate", f"{rate(verdict)} of the labels are wrong, by estimate")
        return
    say("Rate", rate(verdict))
    say("", UNCLEAR)
    method = "" if run.config.method == "sprl" or run.config.network.startswith("cnn") else "; --method sprl may tell them apart"
    say("", f"review by rank: the most suspicious first, as far as it pays{method}")


def rate(verdict: Verdict) -> str:
    """With an interval where wrong and right labels stand apart; what else is estimated promises nothing."""
    ends = f"{100 * verdict.low:.1f} to {percent(verdict.high)}"
    return f"{percent(verdict.rate)} (90 % interval: {ends})" if verdict.clear else f"cannot tell (estimates: {ends}, none of them sure)"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def show_checked(run: Labelled, found: Corrections) -> Array:
    """What a person's checks say of the probabilities. Returns these, moved accordingly once there are enough checks."""
    rows, wrong = found.checked()
    if len(rows) < ENOUGH:
        say("Checked", f"{len(rows)} labels: {ENOUGH - len(rows)} more are needed before the list follows them")
        return run.verdict.wrong
    low, high = wilson(int(wrong.sum()), len(rows))
    share = f"{100 * wrong.mean():.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    expected = f"; expected were {run.verdict.wrong[rows].sum():.0f}" if run.verdict.clear else ""
    say("Checked", f"of {len(rows)} checked, {wrong.sum()} were wrong: {share}{expected}")
    say("", "the list below follows that, the rate does not: what was checked is not a sample of all labels")
    return recalibrate(run.verdict.wrong, rows, wrong)


def wilson(count: int, n: int) -> tuple[float, float]:
    """The interval of 90 % for a share of which `count` of `n` were seen (Wilson 1927)."""
    middle, square = (count + Z90**2 / 2) / (n + Z90**2), count * (n - count) / n + Z90**2 / 4
    half = Z90 * math.sqrt(square) / (n + Z90**2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def show_list(run: Labelled, chosen: Selection, precision: float | None, budget: int | None) -> None:
    """How long the list is, and how good: expected, if anything can be, and, in an experiment, really."""
    count, clear = len(chosen.rows), run.verdict.clear
    if count == 0 and precision is not None:
        say("List", f"empty: no label can be named with an expected precision of {percent(precision)}; ask for less, or for a --budget")
    elif count == 0:
        say("List", "empty: no label is more likely wrong than right" if clear else "empty: no label stands out")
    else:
        kind = f"the longest with an expected precision of {percent(precision)}" if precision is not None else "the most suspicious"
        rule = "those more likely wrong than right" if clear else "flagged on a guess"
        kind = kind if precision is not None or budget is not None else rule
        promise = f"{chosen.expected:,.0f} of them expected to be really wrong" if clear else "how many of them are wrong cannot be told"
        say("List", f"{count:,} labels, {kind}; {promise}")
    if TRUTH in run.table:
        really = (run.table[TRUTH] != run.table["given_label"]).to_numpy()
        found = f"of the list {percent(float(really[chosen.rows].mean()))} are (its real precision)" if count else "the list is empty"
        say("Truth", f"known in this experiment: {percent(float(really.mean()))} of all labels are really wrong; {found}")


class Pair(NamedTuple):
    """Rows that are one class, and were given as another."""

    true: str
    given: str
    expected: float  # how many
    share: float  # of all that are of the true class


def pairs(run: Labelled, wrong: Array) -> list[Pair]:
    """Those of which anything is expected, most first. Not by a matrix: a stranger's run may have a million classes."""
    place = {name: i for i, name in enumerate(run.classes)}
    given, true = (run.table[name].map(place).to_numpy(dtype=np.int64) for name in ("given_label", "predicted_label"))
    against = np.where(given == true, 0.0, wrong)
    total = np.bincount(true, against, len(place)) + np.bincount(given, 1 - against, len(place))
    keys, inverse = np.unique(true * len(place) + given, return_inverse=True)
    expected = np.bincount(inverse, against)
    order = [i for i in np.argsort(-expected, kind="stable") if expected[i] > 0]
    found = ((int(keys[i]) // len(place), int(keys[i]) % len(place), float(expected[i])) for i in order)
    return [Pair(run.classes[t], run.classes[g], count, count / float(total[t])) for t, g, count in found]


def show_pairs(run: Labelled, wrong: Array) -> None:
    lines = []
    for true, given, expected, share in pairs(run, wrong)[:PAIRS]:
        if expected >= 0.5:
            numbers = (f"{expected:,.0f} expected", f"{percent(share)} of all {short(true)}") if run.verdict.clear else ()
            lines.append((f"{short(true)} given as {short(given)}", *numbers))
    columns("Pairs", lines)


def show_classes(run: Labelled, chosen: Selection) -> None:
    """The share of each class's labels that is on the list."""
    given = run.table["given_label"]
    total = given.value_counts()
    share = (given.iloc[chosen.rows].value_counts().reindex(total.index, fill_value=0) / total).sort_values(ascending=False, kind="stable")
    shown = [name for name in run.classes if name in share.index] if len(share) <= MOST_CLASSES else list(share.index[:WORST_CLASSES])
    block = "█" if console.encoding.startswith("utf") else "#"
    rows = [(short(name), f"{block * round(BAR * share[name]):<{BAR}}", f"{percent(share[name])} of {total[name]:,}") for name in shown]
    say("Classes", "the share of each that is on the list" + (f", the highest {WORST_CLASSES}" if len(share) > MOST_CLASSES else ""))
    columns("", rows)


def show_suspects(run: Labelled, wrong: Array, found: Corrections | None) -> None:
    """The most suspicious that nobody has checked yet."""
    open_to_check = np.ones(len(wrong), dtype=bool)
    if found is not None:
        open_to_check[found.rows] = False
    rows = run.listed(np.where(open_to_check, wrong, -1.0), budget=SUSPECTS).rows
    rows = rows[open_to_check[rows]]
    columns("Suspects", [suspect(run, wrong, row) for row in rows])


def suspect(run: Labelled, wrong: Array, row: int) -> tuple[str, ...]:
    """Its chances only where they are more than a rank."""
    one, clear = run.table.iloc[row], run.verdict.clear
    same = one["predicted_label"] == one["given_label"]
    sure = f" ({100 * one['confidence']:.0f} %)" if clear else ""
    rather = "no class is suggested" if same else f"rather {short(one['predicted_label'])}{sure}"
    chance = (f"{percent(float(wrong[row]))} wrong",) if clear else ()
    return short(one["id"]), f"given as {short(one['given_label'])}", rather, *chance


class Changes(NamedTuple):
    """The rows of a run that an earlier one had too, by their ids."""

    earlier: Labelled
    rows: NDArray[np.int64]
    rows_then: NDArray[np.int64]

    @classmethod
    def since(cls, earlier: Labelled, run: Labelled) -> Changes:
        place = {id: row for row, id in enumerate(earlier.table["id"])}
        rows = np.flatnonzero(run.table["id"].isin(place.keys()))
        if not len(rows):
            raise InputError(f"{run.path} and {earlier.path} have no row in common: --before is for an earlier run on the same rows")
        return cls(earlier, rows, np.array([place[id] for id in run.table["id"].iloc[rows]], dtype=np.int64))


def show_changes(run: Labelled, changes: Changes, chosen: Selection, precision: float | None, budget: int | None) -> None:
    """What is different since an earlier run. Its list is made anew, by the same rule as this one's."""
    earlier, here, there = changes
    listed = earlier.listed(earlier.verdict.wrong, precision, budget)
    now, then = np.isin(here, chosen.rows), np.isin(there, listed.rows)
    changed = run.table["given_label"].to_numpy()[here] != earlier.table["given_label"].to_numpy()[there]
    this = ", whose corrected labels these are" if made_from(run) == corrections.run_id(earlier.path) else ""
    say("Before", f"{earlier.path}{this}: {len(here):,} of {len(run.table):,} rows were there too")
    say("", f"wrong then: {rate(earlier.verdict)}; now: {rate(run.verdict)}")
    say("", f"labels changed since then: {changed.sum():,}, of which on the list now: {(changed & now).sum():,}")
    if precision is None or earlier.verdict.clear:  # else there was no such list
        say("", f"on the list then: {then.sum():,}, of which no longer: {(then & ~now).sum():,}")


def columns(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Lines whose parts stand below one another, with a heading in the margin of the first."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(part + " " * (width - cell_len(part)) for part, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text.assemble((f"{title if number == 0 else '':<9} ", "bold"), line), soft_wrap=True)


def apply(path: Path, file: Path | None, suggestions: int | None, out: Path | None = None, overwrite: bool = False) -> None:
    """Write labels for all rows of the run, with the corrections of a file or so many suggestions put in; tell how to train on them."""
    if (file is None) == (suggestions is None):
        raise InputError(f"give either {CORRECTIONS}, which the review made, or --suggestions N")
    run, shape = Labelled.read(path), shape_of(path)
    out = path / CORRECTED if out is None else out
    if any(
        os.path.realpath(out) == os.path.realpath(other)
        for other in (*(path / name for name in (*files.FILES, CORRECTIONS)), *([file] if file else []))
    ):
        raise InputError(f"{out} is needed as it is: choose another --out")
    if os.path.lexists(out) and not overwrite:
        raise InputError(f"{out} is there already: choose another --out, or --overwrite it")
    if file is not None:
        found = corrections.read(file, run)
        taken = f"{found.count(ACCEPTED):,} as suggested, {found.count(OTHER):,} otherwise"
        told = f"{found.count(ACCEPTED, OTHER):,} labels changed ({taken}), {found.count(KEPT):,} kept, {found.count(SKIPPED):,} skipped"
    else:
        assert suggestions is not None
        found = corrections.suggested(run, suggestions)
        told = f"of the {len(found.rows):,} most suspicious labels {found.count(ACCEPTED):,} changed to what is suggested"
        told += f"; for {found.count(KEPT):,} no class is suggested" if found.count(KEPT) else ""
    corrected = corrections.apply(run, found)
    corrections.write(out, run, corrected)
    say("Applied", told)
    if suggestions is not None:
        say(
            "",
            "nobody has looked at them" + ("" if run.verdict.clear else ", and the verdict on this run is not clear: sprl audit says why"),
        )
    if TRUTH in run.table:
        was, now = ((run.table[TRUTH] != labels).mean() for labels in (run.table["given_label"], corrected["label"]))
        say("Truth", f"known in this experiment: {percent(was)} of the labels were really wrong, {percent(now)} are now")
    say("Written", f"{out}: labels of all {len(corrected):,} rows")
    usually = usual_of(run.config, len(run.table), shape, find_device("auto"))
    say("Next", train_again(run.config, usually, started_in(path), out))


def shape_of(path: Path) -> Shape:
    """Of the run's rows, as its network takes them."""
    _, model = read_config(path / CONFIG)
    with blaming(path / CONFIG, "this is not a run's config"):
        return Preprocess.from_json(model["preprocess"]).shape


ASKED = (
    "data_dir",
    "label_column",
    "skip_bad",
    "size",
    "rows",
    "augment",
    "cutout",
    "method",
    "network",
    "weights",
    "frozen",
    "epochs",
    "batch_size",
    "lr",
    "seed",
)  # what stays


def train_again(config: Config, usually: Config, started: Path, labels: Path) -> str:
    """The command that trains on other labels as the run was trained, but for a noise rate that it can do without, for it is another
    now. It asks for what is not as it would be `usually`. Paths are found from here."""
    moved = not os.path.samefile(started, os.curdir)
    asked = {option: getattr(config, option) for option in ("data", "data_dir", "weights")}
    places = {option: os.path.abspath(started / value) for option, value in asked.items() if value and moved and (started / value).exists()}
    config = dataclasses.replace(config, **places)
    words = ["sprl", "train", config.data, *asked_of(config, ASKED, usually)]
    method = METHODS.get(config.method)  # its package may no longer be installed
    defaults = {} if method is None else {f.name: f.default for f in dataclasses.fields(method)}  # type: ignore[arg-type]
    for name, value in config.fields.items():
        if name == "noise_rate":
            words += ["--noise-rate", f"{value:.3g}"] if method is not None and needs_rate(method) else []
        elif value != defaults.get(name, value):
            words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--labels", str(labels)])
