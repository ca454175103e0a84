"""The training loop as a generator: `for epoch in train(task, state): ...`; the caller prints, draws, saves, stops."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sprl.engine import Epoch, never, predict, run_epoch, visit_unseen
from sprl.errors import SprlWarning
from sprl.functional import shares, smallest
from sprl.seeds import stream_seed
from sprl.state import State, Task, restore, snapshot
from sprl.stepping import consider_compiling


def train(task: Task, state: State) -> Iterator[Epoch]:
    """Train to the last epoch, yielding each as it ends; `state` is then at that epoch's end.

    While a method's T1="auto" is searched for, epochs may turn out to be one warm-up too many: the count then steps back to T1 + 1.
    Keep the last epoch of each number.
    """
    return (epoch for epoch in train_pausing(task, state, never) if epoch is not None)


def train_pausing(task: Task, state: State, pause: Callable[[], bool]) -> Iterator[Epoch | None]:
    """The same; and wherever `pause` says so, between two batches, a None. At every yield `state` is all that is needed to go on."""
    began, first = time.perf_counter(), True
    for epoch in train_in_turn(task, state, pause):
        if epoch is not None:
            if not first:  # that one warms up
                consider_compiling(state, (time.perf_counter() - began) * (task.epochs - state.t))
            began, first = time.perf_counter(), False
        yield epoch


def train_in_turn(task: Task, state: State, pause: Callable[[], bool]) -> Iterator[Epoch | None]:
    if getattr(state.method, "T1", None) == "auto":
        yield from find_T1(task, state, pause)
    while state.t < task.epochs:
        yield run_epoch(task, state, pause=pause)


def find_T1(task: Task, state: State, pause: Callable[[], bool] = never) -> Iterator[Epoch | None]:
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

    kept, held = (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)
    search = state.warmup
    while state.t < longest and state.t - best_epoch(search) < patience:
        epoch = run_epoch(task, state, kept, pause)
        if epoch is None:
            yield None
            continue
        accuracy = (predict(state.networks, task.x, held, task.precision).argmax(1) == task.y[held]).float().mean().item()
        better = accuracy > max((a for a, _ in search.values()), default=-1.0)  # others can never become the first that is good enough
        search[state.t] = accuracy, snapshot(state) if better else None
        first = first_as_good([a for a, _ in search.values()], len(held))
        search |= {t: (a, None) for t, (a, _) in search.items() if t < first}
        yield epoch  # last, so that a caller who stops here can go on later
    chosen = search[first_as_good([a for a, _ in search.values()], len(held))][1]
    assert chosen is not None
    restore(state, chosen)
    state.warmup = {}
    state.method = replace(state.method, T1=state.t)  # type: ignore[type-var]
    visit_unseen(task, state)


def best_epoch(search: Mapping[int, tuple[float, object]]) -> int:
    return max(search, key=lambda t: search[t][0], default=0)


def longest_warmup(T: int) -> int:
    return max(1, T // 4)


def first_as_good(accuracies: list[float], count: int) -> int:
    """The first epoch, from 1, within one standard error of the best, for accuracies in [0, 1] on `count` samples.

    The plain argmax is a lottery on small sets, where the best of many near-equal epochs is chance.
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
