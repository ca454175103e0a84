"""One epoch of training: batches, random streams, snapshots, evaluation mode."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from sprl import engine
from sprl.core import Step
from sprl.data.rows import Streamed
from sprl.engine import Epoch, at_once, batch_sizes, label_issues, predict, run_epoch, start
from sprl.errors import InputError
from sprl.methods import SPRL, Standard
from sprl.state import Task, restore, snapshot
from sprl.training import train, train_pausing


def dropout_network(shape, num_classes):
    return nn.Sequential(nn.Linear(shape[0], 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, num_classes))


def weights(state):
    return torch.cat([p.detach().flatten() for p in state.networks.parameters()])


@given(st.integers(1, 3000), st.integers(2, 64))
@settings(deadline=None)
def test_batches_are_full_but_for_one_of_half_to_one_and_a_half(n, batch_size):
    sizes = batch_sizes(n, batch_size)
    assert sum(sizes) == n
    assert set(sizes[:-1]) <= {batch_size}
    assert sizes[-1] >= min(n, max(2, batch_size / 2))
    assert sizes[-1] <= max(3, 1.5 * batch_size)


def test_an_epoch_visits_every_row_once(task):
    seen = []

    class Watch(Standard):
        def step(self, logits, batch, memory):
            seen.append(batch.index)
            return super().step(logits, batch, memory)

    run_epoch(task, start(task, Watch(), "mlp"))
    assert sorted(torch.cat(seen).tolist()) == list(range(len(task.y)))
    assert [len(index) for index in seen] == batch_sizes(len(task.y), task.batch_size)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(task):
    states = [start(replace(task, seed=seed), SPRL(T1=3), dropout_network) for seed in (0, 0, 1)]
    first = [weights(state) for state in states]
    losses = []
    for state in states:
        torch.rand(7)  # what a caller draws meanwhile must not matter
        losses.append([run_epoch(task, state).loss for _ in range(3)])
    assert torch.equal(first[0], first[1])
    assert torch.equal(weights(states[0]), weights(states[1]))
    assert losses[0] == losses[1] != losses[2]
    assert not torch.equal(first[0], first[2])


def test_training_leaves_the_callers_random_numbers_alone(task):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run_epoch(task, start(task, Standard(), dropout_network))
    assert torch.equal(torch.rand(3), expected)


def test_the_order_of_samples_does_not_depend_on_the_network(task):
    seen = []

    class Watch(Standard):
        def step(self, logits, batch, memory):
            seen.append(batch.index.tolist())
            return super().step(logits, batch, memory)

    for network in ("mlp", dropout_network):
        run_epoch(task, start(task, Watch(), network))
    half = len(seen) // 2
    assert seen[:half] == seen[half:]


def test_going_back_to_a_snapshot_repeats_the_epochs_bit_for_bit(task):
    state = start(task, SPRL(T1=2), dropout_network)
    for _ in range(4):
        run_epoch(task, state)
    saved = snapshot(state)
    rows = [run_epoch(task, state) for _ in range(3)]
    after, memory = weights(state), {k: v.clone() for k, v in state.memory.items()}
    restore(state, saved)
    assert state.t == 4
    again = [run_epoch(task, state) for _ in range(3)]
    assert [e.loss for e in rows] == [e.loss for e in again]
    assert torch.equal(weights(state), after)
    assert all(torch.equal(state.memory[k], v) for k, v in memory.items())


@pytest.mark.parametrize("where", [lambda x: x, lambda x: Streamed(x, torch.device("cpu"))])
def test_pausing_after_every_batch_changes_nothing(task, where):
    task = replace(task, epochs=24, x=where(task.x))
    whole, parts = (start(task, SPRL(), dropout_network) for _ in range(2))
    losses = [epoch.loss for epoch in train(task, whole)]
    items = list(train_pausing(task, parts, lambda: True))
    assert [epoch.loss for epoch in items if epoch is not None] == losses
    assert items.count(None) >= 24 * len(batch_sizes(len(task.y), task.batch_size))
    assert torch.equal(weights(parts), weights(whole))


def test_a_snapshot_in_the_middle_of_an_epoch_goes_on_in_another_state(task):
    state, other = (start(task, SPRL(T1=2), dropout_network) for _ in range(2))
    for _ in range(3):
        run_epoch(task, state)
    assert run_epoch(task, state, pause=lambda: state.progress.done == 5) is None
    restore(other, snapshot(state))
    assert other.progress.done == 5
    rest, again = ([epoch.loss for epoch in train(task, which)] for which in (state, other))
    assert rest == again
    assert len(rest) == 9
    assert torch.equal(weights(state), weights(other))


def test_standard_is_sprl_that_never_leaves_its_warm_up(task):
    standard = start(task, Standard(), "mlp")
    sprl = start(replace(task, epochs=13), SPRL(T1=12), "mlp")
    for _ in range(4):
        run_epoch(task, standard)
        run_epoch(task, sprl)
    torch.testing.assert_close(weights(sprl), weights(standard))


def test_prediction_is_in_evaluation_mode_and_restores_training(task):
    state = start(task, Standard(), dropout_network)
    run_epoch(task, state)
    state.networks.train()
    assert torch.equal(predict(state.networks, task.x), predict(state.networks, task.x))
    assert state.networks.training
    p = predict(state.networks, task.x)
    torch.testing.assert_close(p.sum(1), torch.ones(len(task.x)))


def test_prediction_leaves_every_part_in_the_mode_it_was_in(task):
    state = start(task, Standard(), dropout_network)
    network = state.networks[0]
    network[1].eval()
    before = {name: part.training for name, part in network.named_modules()}
    both = predict(state.networks, task.x)
    assert {name: part.training for name, part in network.named_modules()} == before
    torch.testing.assert_close(predict(network, task.x), both)  # not of a list, but alone
    network.eval()
    predict(nn.ModuleList([network]), task.x)  # a list is made in training mode
    assert not any(part.training for part in network.modules())
    with pytest.raises(InputError, match="predict takes a tensor of rows, got ndarray"):
        predict(network, task.x.numpy())


@pytest.mark.parametrize(
    ("shape", "device", "count"),
    [
        ((3, 32, 32), "cpu", 32),
        ((1, 28, 28), "cpu", 41),
        ((3, 224, 224), "cpu", 8),
        ((64,), "cpu", 1024),
        ((3, 32, 32), "meta", 1024),  # not a CPU, as a GPU is not
        ((3, 224, 224), "meta", 20),
        ((10**6,), "meta", 16),
    ],
)
def test_how_many_rows_are_predicted_at_a_time(shape, device, count):
    assert at_once(torch.empty(5, *shape, device=device)) == count


def test_predictions_do_not_depend_on_how_many_there_are_at_a_time(monkeypatch):
    x = torch.randint(0, 256, (70, 3, 16, 16), dtype=torch.uint8)
    network = start(Task(x, torch.arange(70) % 4, 4, epochs=1, batch_size=32), Standard(), "cnn").networks[0]
    whole = predict(network, x)
    for count in (1, 7, 70):
        monkeypatch.setattr(engine, "at_once", lambda x, count=count: count)
        torch.testing.assert_close(predict(network, x), whole)


def test_rates_of_groups_fall_from_where_they_began(task):
    def backbone_and_head(parameters, lr):
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first], "lr": lr / 100}, {"params": rest}], lr=lr)

    task = replace(task, optimizer=backbone_and_head, epochs=10)
    state = start(task, Standard(), "mlp")
    rates = []
    for _ in train(task, state):
        rates.append([group["lr"] for group in state.optimizer.param_groups])
    assert rates[0] == [task.lr / 100, task.lr]
    assert rates[-1][1] < task.lr
    for small, large in rates:
        assert small == pytest.approx(large / 100)


def test_an_epoch_beyond_the_last_is_refused(task):
    task = replace(task, epochs=2)
    state = start(task, Standard(), "mlp")
    for _ in range(2):
        run_epoch(task, state)
    before = weights(state)
    with pytest.raises(InputError, match="all 2 epochs of this task are over"):
        run_epoch(task, state)
    assert torch.equal(weights(state), before)


def test_what_is_to_be_found_out_is_not_left_out_silently(task):
    with pytest.raises(InputError, match='T1="auto" is found by `train`: use that, or give T1 a value'):
        run_epoch(task, start(task, SPRL(), "mlp"))


def test_a_row_that_is_not_finite_is_named(task):
    x = task.x.clone()
    x[11, 1] = torch.nan
    task = replace(task, x=x)
    with pytest.raises(InputError, match="row 11 of x holds NaN or infinite values"):
        run_epoch(task, start(task, Standard(), "mlp"))


def test_rates_fall_and_beta1_changes_after_two_fifths(task):
    state = start(task, Standard(), "mlp")
    seen = []
    while state.t < task.epochs:
        run_epoch(task, state)
        group = state.optimizer.param_groups[0]
        seen.append((group["lr"], group["betas"][0]))
    assert seen[:4] == [(1e-2, 0.9)] * 4
    assert [round(lr / 1e-2 * 8, 6) for lr, _ in seen[4:]] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert {beta for _, beta in seen[4:]} == {0.1}


def test_the_released_schedule_is_one_epoch_late(task):
    seen = {}
    for schedule in ("published", "released"):
        state = start(replace(task, schedule=schedule), Standard(), "mlp")
        group = state.optimizer.param_groups[0]
        seen[schedule] = [
            (group["lr"], group["betas"][0]) for _ in range(task.epochs) if run_epoch(replace(task, schedule=schedule), state)
        ]
    assert seen["released"] == [(1e-2, 0.9), *seen["published"][:-1]]


def test_an_epoch_reports_the_methods_scalars_and_who_was_chosen(task):
    state = start(task, SPRL(T1=1, limit="none"), "mlp")
    run_epoch(task, state)
    run_epoch(task, state)
    epoch = run_epoch(task, state)
    assert isinstance(epoch, Epoch)
    assert {"gamma", "confident", "limited"} <= epoch.facts.keys()
    assert torch.equal(epoch.chosen, state.memory["chosen"])
    assert 0 < epoch.chosen.sum() < len(task.y)


def test_a_loss_that_is_not_finite_stops_the_run_and_the_epoch_counts_as_not_done(task):
    task = replace(task, lr=1e20)
    state = start(task, Standard(), "mlp")
    with pytest.raises(
        InputError, match=r"the loss of epoch \d, batch \d+ of 13, is (nan|inf): most likely a learning rate of 1e\+20 is too high"
    ):
        list(train(task, state))
    assert state.t < task.epochs


def test_fields_are_read_as_their_types(task):
    state = start(task, SPRL(T1=2.0, K="5", normalised="false"), "mlp")
    assert state.method == SPRL(T1=2, K=5, normalised=False)
    assert isinstance(state.method.T1, int)


def test_wrong_fields_are_refused_before_training(task):
    with pytest.raises(InputError, match="choice cannot be 'perclass'"):
        start(task, SPRL(choice="perclass"), "mlp")
    with pytest.raises(InputError, match="less than the 12 epochs"):
        start(task, SPRL(T1=12), "mlp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((403, 6))}, "the x of a Task must be a tensor of rows, got ndarray: torch.as_tensor makes one"),
        ({"x": TensorDataset(torch.zeros(403, 6))}, "got TensorDataset: .*NoisyLabelClassifier takes arrays and Datasets"),
        ({"y": np.zeros(403, np.int64)}, "must be an int64 tensor of 403 labels, one a row, got ndarray"),
        ({"y": torch.zeros(403)}, r"got torch.float32 \(403,\)"),
        ({"y": torch.zeros(402, dtype=torch.int64)}, r"got torch.int64 \(402,\)"),
        ({"y": torch.arange(403) % 5}, r"labels must lie in 0\.\.3, got 0\.\.4"),
        ({"epochs": 2.5}, "the epochs of a Task must be a whole number from 1 on, got 2.5"),
        ({"batch_size": 0}, "the batch_size of a Task must be a whole number from 1 on, got 0"),
        ({"precision": "bfloat16"}, "unknown precision 'bfloat16'; did you mean 'bf16'?"),
        ({"schedule": "late"}, "unknown schedule 'late'; choose from: published, released"),
        ({"augment": None}, "augment must be a function on a batch of pictures, got None"),
        ({"optimizer": "sgd"}, r"the optimizer must be a class such as torch.optim.SGD, .* got 'sgd'"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "got a SGD that was made already"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS needs a closure"),
    ],
)
def test_what_is_no_task_is_refused_at_the_start(task, change, message):
    with pytest.raises(InputError, match=message):
        start(replace(task, **change), Standard(), "mlp")


def test_a_task_can_be_pickled(task):
    assert pickle.loads(pickle.dumps(Task(task.x, task.y, 4, 1))).augment(task.x) is task.x


@pytest.mark.parametrize("method", ["sprl", SPRL])
def test_a_method_is_more_than_its_name(task, method):
    with pytest.raises(InputError, match=r"start takes a method with its fields, such as SPRL\(T1=3\)"):
        start(task, method, "mlp")


def method_with(**functions):
    return dataclass(frozen=True)(type("Mine", (Standard,), functions))()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (nn.CrossEntropyLoss(), "start takes a method with its fields"),
        (method_with(init=lambda *_: None), "`init` must return a dict of tensors"),
        (method_with(init=lambda *_: {"a": 1.0}), "`init` must return a dict of tensors"),
        (method_with(init=lambda self, y, *_: {"weight": torch.ones(len(y))}), "must not be named weight"),
        (method_with(refresh=lambda *_: {"new": torch.ones(())}), "`refresh` returned 'new', which its `init` did not make"),
        (method_with(step=lambda self, logits, *_: logits.sum()), r"`step` must return Step\(loss, chosen\), got a Tensor"),
        (method_with(step=lambda self, logits, batch, _: Step(logits.sum(), batch.y > 0)), r"here \[1, 32\]; got torch.bool \[32\]"),
        (method_with(step=lambda self, logits, batch, _: Step(logits.sum(), batch.y[None])), r"got torch.int64 \[1, 32\]"),
        (method_with(step=lambda self, logits, batch, _: Step(logits.sum((0, 2)), batch.y[None] > 0)), "must be one number"),
        (method_with(step=lambda self, logits, batch, _: Step(logits.detach().sum(), batch.y[None] > 0)), "computed from the logits"),
    ],
)
def test_what_a_method_lacks_is_told(task, method, message):
    with pytest.raises(InputError, match=message):
        run_epoch(task, start(task, method, "mlp"))


def test_label_issues_of_a_run_that_was_stopped_in_its_search(task):
    """The held-out rows get a verdict too."""
    state = start(task, SPRL(), "mlp")
    next(train(task, state))
    assert (state.memory["visits"] == 0).any()
    issues = label_issues(task, state, classes=list("abcd"))
    assert (state.memory["visits"] > 0).all()
    assert issues["given_label"].tolist() == ["abcd"[label] for label in task.y]


def test_label_issues_name_the_wrong_labels(task):
    state = start(task, SPRL(T1=3), "mlp")
    list(train(task, state))
    wrong = (task.y != torch.arange(403) % 4).numpy()
    assert (label_issues(task, state)["is_label_issue"] == wrong).mean() > 0.95
