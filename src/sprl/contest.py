"""What `sprl compare` does once its options are read, and what a person sees of it."""

from __future__ import annotations

import math
import os
import shlex
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from sprl import chart, crew, files, show, store
from sprl.checkpoint import asked_interval
from sprl.commands import last_checkpoint, one_thread_does, stopping, within_memory
from sprl.compare import (
    Job,
    Plan,
    Standing,
    assign,
    choose,
    contents,
    fitting,
    legend,
    markdown,
    plan,
    standings,
    table,
    told,
    verdict,
    widths,
    without,
)
from sprl.config import Config
from sprl.crew import Event, Group
from sprl.errors import SprlWarning, printable
from sprl.noise import MATRIX
from sprl.run import read, versions
from sprl.show import console, say
from sprl.store import Record

QUIET = 60.0  # seconds without a word in a log


def hold(
    config: Config,
    names: Sequence[str],
    texts: Sequence[str],
    count: int,
    jobs: int | None,
    together: int,
    folder: Path,
    out: Path | None,
    demonstration: bool,
) -> int:
    """Train what the store `folder` lacks, `jobs` processes with `together` runs each, and write the comparison. Returns the exit code."""
    asked_interval()  # better refused now than later
    methods, named = choose(names)
    values = assign(texts, methods)
    for place in (folder, out or Path("compare")):
        files.check_place(place)
    with each_note_once():
        with show.reading() as (speak, progress), within_memory(config.batch_size):
            data = read(config, speak, progress)
            planned = plan(config, methods, named, values, range(config.seed, config.seed + count), data, speak, progress)
        out = Path("compare") / name_of(config, data.name) if out is None else out
        records = {job.key: record for job in planned.jobs if (record := store.read(folder, job.key)) is not None}
        left = sorted((job for job in planned.jobs if job.key not in records), key=lambda job: (-job.networks, job.config.seed))
        groups = [left[i : i + together] for i in range(0, len(left), together)]  # the longest first; alike ones side by side
        most, threads = crew_size(planned, jobs, together)
        if threads is not None:
            torch.set_num_threads(threads)
        size = min(most, len(groups))
        announce(planned, records, groups, size, folder, demonstration)
        failures = dict[str, str]()
        if groups:
            with stopping() as stop:
                if size == 1:
                    events = crew.one_by_one(groups, planned.data, folder, stop, planned.example)
                else:
                    events = crew.side_by_side(size, groups, folder, threads, stop)
                with suppress(KeyboardInterrupt), closing(events):
                    follow(events, planned, records, failures)
                missing = [job for job in left if job.key not in records and job.name not in failures]
                if missing:
                    stopped(planned, missing, folder)
                    return stop.code
    results(planned, records, failures, out)
    return 2 if failures else 0


def name_of(config: Config, data: str) -> str:
    """Of a folder for the results: the data, and what is wrong with its labels."""
    labels = None if config.labels is None else config.labels if config.labels.startswith("human:") else Path(config.labels).stem
    kind, _, value = (config.corrupt or "").partition(":")
    noise = f"{kind}-{Path(value).stem}" if kind == MATRIX else config.corrupt or labels
    return data if noise is None else f"{data}-{noise.replace(':', '-')}"


def crew_size(planned: Plan, jobs: int | None, together: int) -> tuple[int, int | None]:
    """How many processes, and threads of each. By what the whole comparison takes, so that going on with it changes neither."""
    if planned.example.task.device.type != "cpu":
        return jobs or 1, None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = jobs or min(cores, math.ceil(len(planned.jobs) / together))
    return count, 1 if one_thread_does(planned.example) else max(1, cores // count)


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


def announce(planned: Plan, records: dict[str, Record], groups: Sequence[Group], count: int, folder: Path, demonstration: bool) -> None:
    """Before it starts: what is compared, what is there already, how long the rest takes."""
    example, jobs = planned.example, planned.jobs
    show.setting(example, demonstration)
    methods, seeds = (list(dict.fromkeys(found)) for found in ([job.config.method for job in jobs], [job.config.seed for job in jobs]))
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    some = f"{len(methods)} methods" if len(methods) > 1 else methods[0]
    say("Comparing", f"{some}, {which}: {amount(len(jobs))} of {example.task.epochs} epochs in batches of {example.task.batch_size}")
    if planned.left_out:
        say("", without(planned.left_out))
    if told(jobs):
        say("", told(jobs))
    if records:
        say("Store", f"{len(records)} of {amount(len(jobs))} {'is' if len(records) == 1 else 'are'} in {folder}/ already")
        others = [record for record in records.values() if record.versions != {name: str(v) for name, v in versions().items()}]
        if others:
            say("", f"{len(others)} of them made with other versions: {', '.join(sorted({shown(record.versions) for record in others}))}")
        here = device_name(example.task.device)
        elsewhere = [record.device for record in records.values() if record.device != here]
        if elsewhere:
            say(
                "",
                f"{len(elsewhere)} of them made on {', '.join(sorted(set(elsewhere)))}, this is {here}: seconds differ",
            )
    if not groups:
        return
    device, together = example.task.device, max(map(len, groups))
    seconds = example.seconds_expected() * sum(job.networks for group in groups for job in group) / count
    where = f"on {device}" + (f", {count} processes" if count > 1 else "") + (f", {together} runs side by side" if together > 1 else "")
    say("Time", f"{'about' if together == 1 else 'at most'} {show.duration(seconds)} {where}")
    if together > 1 and device.type == "cpu":
        say("", "on a CPU runs side by side take turns, which gains nothing: --jobs does")


def amount(runs: int) -> str:
    return f"{runs} run" if runs == 1 else f"{runs} runs"


def device_name(device: torch.device) -> str:
    """As in records."""
    return str(device) if device.type == "cpu" else torch.cuda.get_device_name(device)


def shown(found: dict[str, str]) -> str:
    return printable(f"sprl {found.get('sprl')}, torch {found.get('torch')}")[:60]


def follow(events: Iterator[Event], planned: Plan, records: dict[str, Record], failures: dict[str, str]) -> None:
    """Show what happens, and gather how it ends."""
    said = set[Job]()
    with watching(len(planned.jobs), planned.example.task.epochs, len(records)) as update:
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
def watching(total: int, T: int, there: int) -> Iterator[Callable[[Event, int], None]]:
    """On a terminal a bar for the whole and one for each run under way; in a log a line for each run that ends, or a minute.
    `there`: runs that have their records already."""
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(event: Event, done: int) -> None:
            assert event.job is not None
            if event.kind == "row" and time.monotonic() - last[0] > QUIET:
                console.print(f"{'':7}  {event.job.name:<26} epoch {event.told['epoch']}/{T}  {show.numbers(event.told)}", markup=False)
            elif event.kind == "ended":
                times = f"{event.told.seconds:.0f} s"
                console.print(f"{done:>3}/{total:<3}  {event.job.name:<26} {event.told.last10:5.1f} %  {times}", markup=False)
            else:
                return
            last[0] = time.monotonic()

        yield line
        return
    columns = (TextColumn("{task.description:<26}"), BarColumn(20), TextColumn("{task.fields[at]}"), TimeRemainingColumn())
    with RichProgress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task("all", total=total * T, completed=there * T, at=f"{there} of {amount(total)}")
        bars, epochs = dict[Job, TaskID](), dict[Job, int]()

        def update(event: Event, done: int) -> None:
            job = event.job
            assert job is not None
            if event.kind == "begun":
                bars[job] = bar.add_task(job.name, total=T, completed=event.told, at="")
            elif event.kind == "row" and job in bars:
                epochs[job] = event.told["epoch"]
                bar.update(bars[job], completed=epochs[job], at=f"{event.told['test_accuracy']:.1f} %")
            elif job in bars:
                bar.remove_task(bars.pop(job))
                epochs.pop(job, None)
            bar.update(whole, completed=done * T + sum(epochs.values()), at=f"{done} of {amount(total)}")

        yield update


def stopped(planned: Plan, missing: Sequence[Job], folder: Path) -> None:
    """Before its end: how far it came, and how to go on."""
    middle = sum(last_checkpoint(store.unfinished(folder, job.key)) is not None for job in missing)
    kept = "1 is kept as far as it came" if middle == 1 else f"{middle} are kept as far as they came"
    say("Stopped", f"{len(planned.jobs) - len(missing)} of {amount(len(planned.jobs))} have ended, {kept}")
    say("", f"go on with: {shlex.join(['sprl', *sys.argv[1:]])}")


def results(planned: Plan, records: dict[str, Record], failures: dict[str, str], out: Path) -> None:
    """The table, the files, and who won. Without any record there is nothing to write, and what was written before stays."""
    places = standings(planned.jobs, records)
    if records:
        print_table(places)
    for name, why in failures.items():
        say("", f"* {name} failed: {why}")
    if records:
        write(planned, places, failures, out)
        say("Files", f"{out}/ compare.png, compare.md, compare.json")
    say("Result", verdict(places))


def print_table(places: Sequence[Standing]) -> None:
    """And what its columns mean. A log has as much room as it takes."""
    rows = fitting(table(places), console.width) if console.is_terminal else table(places)
    width = widths(rows)
    console.print()
    for number, cells in enumerate(rows):
        padded = [
            cell.ljust(wide) if column == 0 else cell.rjust(wide) for column, (cell, wide) in enumerate(zip(cells, width, strict=True))
        ]
        console.print(Text("  ".join(padded), style="dim" if number == 0 else "bold" if number == 1 else ""), soft_wrap=True)
    console.print()
    for line in textwrap.wrap(legend(places), max(console.width - 10, 30)):
        say("", line)


def write(planned: Plan, places: Sequence[Standing], failures: dict[str, str], out: Path) -> None:
    """Of places with a record at least."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_write(out, error) from error
    config, data = planned.example.config, planned.example.data
    noise = config.corrupt or ("labels as they are" if config.labels is None else f"labels from {config.labels}")
    title = printable(f"{data.name}, {noise}")
    curves = {place.method: np.array([record.accuracy for record in place.records]) for place in places if place.records}
    seeds = max(len(values) for values in curves.values())
    with files.aside(out / "compare.png", shared=True) as part:
        chart.draw(curves, f"{title} ({'one seed' if seeds == 1 else f'mean and deviation of {seeds} seeds'})", part)
    with files.aside(out / "compare.md", shared=True) as part:
        part.write_text(markdown(title, places, planned.jobs, failures, planned.left_out))
    found = contents(places, planned.jobs, failures, planned.example, planned.left_out)
    files.write_json(out / "compare.json", found, shared=True)
