"""Checkpoints: all of a run that changes while it trains, in a file of tensors; and who writes them, and when.

A file may come from anywhere: nothing is taken from it before all of it was found to fit the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sprl.atomic import cannot_write, written
from sprl.engine import check_losses
from sprl.errors import InputError, SprlWarning, is_out_of_memory, printable
from sprl.files import CHECKPOINT, CONFIG, NEW, OLDER, PREVIOUS, adopt, write_config, write_metrics
from sprl.run import versions
from sprl.schema import (
    Unreadable,
    check_rows,
    check_stepper,
    join_warmup,
    joined,
    read_method,
    require,
    split,
    split_warmup,
)
from sprl.state import contents, restore
from sprl.stepping import Captured, Eager
from sprl.tensors import Source, bytes_of, plain, write

if TYPE_CHECKING:
    from sprl.run import Row, Run

FORMAT = 6
PLACES = ("data", "data_dir", "labels", "weights")  # fields of a config that say where something lies
EVERY, SHARE = 30.0, 0.02  # seconds between two checkpoints, and the most of a run's time that they may take


class Keeper:
    """Keeps one run in its folder: `for row in run.train(keeper.pause): stopped = keeper.keep(row); ...`.

    `stop` says whether the run is to end now. With `replaces` the folder holds another run, which stays until this one has a checkpoint.
    `interval` in seconds; None: $SPRL_CHECKPOINT_SECONDS, else EVERY, or longer where saving is slow, for each of the runs that take
    `turns`: all wait for one that is saved, and each gets on as much slower.
    """

    def __init__(
        self,
        folder: Path,
        run: Run,
        stop: Callable[[], bool],
        replaces: bool = False,
        interval: float | None = None,
        turns: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.run, self.stop, self.replaces, self.turns, self.clock = folder, run, stop, replaces, turns, clock
        self.interval = asked_interval() if interval is None else interval
        self.due = clock() + self.wait(0.0)
        self.saved = not replaces and (folder / CHECKPOINT).exists()  # so that the run can be gone on with

    def pause(self) -> bool:
        """Whether training should come to a halt after this batch, for `keep`."""
        return self.stop() or self.clock() >= self.due

    def keep(self, row: Row | None) -> bool:
        """After every yield of `run.train`: write what is due. True: the run is to stop here, and is saved."""
        stopped = self.stop()  # once: a signal may come at any moment
        if stopped or self.clock() >= self.due or self.run.state.t == self.run.task.epochs:
            self.save()
        if (stopped or row is not None) and not self.replaces:
            write_metrics(self.folder, self.run.rows)
        return stopped

    def save(self) -> None:
        began = self.clock()
        if self.replaces:
            new = self.folder / NEW
            try:
                new.mkdir(exist_ok=True)
                write_config(new, self.run)
                save(new, self.run)
                adopt(self.folder)
            except OSError as error:
                raise cannot_write(self.folder, error) from error
            self.replaces = False
        else:
            save(self.folder, self.run)
        self.saved = True
        now = self.clock()
        self.due = now + self.wait(now - began)

    def wait(self, seconds: float) -> float:
        """Until the next checkpoint, if one takes so many seconds."""
        return max(EVERY, seconds / SHARE) * self.turns if self.interval is None else self.interval


def asked_interval() -> float | None:
    """$SPRL_CHECKPOINT_SECONDS."""
    text = os.environ.get("SPRL_CHECKPOINT_SECONDS")
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = math.nan
    if seconds is not None and not seconds >= 0:
        raise InputError(f"SPRL_CHECKPOINT_SECONDS is {text!r} but must be a number of seconds, 0 or more")
    return seconds


def save(folder: Path, run: Run) -> None:
    """Write the run's checkpoint, and keep the one before. A state whose loss is not finite is refused."""
    if run.task.device.type == "cuda":
        torch.cuda.synchronize(run.task.device)  # a run beside others has a stream of its own
    check_losses(run.task, run.state)
    if not all(p.isfinite().all() for p in run.state.networks.parameters()):
        raise InputError(
            f"weights are no longer finite in epoch {run.state.t + 1}: most likely a learning rate of {run.task.lr:g} is too high"
        )
    tensors, facts = split(contents(run.state), "state", run)
    more, warmup = split_warmup(run)
    tensors = {name: plain(tensor) for name, tensor in sorted((tensors | more).items())}
    words = json.dumps(
        {
            **identity(run),
            **surroundings(run),
            "stepper": run.state.stepper.name,
            "method": asdict(run.state.method),  # type: ignore[call-overload]
            "state": facts,
            "warmup": warmup,
            "rows": run.rows[: run.state.t],  # without those of a search, after which it has just begun again
            "seconds": run.seconds,
        }
    )
    with written(folder / CHECKPOINT, previous=folder / PREVIOUS) as file:
        write(file, tensors, {"checkpoint": words, "crc32": checksum(words, tensors.values())})


def checksum(words: str, tensors: Iterable[Tensor]) -> str:
    """Of all that a checkpoint holds: a disk may lose what it was given, and the format would not notice."""
    found = zlib.crc32(words.encode())
    for tensor in tensors:
        found = zlib.crc32(bytes_of(tensor), found)
    return f"{found:08x}"


def load(folder: Path, run: Run) -> bool:
    """Bring a freshly prepared run to its last checkpoint. False: there is none.

    One that cannot be read gives way to the one before, with a warning.
    """
    found = [path for path in (folder / CHECKPOINT, folder / PREVIOUS) if path.exists()]
    older = next((folder / name for name in OLDER if (folder / name).exists()), None)
    if not found and older is not None:
        raise InputError(f"{older} is of an older version of sprl: resume the run with that version, or start a new run")
    for path in found:
        try:
            take_over(run, path)
        except Unreadable as error:
            if path == found[-1]:
                raise InputError(f"cannot resume from {path}: {error}; start a new run") from error
            warnings.warn(f"cannot resume from {path} ({error}); taking the one before", SprlWarning, stacklevel=2)
            continue
        if path.name == PREVIOUS:
            os.replace(path, folder / CHECKPOINT)  # else the next saving would put the bad one in its place
        return True
    return False


def identity(run: Run) -> dict[str, Any]:
    """What must be the same for a run to be gone on with. Where its data lies may change: its content is compared."""
    config = {
        name: value for name, value in run.config.to_json().items() if name not in ("device", "data", "data_dir", "labels", "weights")
    }
    return {
        "format": FORMAT,
        "device": run.task.device.type,
        "processes": run.task.ranks.count,
        "config": hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),
        "data": run.fingerprint,
    }


def surroundings(run: Run) -> dict[str, Any]:
    """What must be the same for the numbers to be equal to the last bit."""
    device = run.task.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU with {torch.backends.cpu.get_cpu_capability()}"
    plain = {what: str(version) for what, version in versions().items()}  # torch's is a class of its own
    return {"versions": plain, "threads": torch.get_num_threads(), "device_name": name}


def take_over(run: Run, path: Path) -> None:
    """Read the file, check all of it, and bring the run there."""
    state = run.state
    try:
        source, saved = opened(path)
        wanted, around = identity(run), surroundings(run)
        refuse_another_run(saved, wanted, path)
        require(saved.keys() == {*wanted, *around, "stepper", "method", "state", "warmup", "rows", "seconds"}, "it has other keys")
        check_surroundings(saved, around)
        check_stepper(saved["stepper"], run)
        method, like = read_method(saved["method"], run), contents(state)
        snapshot = joined(saved["state"], "state", source, like, run)
        warmup = join_warmup(saved["warmup"], source, like, run, method, snapshot)
        require(not source.left, f"it holds {printable(min(source.left, default=''))[:80]}, which no checkpoint of this run needs")
        check_rows(saved["rows"], snapshot["t"], run)
        require(type(saved["seconds"]) is float and 0 <= saved["seconds"] < math.inf, "seconds is not a time")
        if saved["stepper"] != state.stepper.name and run.task.ranks.count == 1:
            state.stepper = Eager() if saved["stepper"] == "eager" else Captured(run.task.device, compiled=saved["stepper"] == "compiled")
        restore(state, snapshot)
    except InputError:
        raise
    except Exception as error:  # of damaged files there are many kinds; bytes that no random generator can be in
        if is_out_of_memory(error):
            raise
        raise Unreadable(printable((str(error).splitlines() or [""])[0])[:200] or type(error).__name__) from error
    state.method, state.warmup, run.rows, run.seconds = method, warmup, saved["rows"], saved["seconds"]
    note_surroundings(saved, around)


def opened(path: Path) -> tuple[Source, dict[str, Any]]:
    """The tensors of the file, which is whole, and all else that it says."""
    require(path.is_file(), "it is not a file")
    source = Source(path)
    words = source.words.get("checkpoint", "")
    require(source.words.get("crc32") == checksum(words, [tensor for _, tensor in sorted(source.left.items())]), "it is damaged")
    saved = json.loads(words)
    require(isinstance(saved, dict), "it is not a checkpoint")
    return source, saved


def check_surroundings(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse what has not the types of `now`; versions may be others."""
    for name, value in now.items():
        require(type(saved[name]) is type(value), f"{name} is not of type {type(value).__name__}")
    versions = saved["versions"]
    require(versions.keys() == now["versions"].keys(), "versions has other keys")
    require(all(type(version) is str for version in versions.values()), "versions are not text")


def refuse_another_run(saved: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    require(type(saved.get("format")) is int, "it is not a checkpoint")
    if saved["format"] != FORMAT:
        raise InputError(
            f"{path} has the format {saved['format']}, this version of sprl reads {FORMAT}: go on with the version that wrote it"
        )
    for name in wanted:
        require(type(saved.get(name)) is type(wanted[name]), "it is not a checkpoint")
    if saved["device"] != wanted["device"]:
        was = printable(saved["device"])[:20]
        raise InputError(f"{path.parent} was trained on {was}, this is {wanted['device']}: resume it where it was, or start a new run")
    if saved["processes"] != wanted["processes"]:
        told = f"{path.parent} was trained by {saved['processes']} processes, this is {wanted['processes']}"
        raise InputError(f"{told}: go on with as many (torchrun --nproc-per-node), or start a new run")
    if saved["config"] != wanted["config"]:
        raise InputError(f"{path.parent / CONFIG} is not the one that {path.name} was made with: undo its changes, or start a new run")
    if saved["data"] != wanted["data"]:
        raise InputError(f"the data is not what {path.parent} was trained on: bring that back, or start a new run")


def note_surroundings(saved: dict[str, Any], now: dict[str, Any]) -> None:
    old, new = ({**part["versions"], "threads": part["threads"], "device": part["device_name"]} for part in (saved, now))
    changes = [f"{name} {new[name]}, was {printable(str(old[name]))[:40]}" for name in new if new[name] != old[name]]
    if changes:
        told = f"going on with {'; '.join(changes)}: the results equal those of an unbroken run only approximately"
        warnings.warn(told, SprlWarning, stacklevel=2)
