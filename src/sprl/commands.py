"""What `sprl train` does once its options are read: begin a run or go on with one, keep it while it trains, end it."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from sprl import files, show
from sprl.checkpoint import Keeper, load
from sprl.config import Config, find_device
from sprl.errors import InputError
from sprl.fields import read_fields
from sprl.files import CHECKPOINT, CONFIG, PREVIOUS
from sprl.labels import warn_of_doubts
from sprl.methods import METHODS
from sprl.model import read_config
from sprl.run import Run, prepare
from sprl.schema import is_out_of_memory


class Stop:
    """Whether a signal asked the run to end, and which."""

    signal = 0

    def __call__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """To exit with, as shells count."""
        return 128 + self.signal


@contextmanager
def stopping() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM as a request to end; a second one breaks off at once, which harms no file."""
    stop = Stop()

    def note(number: int, _: Any) -> None:
        again, stop.signal = stop(), number
        if again:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begin(config: Config, out: str | None, overwrite: bool, demonstration: bool) -> int:
    """A new run. Returns the exit code."""
    files.check_folder(out, overwrite)
    run = prepared(config, demonstration)
    path = files.make_folder(out, run.data.name, overwrite)
    with files.held(path):
        files.check_folder(out, overwrite)  # again: another process may have been here first
        replaces = (path / CONFIG).is_file()
        try:
            if not replaces:
                files.write_config(path, run)
            return train(run, path, path, replaces)
        finally:
            if not (replaces or run.rows or last_checkpoint(path)):
                files.discard(path)


def go_on(name: str, asked: Config, given: set[str], out: str | None, overwrite: bool) -> int:
    """The run in the folder `name`, from its last checkpoint to its end. `given`: the options that were asked for by name."""
    path = Path(name).absolute()
    if overwrite:
        raise InputError("--overwrite begins anew, --resume goes on: use one of them")
    if out is not None and Path(out).resolve() != path.resolve():
        raise InputError(f"--resume goes on in {name}: leave out --out")
    read_config(Path(name) / CONFIG)  # before a lock is left in a folder that is no run
    with files.held(path):
        stored = read_config(Path(name) / CONFIG)[0]
        home = started_in(path)
        changes = differences(stored, asked, given, home)
        if changes:
            raise InputError(f"{name} was started with {'; '.join(changes)}: leave these options out, or start a new run")
        if files.has_ended(path):
            show.say("Ended", f"{name} has ended already: its results are there")
            return 0
        with chdir(home):  # relative paths and the default data folder count from there
            run = prepared(replace(stored, device=asked.device) if "device" in given else stored, demonstration=False)
            with within_memory(run.task.batch_size):
                show.resumed(run, load(path, run))
            return train(run, path, Path(name))


def prepared(config: Config, demonstration: bool) -> Run:
    with show.reading() as (say, progress), within_memory(config.batch_size):
        run = prepare(config, say=say, progress=progress)
    if run.task.device.type == "cpu" and all(p.ndim <= 2 for p in run.state.networks.parameters()):
        torch.set_num_threads(1)  # without convolutions a second thread gains nothing (docs/speed.md), and changes the last bits
    with within_memory(run.task.batch_size):
        show.plan(run, demonstration)
    return run


def train(run: Run, path: Path, name: Path, replaces: bool = False) -> int:
    """Train to the end or until asked to stop, and write the results. `name` is the folder's as the user wrote it."""
    with stopping() as stop:
        keeper = Keeper(path, run, stop, replaces)
        try:
            stopped = fit(run, keeper)
            if run.rows:
                issues, summary = files.write_results(path, run)
                warn_of_doubts(issues, run.state.memory)
                show.results(run, issues, summary, name)
            else:
                show.stopped(run, name)
            return stop.code if stopped and len(run.rows) < run.task.epochs else 0
        except KeyboardInterrupt:
            return stop.code
        except InputError as error:
            raise InputError(f"{error}{'' if keeper.replaces else last_good(path, name, error)}") from error


def fit(run: Run, keeper: Keeper) -> bool:
    """Train and keep. True: it was stopped."""
    with within_memory(run.task.batch_size), show.progress([run]) as update:
        for row in run.train(keeper.pause):
            stopped = keeper.keep(row)
            if row is not None:
                update(run, row)
            if stopped:
                return True
    return False


def last_checkpoint(path: Path) -> str | None:
    return next((file for file in (CHECKPOINT, PREVIOUS) if (path / file).is_file()), None)


def last_good(path: Path, name: Path, error: InputError) -> str:
    """Where a run that failed can be found, and how to go on if all that lacked was room."""
    found = last_checkpoint(path)
    if found is None:
        return ""
    again = f": make room, then sprl train --resume {shlex.quote(str(name))}" if isinstance(error.__cause__, OSError) else ""
    return f"; the last good checkpoint is {name / found}{again}"


@contextmanager
def within_memory(batch_size: int | None) -> Iterator[None]:
    """Out of memory as one line that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        now = f" (now {batch_size})" if batch_size else ""
        advice = f"lower --batch-size{now} or, for pictures, --size; take a smaller --network; or use --stream or --memory half"
        raise InputError(f"there is not enough memory: {advice}") from error


def started_in(path: Path) -> Path:
    """The folder from which the run's relative paths count: where it was started or, if that is no longer there, this one."""
    stored = json.loads((path / CONFIG).read_text()).get("started_in")
    return Path(stored) if isinstance(stored, str) and os.path.isdir(stored) else Path.cwd()


def differences(stored: Config, asked: Config, given: set[str], home: Path) -> list[str]:
    """Options asked for that are not those of the run, as "epochs 60, not 80"."""
    pairs = {f.name: (getattr(stored, f.name), getattr(asked, f.name)) for f in fields(Config) if f.name in given and f.name != "fields"}
    for name in pairs.keys() & {"data", "data_dir", "labels", "weights"}:  # the same place may be named in two ways
        was, now = pairs[name]
        if was is not None and now is not None and os.path.abspath(now) == os.path.abspath(home / was):
            pairs[name] = was, was
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
