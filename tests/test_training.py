"""The loop, and the search for T1."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from sprl.curriculum import longest_warmup
from sprl.engine import run_epoch, start
from sprl.errors import SprlWarning
from sprl.methods import SPRL, Standard, sprl
from sprl.search import first_as_good, held_out, trailing
from sprl.training import train


def weights(state):
    return torch.cat([p.detach().flatten() for p in state.networks.parameters()])


def test_a_number_for_t1_is_taken_as_it_is(task):
    state = start(task, SPRL(T1=5), "mlp")
    assert [epoch.t for epoch in train(task, state)] == list(range(1, 13))
    assert state.method.T1 == 5


def test_the_first_epoch_within_one_standard_error():
    error = math.sqrt(0.8 * 0.2 / 100)  # 0.04
    assert first_as_good([0.5, 0.75, 0.765, 0.8, 0.79], 100) == 3
    assert first_as_good([0.5, 0.8 - error, 0.8], 100) == 2
    assert first_as_good([0.0, 0.0], 100) == 1
    assert first_as_good([0.5, 1.0], 100) == 2  # no error at all


@pytest.mark.parametrize(("over", "means"), [(1, [0.1, 0.5, 0.3, 0.7]), (2, [0.1, 0.3, 0.4, 0.5]), (9, [0.1, 0.3, 0.3, 0.4])])
def test_means_over_the_last_epochs(over, means):
    assert trailing([0.1, 0.5, 0.3, 0.7], over) == pytest.approx(means)
    assert trailing([], over) == []


def test_the_search_goes_on_from_the_chosen_epoch(task):
    task = replace(task, epochs=40)
    state = start(task, SPRL(), "mlp")
    numbers = [epoch.t for epoch in train(task, state)]
    T1 = state.method.T1
    assert 1 <= T1 <= longest_warmup(40) == 10
    searched = len(numbers) - (40 - T1)  # epochs before the count stepped back
    assert T1 <= searched <= 10
    assert numbers == [*range(1, searched + 1), *range(T1 + 1, 41)]
    assert state.warmup == {}


def test_a_warm_up_longer_than_the_search_goes_on_with_all_rows(task):
    class Longer(SPRL):
        def found(self, t, p):
            return t + 3

    task = replace(task, epochs=40)
    state = start(task, Longer(), "mlp")
    last = {epoch.t: epoch for epoch in train(task, state)}
    T1 = state.method.T1
    whole = [t for t, epoch in last.items() if epoch.chosen.all() and epoch.facts["gamma"] == 0]
    assert whole == [T1 - 2, T1 - 1, T1]
    assert last[T1 + 1].facts["gamma"] > 0


def test_the_search_trains_nothing_twice_and_loses_nothing(task):
    """From the chosen epoch on, weights are those of warming up on the kept rows alone and going on with all."""
    task = replace(task, epochs=40)
    found = start(task, SPRL(), "mlp")
    epochs = train(task, found)
    while found.method.T1 == "auto":  # the search, and the first epoch after it
        next(epochs)
    T1, held = found.method.T1, held_out(task)
    by_hand = start(task, SPRL(T1=T1), "mlp")
    kept = (~held).nonzero().squeeze(1)
    for _ in range(T1):
        run_epoch(task, by_hand, kept)
    assert (by_hand.memory["previous"][held] == 0).all()
    by_hand.networks.eval()
    with torch.no_grad():
        by_hand.memory["previous"][held] = by_hand.networks[0](task.x[held]).softmax(1)
    run_epoch(task, by_hand)
    assert torch.equal(weights(by_hand), weights(found))
    assert (found.memory["visits"][held] == 2).all()  # one pass in evaluation mode, one epoch


def test_after_a_late_epoch_the_run_begins_anew(task, monkeypatch):
    """Then it is the run with that T1, to the last bit, whatever was searched for before."""
    monkeypatch.setattr(sprl, "AFRESH_FROM", 1)
    task = replace(task, epochs=40)
    found = start(task, SPRL(), "mlp")
    numbers = [epoch.t for epoch in train(task, found)]
    T1 = found.method.T1
    assert numbers[-40:] == list(range(1, 41))
    assert numbers[:-40] == list(range(1, len(numbers) - 39))
    assert 1 <= T1 <= len(numbers) - 40
    given = start(task, SPRL(T1=T1), "mlp")
    for _ in train(task, given):
        pass
    assert torch.equal(weights(given), weights(found))
    for name, value in given.memory.items():
        assert torch.equal(value, found.memory[name]), name


@pytest.mark.parametrize("first", [1, 100])
def test_stopping_in_the_search_and_going_on_changes_nothing(task, monkeypatch, first):
    monkeypatch.setattr(sprl, "AFRESH_FROM", first)
    task = replace(task, epochs=40)
    whole, parts = start(task, SPRL(), "mlp"), start(task, SPRL(), "mlp")
    for _ in train(task, whole):
        pass
    for _ in range(60):
        for _ in train(task, parts):
            break
    assert parts.t == 40
    assert parts.method == whole.method
    assert torch.equal(weights(parts), weights(whole))


def test_the_held_out_tenth_has_its_share_of_every_class(task):
    held = held_out(task)
    assert held.sum() == 40
    sizes = torch.bincount(task.y)
    assert (torch.bincount(task.y[held]) - sizes / 10).abs().max() <= 1
    assert torch.equal(held, held_out(task))
    assert not torch.equal(held, held_out(replace(task, seed=1)))


@pytest.mark.parametrize(("shape", "fewest"), [((6,), 60), ((6, 1, 1), 200)])
def test_rows_of_features_are_held_out_sooner_than_pictures(task, shape, fewest):
    def first(n):
        return replace(task, x=task.x[:n].view(n, *shape), y=torch.arange(n) % 4)

    assert held_out(first(fewest - 1)) is None
    assert held_out(first(fewest)).sum() == fewest // 10


@pytest.mark.parametrize("rows", [slice(0, 59), slice(0, None)])
def test_too_few_samples_are_not_held_out_and_that_is_said_once(task, rows):
    y = task.y.clone()
    if rows == slice(0, None):  # many samples, but a class of four
        y[y == 3] = 0
        y[:4] = 3
    task = replace(task, x=task.x[rows], y=y[rows], epochs=20)
    state = start(task, SPRL(), "mlp")
    with pytest.warns(SprlWarning, match="using T1 = 2") as said:
        numbers = [epoch.t for epoch in train(task, state)]
    assert len(said) == 1
    assert numbers == list(range(1, 21))
    assert state.method.T1 == 2


@pytest.mark.parametrize("epochs", [2, 3, 5, 7])
def test_short_schedules_run_without_a_search(task, epochs):
    task = replace(task, epochs=epochs)
    state = start(task, SPRL(), "mlp")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [epoch.loss for epoch in train(task, state)]
    assert state.method.T1 == 1
    assert len(losses) == epochs
    assert all(math.isfinite(loss) for loss in losses)


def test_methods_without_a_warm_up_need_none(task):
    state = start(task, Standard(), "mlp")
    assert len(list(train(task, state))) == task.epochs


@pytest.mark.parametrize("method", [SPRL(T1=2), SPRL.as_published(T1=2), SPRL.as_released(T1=2), SPRL(T1=2, limit="agreement")])
def test_every_reading_learns_through_a_third_of_wrong_labels(task, method):
    clean = torch.arange(len(task.y)) % 4
    state = start(task, method, "mlp")
    for _ in train(task, state):
        pass
    state.networks.eval()
    with torch.no_grad():
        predicted = state.networks[0](task.x).argmax(1)
    assert (predicted == clean).float().mean() > 0.95
