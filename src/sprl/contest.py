"""What `sprl compare` does once its options are read, and what a person sees of it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.text import Text

from sprl import chart, files, on_ray, show, store
from sprl.atomic import written
from sprl.checkpoint import asked_interval
from sprl.compare import (
    Job,
    Plan,
    Standing,
    assign,
    choose,
    contents,
    effort,
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
from sprl.crew import Group, tidy
from sprl.errors import printable
from sprl.noise import MATRIX
from sprl.run import read, within_memory
from sprl.show import console, say
from sprl.spread import Spread
from sprl.stopping import stopping
from sprl.store import Record
from sprl.watch import amount, carry_out, each_note_once, grouped, stopped, team_for


def hold(
    config: Config,
    names: Sequence[str],
    texts: Sequence[str],
    count: int,
    spread: Spread,
    folder: Path,
    out: Path | None,
    demonstration: bool,
) -> int:
    """Train what the store `folder` lacks, and write the comparison. Returns the exit code.

    Of one in shards there is nothing to see until all of its runs have records: some methods with fewer seeds than others mislead.
    """
    asked_interval()  # better refused now than later
    if spread.engine == "ray":
        on_ray.package()
    methods, named = choose(names)
    values = assign(texts, methods)
    for place in (folder, out or Path("compare")):
        files.check_place(place)
    with each_note_once():
        with show.reading() as (speak, progress), within_memory(config.batch_size):
            data = read(config, speak, progress)
            planned = plan(config, methods, named, values, range(config.seed, config.seed + count), data, speak, progress)
        out = Path("compare") / name_of(config, data.name) if out is None else out
        jobs, mine = planned.jobs, spread.part(planned.jobs)
        tidy(folder, [job.key for job in jobs])
        there = found(jobs, folder)
        left = [job for job in mine if job.key not in there]
        groups = grouped(left, spread.together)
        team = team_for(planned.example, max(1, len(mine)), spread)
        if team.threads is not None:
            torch.set_num_threads(team.threads)
        announce(planned, there, mine, groups, min(team.size, len(groups)), spread, folder, demonstration)
        records, failures, total = {job.key: there[job.key] for job in mine if job.key in there}, dict[str, str](), len(mine)
        if groups:
            with stopping() as stop:
                carry_out(groups, planned.data, folder, spread, team, stop, planned.example, total, records, failures)
            missing = [job for job in left if job.key not in records and job.name not in failures]
            if missing:
                stopped(total - len(missing), total, missing, folder)
                return stop.code
        if spread.shard is not None:
            records |= found([job for job in jobs if job.key not in records], folder)  # what others have made meanwhile
            say("Shard", f"{spread.shard} has ended: {len(records)} of {amount(len(jobs))} have records")
            if len(records) < len(jobs):
                say("", "table and chart come with the last of them, or from the same command without --shard")
                return 2 if failures else 0
    results(planned, records, failures, out)
    return 2 if failures else 0


def found(jobs: Sequence[Job], folder: Path) -> dict[str, Record]:
    """The records that are there, by key."""
    return {job.key: record for job in jobs if (record := store.read(folder, job.key)) is not None}


def name_of(config: Config, data: str) -> str:
    """Of a folder for the results: the data, and what is wrong with its labels."""
    labels = None if config.labels is None else config.labels if config.labels.startswith("human:") else Path(config.labels).stem
    kind, _, value = (config.corrupt or "").partition(":")
    noise = f"{kind}-{Path(value).stem}" if kind == MATRIX else config.corrupt or labels
    rows = None if config.rows is None else f"{config.rows}-rows"
    return "-".join(filter(None, (data, rows, (noise or "").replace(":", "-"))))


def announce(
    planned: Plan,
    records: dict[str, Record],
    mine: Sequence[Job],
    groups: Sequence[Group],
    count: int,
    spread: Spread,
    folder: Path,
    demonstration: bool,
) -> None:
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
        if others := store.other_versions(records.values()):
            say("", others)
        here = device_name(example.task.device)
        elsewhere = [record.device for record in records.values() if record.device != here]
        if elsewhere:
            say(
                "",
                f"{len(elsewhere)} of them made on {', '.join(sorted(set(elsewhere)))}, this is {here}: seconds differ",
            )
    if spread.shard is not None:
        say("Shard", f"{spread.shard}: {amount(len(mine))} of these, {sum(map(len, groups))} to train")
    if not groups:
        return
    device, together = example.task.device, max(map(len, groups))
    work, one = effort((job.config for group in groups for job in group), example.task), example.seconds_expected() / count
    where = f" on {device}" + (f", {count} processes" if count > 1 else "") + (f", {together} runs side by side" if together > 1 else "")
    where += ", one after the other: a Ray cluster takes less" if spread.engine == "ray" and count == 1 else ""
    say("Time", show.takes(work.sure * one, work.search * one, together, where))
    if together > 1 and device.type == "cpu":
        say("", "on a CPU runs side by side take turns, which gains nothing: --jobs does")


def device_name(device: torch.device) -> str:
    """As in records."""
    return str(device) if device.type == "cpu" else torch.cuda.get_device_name(device)


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
    files.make_place(out)
    config, data = planned.example.config, planned.example.data
    noise = config.corrupt or ("labels as they are" if config.labels is None else f"labels from {config.labels}")
    title = printable(f"{data.name}, {noise}")
    curves = {place.method: np.array([record.accuracy for record in place.records]) for place in places if place.records}
    seeds = max(len(values) for values in curves.values())
    chart.draw(curves, f"{title} ({'one seed' if seeds == 1 else f'mean and deviation of {seeds} seeds'})", out / "compare.png")
    with written(out / "compare.md") as file:
        file.write(markdown(title, places, planned.jobs, failures, planned.left_out).encode())
    found = contents(places, planned.jobs, failures, planned.example, planned.left_out)
    files.write_json(out / "compare.json", found)
