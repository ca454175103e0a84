"""One epoch of training, and prediction, for any method and any number of networks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from sprl import labels, schedules
from sprl.core import Clock, Memory, Method
from sprl.data.rows import Rows, Streamed, fetch
from sprl.draws import Draws
from sprl.errors import InputError, ensure, pick
from sprl.fields import checked
from sprl.labels import as_labels, new_record, record, see
from sprl.networks import Factory, build, logits_of, pixels_to_float
from sprl.ranks import ALONE, Ranks
from sprl.search import search_of
from sprl.seeds import stream_seed
from sprl.state import Precision, Progress, State, Task
from sprl.stepping import Eager, Stepper, arithmetic, tuned
from sprl.tables import place_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Epoch:
    """What one epoch did. `chosen` [N]: the rows whose labels it trained on; `facts`: the method's scalars, such as gamma, once known."""

    t: int
    loss: float
    chosen: Tensor
    facts: dict[str, float]

    def row(self) -> dict[str, Any]:
        """As a row of metrics, `chosen` as the share of all."""
        return {"epoch": self.t, "loss": self.loss, "chosen": self.chosen.float().mean().item(), **self.facts}


def start(task: Task, method: Method, network: str | nn.Module | Factory, stepper: Stepper | None = None) -> State:
    """Networks with fresh weights, and empty memory."""
    check(task, method)
    method = checked(method)
    n, device = len(task.y), task.device
    with Draws(device, [stream_seed(task.seed, "weights")] * task.ranks.count, task.ranks).lent():
        networks = build(network, tuple(task.x.shape[1:]), task.num_classes, method.networks).to(device)
    networks = task.ranks.prepared(networks)
    if task.channels_last and len(task.x.shape) == 4:
        networks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    previous, host = place_table((n, task.num_classes), device, half=task.half_memory)
    ensure(any(p.requires_grad for p in networks.parameters()), "the network has no weights to train: requires_grad is False for all")
    optimizer = task.optimizer(networks.parameters(), lr=task.lr)
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise InputError(f"{type(optimizer).__name__} needs a closure, which evaluates a batch again and again: take an optimizer without")
    for group in optimizer.param_groups:
        own = float(group["lr"])
        if not math.isclose(own, task.lr, rel_tol=1e-6):  # a tensor's is rounded
            group["initial_lr"] = own  # as PyTorch's schedulers have it: the schedule then goes from there
    return State(
        method=method,
        networks=networks,
        optimizer=optimizer,
        memory=joined(new_record(previous), method.init(task.y, task.num_classes, task.epochs)),
        order=torch.Generator().manual_seed(stream_seed(task.seed, "batches")),
        draws=Draws(device, [stream_seed(task.seed, "draws", *([rank] if rank else [])) for rank in range(task.ranks.count)], task.ranks),
        stepper=stepper or Eager(),
        progress=Progress.of(n, task.batch_size, device),
        host={} if host is None else {"previous": host},
    )


def check(task: Task, method: Method) -> None:
    """InputError where they are not what training takes."""
    x, y = task.x, task.y
    if not isinstance(x, Tensor | Streamed):
        told = "torch.as_tensor makes one of an array, NoisyLabelClassifier takes arrays and Datasets"
        raise InputError(f"the x of a Task must be a tensor of rows, got {type(x).__name__}: {told}")
    if not isinstance(y, Tensor) or y.dtype != torch.int64 or y.shape != (len(x),):
        got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"the y of a Task must be an int64 tensor of {len(x)} labels, one a row, got {got}")
    as_labels(y, task.num_classes)
    for name in ("epochs", "batch_size"):
        value = getattr(task, name)
        ensure(type(value) is int and value >= 1, f"the {name} of a Task must be a whole number from 1 on, got {value!r}")
    pick("precision", task.precision, get_args(Precision))
    pick("schedule", task.schedule, schedules.SCHEDULES)
    ensure(callable(task.augment), f"augment must be a function on a batch of pictures, got {task.augment!r}")
    given = task.optimizer
    told = f"a {type(given).__name__} that was made already" if isinstance(given, torch.optim.Optimizer) else repr(given)
    ensure(callable(given), f"the optimizer must be a class such as torch.optim.SGD, or a function (parameters, lr=...), got {told}")
    if isinstance(method, type) or not is_dataclass(method):
        raise InputError(f"start takes a method with its fields, such as SPRL(T1=3), got {method!r}; by name: METHODS['sprl']()")


def joined(recorded: Memory, own: Memory) -> Memory:
    """The memory of a run: what is recorded for every method, and the method's own."""
    fits = isinstance(own, dict) and all(isinstance(value, Tensor) for value in own.values())
    ensure(fits, "a method's `init` must return a dict of tensors, {} if it remembers nothing")
    taken = sorted(recorded.keys() & own.keys())
    ensure(not taken, f"a method's memory must not be named {', '.join(taken)}: what is recorded of every sample is; take another name")
    return recorded | own


def batch_sizes(n: int, batch_size: int) -> list[int]:
    """Full batches; the rest is one of its own from half a batch on, else it joins the last. So at most one is of another size, and none
    so small that batch norm breaks."""
    full, rest = divmod(n, batch_size)
    if not full or (rest > 1 and 2 * rest >= batch_size):
        return [batch_size] * full + [rest]
    return [batch_size] * (full - 1) + [batch_size + rest]


def batches_of(rows: Tensor, batch_size: int, done: int = 0) -> Iterator[Tensor]:
    """The batches that are left of an epoch's rows; one at a time, since runs that take turns come back here often."""
    sizes = batch_sizes(len(rows), batch_size)
    return (rows[i * batch_size : i * batch_size + sizes[i]] for i in range(done, len(sizes)))


def with_values(task: Task, parts: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Each batch with the values of this rank's share of its rows where they are streamed; None where they are on the device, for the step
    to look up itself."""
    if not isinstance(task.x, Streamed):
        return ((part, None) for part in parts)
    listed = list(parts)
    values = task.x.fetch([task.ranks.mine(part) for part in listed])  # read ahead; nothing is read where nothing is left
    return zip(listed, values, strict=False)


def batches_left(task: Task, state: State) -> int:
    """Of the epoch under way; 0 where all that is left is to end it."""
    progress = state.progress
    return 0 if progress.rows is None else len(batch_sizes(len(progress.rows), task.batch_size)) - progress.done


def never() -> bool:
    return False


def run_epoch(task: Task, state: State, rows: Tensor | None = None, pause: Callable[[], bool] = never) -> Epoch | None:
    """Train epoch state.t + 1 on all rows, or on those given. None: it was paused after a batch; another call goes on there.

    What a method finds out for itself, such as T1="auto", is found by `train`.
    """
    progress = state.progress
    if progress.rows is None:
        ensure(state.t < task.epochs, f"all {task.epochs} epochs of this task are over")
        if rows is None and (search := search_of(state.method, task.epochs)) is not None:
            raise InputError(f'{search.field}="auto" is found by `train`: use that, or give {search.field} a value')
        begin_epoch(task, state, rows)
    assert progress.rows is not None
    left = batches_of(progress.rows, task.batch_size, progress.done)
    state.networks.train()
    with state.draws.lent(), tuned(task.device):
        for index, raw in with_values(task, left):
            state.stepper(task, state, index, raw)
            progress.done += 1
            if pause():
                state.draws.share()
                return None
    return end_epoch(task, state)


def begin_epoch(task: Task, state: State, rows: Tensor | None) -> None:
    """Set the rates, let the method choose, put the rows into this epoch's order."""
    clock = Clock(state.t + 1, task.epochs)
    late = task.schedule == "released"  # that code sets them after each epoch
    set_rates(state.optimizer, Clock(clock.t - late, clock.T), task.lr)
    changes = state.method.refresh(state.memory, task.y, clock, lambda: predict_with(task, state.networks))
    for name, value in changes.items():
        ensure(name in state.memory, f"a method's `refresh` returned {name!r}, which its `init` did not make")
        state.memory[name].copy_(value)  # in place: a captured step reads it there
    task.ranks.align(state.memory[name] for name in changes)
    n = len(task.y) if rows is None else len(rows)
    order = torch.randperm(n, generator=state.order).to(task.device)
    state.progress.begin(order if rows is None else rows[order])


def end_epoch(task: Task, state: State) -> Epoch:
    """The only place of an epoch where the host waits for the device."""
    progress = state.progress
    assert progress.rows is not None
    check_losses(task, state)
    sizes = torch.tensor(batch_sizes(len(progress.rows), task.batch_size), dtype=torch.float64)
    loss = (progress.losses[: progress.done].double().cpu() @ sizes / sizes.sum()).item()
    names = [name for name, value in state.memory.items() if value.ndim == 0]
    values = torch.stack([state.memory[name].double() for name in names]).tolist() if names else []
    facts = {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}
    state.draws.share()
    state.t += 1  # last: an epoch that was broken off is done again
    progress.rows = None
    return Epoch(state.t, loss, progress.chosen.clone(), facts)


def check_losses(task: Task, state: State) -> None:
    """InputError if the loss of a batch of this epoch was not finite."""
    progress = state.progress
    losses = progress.losses[: progress.done].cpu()
    wrong = (~losses.isfinite()).nonzero()
    if len(wrong):
        batch = int(wrong[0])
        check_rows(task, state, batch)
        count = len(batch_sizes(len(task.y) if progress.rows is None else len(progress.rows), task.batch_size))
        raise InputError(
            f"the loss of epoch {state.t + 1}, batch {batch + 1} of {count}, is {losses[batch].item()}: most likely a learning rate of "
            f"{task.lr:g} is too high, or a weight among the method's settings"
        )


def check_rows(task: Task, state: State, batch: int) -> None:
    """InputError if values of this batch's rows are what is not finite."""
    rows, x = state.progress.rows, task.x
    if rows is None or not isinstance(x, Tensor):
        return
    index = rows[batch * task.batch_size : (batch + 2) * task.batch_size]  # the last one may be longer
    bad = index[~x[index].flatten(1).isfinite().all(1)]
    if len(bad):
        raise InputError(f"row {int(bad.min())} of x holds NaN or infinite values: leave it out, or fill them in")


def visit_unseen(task: Task, state: State) -> None:
    """Record a prediction in evaluation mode for the rows that no epoch has visited."""
    rows = (state.memory["visits"] == 0).nonzero().squeeze(1)
    if len(rows):
        logits = predict_logits(state.networks, task.x, rows, precision=task.precision, ranks=task.ranks)
        record(state.memory, see(logits, task.y[rows]), rows)


def label_issues(task: Task, state: State, classes: Iterable[Any] | None = None) -> pd.DataFrame:
    """A row for each row of the task: `is_label_issue, label_quality, wrong_probability, given_label, predicted_label, confidence`."""
    visit_unseen(task, state)  # rows that were held out when it was stopped
    return labels.label_issues(state.memory, task.y, classes)


def set_rates(optimizer: torch.optim.Optimizer, clock: Clock, lr: float) -> None:
    """Learning rate and, for optimizers of Adam's kind, beta1 of this epoch."""
    for group in optimizer.param_groups:
        rate = schedules.learning_rate(clock.t, lr=group.get("initial_lr", lr), T=clock.T)
        group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        if "betas" in group:
            group["betas"] = (schedules.adam_beta1(clock.t, T=clock.T), group["betas"][1])


def predict(networks: nn.Module, x: Rows, rows: Tensor | None = None, precision: Precision = "fp32") -> Tensor:
    """Probabilities [N, C] of all rows, or of those given, in evaluation mode: of a network, or the mean over a ModuleList of several."""
    ensure(isinstance(x, Tensor | Streamed), f"predict takes a tensor of rows, got {type(x).__name__}: torch.as_tensor makes one")
    several = networks if isinstance(networks, nn.ModuleList) else nn.ModuleList([networks])
    return predict_logits(several, x, rows, precision, keep=probabilities).squeeze(0)


def predict_with(task: Task, networks: nn.ModuleList, rows: Tensor | None = None) -> Tensor:
    """The same of the rows that a run trains on, by all who train it."""
    return predict_logits(networks, task.x, rows, task.precision, ranks=task.ranks, keep=probabilities).squeeze(0)


def probabilities(logits: Tensor) -> Tensor:
    """The mean over networks. [M, B, C] -> [1, B, C]"""
    return logits.softmax(-1).mean(0, keepdim=True)


def predicted(logits: Tensor) -> Tensor:
    """The likeliest class. [M, B, C] -> [1, B, 1]"""
    return probabilities(logits).argmax(-1, keepdim=True)


@torch.no_grad()
def predict_logits(
    networks: nn.ModuleList,
    x: Rows,
    rows: Tensor | None = None,
    precision: Precision = "fp32",
    ranks: Ranks = ALONE,
    keep: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> Tensor:
    """Logits [M, N, C] in evaluation mode, or what is to be kept of those of each part; each rank computes its share."""
    every = torch.arange(len(x), device=x.device) if rows is None else rows
    ranks.align(networks.buffers())
    ranks = ranks if len(every) >= ranks.count else ALONE  # too few to share
    rows = ranks.mine(every)
    parts = rows.split(at_once(x))
    logits = torch.empty(0, device=x.device)
    done = 0
    with evaluating(networks):
        for part in fetch(x, parts):
            with arithmetic(precision, x.device):
                found = keep(logits_of(networks, pixels_to_float(part)).float())
            if not done:  # all at once: what is kept of each batch would else lie scattered between what is freed
                logits = found.new_empty(len(found), len(rows), found.shape[-1])
            logits[:, done : done + len(part)] = found
            done += len(part)
    return ranks.whole(logits, len(every))


def at_once(x: Rows) -> int:
    """How many rows to predict at a time. What a network makes of large pictures must fit too. On a CPU it should be so little that the C
    library does not give the memory back to the kernel each time (docs/speed.md)."""
    if x.device.type == "cpu" and len(x.shape) == 4:
        return max(8, 32 * 32 * 32 // math.prod(x.shape[2:]))
    return max(16, min(1024, 1024 * 3 * 32 * 32 // math.prod(x.shape[1:])))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode; afterwards each part is in the mode that it was in, which need not be that of the whole."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
