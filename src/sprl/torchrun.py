"""The processes that torchrun started, as one run: who joins, who speaks, and what becomes of the others when one is lost."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from sprl import show
from sprl.config import Config, find_device
from sprl.errors import InputError, RankError, SprlWarning, ensure
from sprl.files import CONFIG
from sprl.launch import processes, to_go_on
from sprl.ranks import ALONE, Ranks

PATIENCE = timedelta(hours=1)  # for a rank to read the data, and for the first to write its files
SILENCE = timedelta(minutes=10)  # for its part of anything else, such as a checkpoint; one that dies is noticed at once
OFTEN = 1.0  # seconds between two agreements on whether to stop or to save: torchrun kills 30 s after it was asked to end
ANSWER = 10.0  # seconds that torchrun's store may take for one
RUN, ENDED, SAID = "run", "ended", "said"  # its keys
T = TypeVar("T")


class Told(BaseException):
    """To end, by torchrun, before training began: it was itself asked to, or has lost another process."""


class Link:
    """What a rank has of the others beside what is computed in common. The store may be gone, or silent, with the machine that keeps it."""

    def __init__(self, store: Any, patient: Any) -> None:
        self.store, self.patient = store, patient  # torchrun's; a group of all ranks that waits longer
        self.run = ""  # where it is kept, once it can be gone on with

    def ask(self, question: Callable[[], T]) -> T | None:
        """The store's answer; None: there was none."""
        answers = list[T]()

        def wait() -> None:
            with suppress(RuntimeError):
                answers.append(question())

        waiting = Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(ANSWER)
        return answers[0] if answers else None

    def has(self, key: str) -> bool:
        return bool(self.ask(lambda: self.store.check([key])))

    def put(self, key: str) -> None:
        self.ask(lambda: self.store.set(key, ""))

    def speak_first(self, rank: int) -> None:
        """Return on one rank only, the first one if it is still there; without a store, on one of each machine."""
        time.sleep(bool(rank))
        said = self.ask(lambda: self.store.add(SAID, 1))
        first = said == 1 if said else os.environ.get("LOCAL_RANK", "0") == "0"
        if not first:
            sys.exit(2)

    def advice(self, rank: int) -> str:
        """How to go on; the first rank sees whether anything is left to go on with."""
        name = self.run or (self.ask(lambda: os.fsdecode(self.store.get(RUN))) if self.has(RUN) else "")
        return f"go on with: {to_go_on(name)}" if name and (rank or (Path(name) / CONFIG).is_file()) else "start it again"


@contextmanager
def joined() -> Iterator[Ranks]:
    """All ranks; ALONE where torchrun started none beside this one. Only one of them tells of an error, and the others end with it."""
    if processes() == 1:
        yield ALONE
        return
    ranks = meet()
    rank, world, link = ranks.rank, ranks.count, ranks.link
    if rank:
        show.console.quiet = True
        warnings.simplefilter("ignore", SprlWarning)
    signal.signal(signal.SIGTERM, told_to_end)
    try:
        try:
            yield ranks
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends those who may still have something to write, or to say
        await_first(ranks)
    except (KeyboardInterrupt, BrokenPipeError):  # the latter: whoever read us has enough
        link.put(ENDED)
        raise
    except (InputError, OSError) as error:
        link.put(ENDED)
        link.speak_first(rank)
        why = str(error) if isinstance(error, InputError) else f"{error}; {link.advice(rank)}"
        raise RankError(f"process {rank} of {world}: {why}" if rank else why) from error
    except (RuntimeError, Told) as error:
        if isinstance(error, RuntimeError) and not is_loss(error):
            raise
        if link.has(ENDED):
            sys.exit(2)
        link.speak_first(rank)
        lost = f"one of the {world} processes was lost or told to end, and the run ends here"
        raise RankError(f"{lost}; {link.advice(rank)}") from error


def meet() -> Ranks:
    """With all others that torchrun started; anew each time that it starts them again."""
    try:
        store, rank, world = next(rendezvous("env://", timeout=SILENCE))
        store = PrefixStore(f"sprl/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=SILENCE)
        return Ranks(rank, world, link=Link(store, dist.new_group(backend="gloo", timeout=PATIENCE)))
    except ValueError as error:
        raise InputError(
            f"WORLD_SIZE is {processes()}, but not all is there that torchrun sets: start it with torchrun, or unset it"
        ) from error
    except RuntimeError as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        speaks = RankError if os.environ.get("LOCAL_RANK", "0") == "0" else InputError
        raise speaks(f"the {processes()} processes cannot be joined: {why}") from error


def told_to_end(*_: Any) -> None:
    raise Told


def await_first(ranks: Ranks) -> None:
    """Nobody goes before the first rank has written its files; which it has, whatever became of others meanwhile."""
    word = torch.zeros(1)
    if ranks.rank:
        dist.recv(word, 0, group=ranks.link.patient)
        return
    for other in range(1, ranks.count):
        with suppress(RuntimeError):
            dist.send(word, other, group=ranks.link.patient)


def seated(ranks: Ranks, config: Config) -> Ranks:
    """As the config wants them, each with its own GPU."""
    device = find_device(config.device)
    if ranks.count == 1:
        ensure(not config.sync_norm, "--sync-norm is for runs that torchrun shares among processes")
        return ranks
    ensure(not config.sync_norm or device.type == "cuda", "--sync-norm is for GPUs: on a CPU batch norm takes each process's share")
    ensure(not config.graph and not config.compile, "--graph and --compile are for a single process: leave them out with torchrun")
    if device.type == "cuda":
        ensure(device.index is None, f"torchrun gives each process a GPU of its own: --device cuda, not {config.device}")
        here, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        many = f"process {here + 1} on this machine has no GPU: {there} CUDA devices are to be seen"
        ensure(here < there, f"{many}; start no more processes, or use --device cpu")
        torch.cuda.set_device(here)
    return replace(ranks, sync_norm=config.sync_norm)


def is_loss(error: RuntimeError) -> bool:
    """Whether another process went away, in the words of gloo and NCCL."""
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in words for word in ("gloo", "nccl", "connection", "socket"))


def announce(ranks: Ranks, name: str) -> None:
    """Where the run is kept, for whoever has to tell how to go on. Without torchrun, which keeps the store, this ends the run."""
    if ranks.link is not None:
        ranks.link.run = name
        ranks.link.store.set(RUN, os.fsencode(name))


def let_know(ranks: Ranks, name: str | None) -> None:
    """The same to all, in case that store and first rank are lost together; the others say None. "": it cannot be gone on with yet."""
    found = os.fsdecode(tell(ranks, None if name is None else os.fsencode(name)))
    if ranks.link is not None:
        ranks.link.run = found


class Accord:
    """Whether to stop or to save, agreed on by all ranks, so that all come to a halt after the same batch."""

    def __init__(self, ranks: Ranks, stop: Callable[[], bool]) -> None:
        self.ranks, self.stop = ranks, stop
        self.agreed, self.batches, self.interval, self.last = 0, 0, 1, time.monotonic()

    def __call__(self) -> bool:
        """Whether all are to stop."""
        return self.agreed > 1

    def pause(self, due: Callable[[], bool]) -> bool:
        self.batches += 1
        if self.batches < self.interval:
            return False
        now = time.monotonic()
        self.agreed, took = self.ranks.most(2 if self.stop() else int(due()), int(1e6 * (now - self.last)) + 1)
        self.interval = max(1, int(self.interval * min(2.0, OFTEN * 1e6 / took)))  # the same on all, by the slowest of them
        self.batches, self.last = 0, now
        return self.agreed > 0


def tell(ranks: Ranks, content: bytes | None) -> bytes:
    """What the first rank has to say, to all; the others say None."""
    if ranks.count == 1:
        return content or b""
    (size,) = ranks.most(len(content or b""))
    found = torch.zeros(size, dtype=torch.uint8)
    if content:
        found = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    dist.broadcast(found, 0)
    return found.numpy().tobytes()


@contextmanager
def first_in_front(ranks: Ranks) -> Iterator[None]:
    """The first rank goes through before the others: what it puts into the cache is there for them. All leave together."""
    if ranks.count == 1:
        yield
        return
    if ranks.rank:
        dist.barrier(ranks.link.patient)
    yield
    if not ranks.rank:
        dist.barrier(ranks.link.patient)
    dist.barrier(ranks.link.patient)
