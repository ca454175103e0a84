"""The training loop as a generator: `for epoch in train(task, state): ...`; the caller prints, draws, saves, stops."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sprl.core import Search
from sprl.engine import Epoch, never, predict_with, run_epoch, visit_unseen
from sprl.errors import SprlWarning
from sprl.search import first_as_good, held_out, search_of, trailing
from sprl.state import State, Task, beginning, restore, snapshot
from sprl.stepping import consider_compiling


def train(task: Task, state: State) -> Iterator[Epoch]:
    """Train to the last epoch, yielding each as it ends; `state` is then at that epoch's end.

    When a method has found a field of its own (search.py), such as T1="auto", the count steps back, to where the run goes on from or to
    the beginning. Drop the epochs from that number on.
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
    search = search_of(state.method, task.epochs)
    if search is not None:
        yield from find(task, state, search, pause)
    while state.t < task.epochs:
        yield run_epoch(task, state, pause=pause)


def find(task: Task, state: State, search: Search, pause: Callable[[], bool] = never) -> Iterator[Epoch | None]:
    """Train on nine tenths until the score on the noisy rest stops rising; settle the method's field by the first epoch that was as good.

    An early one is gone on from, which trains nothing twice: snapshots of the epochs that may still be chosen are kept. The held-out rows
    then join, their predictions recorded by one pass in evaluation mode. After a late one the run begins anew.
    """
    held = held_out(task) if search.longest > 1 else None
    if held is None:
        if search.longest > 1:
            told = f"too few samples to hold some out and find {search.field}: using {search.field} = {search.otherwise}"
            warnings.warn(told, SprlWarning, stacklevel=2)
        settle(state, search, search.otherwise)
        return

    kept, held = (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)
    seen = state.warmup
    if not seen:
        seen[0] = 0.0, beginning(state)
    while state.t < search.longest and state.t - best_epoch(seen, search) < search.patience:
        epoch = run_epoch(task, state, kept, pause)
        if epoch is None:
            yield None
            continue
        score = search.score(predict_with(task, state.networks, held), task.y[held]).item()
        seen[state.t] = score, None
        first = first_of(seen, search, len(held))
        seen |= {t: (s, None) for t, (s, _) in seen.items() if 0 < t < first}
        if best_epoch(seen, search) == state.t:  # others can never become the first that is good enough
            seen[state.t] = score, snapshot(state)  # after others have gone: each is as large as the table
        yield epoch  # last, so that a caller who stops here can go on later
    taken = first_of(seen, search, len(held))
    chosen, untrained = seen[taken][1], seen[0][1]
    assert chosen is not None
    assert untrained is not None
    restore(state, chosen)
    value = state.method.found(taken, predict_with(task, state.networks, held))  # type: ignore[attr-defined]
    settle(state, search, value)
    state.warmup = {}
    if taken < search.afresh_from:
        visit_unseen(task, state)
    else:
        begin_anew(task, state, untrained)


def begin_anew(task: Task, state: State, untrained: dict[str, Any]) -> None:
    """From the first weights, with nothing recorded, as the method begins now that its field is settled."""
    restore(state, untrained)
    for name, tensor in state.memory.items():
        state.host.get(name, tensor).zero_()
    for name, tensor in state.method.init(task.y, task.num_classes, task.epochs).items():
        state.memory[name].copy_(tensor)


def settle(state: State, search: Search, value: Any) -> None:
    state.method = replace(state.method, **{search.field: value})  # type: ignore[type-var]


Scores = Mapping[int, tuple[float, object]]  # by epoch; 0 is the beginning, which has none


def scores_of(seen: Scores, search: Search) -> list[float]:
    return trailing([score for t, (score, _) in seen.items() if t], search.over)


def first_of(seen: Scores, search: Search, count: int) -> int:
    return first_as_good(scores_of(seen, search), count, search.slack)


def best_epoch(seen: Scores, search: Search) -> int:
    scores = scores_of(seen, search)
    return scores.index(max(scores)) + 1 if scores else 0
