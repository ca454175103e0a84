"""On a GPU: captured steps equal eager ones, failures are survived, runs side by side are those alone. Skipped where there is none."""

import copy
import warnings
from dataclasses import dataclass, replace

import pytest
import torch
from conftest import clusters
from torch import nn

from sprl import checkpoint, stepping, tables
from sprl.config import Config, needs_rate
from sprl.data.rows import Streamed
from sprl.engine import run_epoch, start
from sprl.errors import SprlWarning
from sprl.joint import Joint
from sprl.methods import METHODS, SPRL, CoTeaching, MentorNet, Standard, sprl
from sprl.noise import corrupt
from sprl.run import prepare
from sprl.state import Task, restore, snapshot
from sprl.stepping import Captured, Eager
from sprl.together import together
from sprl.training import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
METHOD = SPRL(T1=2, gamma_d=5.0)


def network(shape, num_classes):
    """Convolutions, running statistics and dropout."""
    layers = [nn.Conv2d(shape[0], 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16 * shape[1] * shape[2], num_classes))


@pytest.fixture
def pictures():
    """Small noisy pictures, half a batch left over, eight epochs: beta1 changes within."""
    x, clean = clusters(660, features=48)
    pixels = torch.from_numpy(x).mul(20).add(128).clamp(0, 255).to(torch.uint8).view(-1, 3, 4, 4)
    y = torch.from_numpy(corrupt(clean, "symmetric:0.3", 4, seed=0))
    return Task(pixels.cuda(), y.cuda(), num_classes=4, epochs=8, batch_size=64, augment=jitter, channels_last=True)


def jitter(x):
    return x + 0.05 * torch.rand(len(x), 1, 1, 1, device=x.device)


@pytest.fixture(autouse=True)
def deterministic():
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


def trained(task, stepper, method=METHOD, net=network):
    state = start(task, method, net, stepper)
    losses = [epoch.loss for epoch in train(task, state)]
    return losses, state


def assert_same(ours, theirs):
    (losses, state), (other_losses, other) = ours, theirs
    assert losses == other_losses
    for name, tensor in state.networks.state_dict().items():  # running statistics are among them
        assert torch.equal(tensor, other.networks.state_dict()[name]), name
    assert all(torch.equal(tensor.cpu(), other.memory[name].cpu()) for name, tensor in state.memory.items() if not tensor.isnan().any())
    ours, theirs = state.draws.state(), other.draws.state()
    assert all(torch.equal(x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("method", [METHOD, Standard(), SPRL(T1=2, predictions="evaluated")])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_equals_eager_bit_for_bit(pictures, method, precision):
    task = replace(pictures, precision=precision)
    captured = Captured()
    ours = trained(task, captured, method)
    assert len(captured.graphs) >= 3  # two sizes, two values of beta1
    assert_same(ours, trained(task, Eager(), method))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_captured_and_equals_eager_bit_for_bit(pictures, name):
    cls = METHODS[name]
    method = cls(noise_rate=0.3) if needs_rate(cls) else cls(**({"T1": 12} if name == "resistance" else {}))
    task = replace(pictures, epochs=24)  # the first network of f-correction and the search for T1 are among them
    captured = Captured()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class", SprlWarning)  # what a first network of so few samples makes of the classes
        ours, theirs = trained(task, captured, method), trained(task, Eager(), method)
    assert ours[1].stepper is captured
    assert_same(ours, theirs)


@dataclass(frozen=True)
class Leaves(Standard):
    """Plain training that has nothing more to learn after two epochs."""

    def init(self, y, num_classes, epochs):
        return {"over": torch.zeros((), dtype=torch.bool, device=y.device)}

    def refresh(self, memory, y, clock, predict):
        return {"over": torch.tensor(clock.t > 2)}

    def step(self, logits, batch, memory):
        return super().step(logits, batch, memory)._replace(idle=memory["over"])


@pytest.mark.parametrize("stepper", [Captured, Eager])
def test_an_idle_batch_moves_neither_weights_nor_optimizer(pictures, stepper):
    state = start(pictures, Leaves(), network, stepper())
    for epoch in train(pictures, state):
        if epoch.t == 2:
            before = copy.deepcopy((list(state.networks.parameters()), state.optimizer.state_dict()["state"]))
    after = list(state.networks.parameters()), state.optimizer.state_dict()["state"]
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    assert all(torch.equal(value, after[1][k][name]) for k, moments in before[1].items() for name, value in moments.items())


@pytest.fixture(params=["going on", "begun anew"])
def after_search(request, monkeypatch):
    monkeypatch.setattr(sprl, "AFRESH_FROM", 1 if request.param == "begun anew" else 100)


@pytest.mark.usefixtures("after_search")
def test_the_search_for_t1_goes_back_with_captured_steps_too(pictures):
    task = replace(pictures, epochs=24)
    ours, theirs = trained(task, Captured(), SPRL()), trained(task, Eager(), SPRL())
    assert ours[1].method == theirs[1].method
    assert_same(ours, theirs)


def test_streamed_rows_go_through_the_same_graph(pictures):
    streamed = replace(pictures, x=Streamed(pictures.x.cpu(), pictures.device))
    assert_same(trained(streamed, Captured()), trained(pictures, Eager()))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_captured_step_never_waits_for_the_device(pictures):
    state = start(pictures, METHOD, network, Captured())
    for _ in range(3):
        run_epoch(pictures, state)
    state.progress.begin(torch.arange(64, device="cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        state.stepper(pictures, state, torch.arange(64, device="cuda"), None)
        Eager()(pictures, state, torch.arange(64, device="cuda"), None)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Peeks(nn.Module):
    """A module that asks the device for a number, which no graph can hold."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * (1.0 if x.mean().item() > -1 else 2.0)


def test_what_cannot_be_captured_runs_without_and_loses_nothing(pictures):
    def peeking(shape, num_classes):
        return Peeks(network(shape, num_classes))

    with pytest.warns(SprlWarning, match="cannot be captured as a CUDA graph, so it runs without") as said:
        ours = trained(pictures, Captured(), net=peeking)
    assert len(said) == 1
    assert ours[1].stepper.name == "eager"
    assert_same(ours, trained(pictures, Eager(), net=peeking))
    assert_same(trained(pictures, Captured()), trained(pictures, Eager()))  # and others can still be captured


def test_without_a_compiler_the_step_is_captured_as_it_is(pictures, monkeypatch):
    def broken():
        def forward(networks, *rest):
            for buffer in networks.buffers():
                buffer.add_(1)  # half done
            torch.rand(3, device="cuda")
            raise RuntimeError("no Triton here")

        return forward

    monkeypatch.setattr(stepping, "compiled_forward", broken)
    with pytest.warns(SprlWarning, match=r"no compilation here.*no Triton here"):
        ours = trained(pictures, Captured(compiled=True))
    assert ours[1].stepper.name == "captured"
    assert_same(ours, trained(pictures, Eager()))


def plain(shape, num_classes):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, num_classes))


@pytest.mark.parametrize(("net", "precision"), [(plain, "fp32"), ("cnn", "bf16")])
def test_compiled_is_close_to_eager(pictures, net, precision):
    task = replace(pictures, augment=lambda x: x, precision=precision)  # other random numbers in compiled code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own modules
        losses, state = trained(task, Captured(compiled=True), net=net)
    assert state.stepper.name == "compiled"
    assert losses == pytest.approx(trained(task, Eager(), net=net)[0], rel=0.02 if precision == "fp32" else 0.1)


@pytest.mark.parametrize("method", [CoTeaching(noise_rate=0.3), MentorNet(curriculum="pd")])
def test_methods_that_rank_a_batch_can_be_compiled(pictures, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = trained(replace(pictures, epochs=2), Captured(compiled=True), method, plain)[1]
    assert state.stepper.name == "compiled"


def test_going_back_repeats_the_epochs_also_in_the_middle_of_one(pictures):
    state = start(pictures, METHOD, network, Captured())
    for _ in range(3):
        run_epoch(pictures, state)
    calls = iter([False, False, True])
    assert run_epoch(pictures, state, pause=lambda: next(calls)) is None
    saved = snapshot(state)
    saved = copy.deepcopy({**saved, "networks": {k: v.cpu() for k, v in saved["networks"].items()}})  # as from a file
    first = [epoch.loss for epoch in train(pictures, state)], state
    other = start(pictures, METHOD, network, Captured())
    restore(other, saved)
    assert_same(first, ([epoch.loss for epoch in train(pictures, other)], other))


@pytest.mark.usefixtures("after_search")
def test_a_table_too_large_for_the_gpu_lives_in_the_hosts_memory(pictures, monkeypatch):
    expected = trained(pictures, Captured(), SPRL())
    real = tables.free_memory
    monkeypatch.setattr(tables, "free_memory", lambda device: 1000 if device.type == "cuda" else real(device))
    found = trained(pictures, Captured(), SPRL())
    assert found[1].host["previous"].is_pinned()
    assert found[1].memory["previous"].device.type == "cuda"
    torch.cuda.synchronize()
    assert torch.equal(found[1].host["previous"], found[1].memory["previous"].cpu())
    assert_same(found, expected)


CONFIGS = [Config(corrupt="symmetric:0.5", epochs=12, seed=seed, method=m) for seed in (0, 1) for m in ("sprl", "standard")]


@pytest.fixture(scope="module")
def alone():
    return [list(prepare(config)) for config in CONFIGS]


@pytest.fixture
def captures(monkeypatch):
    """How many runs were captured together, each time."""
    counts, real = [], Joint.capture

    def capture(self, several, dues):
        counts.append(len(several))
        return real(self, several, dues)

    monkeypatch.setattr(Joint, "capture", capture)
    return counts


def test_runs_together_are_the_runs_alone(alone, captures):
    runs = [prepare(config) for config in CONFIGS]
    for _ in together(runs):
        pass
    assert max(captures) == len(runs)
    assert [run.rows for run in runs] == [counted(rows) for rows in alone]


def test_runs_that_cannot_be_captured_together_are_so_each(alone, captures, monkeypatch):
    real = stepping.train_step

    def fails(*args):
        real(*args)
        if captures and torch.cuda.is_current_stream_capturing() and not said:
            torch.ones(1, device="cuda").item()  # which no graph can hold

    monkeypatch.setattr(stepping, "train_step", fails)
    runs = [prepare(config) for config in CONFIGS]
    with pytest.warns(SprlWarning, match="cannot be captured as one CUDA graph, so each has its own") as said:
        for _ in together(runs):
            pass
    assert len(said) == len(captures) == 1
    assert [run.state.stepper.name for run in runs] == ["captured"] * 4
    assert [run.rows for run in runs] == [counted(rows) for rows in alone]


def counted(rows):
    """Only the last row of each epoch's number counts."""
    kept = []
    for row in rows:
        kept = [*kept[: row["epoch"] - 1], row]
    return kept


@pytest.mark.parametrize("batches", [30, 100, 400])
def test_a_run_goes_on_from_its_checkpoint(tmp_path, batches):
    config = Config(corrupt="symmetric:0.5", epochs=20)  # the search for T1 takes up to 5 epochs of 38 batches, then 42 each
    whole, broken, resumed = (prepare(config) for _ in range(3))
    list(whole)
    steps = 0

    def pause():
        nonlocal steps
        steps += 1
        return steps == batches

    for row in broken.train(pause):
        if row is None:
            break
    checkpoint.save(tmp_path, broken)
    assert checkpoint.load(tmp_path, resumed)
    assert resumed.state.progress.done > 0
    list(resumed)
    assert resumed.rows == whole.rows
    assert all(torch.equal(a, b) for a, b in zip(resumed.state.networks.parameters(), whole.state.networks.parameters(), strict=True))


def test_a_run_on_the_gpu_learns_and_is_captured_by_default():
    run = prepare(Config(corrupt="symmetric:0.5", epochs=30))
    assert run.seconds_expected() > 0
    rows = list(run)
    assert run.state.stepper.name == "captured"
    assert run.task.precision == "bf16"
    assert rows[-1]["test_accuracy"] > 85
    again = prepare(Config(corrupt="symmetric:0.5", epochs=30))  # without the estimate before it
    assert list(again) == rows
