"""Co-teaching against two networks trained apart, each on the list of samples that the other sorted out."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stepping import OPTIMIZERS, Pair, farthest, small_task, trained, trained_apart

from sprl.core import Batch, Clock
from sprl.errors import InputError
from sprl.methods import CoTeaching

quick = settings(deadline=None, max_examples=50)


def smallest_losses(losses, count):
    """Positions of the `count` smallest; ties: the lower."""
    return sorted(range(len(losses)), key=lambda i: (losses[i].item(), i))[:count]


def by_hand(task, tau, T_k=10, c=1.0, exchange=True, divide_again=False):
    """Algorithm 1, R set after each epoch; and the same with mistakes that must not pass for it."""

    def losses_of(logits, index, t):
        R = 1 - tau * (min((t - 1) ** c / T_k, 1) if T_k else 1)
        losses = [[-z[k].log_softmax(0)[task.y[i]] for k, i in enumerate(index)] for z in logits]
        count = max(1, math.floor(R * len(index) + 1e-9))
        f, g = (smallest_losses(values, count) for values in losses)
        pairs = zip(losses, (g, f) if exchange else (f, g), strict=True)
        over = count * count if divide_again else count
        return [sum(values[i] for i in chosen) / over for values, chosen in pairs]

    return losses_of


def a_batch(rows=10, num_classes=3, seed=0):
    torch.manual_seed(seed)
    return torch.randn(2, rows, num_classes, requires_grad=True), Batch(torch.arange(rows), torch.randint(num_classes, (rows,)))


def memory_at(method, t, epochs=50):
    y = torch.zeros(4, dtype=torch.int64)
    memory = method.init(y, 3, epochs)
    return memory | method.refresh(memory, y, Clock(t, epochs), lambda: None)


FIELDS = [{"T_k": 2}, {"T_k": 0, "tau_factor": 1.5}, {"T_k": 4, "c": 2.0}]


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2), (2, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fields", FIELDS)
def test_training_follows_algorithm_1(n, batch_size, optimizer, fields):
    task = small_task(n, batch_size, optimizer, epochs=4, num_classes=2)
    state, first = trained(task, CoTeaching(0.4, **fields))
    tau = 0.4 * fields.get("tau_factor", 1.0)
    networks, _ = trained_apart(task, first, by_hand(task, tau, fields["T_k"], fields.get("c", 1.0)))
    assert farthest(state, networks) < 1e-4


@pytest.mark.parametrize("mistake", [{"exchange": False}, {"divide_again": True}], ids=["own choice", "divided twice"])
def test_mistakes_do_not_pass(mistake):
    task = small_task(optimizer="sgd")
    state, first = trained(task, CoTeaching(0.4, T_k=2))
    right, _ = trained_apart(task, first, by_hand(task, 0.4, 2))
    wrong, _ = trained_apart(task, first, by_hand(task, 0.4, 2, **mistake))
    assert farthest(state, right) < 1e-5
    assert farthest(state, wrong) > 0.05


@given(st.integers(0, 1000), st.integers(1, 12), st.floats(0, 0.99))
@quick
def test_gradients_are_those_of_the_mean_over_the_peers_choice(seed, rows, tau):
    logits, batch = a_batch(rows, seed=seed)
    method = CoTeaching(tau, T_k=0)
    step = method.step(logits, batch, memory_at(method, 1))
    step.loss.backward()
    count = max(1, math.floor((1 - tau) * rows + 1e-9))
    p = logits.detach().softmax(-1)
    losses = [F.cross_entropy(z, batch.y, reduction="none") for z in logits.detach()]
    for mine, peer in ((0, 1), (1, 0)):
        chosen = torch.zeros(rows, dtype=torch.bool)
        chosen[smallest_losses(losses[peer], count)] = True
        assert torch.equal(step.chosen[mine], chosen)
        expected = (p[mine] - F.one_hot(batch.y, 3)) / count * chosen.unsqueeze(1)
        torch.testing.assert_close(logits.grad[mine], expected)
        assert (logits.grad[mine][~chosen] == 0).all()


def test_swapping_the_networks_swaps_the_choices():
    logits, batch = a_batch()
    method = CoTeaching(0.5)
    memory = memory_at(method, 30)
    straight, swapped = (method.step(z, batch, memory) for z in (logits, logits.flip(0)))
    torch.testing.assert_close(straight.loss, swapped.loss)
    assert torch.equal(straight.chosen, swapped.chosen.flip(0))
    assert not torch.equal(straight.chosen[0], straight.chosen[1])


def test_equal_networks_learn_twice_from_their_smallest_losses():
    logits, batch = a_batch()
    method = CoTeaching(0.3)
    step = method.step(logits[:1].expand(2, -1, -1), batch, memory_at(method, 30))
    losses = F.cross_entropy(logits[0], batch.y, reduction="none")
    torch.testing.assert_close(step.loss, 2 * losses.sort().values[:7].mean())


def test_without_noise_it_is_two_networks_on_their_own():
    task = small_task()
    ours, _ = trained(task, CoTeaching(0.0))
    pair, _ = trained(task, Pair())
    assert farthest(ours, pair.networks) < 1e-6


def test_the_first_epoch_drops_nothing_and_the_eleventh_tau():
    logits, batch = a_batch(rows=20)
    method = CoTeaching(0.5)
    counts = {t: method.step(logits, batch, memory_at(method, t)).chosen.sum(1).tolist() for t in (1, 2, 6, 11, 50)}
    assert counts == {1: [20, 20], 2: [19, 19], 6: [15, 15], 11: [10, 10], 50: [10, 10]}


def test_at_least_one_is_kept_and_ties_go_to_the_lower_position():
    batch = Batch(torch.arange(4), torch.zeros(4, dtype=torch.int64))
    for tau, count in ((0.99, 1), (0.5, 2)):
        method = CoTeaching(tau, T_k=0)
        step = method.step(torch.zeros(2, 4, 3), batch, memory_at(method, 1))
        assert step.chosen.tolist() == [[i < count for i in range(4)]] * 2


def test_permuting_a_batch_changes_nothing():
    logits, batch = a_batch()
    order = torch.randperm(10)
    method = CoTeaching(0.4)
    memory = memory_at(method, 30)
    permuted = method.step(logits[:, order], Batch(batch.index[order], batch.y[order]), memory)
    straight = method.step(logits, batch, memory)
    torch.testing.assert_close(permuted.loss, straight.loss)
    assert torch.equal(permuted.chosen, straight.chosen[:, order])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise_rate": 1.0}, r"the noise rate is 1\.0 but must be at least 0 and below 1"),
        ({"noise_rate": 0.8, "tau_factor": 1.5}, r"tau_factor times noise_rate is 1\.2 but must be at least 0 and below 1"),
        ({"noise_rate": 0.8, "tau_factor": -1.0}, r"tau_factor times noise_rate is -0\.8"),
        ({"noise_rate": 0.5, "T_k": -1}, "T_k is -1 but must not be negative"),
        ({"noise_rate": 0.5, "c": 0.0}, r"c is 0\.0 but must be above 0"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        CoTeaching(**fields).init(torch.arange(4), 4, epochs=10)
