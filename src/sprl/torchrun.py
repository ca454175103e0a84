"""The processes that torchrun started, as one run: who joins, who speaks, and what becomes of the others when one is lost."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from sprl import show
from sprl.config import Config, find_device
from sprl.errors import InputError, RankError, SprlWarning, ensure
from sprl.ranks import ALONE, Ranks
from sprl.spread import processes

PATIENCE = timedelta(hours=1)  # for the first rank to read the data; one that dies is noticed by torchrun
OFTEN = 1.0  # seconds between two agreements on whether to stop or to save: torchrun kills 30 s after it was asked to end
RUN, ENDED, SAID = "sprl/run", "sprl/ended", "sprl/said"  # keys of the store that torchrun keeps


@contextmanager
def joined() -> Iterator[Ranks]:
    """All ranks; ALONE where torchrun started none beside this one. Only one of them tells of an error, and the others end with it."""
    if processes() == 1:
        yield ALONE
        return
    try:
        store, rank, world = next(rendezvous("env://"))
    except ValueError as error:
        raise InputError(
            f"WORLD_SIZE is {processes()}, but not all is there that torchrun sets: start it with torchrun, or unset it"
        ) from error
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    ranks = Ranks(rank, world, store=store)
    if rank:
        show.console.quiet = True
        warnings.simplefilter("ignore", SprlWarning)
    try:
        yield ranks
        dist.barrier()  # nobody goes before the first rank has written its files
    except KeyboardInterrupt:
        store.set(ENDED, "")
        raise
    except InputError as error:
        store.set(ENDED, "")
        speak_first(store, ranks)
        raise RankError(str(error) if rank == 0 else f"process {rank} of {world}: {error}") from error
    except RuntimeError as error:
        if not is_loss(error):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others, who have something to say
        if store.check([ENDED]):
            sys.exit(2)
        speak_first(store, ranks)
        then = f"go on with as many and sprl train --resume {store.get(RUN).decode()}" if store.check([RUN]) else "start it again"
        raise RankError(f"one of the {world} processes was lost, and the run ends here: {then}") from error


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


def speak_first(store: Any, ranks: Ranks) -> None:
    """Return on one rank only, the first one if it is still there."""
    time.sleep(bool(ranks.rank))
    if store.add(SAID, 1) > 1:
        sys.exit(2)


def is_loss(error: RuntimeError) -> bool:
    """Whether another process went away, in the words of gloo and NCCL."""
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in words for word in ("gloo", "nccl", "connection", "socket"))


def announce(ranks: Ranks, name: str) -> None:
    """Where the run is kept, for whoever has to tell how to go on."""
    if ranks.store is not None:
        ranks.store.set(RUN, name)


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
    """The first rank goes through before the others: what it puts into the cache is there for them."""
    if ranks.rank:
        dist.barrier()
    yield
    if ranks.count > 1 and not ranks.rank:
        dist.barrier()
