"""Resistance alone, against a plain loop; what it shows is figure 4."""

import json
import math

import pytest
import torch
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart
from typed import sprl

from sprl.core import Clock
from sprl.engine import run_epoch, start
from sprl.errors import InputError
from sprl.methods import Resistance, Standard
from sprl.training import train

SIZES = [(45, 8), (11, 2), (2, 2)]  # n, batch size: a last batch of five, of three; only one


def by_hand(task, T1):
    """Eq. 4 until T1, then Eq. 7: class by class, with the prediction of each sample's last visit."""
    before = {}

    def losses_of(logits, index, t):
        total = 0.0
        for row, i in zip(logits[0], index, strict=True):
            p = row.exp() / row.exp().sum()
            towards = before[i] if t > T1 else [float(j == task.y[i]) for j in range(len(row))]
            total = total - sum(towards[j] * p[j].log() for j in range(len(row)))
            before[i] = p.detach()
        return [total / len(index)]

    return losses_of


@pytest.mark.parametrize(("n", "batch_size"), SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("T1", [1, 3])
def test_training_follows_a_plain_loop(n, batch_size, optimizer, T1):
    task = small_task(n, batch_size, optimizer, epochs=5)
    state, first = trained(task, Resistance(T1))
    networks, _ = trained_apart(task, first, by_hand(task, T1))
    assert farthest(state, networks) < 1e-4


def test_until_t1_it_is_standard_and_then_it_is_not(task):
    ours, theirs = (start(task, method, "mlp:width=8") for method in (Resistance(3), Standard()))
    for t in range(1, 6):
        mine, plain = run_epoch(task, ours), run_epoch(task, theirs)
        same = [torch.equal(a, b) for a, b in zip(ours.networks.parameters(), theirs.networks.parameters(), strict=True)]
        assert (all(same), mine.loss == plain.loss) == ((True, True) if t <= 3 else (False, False))


def test_no_label_is_trained_on_after_t1(task):
    state = start(task, Resistance(4), "mlp:width=8")
    rows = [epoch.row() for epoch in train(task, state)]
    assert [row["chosen"] for row in rows] == [1.0] * 4 + [0.0] * 8
    assert [row["resisting"] for row in rows] == [0.0] * 4 + [1.0] * 8
    labels = task.y.clone()
    shuffled = [start(task, Resistance(4), "mlp:width=8") for _ in range(2)]
    for other in shuffled:
        while other.t < 4:
            run_epoch(task, other)
    run_epoch(task, shuffled[0])
    task.y.copy_((labels + 1) % 4)
    run_epoch(task, shuffled[1])
    one, two = (list(other.networks.parameters()) for other in shuffled)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_the_switch_is_a_tensor_that_a_captured_step_reads():
    method, y = Resistance(2), torch.arange(4)
    memory = method.init(y, 4, 5)
    kept = memory["resisting"]
    seen = []
    for t in range(1, 6):
        new = method.refresh(memory, y, Clock(t, 5), lambda: None)
        assert new.keys() == memory.keys()
        kept.copy_(new["resisting"])
        seen.append(bool(kept))
    assert (kept.shape, kept.dtype) == ((), torch.bool)
    assert seen == [False, False, True, True, True]


@pytest.mark.parametrize("T1", [-1, 0, 10, 100])
def test_t1_must_leave_epochs_on_either_side(T1):
    with pytest.raises(InputError, match=f"T1 is {T1} but must be at least 1 and less than the 10 epochs; lower T1 or raise the epochs"):
        Resistance(T1).init(torch.zeros(4, dtype=torch.int64), 3, 10)
    assert Resistance().T1 == 100


def test_figure_4_as_a_user_types_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ("train", "digits", "--rows", 100, "--method", "resistance", "--set", "T1=20", "--batch-size", 10, "--lr", 0.01)
    code, _, error = sprl(capsys, *words, "--epochs", 80, "--out", "run")
    assert (code, error) == (0, "")
    loss = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert loss[19] < 0.5 < loss[35] < loss[50] < loss[79]
    assert 2.1 < loss[79] <= math.log(10) + 1e-3
    code, _, error = sprl(capsys, *words, "--epochs", 20)
    assert (code, error) == (2, "sprl: T1 is 20 but must be at least 1 and less than the 20 epochs; lower T1 or raise the epochs\n")
