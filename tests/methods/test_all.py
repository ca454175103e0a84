"""Every method on every kind of small data and network: it ends, with finite weights, and has seen all there is."""

import warnings

import numpy as np
import pytest
import torch
from conftest import clusters

from sprl.config import needs_rate
from sprl.engine import predict, start
from sprl.errors import SprlWarning
from sprl.methods import METHODS, Standard
from sprl.noise import corrupt
from sprl.state import Task
from sprl.training import train


def points(n, num_classes=4, noise="symmetric:0.3", **more):
    x, clean = clusters(n, num_classes)
    return Task(
        torch.from_numpy(x), torch.from_numpy(corrupt(clean, noise, num_classes, seed=0)), num_classes, **{"epochs": 6, "lr": 1e-2, **more}
    )


def pictures(n, channels, side, **more):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = rng.integers(0, 90, (n, channels, side, side)) + 80 * y[:, None, None, None]
    return Task(torch.from_numpy(x.astype(np.uint8)), torch.from_numpy(y), 3, epochs=3, **more)


# n is no multiple of the batch in any of them
TOYS = {
    "a table": (lambda: points(403, batch_size=32), "mlp"),
    "a table with a search": (lambda: points(403, batch_size=32, epochs=16), "mlp:width=8"),
    "two classes": (lambda: points(61, 2, batch_size=16), "mlp:width=8"),
    "batches of two": (lambda: points(31, batch_size=2, epochs=3), "mlp:width=8"),
    "two samples": (lambda: points(2, 2, noise="symmetric:0", batch_size=2, epochs=3), "mlp:width=8"),
    "one batch for all": (lambda: points(50, batch_size=128), "mlp:width=8"),
    "a class of one": (lambda: rare(), "mlp:width=8"),
    "grey pictures": (lambda: pictures(50, 1, 8, batch_size=16), "cnn:width=4"),
    "colour pictures, channels last": (lambda: pictures(11, 3, 16, batch_size=4, channels_last=True), "convnet"),
    "colour pictures": (lambda: pictures(7, 3, 16, batch_size=4), "resnet18"),
}


def rare():
    task = points(61, 3, batch_size=16)
    task.y[:] = torch.arange(61) % 2
    task.y[7] = 2
    return task


FIELDS = {"resistance": {"T1": 2}}  # whose own would be more than all epochs


def made(name):
    cls = METHODS[name]
    return cls(noise_rate=0.3) if needs_rate(cls) else cls(**FIELDS.get(name, {}))


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("name", METHODS)
def test_it_trains_to_the_end(name, toy):
    make, network = TOYS[toy]
    task = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SprlWarning)  # of too few samples to hold some out, of classes that nobody predicts
        state = start(task, made(name), network)
        epochs = list(train(task, state))
    assert state.t == task.epochs
    assert all(np.isfinite(epoch.loss) and 0 <= epoch.chosen.float().mean() <= 1 for epoch in epochs)
    assert all(p.isfinite().all() for p in state.networks.parameters())
    assert len(state.networks) == METHODS[name].networks
    assert (state.memory["visits"] > 0).all()
    torch.testing.assert_close(state.memory["previous"].sum(1), torch.ones(len(task.y)))
    torch.testing.assert_close(predict(state.networks, task.x).sum(1), torch.ones(len(task.y)))


# A setting of each method at which it does what Standard does
NEUTRAL = {
    "sprl": {"T1": 5},  # of 6 epochs: the last one still has all samples, and no resistance
    "curriculum": {"T1": 5},
    "distillation": {"T1": 5, "gamma_d": 0.0},
    "label-smoothing": {"T1": 5, "gamma_d": 0.0},
    "bootstrap": {"beta": 1.0},
    "self-paced": {"start": 1.0},
    "f-correction": {"matrix": "identity"},
    "mentornet": {"percentile": 1.0, "decay": 0.0},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_at_its_neutral_setting_it_is_standard(name):
    task = points(203, batch_size=32)
    fields = {"gamma_d": 0.0, **NEUTRAL[name]} if name == "sprl" else NEUTRAL[name]
    ours, theirs = start(task, METHODS[name](**fields), "mlp:width=8"), start(task, Standard(), "mlp:width=8")
    for state in (ours, theirs):
        list(train(task, state))
    for mine, plain in zip(ours.networks.parameters(), theirs.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["decoupling", "co-teaching", "co-teaching+"])
def test_two_networks_without_a_choice_are_two_standard_runs(name):
    task = points(203, batch_size=32, epochs=6)
    fields = {"decoupling": {"init_epochs": 6}, "co-teaching": {"noise_rate": 0.0}, "co-teaching+": {"noise_rate": 0.0, "init_epoch": 6}}
    state = start(task, METHODS[name](**fields[name]), "mlp:width=8")
    alone = start(task, Standard(), "mlp:width=8")
    for run in (state, alone):
        list(train(task, run))
    for mine, plain in zip(state.networks[0].parameters(), alone.networks[0].parameters(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-5)
