"""Runs to records: one after the other here, or side by side in processes of their own."""

from __future__ import annotations

import gc
import multiprocessing
import shutil
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch

from sprl import files, store
from sprl.atomic import cannot_write
from sprl.checkpoint import Keeper, load
from sprl.compare import Job
from sprl.data import Data
from sprl.errors import InputError, SprlWarning, reason
from sprl.run import Row, Run, prepare, read, within_memory
from sprl.search import search_of
from sprl.stopping import SIGNALS
from sprl.together import RunError, together

AGAIN = 0.5  # seconds until a run that another process has is looked at again
Group = list[Job]  # runs that take turns in one process


class Event(NamedTuple):
    """What happened to a run. `told`: epochs done before it began; a row; its record; why it failed. A note has no run."""

    kind: Literal["begun", "row", "ended", "failed", "stopped", "busy", "note", "free"]  # busy: another process has it
    job: Job | None
    told: Any = None


def trained(group: Group, data: Data, folder: Path, stop: Callable[[], bool], beside: Run | None = None) -> Iterator[Event]:
    """Train one run, or several taking turns, from where they were left to their records in the store `folder`. They share the rows that
    the run `beside` them holds on the device."""
    if torch.cuda.is_initialized():
        gc.collect()  # what the runs before held there goes now, not when Python gets round to it
    with ExitStack() as locks:
        keepers = dict[Job, Keeper]()
        for job in group:
            try:
                record = claimed(job, folder, locks)
                if record is None:
                    with within_memory(job.config.batch_size):
                        run = beside = begun(job, data, folder, beside)
                        if over(run):  # killed between its last epoch and its record
                            record = kept(job, run, folder, len(group))
                if record is None:
                    keepers[job] = Keeper(store.unfinished(folder, job.key), run, stop, turns=len(group))
                    yield Event("begun", job, run.state.t)
                else:
                    yield Event("ended", job, record)
            except files.Busy:
                yield Event("busy", job)
            except Exception as error:  # a method may be anybody's
                yield Event("failed", job, reason(error))
        while keepers:
            try:
                with within_memory(group[0].config.batch_size):
                    yield from fitted(keepers, folder, len(group))
                return
            except RunError as error:  # the others go on from where they stand
                failed: dict[Job, Exception] = {job: error.error for job, keeper in keepers.items() if keeper.run is error.run}
            except Exception as error:  # what has ended has all that its record takes
                failed = dict.fromkeys([job for job, keeper in keepers.items() if not over(keeper.run)] or keepers, error)
            for job, why in failed.items():
                if why.__cause__ is None:  # it would fail again; one that lacked room or memory can be gone on with
                    shutil.rmtree(keepers[job].folder, ignore_errors=True)
                del keepers[job]
                yield Event("failed", job, reason(why))


def claimed(job: Job, folder: Path, locks: ExitStack) -> store.Record | None:
    """Lock the folder of the run. A record: another process has written it meanwhile."""
    path = store.unfinished(folder, job.key)
    try:
        path.mkdir(parents=True, exist_ok=True)
        locks.enter_context(files.held_to_train(path))
    except files.Busy:
        raise
    except (OSError, InputError) as error:
        record = store.read(folder, job.key)  # then the folder was taken away just now
        if record is None:
            raise cannot_write(path, error) if isinstance(error, OSError) else error from error
        return record
    record = store.read(folder, job.key)
    if record is not None:
        shutil.rmtree(path, ignore_errors=True)
    return record


def tidy(folder: Path, keys: Iterable[str]) -> None:
    """Remove what runs of these keys whose record is there have left in `unfinished`: they were killed just before they could."""
    for key in keys:
        path = store.unfinished(folder, key)
        if path.is_dir() and store.read(folder, key) is not None:
            with suppress(InputError), files.held(path):  # another process may have it, or be removing it
                shutil.rmtree(path, ignore_errors=True)


def begun(job: Job, data: Data, folder: Path, beside: Run | None) -> Run:
    """The run, prepared, and brought to its last checkpoint where there is one to go on from."""
    path = store.unfinished(folder, job.key)
    run = prepare(job.config, data, beside=beside)
    if store.key_of(run.config.to_json(), run.fingerprint, store.content_of(job.config.weights)) != job.key:
        what = run.data.name if job.weights is None else f"{run.data.name} or {job.config.weights}"
        raise InputError(f"{what} is not what it was when this comparison began: start it again")
    try:
        load(path, run)
    except InputError as error:
        warnings.warn(f"{job.name} begins anew: {error}", SprlWarning, stacklevel=2)
        run = prepare(job.config, data, beside=beside)
    files.write_config(path, run)
    return run


def over(run: Run) -> bool:
    """A search, too, may come to the last epoch."""
    T = run.task.epochs
    return run.state.t == len(run.rows) == T and search_of(run.state.method, T) is None


def kept(job: Job, run: Run, folder: Path, count: int) -> store.Record:
    """The run as a record of the store, in place of its folder."""
    record = store.record_of(run, count, job.weights)
    store.write(folder, record)
    shutil.rmtree(store.unfinished(folder, record.key), ignore_errors=True)
    return record


def fitted(keepers: dict[Job, Keeper], folder: Path, count: int) -> Iterator[Event]:
    """Train and keep until all have ended or are to stop. Those that have leave `keepers`.

    Their records are made last: the time that this takes is not that of the others. Until then a checkpoint holds all of them.
    """
    left = {id(keeper.run): job for job, keeper in keepers.items() if not over(keeper.run)}
    for run, row in turns([keepers[job] for job in left.values()]):
        job = left[id(run)]
        try:
            stopped = keepers[job].keep(row)
        except InputError as error:
            raise RunError(run, error) from error
        if row is not None:
            yield Event("row", job, row)
        if stopped:
            for other in [other for other in left.values() if not over(keepers[other].run)]:
                keeper = keepers.pop(other)
                try:
                    if other is not job:
                        keeper.save()
                    yield Event("stopped", other)
                except InputError as error:
                    yield Event("failed", other, str(error))
            break
    for job, keeper in list(keepers.items()):
        try:
            record = kept(job, keeper.run, folder, count)
        except InputError as error:
            raise RunError(keeper.run, error) from error
        del keepers[job]
        yield Event("ended", job, record)


def turns(keepers: Sequence[Keeper]) -> Iterator[tuple[Run, Row | None]]:
    """The rows of all runs; of a single one a None only where it has to be kept."""
    if len(keepers) == 1:
        return ((keepers[0].run, row) for row in keepers[0].run.train(keepers[0].pause))
    return together([keeper.run for keeper in keepers]) if keepers else iter(())


def one_by_one(
    groups: Sequence[Group], data: Data, folder: Path, stop: Callable[[], bool], beside: Run | None = None
) -> Generator[Event, None, None]:
    """All groups in this process."""
    waiting, in_vain = deque(groups), 0  # groups one after the other all of whose runs others have
    while waiting and not stop():
        group, busy = waiting.popleft(), Group()
        for event in trained(group, data, folder, stop, beside):
            if event.kind == "busy" and event.job is not None:
                busy.append(event.job)
            yield event
        in_vain = in_vain + 1 if len(busy) == len(group) else 0
        if busy:
            waiting.append(busy)
        if waiting and in_vain >= len(waiting):
            time.sleep(AGAIN)
            in_vain = 0


@dataclass
class Worker:
    """A process, and what it has to do."""

    process: BaseProcess
    group: Group = field(default_factory=list)
    idle: bool = True
    training: bool = False


def side_by_side(
    count: int, groups: Sequence[Group], folder: Path, threads: int | None, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    """The same in `count` processes, each of which reads the data once. One that dies takes only its own runs with it."""
    waiting, later = deque(groups), deque[tuple[float, Group]]()
    crew = dict[Connection, Worker]()
    told = False
    try:
        while any(worker.group for worker in crew.values()) or ((waiting or later) and not stop()):
            if stop() and not told:
                told = True
                for connection, worker in crew.items():
                    send(connection, None)
                    if not worker.training:  # nothing to save yet
                        worker.process.kill()
            while later and later[0][0] <= time.monotonic():
                waiting.append(later.popleft()[1])
            while waiting and not told:
                free = [connection for connection, worker in crew.items() if worker.idle]
                if not free and len(crew) == count:
                    break
                connection, worker = (free[0], crew[free[0]]) if free else hired(folder, threads)
                crew[connection] = worker
                worker.group, worker.idle, worker.training = list(waiting[0]), False, False
                send(connection, waiting.popleft())
            for connection in cast(list[Connection], wait(list(crew), timeout=0.1)):
                worker = crew[connection]
                try:
                    event: Event = connection.recv()
                except (EOFError, OSError):
                    connection.close()
                    del crew[connection]
                    why = death(worker.process)
                    yield from (Event("stopped", job) if told else Event("failed", job, why) for job in worker.group)
                    continue
                worker.idle, worker.training = event.kind == "free", worker.training or event.kind == "begun"
                if event.job is not None and event.kind not in ("begun", "row"):
                    worker.group.remove(event.job)
                if event.job is not None and event.kind == "busy":
                    later.append((time.monotonic() + AGAIN, [event.job]))
                yield event
    finally:
        dismiss(crew)


def hired(folder: Path, threads: int | None) -> tuple[Connection, Worker]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, folder, threads), daemon=True)
    with blocked():
        process.start()
    theirs.close()  # so that the pipe ends where either of us does
    return ours, Worker(process)


@contextmanager
def blocked() -> Iterator[None]:
    """A process started here gets no signal before it can ignore them; those to this one arrive afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which the first process would start otherwise, and which unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send(connection: Connection, what: Group | None) -> None:
    with suppress(OSError):  # it died: that is seen where its events are read
        connection.send(what)


def dismiss(crew: dict[Connection, Worker]) -> None:
    """At once: files are whole at any moment, and an interpreter takes its time to end by itself."""
    for connection, worker in crew.items():
        worker.process.kill()
        connection.close()
    for worker in crew.values():
        worker.process.join()


def death(process: BaseProcess) -> str:
    process.join(5)
    code = process.exitcode or 0
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"its process was ended by {name}" + (", perhaps for want of memory: fewer --jobs take less" if name == "SIGKILL" else "")


class Told:
    """Whether the other end of the pipe says to stop, or is gone. Looked at ten times a second: a batch may take less time than a look."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.due, self.stopped = connection, 0.0, False

    def __call__(self) -> bool:
        if not self.stopped and time.monotonic() >= self.due:
            self.stopped = self.connection.poll()
            self.due = time.monotonic() + 0.1
        return self.stopped


def work(connection: Connection, folder: Path, threads: int | None) -> None:
    """The life of a worker: groups come out of the pipe, events go in, until there is a None or nobody at the other end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if threads is not None:
        torch.set_num_threads(threads)

    def pass_on(message: Any, category: Any, *place: Any, **more: Any) -> None:
        if issubclass(category, SprlWarning):
            connection.send(Event("note", None, str(message)))

    warnings.showwarning = pass_on
    warnings.simplefilter("always", SprlWarning)
    stop, data = Told(connection), None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (group := connection.recv()) is not None:
            try:
                with within_memory(group[0].config.batch_size):
                    data = read(group[0].config) if data is None else data
                events = trained(group, data, folder, stop)
            except InputError as error:  # e.g. a file that is no longer there
                events = iter([Event("failed", job, str(error)) for job in group])
            for event in events:
                connection.send(event)
            connection.send(Event("free", None))
