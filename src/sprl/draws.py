"""A run's own random numbers for what draws from torch's default generators: augmentation, dropout, first weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from sprl.ranks import ALONE, Ranks


def generators(device: torch.device) -> list[torch.Generator]:
    return [torch.Generator(), *([torch.Generator(device)] if device.type == "cuda" else [])]


class Draws:
    """One stream on the CPU and, for a GPU, one there. While `lent`, they stand in for torch's own; the caller's come back after.

    A captured graph stays tied to the generator that it was captured with, so each run has an object of its own on the GPU.
    """

    def __init__(self, device: torch.device, seeds: Sequence[int], ranks: Ranks = ALONE) -> None:
        self.device, self.ranks = device, ranks
        self.out = False  # lent at this moment
        self.cpu = torch.Generator().manual_seed(seeds[ranks.rank]).get_state()
        self.cuda = torch.Generator(device).manual_seed(seeds[ranks.rank]) if device.type == "cuda" else None
        self.all = [[g.manual_seed(seed).get_state() for g in generators(device)] for seed in seeds]  # as they were when last shared

    @contextmanager
    def lent(self) -> Iterator[None]:
        before = torch.get_rng_state()
        theirs = self._default().graphsafe_get_state() if self.cuda else None
        torch.set_rng_state(self.cpu)
        if self.cuda:
            self._default().graphsafe_set_state(self.cuda)
        self.out = True
        try:
            yield
        finally:
            self.out = False
            self.cpu = torch.get_rng_state()
            torch.set_rng_state(before)
            if theirs:
                self._default().graphsafe_set_state(theirs)

    def own(self) -> list[Tensor]:
        cpu = torch.get_rng_state() if self.out else self.cpu.clone()
        return [cpu, self.cuda.get_state()] if self.cuda else [cpu]

    def share(self) -> None:
        """Tell the other ranks, so that any of them can save all."""
        if self.ranks.count > 1:
            self.all = self.ranks.gathered(self.own())

    def state(self) -> list[list[Tensor]]:
        """To go back to with `load`: a list for each rank, the others' as they were when they were last shared."""
        self.all[self.ranks.rank] = self.own()
        return [list(states) for states in self.all]

    def load(self, all_states: list[list[Tensor]]) -> None:
        self.all = [[tensor.cpu().clone() for tensor in states] for states in all_states]
        states = self.all[self.ranks.rank]
        self.cpu = states[0].clone()
        if self.out:
            torch.set_rng_state(self.cpu)
        if self.cuda:
            self.cuda = torch.Generator(self.device)  # a new one: a capture that failed leaves the old one unusable
            self.cuda.set_state(states[1])
            if self.out:
                self._default().graphsafe_set_state(self.cuda)

    def _default(self) -> torch.Generator:
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        return torch.cuda.default_generators[index]
