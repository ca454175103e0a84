"""What `sprl bench` does: the runs of a recipe that have no records yet, data set by data set."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from sprl import files, generated, on_ray, show, store
from sprl.checkpoint import PLACES, asked_interval
from sprl.compare import Effort, Job, effort
from sprl.config import Config, find_device, find_precision
from sprl.crew import tidy
from sprl.data import Data
from sprl.data.catalogue import relabel
from sprl.data.sets import BENCHMARKS, require_published
from sprl.errors import InputError, ensure, printable
from sprl.noise import GENERATED, parse, transition
from sprl.paper.cell import Cell, is_run_of, meaning, runs_of, summed, takes_files, unique
from sprl.run import Run, prepare, read, within_memory
from sprl.show import say
from sprl.spread import Spread
from sprl.stopping import stopping
from sprl.store import Record
from sprl.watch import amount, carry_out, each_note_once, grouped, stopped, team_for


@dataclass(frozen=True)
class How:
    """To run: where data and records are, on what, and how many at once."""

    data_dir: str | None
    device: str
    precision: str
    folder: Path  # of records
    spread: Spread


class Wanted(NamedTuple):
    """A run of a cell, and what the cell is called."""

    cell: Cell
    config: Config
    what: str

    @property
    def name(self) -> str:
        return f"{self.what}, seed {self.config.seed}"

    @property
    def rows(self) -> Rows:
        return self.config.data, self.config.rows, self.config.size


Rows = tuple[str, int | None, int | None]  # what decides which rows are read: data, how many, how large


def carry(title: str, cells: Sequence[Cell], seeds: Sequence[int], how: How, only_plan: bool) -> tuple[int, dict[str, Record]]:
    """Say what is there, what is to be run and how long that takes; run it. Returns the exit code, and the records that are there."""
    asked_interval()  # better refused now than later
    find_precision(how.precision, find_device(how.device))
    if how.spread.engine == "ray":
        on_ray.package()
    with each_note_once():
        done, missing, total = look(cells, seeds, how)
    if missing and not only_plan:
        files.check_place(how.folder)
    part = "" if how.spread.shard is None else f" of shard {how.spread.shard}"
    say(title, f"{amount(total)}{part}, {total - len(missing)} of them in {how.folder}/ already")
    if others := store.other_versions(done.values()):
        say("", others)
    with each_note_once():
        by_rows, failures = estimate(missing, how)
        if only_plan:
            return (2 if failures and not by_rows else 0), done
        tidy(how.folder, done)
        with stopping() as stop:
            for runs in by_rows.values():
                jobs = run_all(runs, how, stop, total, done, failures)
                if stop():
                    stopped(len(done), total, [job for job in jobs if job.key not in done], how.folder)
                    return stop.code, done
        if part:
            done, missing, total = look(cells, seeds, replace(how, spread=replace(how.spread, shard=None)))  # others' as well
            say("Shard", f"{how.spread.shard} has ended: {total - len(missing)} of {amount(total)} have records")
    return (2 if failures else 0), done


def look(cells: Sequence[Cell], seeds: Sequence[int], how: How) -> tuple[dict[str, Record], list[Wanted], int]:
    """The records that are there, by key, the runs that have none, and how many there are in all, or in this shard. Cells that share a run
    need it once. Runs on sets are known by their configs, those on files of one's own by what is in the files."""
    every, found = unique(cells), [record for record in store.all(how.folder) if how.precision in ("auto", record.precision)]
    shared = [name for name in ("dataset", "network") if len({getattr(cell, name) for cell in every}) == 1]
    wanted = list[Wanted]()
    for cell in every:
        config = replace(cell.config, data_dir=how.data_dir, device=how.device, precision=how.precision)
        wanted += [Wanted(cell, replace(config, seed=seed), cell.named(shared)) for seed in seeds]
    wanted = how.spread.part(wanted)
    of_sets = [cell for cell in every if not takes_files(vars(cell.config))]
    there = {(id(cell), record.seed): record for cell in of_sets for record in runs_of(cell, found)}
    there |= of_files([run for run in wanted if takes_files(vars(run.config)) and is_like(run, found)], how)
    done, missing = dict[str, Record](), list[Wanted]()
    for run in wanted:
        record = there.get((id(run.cell), run.config.seed))
        if record is None:
            missing.append(run)
        else:
            done[record.key] = record
    return done, missing, len(wanted)


def is_like(run: Wanted, found: Sequence[Record]) -> bool:
    """Whether any record is of such a run on whatever files: else they need not be read."""
    asked = {name: value for name, value in meaning(run.config).items() if name not in PLACES}
    return any(record.seed == run.config.seed and is_run_of(asked, record) for record in found)


def of_files(runs: Sequence[Wanted], how: How) -> dict[tuple[int, int], Record]:
    """The records of runs on files of one's own, by cell and seed; in them the files are called as they are now. Nothing is trained for
    that: a run whose labels a network has still to give counts as missing."""
    found = dict[tuple[int, int], Record]()
    for some in by_rows_of(runs).values():
        with suppress(InputError), show.reading() as (speak, progress), within_memory(some[0].config.batch_size):  # told when it is run
            data, beside = read(some[0].config, speak, progress), None
            for run in some:
                with suppress(InputError):  # that run's own: the others may be there
                    if kind_of(run.config) == GENERATED and not generated.are_made(data, run.config):
                        continue
                    beside = prepare(run.config, data, speak, progress, beside)
                    record = store.read(how.folder, key_of(beside))
                    if record is not None:
                        places = {name: getattr(run.config, name) for name in PLACES}
                        found[id(run.cell), run.config.seed] = replace(record, config=record.config | places)
    return found


def by_rows_of(runs: Iterable[Wanted]) -> dict[Rows, list[Wanted]]:
    """The runs that share what they read."""
    found = dict[Rows, list[Wanted]]()
    for run in runs:
        found.setdefault(run.rows, []).append(run)
    return found


def kind_of(config: Config) -> str | None:
    """Of its noise, if it asks for any."""
    return None if config.corrupt is None else parse(config.corrupt)[0]


def key_of(run: Run) -> str:
    return store.key_of(run.config.to_json(), run.fingerprint, store.content_of(run.config.weights))


def estimate(missing: Sequence[Wanted], how: How) -> tuple[dict[Rows, list[Wanted]], dict[str, str]]:
    """Say how long the runs take, by a few steps of each network, and which cannot be made. Returns those that can, by what they read, and
    by name why others cannot."""
    able, failures, seconds = dict[Rows, list[Wanted]](), dict[str, str](), list[Effort]()

    def leave_out(what: str, runs: Sequence[Wanted], why: str) -> None:
        failures.update((run.name, why) for run in runs)
        print(printable(f"sprl: {what} is left out, {amount(len(runs))}: {why}"), file=sys.stderr)

    for rows, runs in by_rows_of(missing).items():
        try:
            data = tested(runs[0].config)
            for name, why in refused(runs, data).items():
                leave_out(f"{rows[0]} with {name}", [run for run in runs if labels_of(run.config) == name], why)
                runs = [run for run in runs if labels_of(run.config) != name]
            if not runs:
                continue
            seconds.append(seconds_of(runs, data, how.spread))
        except InputError as error:
            leave_out(rows[0], runs, str(error))
            continue
        able[rows] = runs
        say("", f"{rows[0]}: {amount(len(runs))} to make, {show.takes(*seconds[-1], how.spread.together)}")
        for line in summed(run.cell for run in runs):
            say("", f"  {line}")
    if len(able) > 1:
        sure, search = map(sum, zip(*seconds, strict=True))
        say("Time", show.takes(sure, search, how.spread.together, " in all"))
    return able, failures


def tested(config: Config) -> Data:
    """The rows to train on, and others to measure accuracy on. A set is known by its name, so it must be the published one."""
    if config.data in BENCHMARKS:
        require_published(config.data, config.data_dir)
    with show.reading() as (speak, progress):
        data = read(config, speak, progress)
    ensure(
        data.x_test is not None,
        f"{data.name} has no test rows to measure accuracy on: give trusted ones, as x_test and y_test of an .npz, a folder test/ beside "
        "train/, or rows of a table with test in a column split",
    )
    return data


def refused(runs: Sequence[Wanted], data: Data) -> dict[str, str]:
    """The noises, or labels, of runs that this data cannot have, and why, as far as that can be told without training."""
    found = dict[str, str]()
    for name, config in {labels_of(run.config): run.config for run in runs}.items():
        try:
            if config.labels is not None:
                relabel(data, config.labels, config.data_dir)
            elif kind_of(config) == GENERATED:
                generated.learned(data, config)
            elif config.corrupt is not None:
                transition(config.corrupt, len(data.classes))
        except InputError as error:
            found[name] = str(error)
    return found


def labels_of(config: Config) -> str:
    """What it asks for in place of the data's own."""
    return config.labels or config.corrupt or ""


def seconds_of(runs: Sequence[Wanted], data: Data, spread: Spread) -> Effort:
    """Shared among processes: of each network a few steps are timed on the rows as they are."""
    alike, sure, search = defaultdict[tuple[str, int | None], list[Config]](list), 0.0, 0.0
    for run in runs:
        alike[run.config.network, run.config.epochs].append(run.config)
    for configs in alike.values():
        plain = replace(configs[0], method="standard", fields={}, corrupt=None, labels=None)
        with within_memory(plain.batch_size):
            example = prepare(plain, data)
            one, work = example.seconds_expected() / team_for(example, len(runs), spread).size, effort(configs, example.task)
        sure, search = sure + one * work.sure, search + one * work.search
    return Effort(sure, search)


def run_all(
    runs: Sequence[Wanted], how: How, stop: Callable[[], bool], total: int, done: dict[str, Record], failures: dict[str, str]
) -> list[Job]:
    """Train runs that share their rows."""
    with show.reading() as (speak, progress), within_memory(runs[0].config.batch_size):
        data = read(runs[0].config, speak, progress)
        jobs, beside = list[Job](), None
        for run in runs:
            if stop():
                return jobs
            try:
                ready: Run = prepare(run.config, data, speak, progress, beside)
            except InputError as error:
                failures[run.name] = printable(str(error))
                print(f"sprl: {run.name} failed: {failures[run.name]}", file=sys.stderr)
                continue
            beside = beside or ready
            jobs.append(Job(ready.config, key_of(ready), store.content_of(ready.config.weights), run.what))
    if beside is None:
        return jobs
    team = team_for(beside, len(jobs), how.spread)
    if team.threads is not None:
        torch.set_num_threads(team.threads)
    carry_out(grouped(jobs, how.spread.together), data, how.folder, how.spread, team, stop, beside, total, done, failures)
    return jobs
