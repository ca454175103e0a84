"""One epoch of training, and prediction, for any method and any number of networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sprl import schedules
from sprl.core import Batch, Clock, Memory, Method
from sprl.data.rows import Rows, fetch
from sprl.errors import InputError
from sprl.fields import checked
from sprl.labels import new_record, record
from sprl.networks import Factory, build
from sprl.seeds import stream_seed

OptimizerFactory = Callable[..., torch.optim.Optimizer]  # (parameters, lr=...)


@dataclass(frozen=True)
class Task:
    """What a run trains on and how: nothing here changes while it trains."""

    x: Rows  # [N, *shape], uint8 pixels or float features, on the device that trains or streamed to it
    y: Tensor  # [N] given labels
    num_classes: int
    epochs: int
    batch_size: int = 128
    lr: float = 1e-3
    seed: int = 0
    augment: Callable[[Tensor], Tensor] = lambda x: x
    optimizer: OptimizerFactory = torch.optim.Adam

    @property
    def device(self) -> torch.device:
        return self.x.device


@dataclass
class State:
    """All that changes while a run trains."""

    method: Method
    networks: nn.ModuleList
    optimizer: torch.optim.Optimizer
    memory: Memory
    order: torch.Generator  # of the samples within an epoch
    draws: list[Tensor]  # states of torch's default generators (CPU, CUDA): augmentation and dropout
    t: int = 0  # epochs done
    warmup: dict[int, tuple[float, dict[str, Any] | None]] = field(default_factory=dict)
    """The search for T1: each epoch's accuracy on the held-out rows and, where it may still be chosen, its snapshot."""


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


def start(task: Task, method: Method, network: str | nn.Module | Factory) -> State:
    """Networks with fresh weights, and empty memory."""
    method = checked(method)
    with private_draws([], task.device):
        torch.manual_seed(stream_seed(task.seed, "weights"))
        networks = build(network, tuple(task.x.shape[1:]), task.num_classes, method.networks).to(task.device)
        torch.manual_seed(stream_seed(task.seed, "draws"))
        draws = draw_states(task.device)
    return State(
        method=method,
        networks=networks,
        optimizer=task.optimizer(networks.parameters(), lr=task.lr),
        memory=new_record(len(task.y), task.num_classes, task.device) | method.init(task.y, task.num_classes, task.epochs),
        order=torch.Generator().manual_seed(stream_seed(task.seed, "batches")),
        draws=draws,
    )


def batches(rows: Tensor, batch_size: int, order: torch.Generator) -> tuple[Tensor, ...]:
    """`rows` shuffled into ceil(n / batch_size) batches of nearly equal size. None holds a single row: that breaks batch norm."""
    n = len(rows)
    count = max(1, min(-(-n // batch_size), n // 2))
    return rows[torch.randperm(n, generator=order).to(rows.device)].tensor_split(count)


def run_epoch(task: Task, state: State, rows: Tensor | None = None) -> Epoch:
    """Train epoch state.t + 1 on all rows, or on those given."""
    method, memory, clock = state.method, state.memory, Clock(state.t + 1, task.epochs)
    rows = torch.arange(len(task.y), device=task.device) if rows is None else rows
    set_rates(state.optimizer, clock, task.lr)
    memory |= method.refresh(memory, task.y, clock, lambda: predict(state.networks, task.x))

    chosen = torch.zeros(len(task.y), dtype=torch.bool, device=task.device)
    loss = torch.zeros((), device=task.device)
    state.networks.train()
    with private_draws(state.draws, task.device):
        parts = batches(rows, task.batch_size, state.order)
        for index, raw in zip(parts, fetch(task.x, parts), strict=True):
            x = task.augment(pixels_to_float(raw))
            logits = torch.stack([network(x) for network in state.networks])
            batch = Batch(index, task.y[index])
            step = method.step(logits, batch, memory)
            state.optimizer.zero_grad(set_to_none=True)
            step.loss.backward()
            state.optimizer.step()
            record(memory, logits, batch)
            chosen[index] = step.chosen.any(0)
            loss += step.loss.detach() * len(index)
        state.draws = draw_states(task.device)
    facts = {name: value.item() for name, value in memory.items() if value.ndim == 0 and not value.isnan()}
    mean_loss = loss.item() / len(rows)
    if not math.isfinite(mean_loss):
        raise InputError(f"the loss of epoch {clock.t} is {mean_loss}: a smaller learning rate or gamma_d may help")
    state.t = clock.t  # last: an epoch that was broken off is done again
    return Epoch(state.t, mean_loss, chosen, facts)


def visit_unseen(task: Task, state: State) -> None:
    """Record a prediction in evaluation mode for the rows that no epoch has visited."""
    rows = (state.memory["visits"] == 0).nonzero().squeeze(1)
    if len(rows):
        record(state.memory, predict_logits(state.networks, task.x, rows), Batch(rows, task.y[rows]))


def set_rates(optimizer: torch.optim.Optimizer, clock: Clock, lr: float) -> None:
    """Learning rate and, for optimizers of Adam's kind, beta1 of this epoch."""
    for group in optimizer.param_groups:
        group["lr"] = schedules.learning_rate(clock.t, lr=lr, T=clock.T)
        if "betas" in group:
            group["betas"] = (schedules.adam_beta1(clock.t, T=clock.T), group["betas"][1])


def predict(networks: nn.ModuleList, x: Rows, rows: Tensor | None = None) -> Tensor:
    """Probabilities [N, C] of all rows, or of those given, in evaluation mode, the mean over networks."""
    return predict_logits(networks, x, rows).float().softmax(-1).mean(0)


@torch.no_grad()
def predict_logits(networks: nn.ModuleList, x: Rows, rows: Tensor | None = None, batch_size: int = 1024) -> Tensor:
    """Logits [M, N, C] in evaluation mode."""
    was_training = networks.training
    networks.eval()
    rows = torch.arange(len(x), device=x.device) if rows is None else rows
    # large pictures in smaller batches, so that what a network makes of them fits too
    parts = rows.split(max(16, min(batch_size, batch_size * 3 * 32 * 32 // math.prod(x.shape[1:]))))
    logits = torch.empty(0, device=x.device)
    done = 0
    for part in fetch(x, parts):
        found = torch.stack([network(pixels_to_float(part)) for network in networks])
        if not done:  # all at once: what is kept of each batch would else lie scattered between what is freed
            logits = found.new_empty(len(networks), len(rows), found.shape[-1])
        logits[:, done : done + len(part)] = found
        done += len(part)
    networks.train(was_training)
    return logits


def pixels_to_float(x: Tensor) -> Tensor:
    """Pixels from uint8 to [0, 1]; features as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def snapshot(state: State) -> dict[str, Any]:
    """A copy of all that changes, to go back to."""
    return copy.deepcopy(
        {
            "networks": state.networks.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "memory": state.memory,
            "order": state.order.get_state(),
            "draws": state.draws,
            "t": state.t,
        }
    )


def restore(state: State, saved: dict[str, Any]) -> None:
    """Bring `state` back to the snapshot, which it then owns."""
    state.networks.load_state_dict(saved["networks"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.order.set_state(saved["order"])
    state.memory, state.draws, state.t = saved["memory"], saved["draws"], saved["t"]


def draw_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@contextmanager
def private_draws(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Run with torch's default generators at `states`, and give the caller's back after."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for setter, saved in zip((torch.set_rng_state, lambda s: torch.cuda.set_rng_state(s, device)), states, strict=False):
            setter(saved)
        yield
