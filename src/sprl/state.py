"""What a run trains on, and all that changes while it trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from sprl.core import Memory, Method
from sprl.data.rows import Rows
from sprl.draws import Draws
from sprl.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from sprl.stepping import Due, Stepper

OptimizerFactory = Callable[..., torch.optim.Optimizer]  # (parameters, lr=...)
Precision = Literal["fp32", "bf16"]


def adam(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Adam in one kernel for all weights; on a GPU its rate is a tensor, so that a captured step follows the schedule."""
    parameters = list(parameters)
    on_gpu = any(p.device.type == "cuda" for p in parameters)
    rate: Any = torch.tensor(lr, device=parameters[0].device) if on_gpu else lr
    return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=on_gpu)


def unchanged(x: Tensor) -> Tensor:
    return x


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
    schedule: str = "published"  # of the learning rate and beta1; released: as in the authors' code, one epoch late
    augment: Callable[[Tensor], Tensor] = unchanged
    optimizer: OptimizerFactory = adam
    precision: Precision = "fp32"  # of the networks' arithmetic; weights, losses and memory stay fp32
    channels_last: bool = False  # weights and activations of pictures as [B, H, W, C] in memory
    half_memory: bool = False  # previous predictions kept in 16 bits
    ranks: Ranks = ALONE  # the processes that train it

    @property
    def device(self) -> torch.device:
        return self.x.device


@dataclass
class Progress:
    """The epoch under way. Its tensors stay where they are: a captured step writes to them."""

    at: Tensor  # 0-d: the number of the next batch, `done` as the device knows it
    losses: Tensor  # [batches]
    chosen: Tensor  # [N] bool: rows whose labels were trained on
    rows: Tensor | None = None  # in this epoch's order; None between epochs
    done: int = 0  # batches

    @classmethod
    def of(cls, n: int, batch_size: int, device: torch.device) -> Progress:
        return cls(
            at=torch.zeros((), dtype=torch.int64, device=device),
            losses=torch.zeros(n // batch_size + 1, device=device),
            chosen=torch.zeros(n, dtype=torch.bool, device=device),
        )

    def begin(self, rows: Tensor) -> None:
        self.rows, self.done = rows, 0
        for tensor in (self.at, self.losses, self.chosen):
            tensor.zero_()

    def saved(self) -> dict[str, Any]:
        return {"rows": self.rows, "done": self.done, "losses": self.losses, "chosen": self.chosen}

    def load(self, saved: dict[str, Any]) -> None:
        self.rows, self.done = saved["rows"], saved["done"]
        if self.rows is not None:
            self.rows = self.rows.to(self.at.device)
        self.at.fill_(self.done)
        self.losses.copy_(saved["losses"])
        self.chosen.copy_(saved["chosen"])


@dataclass
class State:
    """All that changes while a run trains."""

    method: Method
    networks: nn.ModuleList
    optimizer: torch.optim.Optimizer
    memory: Memory
    order: torch.Generator  # of the samples within an epoch
    draws: Draws  # augmentation and dropout
    stepper: Stepper
    progress: Progress
    t: int = 0  # epochs done
    warmup: dict[int, tuple[float, dict[str, Any] | None]] = field(default_factory=dict)
    """What a method searches for (search.py), such as T1: each epoch's score on the held-out rows and, where it may still be taken, its
    snapshot; 0: the beginning, which the run proper may go back to."""
    host: Memory = field(default_factory=dict)
    """Tables of `memory` that are too large for the GPU, as the host sees them."""
    launch: Callable[[Due], None] = methodcaller("replay")  # a captured step: at once


def contents(state: State) -> dict[str, Any]:
    """All that changes, as it is now, but for a search, which holds snapshots itself."""
    if state.host:
        torch.cuda.synchronize()
    return {
        "networks": state.networks.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "memory": {**state.memory, **state.host},
        "order": state.order.get_state(),
        "draws": state.draws.state(),
        "progress": state.progress.saved(),
        "t": state.t,
    }


def snapshot(state: State) -> dict[str, Any]:
    """A copy to go back to, in the host's memory, which has more room than a GPU's."""
    return copied(contents(state))


def beginning(state: State) -> dict[str, Any]:
    """A snapshot before the first epoch, when there is nothing to remember: without the memory, which may be large."""
    return copied(contents(state) | {"memory": {}})


def copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return type(value)(copied(item) for item in value) if isinstance(value, list | tuple) else value


def restore(state: State, saved: dict[str, Any]) -> None:
    """Bring `state` back to the snapshot, which may lie on another device."""
    device = state.progress.at.device
    if state.host:
        torch.cuda.synchronize()
    state.networks.load_state_dict(saved["networks"])
    state.optimizer.load_state_dict(saved["optimizer"])
    for group in state.optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].to(device)
    for name, tensor in saved["memory"].items():
        state.host.get(name, state.memory[name]).copy_(tensor)
    state.order.set_state(saved["order"].cpu())
    state.draws.load(saved["draws"])
    state.progress.load(saved["progress"])
    state.t = saved["t"]
    state.stepper.forget()
