"""How runs are spread: many over processes here or the machines of a Ray cluster, and over commands that each take a part of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from sprl.errors import InputError, ensure

Engine = Literal["local", "ray"]
T = TypeVar("T")


class Shard(NamedTuple):
    """The part of one of several commands: every `of`-th run, from the `number`-th on, which counts from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def shard_of(text: str) -> Shard:
    """ "2/8"."""
    found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--shard {text!r} must be I/N, the I-th of N parts, such as 1/4 to 4/4")
    return Shard(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Spread:
    jobs: int | None = None  # processes; None: what suits
    together: int = 1  # runs that take turns in one of them
    engine: Engine = "local"
    gpu: float | None = None  # what a process takes of one, on Ray; None: all of it where there is one
    shard: Shard | None = None  # None: all runs are this command's

    def part(self, runs: Sequence[T]) -> list[T]:
        """Those that are this command's, whatever has been done of them: the same ones each time, if `runs` are."""
        return list(runs if self.shard is None else runs[self.shard.number - 1 :: self.shard.of])


def asked(jobs: int | None, together: int, engine: Engine, gpu: float | None, shard: str | None) -> Spread:
    """By the options of a command."""
    ensure(gpu is None or engine == "ray", "--gpu says what a process takes of a GPU of a Ray cluster: it goes with --engine ray")
    return Spread(jobs, together, engine, gpu, None if shard is None else shard_of(shard))
