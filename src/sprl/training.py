"""The training loop as a generator: `for epoch in train(task, state): ...`; the caller prints, draws, saves, stops."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sprl.core import Batch
from sprl.engine import Epoch, State, Task, predict, predict_logits, restore, run_epoch, snapshot
from sprl.errors import SprlWarning
from sprl.functional import shares, smallest
from sprl.labels import record
from sprl.seeds import stream_seed


def train(task: Task, state: State) -> Iterator[Epoch]:
    """Train to the last epoch, yielding each as it ends; `state` is then at that epoch's end.

    While a method's T1="auto" is searched for, epochs may turn out to be one warm-up too many: the count then steps back to T1 + 1.
    Keep the last epoch of each number.
    """
    if getattr(state.method, "T1", None) == "auto":
        yield from find_T1(task, state)
    while state.t < task.epochs:
        yield run_epoch(task, state)


def find_T1(task: Task, state: State) -> Iterator[Epoch]:
    """Warm up on nine tenths until the accuracy on the noisy rest stops rising; go back to the first epoch that was as good.

    Nothing is trained twice: snapshots of the epochs that may still be chosen are kept. Then the held-out rows join, their predictions
    recorded by one pass in evaluation mode.
    """
    longest = longest_warmup(task.epochs)
    patience = max(3, task.epochs // 20)
    held = held_out(task) if longest > 1 else None
    if held is None:
        T1 = max(1, task.epochs // 10)
        if longest > 1:
            warnings.warn(f"too few samples to hold some out and find T1: using T1 = {T1}", SprlWarning, stacklevel=2)
        state.method = replace(state.method, T1=T1)  # type: ignore[type-var]
        return

    kept = (~held).nonzero().squeeze(1)
    held = held.nonzero().squeeze(1)
    accuracies = list[float]()
    snapshots = dict[int, dict[str, Any]]()
    best = 0
    while state.t < longest and state.t - best < patience:
        yield run_epoch(task, state, kept)
        accuracies.append((predict(state.networks, task.x[held]).argmax(1) == task.y[held]).float().mean().item())
        if state.t == 1 or accuracies[-1] > accuracies[best - 1]:  # only a new best may be chosen, now or later
            best = state.t
            first = first_as_good(accuracies, len(held))
            snapshots = {t: s for t, s in snapshots.items() if t >= first} | {best: snapshot(state)}
    restore(state, snapshots[first_as_good(accuracies, len(held))])
    state.method = replace(state.method, T1=state.t)  # type: ignore[type-var]
    record(state.memory, predict_logits(state.networks, task.x[held]), Batch(held, task.y[held]))


def longest_warmup(T: int) -> int:
    return max(1, T // 4)


def first_as_good(accuracies: list[float], count: int) -> int:
    """The first epoch, from 1, within one standard error of the best, for accuracies in [0, 1] on `count` samples.

    The plain argmax is a lottery on small sets: measured 3 to 25 over seeds.
    """
    best = max(accuracies)
    enough = best - math.sqrt(best * (1 - best) / count)
    return next(t for t, accuracy in enumerate(accuracies, 1) if accuracy >= enough)


def held_out(task: Task) -> Tensor | None:
    """A tenth of each class, drawn at random, as a mask [N]; None where there are too few to spare."""
    sizes = torch.bincount(task.y.cpu(), minlength=task.num_classes)
    if len(task.y) < 200 or int(sizes[sizes > 0].min()) < 5:
        return None
    draw = torch.rand(len(task.y), generator=torch.Generator().manual_seed(stream_seed(task.seed, "holdout")))
    return smallest(draw, task.y.cpu(), shares(len(task.y) // 10, sizes)).to(task.device)
