"""Groups of runs as tasks of a Ray cluster. Their events come back as streams, and records are written here: no disk need be shared."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from filelock import FileLock, Timeout

from sprl import files, store
from sprl.crew import AGAIN, Event, Group
from sprl.errors import InputError, printable
from sprl.ray_task import Origin, train

RETRIES = 3  # times that runs are handed out again because the process that trained them was lost
TOKEN = "if it asks for a token, its machines and the command need the same one, and RAY_AUTH_MODE=token (docs/compare.md)"
ELSEWHERE = "without a shared disk, runs that were stopped are kept by the machines that had them, and go on where they come back to these"


class Room(NamedTuple):
    """What a process takes of a GPU, how many fit into the cluster, and what that has."""

    gpu: float
    fits: int
    whole: str


@dataclass
class Task:
    """What is left of a group; how many processes it lost; the machine that has its checkpoints, if no other sees them."""

    group: Group
    lost: int = 0
    node: str | None = None


def package() -> Any:
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # else what Ray prints of a lost process stands between our lines
    try:
        import ray
    except ImportError as error:
        raise InputError("--engine ray needs Ray: pip install ray") from error
    return ray


@contextmanager
def joined(gpu: float | None, device: str) -> Iterator[Room]:
    """Within the cluster of $RAY_ADDRESS, or of `ray start` on this machine, else within one of this machine alone, which ends with us.

    Not address="auto": that would also take one that another command has started for itself, and will end.
    """
    ray, address = package(), os.environ.get("RAY_ADDRESS", "")
    if "://" in address:
        raise InputError(f"RAY_ADDRESS is {address}, but Ray Client passes on no streams: give the command on a machine of the cluster")
    ours = signal.getsignal(signal.SIGTERM)
    try:
        reach(address)
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        told = f"cannot join the Ray cluster {address}".rstrip()
        token = f"; {TOKEN}" if type(error) is ConnectionError or "authentica" in str(error) else ""  # it answers, but not to us
        raise InputError(f"{told}: {last_line(error)}{token}; RAY_ADDRESS=local starts one on this machine") from error
    finally:
        signal.signal(signal.SIGTERM, ours)  # which Ray replaces
    try:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus, gpus = (sum(node.get(kind, 0) for node in nodes) for kind in ("CPU", "GPU"))
        share = gpu if gpu is not None else 1.0 if gpus and device != "cpu" else 0.0
        fits = sum(int(min(node.get("CPU", 0), node.get("GPU", 0) / share if share else cpus)) for node in nodes)
        counts = ((len(nodes), "machine"), (cpus, "CPU"), (gpus, "GPU"))
        whole = ", ".join(f"{count:g} {kind}{'' if count == 1 else 's'}" for count, kind in counts)
        if not fits and ray._private.worker._global_node.is_head():  # a cluster that we have started, so nobody else will come
            takes = f"a process takes 1 CPU and {share:g} of a GPU"
            raise InputError(f"{takes}, which this machine has not ({whole}): lower --gpu, or join a cluster that has it (RAY_ADDRESS)")
        yield Room(share, fits, whole)
    finally:
        ray.shutdown()


def reach(address: str) -> None:
    """OSError where nobody answers at HOST:PORT: Ray itself would try for minutes, deaf to Ctrl-C."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


def on_ray(groups: Sequence[Group], folder: Path, gpu: float, limit: int | None, stop: Callable[[], bool]) -> Generator[Event, None, None]:
    """All groups, within `joined`, at most `limit` at once: each a task of its own, in processes that read the data once.

    Ray is to try nothing again, for a stream cannot begin in its middle: what is left of a group is handed out anew by us, and goes on from
    its checkpoints where they can be found.
    """
    ray = package()
    remote = ray.remote(max_retries=0, num_cpus=1, num_gpus=gpu)(train)  # a process that has had a GPU ends: the next may be another
    waiting, later, under_way = deque(Task(list(group)) for group in groups), deque[tuple[float, Task]](), dict[Any, Task]()
    told = False
    with marked(folder) as origin:
        while under_way or ((waiting or later) and not stop()):
            if stop() and not told:
                told = True
                for stream in under_way:
                    ray.cancel(stream)
            while later and later[0][0] <= time.monotonic():
                waiting.append(later.popleft()[1])
            while waiting and not told and (limit is None or len(under_way) < limit):
                task = waiting.popleft()
                under_way[handed_out(remote, task, origin)] = task
            if not under_way:
                time.sleep(0.1)
                continue
            for stream in ray.wait(list(under_way), timeout=0.1)[0]:
                task = under_way[stream]
                try:
                    found: str | Event = ray.get(next(stream))
                except StopIteration:
                    del under_way[stream]
                    yield from cut_off(task, folder)
                except ray.exceptions.RayError as error:
                    del under_way[stream]
                    if told:
                        yield from cut_off(task, folder)
                    elif isinstance(error, ray.exceptions.RayTaskError | ray.exceptions.TaskCancelledError):
                        yield from (Event("failed", job, last_line(error)) for job in task.group)
                    elif task.lost == RETRIES:
                        why = f"{RETRIES + 1} processes that trained it were lost ({type(error).__name__})"
                        yield from (Event("failed", job, why) for job in task.group)
                    else:
                        task.lost += 1
                        waiting.appendleft(task)
                        names = "; ".join(job.name for job in task.group)
                        yield Event("note", None, f"{names}: its process was lost ({type(error).__name__}), another one goes on")
                else:
                    if isinstance(found, str):
                        task.node = found
                        continue
                    event = kept(found, folder)
                    if event.job is not None and event.kind not in ("begun", "row"):
                        task.group.remove(event.job)
                    if event.job is not None and event.kind == "busy":
                        later.append((time.monotonic() + AGAIN, Task([event.job])))
                    yield event


@contextmanager
def marked(folder: Path) -> Iterator[Origin]:
    """With a mark in the store, and rid of those of commands that were killed: the lock goes with the process."""
    files.make_place(folder)
    for left in folder.glob(".here-*"):
        with suppress(Timeout, OSError, NotImplementedError), FileLock(left, timeout=0):
            left.unlink()
    origin = Origin(os.getcwd(), folder.absolute(), folder.absolute() / f".here-{uuid4().hex}")
    lock = FileLock(origin.mark)
    with suppress(NotImplementedError):  # a file system without locks
        lock.acquire()
    try:
        yield origin
    finally:
        lock.release()
        origin.mark.unlink(missing_ok=True)


def handed_out(remote: Any, task: Task, origin: Origin) -> Any:
    """The stream of its events; from the machine that has its checkpoints, as long as that is there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = "DEFAULT" if task.node is None else NodeAffinitySchedulingStrategy(task.node, soft=True)
    return remote.options(scheduling_strategy=where).remote(task.group, origin)


def kept(event: Event, folder: Path) -> Event:
    """The event, once its record is in the store; from a machine that shares the disk it is there already."""
    try:
        if event.kind == "ended" and store.read(folder, event.told.key) is None:
            store.write(folder, event.told)
    except InputError as error:
        return Event("failed", event.job, str(error))
    return event


def cut_off(task: Task, folder: Path) -> Iterator[Event]:
    """What became of runs that were told to stop, if any were: they could tell nothing any more. On a shared disk a record may be there
    all the same."""
    for job in task.group:
        record = store.read(folder, job.key)
        yield Event("stopped", job) if record is None else Event("ended", job, record)
    if task.group and task.node is not None:
        yield Event("note", None, ELSEWHERE)


def last_line(error: BaseException) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[-1])[:200]
