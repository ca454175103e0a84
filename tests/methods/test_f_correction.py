"""F-correction against its formula, Standard where they coincide, and its two stages against each of them alone."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from saved_runs import CONFIG, always, noisy
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart, weights

from sprl.checkpoint import load, save
from sprl.config import Config, make_method
from sprl.core import Batch
from sprl.engine import predict, run_epoch, start
from sprl.errors import InputError, SprlWarning
from sprl.functional import likelihood
from sprl.methods import FCorrection, Standard
from sprl.noise import symmetric
from sprl.run import prepare
from sprl.schema import Unreadable, read_method
from sprl.search import held_out, search_of
from sprl.training import find, train
from sprl.transition import as_transition, estimate

T3 = ((0.7, 0.2, 0.1), (0.0, 0.6, 0.4), (0.05, 0.05, 0.9))


def by_formula(logits, y, T):
    """-log sum_i p_i T[i, y], the mean over samples. logits [B, C]"""
    total = 0.0
    for row, label in zip(logits, y, strict=True):
        p = row.exp() / row.exp().sum()
        total = total - sum(p[i] * T[i][label] for i in range(len(row))).log()
    return total / len(y)


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2), (2, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_follows_the_formula(n, batch_size, optimizer):
    task = small_task(n, batch_size, optimizer)
    state, first = trained(task, FCorrection(T3))
    networks, _ = trained_apart(task, first, lambda logits, index, t: [by_formula(logits[0], task.y[index], T3)])
    assert farthest(state, networks) < 1e-4


def test_without_wrong_labels_it_is_standard():
    task = small_task()
    standard, _ = trained(task, Standard())
    identity, _ = trained(task, FCorrection("identity"))
    assert torch.equal(weights(identity.networks), weights(standard.networks))
    given, _ = trained(task, FCorrection(((1, 0, 0), (0, 1, 0), (0, 0, 1))))
    assert farthest(given, standard.networks) < 1e-5


def test_all_samples_are_trained_on():
    method = FCorrection(T3)
    step = method.step(torch.randn(1, 6, 3), Batch(torch.arange(6), torch.arange(6) % 3), method.init(torch.arange(6) % 3, 3, 10))
    assert step.chosen.all()
    assert step.idle is None


# Two stages


def searched(task, method):
    """The state when the first stage has ended, as it began, and how many epochs that took."""
    state = start(task, method, "mlp")
    first = weights(state.networks)
    count = sum(1 for _ in find(task, state, search_of(method, task.epochs)))
    return state, first, count


def first_network(task, longest, patience):
    """The first stage by hand, with Standard: the epoch of the likeliest held-out labels, and what is predicted for them there."""
    held = held_out(task).nonzero().squeeze(1)
    kept = (~held_out(task)).nonzero().squeeze(1)
    state = start(task, Standard(), "mlp")
    best = (-1.0, 0, None)
    while state.t < longest and state.t - best[1] < patience:
        run_epoch(task, state, kept)
        p = predict(state.networks, task.x, held)
        best = max(best, (likelihood(p, task.y[held]).item(), state.t, p), key=lambda found: found[0])
    return best[1], best[2], state.t


@pytest.mark.parametrize("fields", [{}, {"longest": 2}, {"patience": 1, "percentile": 90.0}])
def test_the_matrix_is_what_a_standard_network_predicts_for_anchors_held_out(task, fields):
    method = FCorrection(**fields)
    state, _, count = searched(task, method)
    best, p, trained_for = first_network(task, fields.get("longest", 11), fields.get("patience", 3))
    assert count == trained_for
    assert best < trained_for or "longest" in fields
    expected = estimate(p, fields.get("percentile", 97.0))
    assert state.method == replace(method, matrix=tuple(map(tuple, expected.tolist())))
    assert torch.equal(state.memory["transition"], as_transition(state.method.matrix, 4))


def test_the_second_network_begins_with_the_first_weights_and_an_empty_record(task):
    state, first, count = searched(task, FCorrection())
    assert 3 < count < 12
    assert state.t == 0
    assert state.warmup == {}
    assert torch.equal(weights(state.networks), first)
    assert state.optimizer.state_dict()["state"] == {}
    for name in ("previous", "support", "weight", "visits", "contradicted"):
        assert not state.memory[name].any()


def test_the_second_stage_is_a_run_with_the_matrix_given(task):
    whole = start(task, FCorrection(), "mlp")
    numbers = [epoch.t for epoch in train(task, whole)]
    first = len(numbers) - 12
    assert numbers == [*range(1, first + 1), *range(1, 13)]
    alone = start(task, FCorrection(whole.method.matrix), "mlp")
    for _ in train(task, alone):
        pass
    assert torch.equal(weights(whole.networks), weights(alone.networks))
    assert torch.equal(whole.memory["support"], alone.memory["support"])
    assert (whole.memory["visits"] == 12).all()


def test_the_estimated_rate_is_told_once_there_is_a_matrix(task):
    facts = [epoch.facts for epoch in train(task, start(task, FCorrection(), "mlp"))]
    assert "estimated_rate" not in facts[0]
    assert facts[-1]["estimated_rate"] == pytest.approx(0.33, abs=0.2)


def test_stopping_in_either_stage_and_going_on_changes_nothing(task):
    whole, parts = start(task, FCorrection(), "mlp"), start(task, FCorrection(), "mlp")
    count = sum(1 for _ in train(task, whole))
    for _ in range(count):
        next(train(task, parts))
    assert parts.t == 12
    assert parts.method == whole.method
    assert torch.equal(weights(parts.networks), weights(whole.networks))


def test_a_run_killed_after_every_batch_is_the_unbroken_run(points, tmp_path):
    data, config = noisy(points, tmp_path), replace(CONFIG, method="f-correction", epochs=6)
    whole = prepare(config, data)
    list(whole)
    count = first_stage = 0
    while True:
        run = prepare(config, data)
        assert load(tmp_path, run) == (count > 0)
        first_stage += bool(run.state.warmup)
        if next(run.train(always), "end") == "end":
            break
        save(tmp_path, run)
        count += 1
    assert first_stage > 10
    assert run.state.method == whole.state.method
    assert run.rows == whole.rows
    assert torch.equal(weights(run.state.networks), weights(whole.state.networks))
    assert all(torch.equal(run.state.memory[name], value) for name, value in whole.state.memory.items())
    assert run.labels().equals(whole.labels())


def test_a_checkpoint_with_another_kind_of_matrix_is_refused(points, tmp_path):
    run = prepare(replace(CONFIG, method="f-correction"), noisy(points, tmp_path))
    good = asdict(run.state.method)
    third = (0.25,) * 4
    assert read_method(good | {"matrix": (third,) * 4}, run).matrix == (third,) * 4
    for matrix in ((third,) * 3, ((math.nan,) * 4,) * 4, ((2.0,) * 4,) * 4, 3, "even", None, "[" * 100_000):
        with pytest.raises(Unreadable, match="matrix"):
            read_method(good | {"matrix": matrix}, run)


def test_too_few_samples_are_trained_on_as_they_are_and_that_is_said(task):
    few = replace(task, x=task.x[:59], y=task.y[:59])
    ours, standard = start(few, FCorrection(), "mlp"), start(few, Standard(), "mlp")
    with pytest.warns(SprlWarning, match="too few samples to hold some out and find matrix: using matrix = identity") as said:
        numbers = [epoch.t for epoch in train(few, ours)]
    assert len(said) == 1
    assert numbers == list(range(1, 13))
    for _ in train(few, standard):
        pass
    assert ours.method.matrix == "identity"
    assert torch.equal(weights(ours.networks), weights(standard.networks))


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_short_runs(task, epochs):
    state = start(replace(task, epochs=epochs), FCorrection(), "mlp")
    numbers = [epoch.t for epoch in train(replace(task, epochs=epochs), state)]
    assert numbers == {1: [1], 2: [1, 2], 3: [1, 2, 1, 2, 3]}[epochs]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_estimate_is_near_the_truth_on_digits(seed):
    run = prepare(Config(corrupt="symmetric:0.2", method="f-correction", seed=seed, device="cpu"))
    for _ in find(run.task, run.state, search_of(run.state.method, run.task.epochs)):
        pass
    error = np.abs(np.array(run.state.method.matrix) - symmetric(0.2, 10)).mean()
    assert error < 0.035 < np.abs(np.eye(10) - symmetric(0.2, 10)).mean()


# Fields


def test_a_matrix_may_be_text_and_comes_back_from_a_config():
    method = make_method("f-correction", {"matrix": "[[0.9, 0.1], [0.2, 0.8]]", "patience": "5"})
    assert method == FCorrection(((0.9, 0.1), (0.2, 0.8)), patience=5)
    assert make_method("f-correction", json.loads(json.dumps(asdict(method)))) == method
    assert make_method("f-correction", {"matrix": np.eye(2)}).matrix == ((1.0, 0.0), (0.0, 1.0))


@pytest.mark.parametrize("text", ["[[0.9, 0.1]", "even", "[0.5, 0.5]", '[["a", 1], [0, 1]]', f"[[1{'0' * 400}]]", "[" * 100_000, "7"])
def test_text_that_is_no_matrix(text):
    with pytest.raises(InputError, match=r"matrix cannot be .*: it must be 'auto' or 'identity' or a matrix") as error:
        make_method("f-correction", {"matrix": text})
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrix": ((1.0,),)}, "matrix must have 2 rows of 2 numbers"),
        ({"matrix": ((0.5, 0.6), (0.0, 1.0))}, "row 0 of matrix sums to 1.1"),
        ({"percentile": -1.0}, r"percentile is -1\.0 but must be at least 0 and at most 100"),
        ({"percentile": 101.0}, r"percentile is 101\.0"),
        ({"longest": 1}, "longest is 1 but must be at least 2 and less than the 40 epochs"),
        ({"longest": 40}, "longest is 40 but must be"),
        ({"patience": 0}, "patience is 0 but must be at least 1"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        FCorrection(**fields).init(torch.arange(10) % 2, 2, epochs=40)
