"""A run's own random numbers for what draws from torch's default generators: augmentation, dropout, first weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Draws:
    """One stream on the CPU and, for a GPU, one there. While `lent`, they stand in for torch's own; the caller's come back after.

    A captured graph stays tied to the generator that it was captured with, so each run has an object of its own on the GPU.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.out = False  # lent at this moment
        self.cpu = torch.Generator().manual_seed(seed).get_state()
        self.cuda = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None

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

    def state(self) -> list[Tensor]:
        """To go back to with `load`."""
        cpu = torch.get_rng_state() if self.out else self.cpu.clone()
        return [cpu, self.cuda.get_state()] if self.cuda else [cpu]

    def load(self, states: list[Tensor]) -> None:
        self.cpu = states[0].cpu().clone()
        if self.out:
            torch.set_rng_state(self.cpu)
        if self.cuda:
            self.cuda = torch.Generator(self.device)  # a new one: a capture that failed leaves the old one unusable
            self.cuda.set_state(states[1].cpu())
            if self.out:
                self._default().graphsafe_set_state(self.cuda)

    def _default(self) -> torch.Generator:
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        return torch.cuda.default_generators[index]
