"""Decoupling against two networks trained apart on what they disagree about, sample by sample."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stepping import OPTIMIZERS, Pair, farthest, small_network, small_task, trained, trained_apart, weights
from torch import nn

from sprl.core import Batch, Clock
from sprl.engine import run_epoch, start
from sprl.errors import InputError
from sprl.methods import Decoupling

quick = settings(deadline=None, max_examples=50)


def by_hand(task, init_epochs=1, min_share=0.1):
    """Algorithm 1: the sum of losses over S / max(0.1 B, |S|), for each network."""

    def losses_of(logits, index, t):
        S = [i for i in range(len(index)) if t <= init_epochs or logits[0][i].argmax() != logits[1][i].argmax()]
        if not S:
            return None
        over = max(min_share * len(index), len(S))
        return [sum(-z[i].log_softmax(0)[task.y[index[i]]] for i in S) / over for z in logits]

    return losses_of


def a_batch(rows=30, num_classes=3, seed=0):
    torch.manual_seed(seed)
    y = torch.randint(num_classes, (rows,))
    logits = torch.randn(2, rows, num_classes)
    logits[1] = torch.where(torch.rand(rows, 1) < 0.7, logits[0], logits[1])  # many agree
    return logits.requires_grad_(), Batch(torch.arange(rows), y)


def memory_of(method, t):
    y = torch.zeros(4, dtype=torch.int64)
    memory = method.init(y, 3, 10)
    return memory | method.refresh(memory, y, Clock(t, 10), lambda: None)


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fields", [{}, {"init_epochs": 0, "min_share": 0.5}, {"init_epochs": 2, "min_share": 0.0}])
def test_training_follows_algorithm_1(n, batch_size, optimizer, fields):
    task = small_task(n, batch_size, optimizer, epochs=5)
    state, first = trained(task, Decoupling(**fields))
    networks, skipped = trained_apart(task, first, by_hand(task, **fields))
    assert farthest(state, networks) < 1e-4
    assert skipped > 0  # there were batches on which the two agree


@given(st.integers(0, 1000), st.floats(0, 1))
@quick
def test_the_loss_is_the_sum_over_the_disagreeing_over_at_least_a_share(seed, min_share):
    logits, batch = a_batch(seed=seed)
    method = Decoupling(min_share=min_share)
    step = method.step(logits, batch, memory_of(method, 2))
    losses = [nn.functional.cross_entropy(z, batch.y, reduction="none") for z in logits]
    S = logits[0].argmax(-1) != logits[1].argmax(-1)
    expected = sum(loss[S].sum() / max(min_share * 30, int(S.sum()), 1) for loss in losses)
    torch.testing.assert_close(step.loss, expected)
    assert torch.equal(step.chosen, S.expand(2, 30))
    assert bool(step.idle) == (not S.any())


def test_labels_outside_the_choice_change_nothing():
    logits, batch = a_batch()
    method = Decoupling()
    memory = memory_of(method, 2)
    chosen = method.step(logits, batch, memory).chosen[0]
    assert 0 < chosen.sum() < 30
    others = Batch(batch.index, torch.where(chosen, batch.y, (batch.y + 1) % 3))
    gradients = [torch.autograd.grad(method.step(logits, b, memory).loss, logits)[0] for b in (batch, others)]
    assert torch.equal(*gradients)
    assert (gradients[0][:, ~chosen] == 0).all()
    assert (gradients[0][:, chosen] != 0).any(-1).all()


def test_equal_networks_learn_nothing_after_the_initial_phase():
    task = small_task(epochs=6)
    state = start(task, Decoupling(init_epochs=2), small_network)
    state.networks[1].load_state_dict(state.networks[0].state_dict())
    first = weights(state.networks)
    run_epoch(task, state)
    run_epoch(task, state)
    after = weights(state.networks)
    assert not torch.equal(after, first)
    epochs = [run_epoch(task, state) for _ in range(4)]
    assert torch.equal(weights(state.networks), after)
    assert not any(epoch.chosen.any() for epoch in epochs)
    assert all(epoch.loss == 0 for epoch in epochs)


def test_the_initial_phase_trains_on_everything():
    task = small_task(epochs=3)
    ours, first = trained(task, Decoupling(init_epochs=3))
    pair, _ = trained(task, Pair())
    assert farthest(ours, pair.networks) < 1e-5
    once = start(task, Decoupling(), small_network)
    once.networks.load_state_dict(copy.deepcopy(first[0]).state_dict())
    shares = [run_epoch(task, once).chosen.float().mean() for _ in range(3)]
    assert shares[0] == 1
    assert max(shares[1:]) < 1


def test_few_that_disagree_make_no_great_step():
    logits = torch.zeros(2, 20, 3)
    logits[0, :, 0] = logits[1, 1:, 0] = 5.0
    logits[1, 0, 1] = 5.0  # one of twenty
    batch = Batch(torch.arange(20), torch.ones(20, dtype=torch.int64))
    published, mean = (m.step(logits, batch, memory_of(m, 2)).loss for m in (Decoupling(), Decoupling(min_share=0.0)))
    torch.testing.assert_close(published, mean / 2)  # divided by 0.1 x 20, not by one


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"init_epochs": -1}, "init_epochs is -1 but must not be negative"),
        ({"min_share": -0.1}, r"min_share is -0\.1 but must be from 0 to 1"),
        ({"min_share": 1.5}, r"min_share is 1\.5 but must be from 0 to 1"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        Decoupling(**fields).init(torch.arange(4), 4, epochs=10)
