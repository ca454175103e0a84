"""What a machine of a Ray cluster does with a group of runs: reads the data, trains, and tells."""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sprl import store
from sprl.config import Config
from sprl.crew import Event, Group, trained
from sprl.data import Data, cache
from sprl.errors import InputError, SprlWarning
from sprl.run import read, within_memory
from sprl.stopping import Stop

READ = ("data", "data_dir", "label_column", "skip_bad", "size", "rows", "network")  # fields that decide which rows are read, and how


class Origin(NamedTuple):
    """Where the command was given, the store there, and a file in it by which a machine knows that it sees that very disk."""

    here: str
    folder: Path
    mark: Path


def train(group: Group, origin: Origin) -> Iterator[str | Event]:
    """The task: the events of a group. Checkpoints lie in the store where this machine sees it, so that any other can go on from them;
    else in its own cache folder, and its name comes first."""
    import ray

    with suppress(OSError):
        os.chdir(origin.here)  # relative paths count from there
    torch.set_num_threads(1)  # it has one CPU
    if origin.mark.exists():
        yield from told(group, origin.folder, keep=True)
    else:
        yield ray.get_runtime_context().get_node_id()
        yield from told(group, cache.folder() / "ray", keep=False)


def told(group: Group, folder: Path, keep: bool) -> Iterator[Event]:
    """Train from checkpoints to records in `folder`, which are to be kept there or only handed on."""
    notes, stop = list[str](), Stop()
    warnings.showwarning = lambda message, category, *more: notes.append(str(message)) if issubclass(category, SprlWarning) else None
    warnings.simplefilter("always", SprlWarning)
    try:
        with within_memory(group[0].config.batch_size):
            data = data_of(*(getattr(group[0].config, name) for name in READ))
    except InputError as error:  # e.g. a file that this machine lacks
        yield from (Event("failed", job, str(error)) for job in group)
        return
    events, before = trained(group, data, folder, stop), signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, lambda number, _: setattr(stop, "signal", number))  # so Ray cancels a task: every run is saved
        for event in events:
            if not stop():  # else nobody hears us any more
                yield from (Event("note", None, text) for text in notes)
                notes.clear()
                yield event
                if event.kind == "ended" and not keep:
                    store.path_of(folder, event.told.key).unlink(missing_ok=True)
    finally:
        stop.signal = signal.SIGINT
        deque(events, maxlen=0)  # where we were cut off, this saves
        signal.signal(signal.SIGINT, before)


@lru_cache(maxsize=1)
def data_of(*values: Any) -> Data:
    """For a task, and most likely for the next one in this process."""
    return read(Config(**dict(zip(READ, values, strict=True))))
