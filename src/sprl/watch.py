"""Many runs to records, and what a person sees meanwhile."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from sprl import crew, on_ray, show, store
from sprl.compare import Job
from sprl.crew import Event, Group
from sprl.data import Data
from sprl.errors import SprlWarning, printable
from sprl.files import last_checkpoint
from sprl.run import Run, one_thread_does
from sprl.show import console, say
from sprl.spread import Spread
from sprl.store import Record

QUIET = 60.0  # seconds without a word in a log
WIDEST = 44  # columns of a run's name that are kept for it


class Team(NamedTuple):
    """Processes, and threads of each; None: as many as torch takes."""

    size: int
    threads: int | None


def team_for(example: Run, runs: int, spread: Spread) -> Team:
    """By what the whole takes, so that going on with it changes neither."""
    if example.task.device.type != "cpu":
        return Team(spread.jobs or 1, None)
    if spread.engine == "ray":
        return Team(spread.jobs or 1, 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size = spread.jobs or min(cores, math.ceil(runs / spread.together))
    return Team(size, 1 if one_thread_does(example) else max(1, cores // size))


def grouped(left: Sequence[Job], together: int) -> list[Group]:
    """The longest first; alike ones side by side."""
    order = sorted(left, key=lambda job: (-job.networks, job.config.seed))
    return [order[i : i + together] for i in range(0, len(order), together)]


def carry_out(
    groups: Sequence[Group],
    data: Data,
    folder: Path,
    spread: Spread,
    team: Team,
    stop: Callable[[], bool],
    beside: Run,
    total: int,
    records: dict[str, Record],
    failures: dict[str, str],
) -> None:
    """Train all groups to records of the store `folder`, as far as nobody says to stop; `records` by key and `failures` by name grow to
    `total` runs."""
    size = min(team.size, len(groups))
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        if spread.engine == "ray":
            room = stack.enter_context(on_ray.joined(spread.gpu, beside.config.device))
            once = min(room.fits, len(groups), spread.jobs or room.fits)
            say("Ray", f"{room.whole}: {f'{once} at once' if once else 'no room for a process yet, waiting for a machine that has it'}")
            events = on_ray.on_ray(groups, folder, room.gpu, spread.jobs, stop)
        elif size == 1:
            events = crew.one_by_one(groups, data, folder, stop, beside)
        else:
            events = crew.side_by_side(size, groups, folder, team.threads, stop)
        stack.enter_context(closing(events))
        follow(events, total, records, failures, min(WIDEST, max((len(job.name) for group in groups for job in group), default=0)))


@contextmanager
def each_note_once() -> Iterator[None]:
    """What is to be noted of a run is often to be noted of many."""
    before, said = warnings.showwarning, set[str]()

    def first(message: Any, *more: Any, **others: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            before(message, *more, **others)

    warnings.showwarning = first
    try:
        yield
    finally:
        warnings.showwarning = before


def amount(runs: int) -> str:
    return f"{runs} run" if runs == 1 else f"{runs} runs"


def follow(events: Iterator[Event], total: int, records: dict[str, Record], failures: dict[str, str], width: int) -> None:
    """Show what happens, and gather how it ends. `width`: columns of a run's name."""
    said = set[Job]()
    with watching(total, len(records) + len(failures), width) as update:
        for event in events:
            job = event.job
            if job is None:
                if event.kind == "note":
                    warnings.warn(event.told, SprlWarning, stacklevel=2)
                continue
            if event.kind == "ended":
                records[job.key] = event.told
            elif event.kind == "failed":
                failures[job.name] = printable(event.told)
                print(f"sprl: {job.name} failed: {printable(event.told)}", file=sys.stderr)
            elif event.kind == "busy" and job not in said:
                said.add(job)
                say("", f"another process trains {job.name}: its record will do")
            update(event, len(records) + len(failures))


@contextmanager
def watching(total: int, there: int, width: int) -> Iterator[Callable[[Event, int], None]]:
    """On a terminal a bar for the whole and one for each run under way; in a log a line for each run that ends, or a minute.
    `there`: runs that have ended already."""
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(event: Event, done: int) -> None:
            job = event.job
            assert job is not None
            if event.kind == "row" and time.monotonic() - last[0] > QUIET:
                at = f"epoch {event.told['epoch']}/{job.config.epochs}"
                console.print(f"{'':7}  {job.name:<{width}} {at}  {show.numbers(event.told)}", markup=False)
            elif event.kind == "ended":
                times = f"{event.told.seconds:.0f} s"
                console.print(f"{done:>3}/{total:<3}  {job.name:<{width}} {event.told.last10:5.1f} %  {times}", markup=False)
            else:
                return
            last[0] = time.monotonic()

        yield line
        return
    columns = (TextColumn(f"{{task.description:<{width}}}"), BarColumn(20), TextColumn("{task.fields[at]}"), TimeRemainingColumn())
    with RichProgress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task("all", total=total, completed=there, at=f"{there} of {amount(total)}")
        bars, under_way = dict[Job, TaskID](), dict[Job, float]()

        def update(event: Event, done: int) -> None:
            job = event.job
            assert job is not None
            if event.kind == "begun":
                bars[job] = bar.add_task(job.name, total=job.config.epochs, completed=event.told, at="")
            elif event.kind == "row" and job in bars:
                epoch = event.told["epoch"]
                under_way[job] = epoch / (job.config.epochs or epoch)
                bar.update(bars[job], completed=epoch, at=f"{event.told['test_accuracy']:.1f} %")
            elif job in bars:
                bar.remove_task(bars.pop(job))
                under_way.pop(job, None)
            bar.update(whole, completed=done + sum(under_way.values()), at=f"{done} of {amount(total)}")

        yield update


def stopped(ended: int, total: int, missing: Sequence[Job], folder: Path) -> None:
    """Before its end: how far it came, and how to go on. `missing`: runs that may have begun."""
    middle = sum(last_checkpoint(store.unfinished(folder, job.key)) is not None for job in missing)
    kept = "1 is kept as far as it came" if middle == 1 else f"{middle} are kept as far as they came"
    say("Stopped", f"{ended} of {amount(total)} have ended, {kept}")
    say("", f"go on with: {shlex.join(['sprl', *sys.argv[1:]])}")
