"""SPRL.as_released against what the authors' released code chose in ten simulated runs of 200 epochs.

tests/released.npz holds facts alone, recorded by running that code on the predictions of `simulated`: of run i `cell` (kind and rate of the
noise, n, classes, T1, gamma_d, seed), `chosen` (the bits of v before each epoch), `gamma` and `tenths` (m of the last class).
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.core import Clock
from sprl.methods import SPRL
from sprl.schedules import start_tenths

FACTS = np.load(Path(__file__).parents[1] / "released.npz")
T = 200


def simulated(kind, rate, n, classes, seed):
    """Given labels [n], then after each epoch predictions [n, classes] that learn the true labels first and the given ones later."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(classes), n // classes)
    rng.shuffle(true)
    wrong = rng.random(n) < rate
    other = rng.integers(1, classes, n) if kind == "symmetric" else np.ones(n, int)
    y = np.where(wrong, (true + other) % classes, true)
    yield y
    ease = 0.6 + 0.1 * rng.normal(0, 0.6, classes)[true]
    own, row = rng.normal(size=(n, classes)), np.arange(n)
    for epoch in range(T):
        logits = own + 0.5 * rng.normal(size=(n, classes))
        logits[row, true] += min(1 + 0.12 * epoch, 6) * ease
        logits[row, y] += max(0, (epoch - 30) / 170) * 3
        likely = np.exp(logits - logits.max(1, keepdims=True))
        yield (likely / likely.sum(1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("run", range(10))
def test_sets_tenths_and_gamma_are_those_of_the_code_in_every_epoch(run):
    kind, rate, *numbers = FACTS[f"cell{run}"]
    n, classes, T1, gamma_d, seed = map(int, numbers)
    told = simulated(kind, float(rate), n, classes, seed)
    y = torch.from_numpy(next(told))
    last = int((y == classes - 1).sum())
    method = SPRL.as_released(T1=T1, gamma_d=float(gamma_d))
    memory = method.init(y, classes, T)
    chosen, gammas, tenths = [], [], []
    for t in range(1, T + 1):
        p = torch.empty(0) if t == 1 else torch.from_numpy(next(told))
        memory |= method.refresh(memory, y, Clock(t, T), lambda p=p: p)
        chosen.append(memory["chosen"].numpy())
        gammas.append(float(memory["gamma"]))
        tenths.append(start_tenths(int(memory["confident"]), n, last))
    assert np.array_equal(np.packbits(chosen, axis=1), FACTS[f"chosen{run}"])
    assert gammas == pytest.approx(FACTS[f"gamma{run}"].tolist(), rel=1e-6)  # float32
    assert tenths[T1:] == FACTS[f"tenths{run}"][T1:].tolist()  # before, what counts later is but the largest so far


def by_hand(y, p, tenths, first):
    """v after T1 + 1 as the code makes it, class by class. `tenths`: of all classes; `first`: each has its own."""
    chosen = np.zeros(len(y), bool)
    for label in set(y.tolist()):
        rows = np.flatnonzero(y == label)
        own = 10 * int((p[rows, label] >= 0.5).sum()) // len(rows) + 1
        best = sorted(rows, key=lambda row: (-p[row, label], row))
        chosen[best[: int(0.1 * len(rows)) * (own if first else tenths)]] = True
    return chosen


@given(st.integers(20, 300), st.integers(2, 6), st.floats(0, 4), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_whatever_the_sizes_of_classes_and_however_sure_the_network(n, classes, sureness, seed):
    rng, T1, epochs = np.random.default_rng(seed), 3, 40
    y = rng.choice(classes, n, p=rng.dirichlet(np.ones(classes)))
    p = rng.normal(size=(n, classes)) + sureness * np.eye(classes)[y]
    p = np.exp(p) / np.exp(p).sum(1, keepdims=True)
    last = p[y == classes - 1, classes - 1]
    m = min(10 * int((last >= 0.5).sum()) // max(len(last), 1) + 1, 5)
    method = SPRL.as_released(T1=T1, gamma_d=10.0)
    memory = method.init(torch.from_numpy(y), classes, epochs)
    for t in range(1, epochs + 1):
        memory |= method.refresh(memory, torch.from_numpy(y), Clock(t, epochs), lambda: torch.from_numpy(p))
        tenths = min(m + (t - 2 - T1) // ((epochs - 6 - T1) // (10 - m)), 10)
        expected = by_hand(y, p, tenths, first=t == T1 + 2) if t > T1 + 1 else np.ones(n, bool)
        assert np.array_equal(memory["chosen"].numpy(), expected), t
