"""What a checkpoint holds: a run's state as tensors by name and plain facts, read back only where all of it fits the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sprl.draws import generators
from sprl.engine import batch_sizes
from sprl.errors import InputError
from sprl.fields import read_fields
from sprl.search import held_out, search_of
from sprl.tensors import Source
from sprl.training import first_of

if TYPE_CHECKING:
    from sprl.core import Method
    from sprl.run import Run

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam, the one optimizer of runs that are kept, remembers of a weight
Snapshot = dict[str, Any]  # state.contents


class Unreadable(InputError):
    """A checkpoint that is damaged, or none of this run."""


def require(true: bool, otherwise: str) -> None:
    if not true:
        raise Unreadable(otherwise)


def named(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested dicts and lists, by the way to it."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from named(item, f"{name}.{key}")


def filled(like: Any, name: str, source: Source) -> Any:
    """The same, with every tensor as the file has it."""
    if isinstance(like, Tensor):
        return source.take(name, like)
    if isinstance(like, dict):
        return {key: filled(item, f"{name}.{key}", source) for key, item in like.items()}
    if isinstance(like, list | tuple):
        return type(like)(filled(item, f"{name}.{key}", source) for key, item in enumerate(like))
    return like


def first_names(run: Run) -> dict[str, str]:
    """Each weight's name, and the first that has the same memory: weights that are tied are kept once."""
    first = dict[tuple[Any, ...], str]()
    weights = run.state.networks.state_dict().items()
    return {name: first.setdefault((w.data_ptr(), w.shape, w.stride()) if w.numel() else (name,), name) for name, w in weights}


def split(snapshot: Snapshot, name: str, run: Run) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The snapshot's tensors, by names that begin with `name`, and its plain facts."""
    twice = {f"{name}.networks.{alias}" for alias, first in first_names(run).items() if alias != first}
    groups = snapshot["optimizer"]["param_groups"]
    snapshot = snapshot | {"optimizer": snapshot["optimizer"]["state"]}
    facts = {
        "t": snapshot["t"],
        "done": snapshot["progress"]["done"],
        "rates": [[float(group["lr"]), *group["betas"]] for group in groups],  # what of a group follows the epoch
    }
    return {way: tensor for way, tensor in named(snapshot, name) if way not in twice}, facts


def joined(facts: Any, name: str, source: Source, like: Snapshot, run: Run) -> Snapshot:
    """The snapshot that was `split`, every part of it as in `like`, a fresh one, but for the optimizer's memory and the epoch under way."""
    require(isinstance(facts, dict) and facts.keys() == {"t", "done", "rates"}, f"{name} has other facts")
    t, done, rates = facts["t"], facts["done"], facts["rates"]
    require(type(t) is int and 0 <= t <= run.task.epochs, f"{name}.t is out of range")
    firsts = first_names(run)
    weights = {first: filled(like["networks"][first], f"{name}.networks.{first}", source) for first in dict.fromkeys(firsts.values())}
    order, draws = filled(like["order"], f"{name}.order", source), filled(like["draws"], f"{name}.draws", source)
    check_random(order, draws, run.task.device)
    losses = like["progress"]["losses"]
    progress = filled(like["progress"] | {"rows": None}, f"{name}.progress", source) | {"rows": rows_of(name, source, run), "done": done}
    most = len(losses) if progress["rows"] is None else len(batch_sizes(len(progress["rows"]), run.task.batch_size))
    require(type(done) is int and 0 <= done <= most, f"{name}.done is out of range")
    return {
        "networks": {alias: weights[first] for alias, first in firsts.items()},
        "optimizer": {"state": moments(name, source, run), "param_groups": groups_with(rates, like, f"{name}.rates")},
        "memory": filled(like["memory"], f"{name}.memory", source),
        "order": order,
        "draws": draws,
        "progress": progress,
        "t": t,
    }


def check_random(order: Tensor, draws: list[list[Tensor]], device: torch.device) -> None:
    """RuntimeError for bytes that no generator can be in: better before anything is taken than in the middle of it."""
    torch.Generator().set_state(order)
    for states in draws:
        for state, generator in zip(states, generators(device), strict=True):
            generator.set_state(state)


def moments(name: str, source: Source, run: Run) -> dict[int, dict[str, Tensor]]:
    """Adam's, laid out as their weight: with other strides its fused kernel computes wrong numbers without a word."""
    found = dict[int, dict[str, Tensor]]()
    for number, weight in enumerate(run.state.networks.parameters()):
        if f"{name}.optimizer.{number}.step" in source.left:
            like = {kind: torch.zeros(()) if kind == "step" else weight.detach() for kind in MOMENTS}
            found[number] = filled(like, f"{name}.optimizer.{number}", source)
            require(float(found[number]["step"]) >= 0, f"{name}.optimizer.{number} has a negative step")
    return found


def groups_with(rates: Any, like: Snapshot, name: str) -> list[dict[str, Any]]:
    """The optimizer's groups with the rates of the epoch under way."""
    fresh = like["optimizer"]["param_groups"]
    require(isinstance(rates, list) and len(rates) == len(fresh), f"{name} are of another length")
    for rate in rates:
        fits = isinstance(rate, list) and len(rate) == 3 and all(type(number) is float and math.isfinite(number) for number in rate)
        require(fits, f"{name} are not rates")
    return [
        {**group, "lr": torch.full_like(group["lr"], lr) if isinstance(group["lr"], Tensor) else lr, "betas": (beta1, beta2)}
        for group, (lr, beta1, beta2) in zip(fresh, rates, strict=True)
    ]


def rows_of(name: str, source: Source, run: Run) -> Tensor | None:
    """In the order of the epoch under way; None between epochs."""
    way, n = f"{name}.progress.rows", len(run.task.y)
    if way not in source.left:
        return None
    rows = source.look(way)
    require(rows.dtype == torch.int64 and rows.ndim == 1 and 0 < len(rows) <= n, f"{way} are not rows")
    rows = source.take(way, rows)
    require(int(rows.min()) >= 0 and int(rows.max()) < n and len(rows.unique()) == len(rows), f"{way} are not rows")
    return rows


Warmup = dict[int, tuple[float, Snapshot | None]]


def split_warmup(run: Run) -> tuple[dict[str, Tensor], list[Any]]:
    """Of a search for a field: its scores, and the snapshots that it may go back to."""
    tensors, facts = dict[str, Tensor](), []
    for epoch, (score, snapshot) in run.state.warmup.items():
        mine, fact = ({}, None) if snapshot is None else split(snapshot, f"warmup.{epoch}", run)
        tensors |= mine
        facts.append([epoch, score, fact])
    return tensors, facts


def join_warmup(facts: Any, source: Source, like: Snapshot, run: Run, method: Method, state: Snapshot) -> Warmup:
    """As long as the state has epochs: a score for each, a snapshot of the one that would be taken now, and the beginning."""
    search, t = search_of(method, run.task.epochs), state["t"]
    held = None if search is None or search.longest < 2 else held_out(run.task)
    searched = range(1, t + 1 if held is not None else 1)
    begun = held is not None and (t > 0 or state["progress"]["rows"] is not None)
    fits = isinstance(facts, list) and all(isinstance(part, list) and len(part) == 3 for part in facts)
    require(fits and [part[0] for part in facts] == [*([0] if begun else []), *searched], "warmup is of other epochs")
    found: Warmup = {}
    for epoch, score, fact in facts:
        require(type(score) is float and 0 <= score <= 1, "warmup holds a score outside 0 to 1")
        snapshot = None if fact is None else joined(fact, f"warmup.{epoch}", source, like if epoch else like | {"memory": {}}, run)
        require(snapshot is None or (snapshot["t"] == epoch and snapshot["progress"]["rows"] is None), "warmup holds another epoch")
        found[epoch] = score, snapshot
    require(not begun or found[0][1] is not None, "warmup lacks the beginning")
    if search is not None and held is not None and t:
        require(found[first_of(found, search, int(held.sum()))][1] is not None, "warmup lacks the best epoch")
    return found


def read_method(given: Any, run: Run) -> Method:
    """The method of the config; what it searches for perhaps found."""
    method = run.state.method
    search = search_of(method, run.task.epochs)
    wanted: dict[str, Any] = json.loads(json.dumps(asdict(method)))  # type: ignore[call-overload]
    if search is not None and isinstance(given, dict) and given.get(search.field) != "auto":
        wanted[search.field] = given.get(search.field)
    require(given == wanted, "method is not that of the config")
    try:
        method = replace(method, **read_fields(type(method), "method", wanted))  # type: ignore[type-var]
        method.init(run.task.y, run.task.num_classes, run.task.epochs)
    except InputError as error:
        raise Unreadable(str(error)) from error
    return method


def check_stepper(given: Any, run: Run) -> None:
    steppers: tuple[str, ...] = ("eager", "captured", "compiled") if run.task.device.type == "cuda" else ("eager",)
    steppers = steppers if run.task.ranks.count == 1 else (run.state.stepper.name,)
    require(type(given) is str and given in steppers, "stepper is not one of this device")


def check_rows(given: Any, t: int, run: Run) -> None:
    require(isinstance(given, list) and len(given) == t, "rows are of other epochs")
    needed = {"epoch", "loss", "chosen"}
    needed |= {name for name, value in run.state.memory.items() if value.ndim == 0 and not value.isnan()}
    if run.x_test is not None:
        needed.add("test_accuracy")
    if run.data.clean is not None:
        needed.add("recall")
    for number, row in enumerate(given, 1):
        require(isinstance(row, dict) and row.keys() >= needed, "rows are not metrics")
        require(all(type(value) in (int, float) for value in row.values()), "rows are not metrics")
        require(row["epoch"] == number, "rows are of other epochs")
