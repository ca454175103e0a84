"""The vocabulary that methods and engine share.

Shapes, here and everywhere: N samples, B rows of a batch, M networks, C classes. K stays the paper's number of subsets.
`y` is the given label, `clean` the true one; no method ever sees `clean`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

# All that a method remembers. A tensor whose first side is N holds a row for each sample; a 0-d tensor holds what changes
# with the epoch (gamma, ...) and is reported with every epoch. Whatever the method, `previous` [N, C] holds the prediction recorded
# at each sample's last visit (labels.record).
Memory = dict[str, Tensor]

# A matrix as a field of a method: rows of numbers, immutable and equal to their like.
Matrix = tuple[tuple[float, ...], ...]

# Probabilities [N, C] of all training rows from a pass in evaluation mode, the mean over networks. Costs a pass: call it if needed.
Predict = Callable[[], Tensor]


class Clock(NamedTuple):
    """Epoch t of T, counted from 1 as in the paper."""

    t: int
    T: int


@dataclass(frozen=True, slots=True)
class Batch:
    index: Tensor  # [B] which samples
    y: Tensor  # [B] their given labels


class Step(NamedTuple):
    loss: Tensor  # 0-d, summed over networks: they share no parameters, so one backward pass serves all
    chosen: Tensor  # [M, B] bool: which rows each network's supervised loss used
    idle: Tensor | None = None  # 0-d bool: nothing to learn here, so weights and optimizer stay as they are; None: never
    changes: Memory | None = None  # new values, after this batch, for tensors that `init` made


class Search(NamedTuple):
    """How to find a field that is "auto". `method.search(epochs)` describes it, `method.found(t, p)` turns its end into the field's value:
    t is the epoch that was taken, p [H, C] what the network predicts there for the rows held out."""

    field: str
    longest: int  # epochs, fewer than the run has: one with as many counts as ended
    patience: int  # epochs without a better score that end it
    score: Callable[[Tensor, Tensor], Tensor]  # (p [H, C], y [H]) -> 0-d in [0, 1], the larger the better
    over: int  # the last epochs whose mean score counts
    slack: Callable[[float, int], float]  # (best score, H) -> by how much less is as good; the first such epoch is taken
    afresh_from: int  # where that epoch, or a later one, is taken, the run proper begins with first weights, not with its
    otherwise: Any  # the field's value where there are too few samples to hold some out


class Method(Protocol):
    """A frozen dataclass of hyper-parameters with three functions. `step` holds no Python number that changes with the epoch.

    One with a field `noise_rate` that has no default is told the rate by whoever runs it (config.make_method). One that finds a field
    out for itself before its run proper says how in `search` and `found` (Search).
    """

    networks: ClassVar[int]  # M

    def init(self, y: Tensor, num_classes: int, epochs: int) -> Memory:
        """The memory before the first epoch; raises InputError if the hyper-parameters do not fit the data or the epochs."""

    def refresh(self, memory: Memory, y: Tensor, clock: Clock, predict: Predict) -> Memory:
        """New values, before epoch clock.t, for tensors that `init` made."""

    def step(self, logits: Tensor, batch: Batch, memory: Memory) -> Step:
        """The loss of one batch from logits [M, B, C]."""
