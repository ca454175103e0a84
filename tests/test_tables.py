"""The previous predictions are estimated before they are allocated."""

from dataclasses import replace

import pytest
import torch

from sprl import tables
from sprl.engine import start
from sprl.errors import InputError
from sprl.methods import SPRL
from sprl.tables import place_table
from sprl.training import train

CPU = torch.device("cpu")


def test_a_table_that_fits_is_zeros_on_the_device():
    table, host = place_table((7, 3), CPU)
    assert host is None
    assert table.dtype == torch.float32
    assert torch.equal(table, torch.zeros(7, 3))
    assert place_table((7, 3), CPU, half=True)[0].dtype == torch.float16


def test_what_does_not_fit_is_refused_with_the_numbers_and_what_to_do(monkeypatch):
    monkeypatch.setattr(tables, "free_memory", lambda device: 10_000_000_000)
    with pytest.raises(InputError, match=r"1,000,000 rows in 1,000 classes take 4.0 GB.*of 10.0 GB free on cpu: --memory half takes 2.0"):
        place_table((1_000_000, 1000), CPU)
    with pytest.raises(InputError, match=r"20,000,000 rows.*take 40.0 GB.*take fewer rows or classes"):
        place_table((20_000_000, 1000), CPU, half=True)


def test_nothing_is_allocated_before_the_estimate():
    with pytest.raises(InputError, match="--memory half"):
        place_table((10**12, 10**6), CPU)


@pytest.mark.parametrize("method", [SPRL(), SPRL(T1=2, limit="agreement"), SPRL(T1=2, predictions="evaluated")])
def test_half_the_memory_learns_nearly_the_same(task, method):
    losses = []
    for half in (False, True):
        which = replace(task, half_memory=half)
        state = start(which, method, "mlp")
        losses.append([epoch.loss for epoch in train(which, state)])
    assert state.memory["previous"].dtype == torch.float16
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.1, abs=0.02)
