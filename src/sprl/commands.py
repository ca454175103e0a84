"""What `sprl train` does once its options are read: begin a run or go on with one, keep it while it trains, end it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, chdir, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from sprl import files, show
from sprl.checkpoint import PLACES, Keeper, asked_interval, load
from sprl.config import Config, find_device
from sprl.engine import never
from sprl.errors import InputError
from sprl.fields import read_fields
from sprl.files import CHECKPOINT, CONFIG, PREVIOUS, last_checkpoint, started_in
from sprl.labels import warn_if_few, warn_of_doubts
from sprl.launch import to_go_on
from sprl.methods import METHODS
from sprl.model import check_size, read_config
from sprl.ranks import Ranks
from sprl.run import Run, one_thread_does, prepare, read, within_memory
from sprl.stopping import stopping
from sprl.together import together
from sprl.torchrun import Accord, announce, first_in_front, joined, let_know, seated, tell
from sprl.views import write_page


def begin(config: Config, out: str | None, overwrite: bool, demonstration: bool, count: int = 1) -> int:
    """A new run, or `count` side by side with seeds from the config's on, in OUT/seed-S. Returns the exit code."""
    asked_interval()  # better refused now than after the data was read
    with joined() as ranks:
        if ranks.count > 1 and count > 1:
            raise InputError("--together trains several runs in one process: leave it out with torchrun, which shares one among several")
        if ranks.rank:
            return assist(config, ranks)
        return lead(config, out, overwrite, demonstration, count, ranks)


def lead(config: Config, out: str | None, overwrite: bool, demonstration: bool, count: int, ranks: Ranks) -> int:
    """The run as the only process sees it, or the first of several."""
    ranks = seated(ranks, config)
    seeds = range(config.seed, config.seed + count)
    if count > 1 and out is not None and (Path(out) / CONFIG).is_file():
        raise InputError(f"{out} holds a run itself: choose another --out for several")
    for seed in seeds:
        files.check_folder(out if count == 1 or out is None else str(Path(out) / f"seed-{seed}"), overwrite)
    runs = prepared([replace(config, seed=seed) for seed in seeds], ranks)
    with within_memory(runs[0].task.batch_size):
        show.plan(runs[0], demonstration, count)
    warn_if_few(runs[0].data.y)
    home = files.make_folder(out, runs[0].data.name, overwrite) if count == 1 or out is None else Path(out)
    paths = [home / f"seed-{seed}" if count > 1 else home for seed in seeds]
    with ExitStack() as cleanup:
        replaced = []
        for run, path in zip(runs, paths, strict=True):
            files.make_folder(str(path), run.data.name, overwrite)
            cleanup.enter_context(files.held_to_train(path))
            files.check_folder(str(path), overwrite)  # again: another process may have been here first
            replaced.append((path / CONFIG).is_file())
            if not replaced[-1]:
                cleanup.callback(discard_if_empty, path, run)
                files.write_config(path, run)
        return train(runs, paths, paths, replaced)


def discard_if_empty(path: Path, run: Run) -> None:
    if not run.rows and last_checkpoint(path) is None:
        files.discard(path)


def go_on(name: str, asked: Config, given: set[str], out: str | None, overwrite: bool) -> int:
    """The run in the folder `name`, from its last checkpoint to its end. `given`: the options that were asked for by name."""
    with joined() as ranks:
        if ranks.rank:
            return assist(None, ranks)
        return lead_on(name, asked, given, out, overwrite, ranks)


def lead_on(name: str, asked: Config, given: set[str], out: str | None, overwrite: bool, ranks: Ranks) -> int:
    path = Path(name).absolute()
    asked_interval()
    if overwrite:
        raise InputError("--overwrite begins anew, --resume goes on: use one of them")
    if out is not None and Path(out).resolve() != path.resolve():
        raise InputError(f"--resume goes on in {name}: leave out --out")
    read_config(Path(name) / CONFIG)  # before a lock is left in a folder that is no run
    with files.held_to_train(path):
        stored, model = read_config(Path(name) / CONFIG)
        changes = differences(stored, asked, given)
        if changes:
            raise InputError(f"{name} was started with {'; '.join(changes)}: leave these options out, or start a new run")
        announce(ranks, name)
        if files.has_ended(path):
            show.say("Ended", f"{name} has ended already: its results are there")
            tell(ranks, b"")
            return 0
        sizes = [(path / file).stat().st_size for file in (CHECKPOINT, PREVIOUS) if (path / file).is_file()]
        if sizes:  # before anything is made of the config, which may be a stranger's
            check_size(Path(name), stored, model, max(sizes))
        # what may be found elsewhere now; whether it is the same is seen by its content
        changed: dict[str, Any] = {place: found_at(getattr(asked, place)) for place in PLACES if place in given}
        changed |= {"device": asked.device} if "device" in given else {}
        with chdir(started_in(path)):  # relative paths and the default data folder count from there
            config = replace(stored, **changed)
            ranks = seated(ranks, config)
            tell(ranks, json.dumps([config.to_json(), os.getcwd()]).encode())
            run = prepared([config], ranks)[0]
            with within_memory(run.task.batch_size):
                resumed = load(path, run)
                tell(ranks, (path / CHECKPOINT).read_bytes() if resumed else b"")
                show.plan(run, demonstration=False)
                show.resumed(run, resumed)
            return train([run], [path], [Path(name)], [False])


def assist(config: Config | None, ranks: Ranks) -> int:
    """What the other processes do: the same steps, without a word and without a file. No config: the first one has it."""
    started, resumes = os.getcwd(), config is None
    if config is None:
        told = tell(ranks, None)
        if not told:
            return 0
        stored, started = json.loads(told)
        config = Config(**stored)
    ranks = seated(ranks, config)
    with chdir(started if os.path.isdir(started) else "."), stopping(once=True) as stop:
        run = prepared([config], ranks)[0]
        content = tell(ranks, None) if resumes else b""
        if content:
            with TemporaryDirectory() as folder:
                (Path(folder) / CHECKPOINT).write_bytes(content)
                load(Path(folder), run)
        run.seconds_expected()  # which the first one tells of
        let_know(ranks, None)
        accord = Accord(ranks, stop)
        for _ in run.train(lambda: accord.pause(never)):
            if accord():
                return stop.code
    return 0


def prepared(configs: Sequence[Config], ranks: Ranks) -> list[Run]:
    """Runs that differ in their seed: the data is read once, and shared where it lies on the device."""
    with show.reading() as (say, progress), within_memory(configs[0].batch_size), first_in_front(ranks):
        data = read(configs[0], say, progress)
        runs: list[Run] = []
        for config in configs:
            runs.append(prepare(config, data, say, progress, beside=runs[0] if runs else None, ranks=ranks))
    check_alike(runs[0])
    if one_thread_does(runs[0]):
        torch.set_num_threads(1)
    return runs


def check_alike(run: Run) -> None:
    """All processes must have read the same data."""
    own = torch.tensor(list(bytes.fromhex(run.fingerprint)), dtype=torch.uint8)
    for rank, (other,) in enumerate(run.task.ranks.gathered([own])):
        if not torch.equal(own, other):
            raise InputError(f"process {rank} has read other data: give all machines the same files")


def train(runs: Sequence[Run], paths: Sequence[Path], names: Sequence[Path], replaces: Sequence[bool]) -> int:
    """Train to the end or until asked to stop, and write the results. `names` are the folders' as the user wrote them."""
    ranks = runs[0].task.ranks
    let_know(ranks, "" if replaces[0] else str(names[0]))
    with stopping(once=ranks.count > 1) as signalled:
        stop = Accord(ranks, signalled) if ranks.count > 1 else signalled
        keepers = [Keeper(path, run, stop, old, turns=len(runs)) for run, path, old in zip(runs, paths, replaces, strict=True)]
        try:
            pause = partial(stop.pause, keepers[0].pause) if isinstance(stop, Accord) else keepers[0].pause
            fit(runs, keepers, pause, names)
            summaries = []
            for run, path, name in zip(runs, paths, names, strict=True):
                if run.rows:
                    run.leave()
                    issues, summary = files.write_results(path, run, write_page)
                    summaries.append((run, summary, name))
                    if len(runs) == 1:
                        warn_of_doubts(issues, run.state.memory)
                        show.results(run, issues, summary, name)
            if len(runs) > 1:
                show.results_together(summaries)
            unfinished = [(run, name) for run, name in zip(runs, names, strict=True) if len(run.rows) < run.task.epochs]
            for run, name in unfinished:
                show.stopped(run, name)
            return signalled.code if unfinished else 0
        except KeyboardInterrupt:
            return signalled.code
        except InputError as error:
            good = [last_good(path, name, error) for path, name, keeper in zip(paths, names, keepers, strict=True) if not keeper.replaces]
            raise InputError(f"{error}{next(filter(None, good), '')}") from error


def fit(runs: Sequence[Run], keepers: Sequence[Keeper], pause: Callable[[], bool], names: Sequence[Path]) -> None:
    """Train and keep until all have ended or are to stop. If one fails, the others are saved. `pause`: of a single run."""
    keeper_of = {id(run): keeper for run, keeper in zip(runs, keepers, strict=True)}
    rows = together(runs) if len(runs) > 1 else ((runs[0], row) for row in runs[0].train(pause))
    with within_memory(runs[0].task.batch_size), show.progress(runs) as update:
        try:
            for run, row in rows:
                stopped = keeper_of[id(run)].keep(row)
                if keeper_of[id(run)].saved:
                    announce(run.task.ranks, str(names[0]))
                if row is not None:
                    update(run, row)
                if stopped:
                    for keeper in keepers:
                        if keeper.run is not run:
                            keeper.save()
                    return
        except InputError:
            for keeper in keepers if len(keepers) > 1 else ():
                with suppress(InputError, OSError):  # of those that are well
                    keeper.save()
            raise


def last_good(path: Path, name: Path, error: InputError) -> str:
    """Where a run that failed can be found, and how to go on if all that lacked was room."""
    found = last_checkpoint(path)
    again = f"make room, then {to_go_on(str(name))}" if isinstance(error.__cause__, OSError) else ""
    kept = f"the last good checkpoint is {name / found}" if found else ""
    return "".join(f"; {part}" for part in (kept, again) if part)


def found_at(place: str | None) -> str | None:
    """A path as it is found from anywhere; the name of a set as it is."""
    return os.path.abspath(place) if place is not None and os.path.exists(place) else place


def differences(stored: Config, asked: Config, given: set[str]) -> list[str]:
    """Options asked for that are not those of the run, as "epochs 60, not 80"; where its data lies may change."""
    names = [f.name for f in fields(Config) if f.name in given and f.name not in ("fields", *PLACES)]
    pairs = {name: (getattr(stored, name), getattr(asked, name)) for name in names}
    if "device" in pairs and device_type(stored.device) == device_type(asked.device):
        del pairs["device"]
    if "fields" in given:
        now = read_fields(METHODS[stored.method], stored.method, asked.fields)
        pairs |= {name: (stored.fields.get(name), value) for name, value in now.items()}
    same = {name for name, (was, now) in pairs.items() if was == now or (now == "auto" and name not in stored.fields)}
    return [f"{name.replace('_', '-')} {word(was)}, not {word(now)}" for name, (was, now) in pairs.items() if name not in same]


def device_type(name: str) -> str:
    return find_device("auto").type if name == "auto" else name.partition(":")[0]


def word(value: Any) -> str:
    return "none" if value is None else ("on" if value else "off") if isinstance(value, bool) else str(value)
