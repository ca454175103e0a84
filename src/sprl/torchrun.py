"""The processes that torchrun started, as one run: who joins, who speaks, and what becomes of the others when one is lost."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from sprl import show
from sprl.config import Config, find_device
from sprl.errors import InputError, SprlWarning
from sprl.ranks import ALONE, Ranks

PATIENCE = timedelta(hours=1)  # for the first rank to read the data; one that dies is noticed by torchrun
EVERY = 16  # batches between two agreements on whether to stop or to save
RUN, ENDED, SAID = "sprl/run", "sprl/ended", "sprl/said"  # keys of the store that torchrun keeps


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(config: Config) -> Iterator[Ranks]:
    """All ranks; ALONE where torchrun started none beside this one. Only one of them tells of an error, and the others end with it."""
    if count() == 1:
        if config.sync_norm:
            raise InputError("--sync-norm is for runs that torchrun shares among processes")
        yield ALONE
        return
    device = find_device(config.device)
    store, rank, world = next(rendezvous("env://"))
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    ranks = Ranks(rank, world, config.sync_norm, store)
    if rank:
        show.console.quiet = True
        warnings.simplefilter("ignore", SprlWarning)
    try:
        check(config, device)
        yield ranks
    except InputError as error:
        store.set(ENDED, "")
        speak_first(store, ranks)
        if rank:
            raise InputError(f"process {rank} of {world}: {error}") from error
        raise
    except RuntimeError as error:
        if not is_loss(error):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others, who have something to say
        if store.check([ENDED]):
            sys.exit(2)
        speak_first(store, ranks)
        again = f" --resume {store.get(RUN).decode()}" if store.check([RUN]) else ""
        told = f"one of the {world} processes was lost, and the run ends here"
        raise InputError(f"{told}: go on with as many processes and sprl train{again}") from error
    dist.destroy_process_group()


def check(config: Config, device: torch.device) -> None:
    if config.sync_norm and device.type == "cpu":
        raise InputError("--sync-norm is for GPUs: on a CPU batch norm takes each process's share")
    if config.graph or config.compile:
        raise InputError("--graph and --compile are for a single process: leave them out with torchrun")
    here = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if here >= torch.cuda.device_count():
            many = f"{torch.cuda.device_count()} CUDA devices are to be seen"
            raise InputError(f"process {here + 1} on this machine has no GPU: {many}; start no more processes, or use --device cpu")
        torch.cuda.set_device(here)


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
        self.batches, self.agreed = 0, 0

    def __call__(self) -> bool:
        """Whether all are to stop."""
        return self.agreed > 1

    def pause(self, due: Callable[[], bool]) -> bool:
        self.batches += 1
        if self.batches % EVERY:
            return False
        self.agreed = self.ranks.most(2 if self.stop() else int(due()))
        return self.agreed > 0


def tell(ranks: Ranks, content: bytes | None) -> bytes:
    """What the first rank has to say, to all; the others say None."""
    if ranks.count == 1:
        return content or b""
    size = ranks.most(len(content or b""))
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
