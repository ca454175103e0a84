"""How a training step is run: as it is written, or captured once as a CUDA graph and replayed, its forward pass compiled if asked."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sprl import convolution
from sprl.core import Batch, Memory, Method, Step
from sprl.errors import InputError, SprlWarning
from sprl.labels import Seen, record, see
from sprl.networks import logits_of, pixels_to_float
from sprl.ranks import Ranks, in_parallel
from sprl.seeds import stream_seed
from sprl.state import Precision, State, Task, restore, snapshot


class Stepper(Protocol):
    @property
    def name(self) -> str: ...

    def __call__(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> None:
        """Train on the rows `index` [B]; `raw`: their values where they are streamed, None: task.x holds them."""

    def forget(self) -> None:
        """`state` was brought back to a snapshot: its tensors may be others now."""


def arithmetic(precision: Precision, device: torch.device) -> torch.autocast:
    """bf16 autocast, or nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """On a GPU: it is the current one, fp32 convolutions use TF32, and cuDNN times its algorithms on each new shape, unless it is to be
    deterministic: another process may find another one the fastest."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    fixed = cudnn.deterministic
    with torch.cuda.device(device), cudnn.flags(enabled=True, benchmark=not fixed, deterministic=fixed, allow_tf32=True):
        yield


def forward(
    networks: nn.ModuleList,
    method: Method,
    augment: Callable[[Tensor], Tensor],
    precision: Precision,
    raw: Tensor,
    index: Tensor,
    y: Tensor,
    memory: Memory,
) -> tuple[Step, Seen]:
    """From rows as they are stored to the method's loss and what is to be recorded: what can be compiled."""
    x = augment(pixels_to_float(raw))
    with arithmetic(precision, raw.device):
        logits = logits_of(networks, x).float()
    return method.step(logits, Batch(index, y), memory), see(logits, y)


def train_step(task: Task, state: State, index: Tensor, raw: Tensor | None, forward: Callable[..., tuple[Step, Seen]]) -> None:
    """One step, in place and without a word to the host: all it changes are tensors of `state` that stay where they are."""
    raw = task.x[index] if raw is None else raw
    y = task.y[index]
    step, seen = forward(state.networks, state.method, task.augment, task.precision, raw, index, y, state.memory)
    check_step(step, len(state.networks), len(index))
    state.optimizer.zero_grad(set_to_none=True)
    step.loss.backward()
    convolution.join()
    update(state.optimizer, step.idle)
    record(state.memory, seen, index)
    for name, value in (step.changes or {}).items():
        state.memory[name].copy_(value)
    progress = state.progress
    progress.chosen[index] = step.chosen.any(0)
    progress.losses.index_copy_(0, progress.at.view(1), step.loss.detach().view(1))
    progress.at += 1


def check_step(step: Step, networks: int, rows: int) -> None:
    """InputError where a method of one's own returns something else. Once a batch, so that nothing is put into words in vain."""
    if not isinstance(step, Step):
        raise InputError(f"a method's `step` must return Step(loss, chosen), got a {type(step).__name__}")
    loss, chosen = step.loss, step.chosen
    if loss.ndim or not loss.requires_grad:
        raise InputError("the loss of a method's `step` must be one number, computed from the logits")
    if chosen.dtype != torch.bool or chosen.shape != (networks, rows):
        got = f"{chosen.dtype} {list(chosen.shape)}"
        raise InputError(f"`chosen` of a method's `step` must be bool [M, B], here {[networks, rows]}; got {got}")


def update(optimizer: torch.optim.Optimizer, idle: Tensor | None) -> None:
    """The optimizer's step, unless the batch is idle: even with a gradient of zero, momentum would move the weights."""
    if idle is None or idle.device.type == "cpu" or not optimizer.defaults.get("fused"):
        if idle is None or not idle:
            optimizer.step()
        return
    optimizer.found_inf = idle.float()  # type: ignore[attr-defined]  # fused ones leave out such a step on the GPU, unseen by the host
    optimizer.step()
    del optimizer.found_inf  # type: ignore[attr-defined]


class Shared:
    """Steps of which each of several processes computes its share (ranks.py), as they are written."""

    name = "shared"

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.parallel: nn.Module | None = None

    def __call__(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> None:
        part = task.x[self.ranks.mine(index)] if raw is None else raw
        train_step(task, state, index, part, lambda *_: self.forward(task, state, index, part))

    def forward(self, task: Task, state: State, index: Tensor, part: Tensor) -> tuple[Step, Seen]:
        """As `forward`, of which `part` is this rank's share of the batch."""
        self.parallel = self.parallel or in_parallel(state.networks)
        x, y = task.augment(pixels_to_float(part)), task.y[index]
        with arithmetic(task.precision, part.device):
            own = self.parallel(x).float()
        logits = self.ranks.whole(own, len(index))
        with torch.random.fork_rng([part.device] if part.device.type == "cuda" else []):
            # the same on all ranks, whose networks and augmentation draw from streams of their own
            torch.manual_seed(stream_seed(task.seed, "draws", self.ranks.count, state.t, state.progress.done))
            return state.method.step(logits, Batch(index, y), state.memory), see(logits, y)

    def forget(self) -> None:
        pass  # weights are brought back in place


class Eager:
    """Steps as they are written."""

    name = "eager"

    def __call__(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> None:
        train_step(task, state, index, raw, forward)

    def forget(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class Graph:
    """A captured step, and what it reads its batch from. All else that it reads belongs to the state, which must outlive it."""

    graph: torch.cuda.CUDAGraph
    index: Tensor
    raw: Tensor | None


@dataclass(frozen=True)
class Due:
    """A captured step whose batch is in place: all that is left is to launch it, at once or with those of other runs (joint.py)."""

    graph: Graph
    stepper: Captured
    task: Task
    state: State

    def replay(self) -> None:
        self.graph.graph.replay()

    def trace(self) -> None:
        """The same step as it is written, which is what was captured."""
        convolution.waiting.clear()  # of a step that failed
        with tuned(self.task.device):
            forward = self.stepper.forward_for(self.task, len(self.graph.index))
            train_step(self.task, self.state, self.graph.index, self.graph.raw, forward)


WARM = 3  # steps of a size before it is captured: cuDNN chooses its algorithms, the optimizer makes its state


class Captured:
    """Steps replayed as a CUDA graph: one launch instead of four hundred. The first few of each batch size run as they are written.

    A graph holds numbers fixed that are not tensors: beta1 changes once a run, and the step is then captured anew.
    If capture or compilation fails, the state is restored and the run goes on without, with a warning.
    """

    def __init__(self, device: torch.device | None = None, compiled: bool = False, free: bool = False) -> None:
        self.compiled = compiled
        self.free = free  # to be compiled later if that proves worth it
        self.graphs: dict[tuple[Any, ...], Graph] = {}
        self.seen = Counter[int]()
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()  # one for all: they never run at once

    @property
    def name(self) -> str:
        return "compiled" if self.compiled else "captured"

    def forget(self) -> None:
        self.graphs.clear()
        self.seen.clear()  # the optimizer may have to make its state again, which must not be captured

    def __call__(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> None:
        size = len(index)
        key = size, *(rates(group) for group in state.optimizer.param_groups)
        if key not in self.graphs:
            self.seen[size] += 1
            if self.seen[size] <= WARM:
                self.warm_up(task, state, index, raw)
                return
            try:
                self.graphs[key] = self.capture(task, state, index, raw)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a user's module cannot do in a graph
                warn("the step cannot be captured as a CUDA graph, so it runs without", error)
                state.stepper = Eager()
                state.stepper(task, state, index, raw)
                return
        found = self.graphs[key]
        found.index.copy_(index)
        if raw is not None and found.raw is not None:
            found.raw.copy_(raw)
        state.launch(Due(found, self, task, state))

    def warm_up(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> None:
        """A step as it is written, on the stream that captures."""
        first = self.compiled and len(index) == task.batch_size and self.seen[len(index)] == 1
        saved = snapshot(state) if first else {}
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        try:
            with torch.cuda.stream(self.stream):
                train_step(task, state, index, raw, self.forward_for(task, len(index)))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if not first:
                raise
            warn("no compilation here, so the step is captured as it is written", error)
            self.compiled = False
            restore(state, saved)
            self.warm_up(task, state, index, raw)
        here.wait_stream(self.stream)

    def capture(self, task: Task, state: State, index: Tensor, raw: Tensor | None) -> Graph:
        found = Graph(torch.cuda.CUDAGraph(), index.clone(), None if raw is None else raw.clone())
        saved = snapshot(state)
        state.optimizer.zero_grad(set_to_none=True)
        try:
            # threads that read rows ahead may go on meanwhile
            with torch.cuda.graph(found.graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                Due(found, self, task, state).trace()
        except BaseException:
            restore(state, saved)
            raise
        return found

    def forward_for(self, task: Task, size: int) -> Callable[..., tuple[Step, Seen]]:
        """Compiled for full batches; the last one of an epoch, of another size, is not worth the compiler's time."""
        return compiled_forward() if self.compiled and size == task.batch_size else forward


def find_stepper(device: torch.device, graph: bool | None, compile: bool | None, ours: bool) -> Stepper:
    """Captured graphs on a GPU for our own networks, others' only if asked: who knows what a module does beside its arithmetic."""
    if device.type != "cuda":
        for option, asked in (("--graph", graph), ("--compile", compile)):
            if asked:
                raise InputError(f"{option} is for GPUs; this run is on {device}")
        return Eager()
    if compile and graph is False:
        raise InputError("--compile goes with captured graphs: leave out --no-graph")
    if not (ours or compile if graph is None else graph):
        return Eager()
    return Captured(device, compiled=bool(compile), free=compile is None)


# Measured on an H200 (docs/speed.md): the share of a captured step that compilation saves, and what it costs at first, in seconds.
SAVING, COMPILATION = 0.2, 19.0


def consider_compiling(state: State, seconds_left: float) -> None:
    """Compile from here on if what that saves in the time that is left is more than twice what it costs."""
    stepper = state.stepper
    if isinstance(stepper, Captured) and stepper.free and SAVING * seconds_left > 2 * COMPILATION:
        state.stepper = Captured(stepper.stream.device, compiled=True)


def rates(group: dict[str, Any]) -> tuple[Any, ...]:
    """What a capture holds fixed of an optimizer's group."""
    return None if isinstance(group["lr"], Tensor) else group["lr"], group.get("betas")


@cache
def compiled_forward() -> Callable[..., tuple[Step, Seen]]:
    """`forward` compiled once for all runs of this process: weights and memory are its inputs, so runs of one shape share the code."""
    import torch._dynamo
    import torch._inductor

    torch._dynamo.config.recompile_limit = 64  # methods, networks and batch sizes of one process
    # many small kernels (casts, running statistics) in one launch: measured 5 % of ResNet18's step
    known = torch._inductor.list_options()
    return torch.compile(forward, dynamic=False, options={"combo_kernels": True} if "combo_kernels" in known else {})


def warn(what: str, error: Exception) -> None:
    reason = (str(error) or type(error).__name__).strip().splitlines()[0][:200]
    warnings.warn(f"{what} ({reason})", SprlWarning, stacklevel=4)
