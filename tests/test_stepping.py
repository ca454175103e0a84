"""What a step does: two networks learn as if they were apart, a batch with nothing to learn leaves no trace, the host is not asked."""

import copy
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from conftest import clusters
from torch import nn

from sprl.config import make_method
from sprl.core import Batch, Clock, Step
from sprl.engine import batches_of, run_epoch, set_rates, start
from sprl.labels import new_record
from sprl.methods import METHODS, Standard
from sprl.noise import corrupt
from sprl.state import Task, adam

OPTIMIZERS = {"adam": (torch.optim.Adam, 0.02), "sgd": (partial(torch.optim.SGD, momentum=0.9), 0.1)}


def small_network(shape, num_classes):
    """Without gradients that are zero but for rounding, which Adam would follow: of a bias that batch norm undoes, or of a batch of two,
    of which batch norm leaves only signs unless its eps is large."""
    return nn.Sequential(nn.Linear(shape[0], 8, bias=False), nn.BatchNorm1d(8, eps=10.0), nn.ReLU(), nn.Linear(8, num_classes))


def small_task(n=45, batch_size=8, optimizer="adam", num_classes=3, epochs=4, noise="symmetric:0.4"):
    x, clean = clusters(n, num_classes)
    y = torch.from_numpy(corrupt(clean, noise, num_classes, seed=0))
    make, lr = OPTIMIZERS[optimizer]
    return Task(torch.from_numpy(x), y, num_classes, epochs, batch_size, lr, optimizer=make)


def trained(task, method):
    """The state after all epochs, by the engine; and as it began."""
    state = start(task, method, small_network)
    first = copy.deepcopy(state.networks), state.order.get_state()
    while state.t < task.epochs:
        run_epoch(task, state)
    return state, first


def trained_apart(task, first, losses_of):
    """The same networks and batches, each network with an optimizer of its own, one backward pass and one step after the other.

    losses_of(logits, index, t) -> a loss for each network, or None where no step is to be taken. How often that was is returned too.
    """
    networks, order = copy.deepcopy(first[0]), torch.Generator()
    order.set_state(first[1])
    optimizers = [task.optimizer(network.parameters(), lr=task.lr) for network in networks]
    skipped = 0
    for t in range(1, task.epochs + 1):
        for optimizer in optimizers:
            set_rates(optimizer, Clock(t, task.epochs), task.lr)
        for index in batches_of(torch.randperm(len(task.y), generator=order), task.batch_size):
            losses = losses_of([network(task.x[index]) for network in networks], index.tolist(), t)
            skipped += losses is None
            for optimizer, loss in zip(optimizers, losses or [], strict=losses is not None):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return networks, skipped


def farthest(state, networks):
    """The largest difference between two weights, or statistics of batch norm, that should be the same."""
    pairs = zip(state.networks.state_dict().values(), networks.state_dict().values(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def weights(networks):
    return torch.cat([p.detach().flatten() for p in networks.parameters()])


class Pair(Standard):
    networks = 2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_networks_under_one_optimizer_are_two_apart(optimizer):
    task = small_task(optimizer=optimizer)
    state, first = trained(task, Pair())
    networks, _ = trained_apart(task, first, lambda logits, index, t: [nn.functional.cross_entropy(z, task.y[index]) for z in logits])
    assert farthest(state, networks) < 1e-5
    assert (weights(state.networks[0]) - weights(state.networks[1])).abs().max() > 0.1


# Batches with nothing to learn


@dataclass(frozen=True)
class Stops(Standard):
    """Learns for an epoch, then says that it is idle, or only has a loss of zero."""

    says_so: bool = True

    def init(self, y, num_classes, epochs):
        return {"learning": torch.ones(()), "batches": torch.zeros(())}

    def refresh(self, memory, y, clock, predict):
        return {"learning": torch.tensor(float(clock.t == 1))}

    def step(self, logits, batch, memory):
        step = super().step(logits, batch, memory)
        idle = memory["learning"] == 0 if self.says_so else None
        return Step(step.loss * memory["learning"], step.chosen, idle, {"batches": memory["batches"] + 1})


def of_optimizer(state):
    return [value.clone() for values in state.optimizer.state_dict()["state"].values() for value in values.values()]


@pytest.mark.parametrize("optimizer", [adam, OPTIMIZERS["adam"][0], OPTIMIZERS["sgd"][0]], ids=["fused adam", "adam", "sgd"])
@pytest.mark.parametrize("says_so", [True, False])
def test_idle_leaves_weights_and_optimizer_alone_which_a_loss_of_zero_does_not(task, optimizer, says_so):
    task = replace(task, optimizer=optimizer)
    state = start(task, Stops(says_so), small_network)
    run_epoch(task, state)
    before, moments, mean = weights(state.networks), of_optimizer(state), state.networks[0][1].running_mean.clone()
    assert len(moments) > 0
    run_epoch(task, state)
    assert torch.equal(weights(state.networks), before) == says_so
    assert all(torch.equal(a, b) for a, b in zip(of_optimizer(state), moments, strict=True)) == says_so
    assert not torch.equal(state.networks[0][1].running_mean, mean)  # the batch was seen
    assert (state.memory["visits"] == 2).all()
    assert state.memory["batches"] == 2 * 13


# A step may be captured


@pytest.mark.parametrize("name", METHODS)
def test_a_step_asks_the_host_nothing(name):
    """On the meta device there are no numbers: .item(), `if tensor` and boolean indexing raise."""
    y = torch.arange(24) % 3
    method = make_method(name, {}, noise_rate=0.3)
    memory = new_record(torch.zeros(24, 3)) | method.init(y, 3, 120)
    memory = {key: value.to("meta") for key, value in memory.items()}
    logits = torch.empty(method.networks, 8, 3, device="meta", requires_grad=True)
    step = method.step(logits, Batch(torch.empty(8, dtype=torch.int64, device="meta"), y[:8].to("meta")), memory)
    assert step.loss.shape == ()
    assert step.chosen.shape == (method.networks, 8)
    assert step.chosen.dtype == torch.bool
    assert step.idle is None or step.idle.shape == ()
    assert all(memory[key].shape == value.shape and memory[key].dtype == value.dtype for key, value in (step.changes or {}).items())
    step.loss.backward()
