"""What a person sees on the terminal. Names of files and classes are other people's text: nothing in them is markup here."""

from __future__ import annotations

import dataclasses
import os
import shlex
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from sprl.audit import UNCLEAR
from sprl.errors import printable
from sprl.launch import to_go_on

if TYPE_CHECKING:
    import pandas as pd

    from sprl.data import Progress
    from sprl.data.rows import Rows
    from sprl.data.sets import BenchmarkSet, Status
    from sprl.run import Row, Run
    from sprl.tune import Trial


class Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read us has enough, e.g. `| head`: training goes on all the same."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = Terminal(highlight=False)
HOUR = 3600
NAME = 32  # characters of a name
HINTS = {  # on the small CNN and colour pictures
    "standard": "plain training suits this small CNN: it hardly memorises wrong labels, and SPRL would keep it from learning",
    "sprl": "this small CNN hardly memorises wrong labels, and SPRL may keep it from learning: --method standard does not",
}
TUNED = (  # what stays from `sprl tune` to `sprl train`
    "data_dir",
    "label_column",
    "labels",
    "skip_bad",
    "size",
    "corrupt",
    "network",
    "epochs",
    "batch_size",
    "lr",
    "seed",
    "device",
)


def say(title: str, text: str) -> None:
    """A line with a heading in the margin."""
    console.print(Text.assemble((f"{title:<9} ", "bold"), printable(text)), soft_wrap=True)


def short(name: str) -> str:
    """Other people's text, at most NAME characters wide."""
    name = printable(name)
    return name if cell_len(name) <= NAME else set_cell_size(name, NAME - 1).rstrip() + "…"


@contextmanager
def reading() -> Iterator[tuple[Callable[[str], None], Progress]]:
    """For what comes before training: notes, and a bar a task where a person is watching."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} of {task.total:,}"), TimeRemainingColumn())
    with RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        jobs: dict[str, TaskID] = {}

        def progress(what: str, done: int, of_all: int | None) -> None:
            if what not in jobs:
                jobs[what] = bar.add_task(printable(what), total=of_all)
            bar.update(jobs[what], completed=done, total=of_all)

        yield lambda text: say("", text), progress


def setting(run: Run, demonstration: bool) -> None:
    """What data, and which network and why."""
    data, config = run.data, run.config
    size = f"{data.shape[1]} x {data.shape[2]} pixels" if len(data.shape) == 3 else f"{data.shape[0]} features"
    if run.backbone is not None and data.resize is not None:
        size = f"{data.resize.height} x {data.resize.width} pixels as {size}"
    test = f", {len(data.x_test):,} test rows" if data.x_test is not None else ", no test rows"
    say("Data", f"{data.name}: {len(data.y):,} training rows{test}, {len(data.classes)} classes, {size}")
    if config.corrupt and data.clean is not None:
        wrong = 100 * float((data.y != data.clean).mean())
        reason = "made wrong for this demonstration" if demonstration else "made wrong for this experiment"
        say("Labels", f"{wrong:.1f} % {reason} ({config.corrupt}); the true ones only score the result")
        if run.labeller is not None:
            rows, _, accuracy = run.labeller
            known = "" if accuracy is None else f"; it has {accuracy:.1f} % of the test rows right"
            say("", f"given by the network itself, trained on {rows:,} right ones{known}")
    else:
        say("Labels", f"from {config.labels}" if config.labels else "as they are")
    say("Memory", whereabouts(run.task.x))
    trained, frozen = (sum(p.numel() for p in m.parameters()) if m else 0 for m in (run.state.networks, run.backbone))
    head = f"frozen, {frozen:,} parameters; trained is a head of" if frozen else f"({run.why}),"
    say("Network", f"{config.network} {head} {trained:,} parameters")


def plan(run: Run, demonstration: bool, count: int = 1) -> None:
    """Before it starts: what data, which network and why, how long; of `count` runs with seeds from this one's on."""
    from sprl.config import default_method
    from sprl.search import longest_search

    config, device = run.config, run.task.device
    setting(run, demonstration)
    seeds = f"seed {config.seed}" if count == 1 else f"seeds {config.seed} to {config.seed + count - 1}, side by side"
    many = f", shared by {run.processes} processes" if run.processes > 1 else ""
    say("Training", f"{config.method}, {config.epochs} epochs in batches of {config.batch_size}, {seeds}{many}")
    say("", f"augmentation: {run.task.augment}")
    seconds = run.seconds_expected() * count
    search = seconds * longest_search(run.task, run.state.method) / run.task.epochs
    say("Time", takes(seconds, search, count, f" on {device}"))
    if count > 1 and device.type == "cpu":
        say("", "on a CPU runs side by side take turns, which gains nothing")
    if config.method in HINTS and default_method(config.network, run.data.shape, device) == "standard":
        say("", HINTS[config.method])
        say("", "more is to be had of a network that has learned to see: --network timm:NAME --weights FILE --frozen")
    if seconds > HOUR and device.type == "cpu":
        large = config.network.split(":")[0] in ("resnet18", "convnet")
        hint = "--network cnn" if large else f"--epochs {max(10, int(run.task.epochs * HOUR / seconds / 2))}"
        say("", f"too long? {hint}, or --device cuda on a machine with a GPU")


def whereabouts(x: Rows) -> str:
    """Where the rows are while it trains, and what they take."""
    from sprl.data.rows import FileRows, Streamed
    from sprl.machine import free_memory

    free = f"{volume(free_memory(x.device))} free"
    if not isinstance(x, Streamed):
        return f"{volume(x.nbytes)} of rows on {x.device}, {free}"
    source = x.rows.path if isinstance(x.rows, FileRows) else "the host's memory"
    return f"{volume(x.rows.nbytes)} of rows, streamed to {x.device} ({free}) from {source}"


def volume(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size, 1e5) / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e6:.0f} MB"


def takes(seconds: float, search: float, together: int, where: str = "") -> str:
    """How long runs take, so many of them side by side. `search`: seconds at most for what their methods find out first."""
    more = f", and up to {duration(search)} more for what it finds out first" if search else ""
    return f"{'about' if together == 1 else 'at most'} {duration(seconds)}{where}{more}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / HOUR:.1f} h"


@contextmanager
def progress(runs: Sequence[Run]) -> Iterator[Callable[[Run, Row], None]]:
    """A bar for each run on a terminal; plain lines, about twenty of each, in a log."""
    T = runs[0].task.epochs
    names = {id(run): f"seed {run.config.seed}  " if len(runs) > 1 else "" for run in runs}
    last = {id(run): run.state.t for run in runs}

    def note(run: Run, row: Row) -> None:
        """Where the count steps back, after a search, say what was found."""
        if row["epoch"] <= last[id(run)]:
            found = {name: getattr(run.state.method, name) for name, value in run.config.fields.items() if value == "auto"}
            words = [f"{name} = {value}" if isinstance(value, int) else name for name, value in found.items() if value != "auto"]
            then = "beginning anew" if row["epoch"] == 1 else f"going on with epoch {row['epoch']}"
            console.print(f"{names[id(run)]}found {' and '.join(words)}, {then}", markup=False)
        last[id(run)] = row["epoch"]

    if not console.is_terminal:
        every = max(1, T // 20)

        def line(run: Run, row: Row) -> None:
            note(run, row)
            if row["epoch"] % every == 0 or row["epoch"] in (1, T):
                console.print(f"{names[id(run)]}epoch {row['epoch']:>4}/{T}  {numbers(row)}", markup=False)

        yield line
        return
    title = TextColumn("{task.description}epoch {task.completed}/{task.total}")
    with RichProgress(title, BarColumn(), TextColumn("{task.fields[numbers]}"), TimeRemainingColumn(), console=console) as bar:
        jobs = {id(run): bar.add_task(names[id(run)], total=T, numbers="") for run in runs}

        def update(run: Run, row: Row) -> None:
            note(run, row)
            bar.update(jobs[id(run)], completed=row["epoch"], numbers=numbers(row))

        yield update


def numbers(row: Row) -> str:
    """Of an epoch. No loss: SPRL's grows with gamma, which would look like divergence."""
    accuracy = f"accuracy {row['test_accuracy']:5.1f} %" if "test_accuracy" in row else f"agrees {100 * (1 - row['contradicted']):3.0f} %"
    return f"{accuracy}  trained on {100 * row['chosen']:3.0f} %"


def results(run: Run, labels: pd.DataFrame, summary: Row, path: Path) -> None:
    """At the end: how good, how many labels look wrong, where the files are, what to do next."""
    if summary["last10"] is not None:
        say("Accuracy", f"{summary['last10']:.1f} % on the test rows (mean of the last {min(10, summary['epochs'])} epochs)")
    else:
        say("Agreement", f"{summary['agreement']:.1f} % of the given labels (there are no test labels to measure accuracy with)")
    last = run.rows[-1]
    if last.get("m"):
        strength = f"; gamma_d = {last['gamma_d']:.3g}, the strength of resistance" if last["gamma"] else ""
        say("Found", f"T1 = {summary['T1']}, the epochs of warm-up{strength}")
    say("Labels", rate(summary))
    flagged, clear = summary["label_issues"], summary["noise_rate_clear"]
    if not clear:
        say("", UNCLEAR)
    if clear or flagged:
        say("", f"{flagged:,} of {len(run.data.y):,} are {'more likely wrong than right' if clear else 'flagged, on a guess'}")
    lowest = labels[labels["is_label_issue"]].nsmallest(3, "label_quality")
    worst = [f"{short(row.id)} is {short(row.given_label)}? rather {short(row.predicted_label)}" for row in lowest.itertuples()]
    if worst:
        say("", f"the least likely: {'; '.join(worst)}")
    backbone = " backbone.safetensors," if run.backbone is not None else ""
    say("Files", f"{path}/ report.html, labels.csv, curves.png, model.safetensors,{backbone} metrics.jsonl, summary.json, config.json")
    new = "PICTURES/" if run.data.resize is not None else "NEW.csv" if run.data.columns is not None else "NEW.npz"
    name = shlex.quote(str(path))
    by_rank = "" if clear and flagged else " by rank, the most suspicious first"
    say("Next", f"open {path}/report.html to review the suspects{by_rank}; sprl audit {name}; sprl predict {name} {new}")


def rate(summary: Row) -> str:
    """How many labels are wrong, as far as can be told; and, in an experiment, how many are."""
    low, high = (100 * bound for bound in summary["noise_rate_interval"])
    realised = summary["noise_rate_realised"]
    truth = "" if realised is None else f"; really wrong: {100 * realised:.1f} %"
    if summary["noise_rate_clear"]:
        return f"about {100 * summary['noise_rate_estimated']:.1f} % are wrong (90 % interval: {low:.1f} to {high:.1f} %{truth})"
    return f"cannot tell how many are wrong (estimates: {low:.1f} to {high:.1f} %, none of them sure{truth})"


def results_together(ended: Sequence[tuple[Run, Row, Path]]) -> None:
    """At the end of several: a line each, then their mean."""
    scores = []
    for run, summary, path in ended:
        kind, score = ("accuracy", summary["last10"]) if summary["last10"] is not None else ("agreement", summary["agreement"])
        scores.append(score)
        sure = "look wrong" if summary["noise_rate_clear"] else "are flagged, on a guess"
        wrong = f"{summary['label_issues']:,} of {len(run.data.y):,} labels {sure}"
        say(f"seed {run.config.seed}", f"{kind} {score:.1f} %; {wrong}; {path}/")
    if len(scores) > 1:
        seconds = max(run.seconds for run, _, _ in ended)
        spread = f"{statistics.mean(scores):.2f} % on average, {statistics.stdev(scores):.2f} standard deviation"
        early = ", some of them stopped early" * any(len(run.rows) < run.task.epochs for run, _, _ in ended)
        say("Together", f"{spread}; {duration(seconds)} for {len(scores)} runs{early}")


def stopped(run: Run, path: Path) -> None:
    """Before its end: how far it came, and how to go on."""
    when = f"after epoch {len(run.rows)}" if run.rows else "in epoch 1"
    say("Stopped", f"{when} of {run.task.epochs}; what was learned so far is kept")
    say("", f"go on with: {to_go_on(str(path))}")


def resumed(run: Run, found: bool) -> None:
    """Where a run goes on."""
    state = run.state
    batch = f" after batch {state.progress.done}" if state.progress.rows is not None else ""
    at = f"in epoch {state.t + 1} of {run.task.epochs}{batch}" if state.t < run.task.epochs else "after its last epoch"
    say("Resuming", f"{at}, {duration(run.seconds)} done" if found else "from the beginning: it has no checkpoint yet")


def sets(data_dir: str | None) -> None:
    """Each set: what it is, its licence, where it is looked for, whether it is there; then the cache."""
    from sprl.data import cache
    from sprl.data.human import SOURCES
    from sprl.data.sets import BENCHMARKS, places, source, status

    say("digits", "handwritten digits: 1,347 + 450 grey pictures of 8 x 8 pixels, 10 classes; comes with scikit-learn")
    for name, which in BENCHMARKS.items():
        say(name, which.description)
        say("", f"licence: {which.licence}")
        state = status(which, data_dir)
        if state.where is None:
            looked = ", ".join(map(str, places(which, data_dir)))
            say("", f"not there, looked in {looked}. {source(which, data_dir)}")
        else:
            say("", f"{verdict(state)} in {state.where}")
    for name, human in SOURCES.items():
        kinds = " ".join(f"human:{kind}" for kind in human.labels)
        say(
            "",
            f"labels that people gave to {name} (CC BY-NC 4.0): --labels {kinds}; from {human.published} or {human.arrays}",
        )
    count, size = cache.used()
    say(
        "cache",
        f"{count} entries (decoded pictures, embeddings, generated labels), {volume(size)} in {cache.folder()}; "
        "clear with: sprl data --clear-cache",
    )


def checked(which: BenchmarkSet, data_dir: str | None) -> None:
    """The verdict on one set; InputError if it is not whole."""
    from sprl.data.sets import check, places, source
    from sprl.errors import InputError

    state = check(which, data_dir)
    if not state.complete:
        where = state.where or f"any of {', '.join(map(str, places(which, data_dir)))}"
        raise InputError(f"{which.name} is not whole in {where}: {verdict(state)}. {source(which, data_dir)}")
    say(which.name, f"complete in {state.where}; {which.assured()}")


def verdict(state: Status) -> str:
    missing = [f"{len(state.missing)} files missing ({', '.join(state.missing)})"] if state.missing else []
    return "; ".join([*missing, *(f"{name} {why}" for name, why in state.wrong.items())]) or "complete"


def methods() -> None:
    """What each method does, a line each."""
    from sprl.methods import METHODS

    width = max(map(len, METHODS))
    for name, cls in METHODS.items():
        console.print(Text.assemble((f"{name:<{width}}", "bold"), "  ", purpose(cls)), soft_wrap=True)
    console.print("\nOne with its fields and defaults: sprl methods NAME, such as sprl methods sprl", markup=False, soft_wrap=True)


def method(name: str) -> None:
    """What one does, then its fields."""
    from sprl.errors import pick
    from sprl.fields import describe
    from sprl.methods import METHODS

    cls = METHODS[pick("method", name, METHODS)]
    console.print(Text.assemble((name, "bold"), "  ", purpose(cls)), soft_wrap=True)
    docs, hints = field_docs(cls), get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    for f in fields:
        title = f.name if f.default is dataclasses.MISSING else f"{f.name}={f.default}"
        console.print(Text.assemble("  ", (title, "cyan"), f"  {describe(hints[f.name])}"), soft_wrap=True)
        if f.name in docs:
            console.print(Text(textwrap.fill(docs[f.name], 100, initial_indent="      ", subsequent_indent="      ")), soft_wrap=True)
    example = f"Set a field with --set: sprl train --method {name} --set {fields[0].name}=..." if fields else "It has no fields to set."
    console.print(f"\n{example}", markup=False, soft_wrap=True)


def purpose(cls: type[Any]) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def field_docs(cls: type[Any]) -> dict[str, str]:
    """The string literal below each field, in the class that has it."""
    import ast
    import inspect

    docs = {}
    for origin in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(origin))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                docs[field.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return docs


def tuning(run: Run, trials: Iterator[Trial], folds: int) -> bool:
    """Each trial as it ends, then the command to train with; where it is broken off, by the best so far. Returns whether it ended."""
    from sprl.config import asked_of, usual_of
    from sprl.tune import GAMMAS, MOST

    runs = f"{folds} folds of each of {len(GAMMAS)} values of gamma_d, then of shorter warm-ups, {run.task.epochs} epochs each"
    say("Tuning", f"T1 and gamma_d of sprl on {run.data.name}: {runs}")
    say("Time", f"about {duration(run.seconds_expected() * folds * (len(GAMMAS) + 2))} on {run.task.device}")
    done, ended = list[Any](), False
    with console.status("warming up to find T1"), suppress(KeyboardInterrupt):
        for trial in trials:
            done.append(trial)
            line = f"T1 {trial.T1:>3}  gamma_d {trial.gamma_d:>4g}  held-out labels predicted {trial.agreement:5.2f} %"
            console.print(line, markup=False)
        ended = True
    if not done:
        say("Stopped", "before the first trial ended: nothing is known yet, and nothing kept")
        return False
    if not ended:
        say("Stopped", f"after {len(done)} of at most {MOST} trials; Next has the best of them, nothing else is kept")
    best = max(done, key=lambda trial: trial.agreement)
    usual = usual_of(run.config, len(run.data.y), run.data.shape, run.task.device)
    asked = shlex.join([run.config.data, *asked_of(run.config, TUNED, usual)])
    say("Next", f"sprl train {asked} --set T1={best.T1} --set gamma_d={best.gamma_d:g}")
    return ended
