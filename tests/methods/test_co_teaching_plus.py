"""Co-teaching+ against two networks trained apart, and against Co-teaching and Decoupling where they coincide."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart, weights

from sprl.core import Batch, Clock
from sprl.engine import run_epoch, start
from sprl.errors import InputError
from sprl.methods import CoTeaching, CoTeachingPlus, Decoupling

quick = settings(deadline=None, max_examples=50)


def by_hand(task, tau, E_k=10, init_epoch=0, empty="skip", released_loss=False, share_of_batch=False, exchange=True, divide_again=False):
    """Algorithm 1; and the same with mistakes that must not pass for it."""

    def losses_of(logits, index, t):
        keep = 1 - min((t - 1) * tau / E_k, tau)
        everyone = list(range(len(index)))
        S = [i for i in everyone if t <= init_epoch or logits[0][i].argmax() != logits[1][i].argmax()]
        if not S and empty == "skip":
            return None
        S = S or everyone
        outputs = [z.softmax(1) if released_loss and t > init_epoch else z for z in logits]
        losses = [{i: -z[i].log_softmax(0)[task.y[index[i]]] for i in S} for z in outputs]
        count = max(1, math.floor(keep * len(index if share_of_batch else S) + 1e-9))
        f, g = (sorted(S, key=lambda i: (values[i].item(), i))[:count] for values in losses)
        pairs = zip(losses, (g, f) if exchange else (f, g), strict=True)
        return [sum(values[i] for i in chosen) / len(chosen) ** (2 if divide_again else 1) for values, chosen in pairs]

    return losses_of


def a_batch(rows=12, num_classes=3, seed=0, agreeing=0.5):
    torch.manual_seed(seed)
    logits = torch.randn(2, rows, num_classes)
    logits[1] = torch.where(torch.rand(rows, 1) < agreeing, logits[0] * 0.7, logits[1])
    return logits.requires_grad_(), Batch(torch.arange(rows), torch.randint(num_classes, (rows,)))


def memory_at(method, t, epochs=200, n=12):
    y = torch.zeros(n, dtype=torch.int64)
    memory = method.init(y, 3, epochs) | {"previous": torch.zeros(n, 3)}
    return memory | method.refresh(memory, y, Clock(t, epochs), lambda: None)


def disagreeing(logits):
    return logits[0].argmax(-1) != logits[1].argmax(-1)


FIELDS = [{"init_epoch": 0}, {"init_epoch": 2, "E_k": 3}, {"init_epoch": 1, "empty": "co-teach"}, {"init_epoch": 1, "released_loss": True}]


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fields", FIELDS)
def test_training_follows_algorithm_1(n, batch_size, optimizer, fields):
    task = small_task(n, batch_size, optimizer, epochs=5)
    state, first = trained(task, CoTeachingPlus(0.4, **fields))
    networks, skipped = trained_apart(task, first, by_hand(task, 0.4, **fields))
    assert farthest(state, networks) < 1e-4
    assert (skipped > 0) == (fields.get("empty") != "co-teach")  # the two agreed on some batches


@pytest.mark.parametrize(
    "mistake",
    [{"share_of_batch": True}, {"exchange": False}, {"divide_again": True}, {"released_loss": True}],
    ids=["share of the batch", "own choice", "divided twice", "probabilities for logits"],
)
def test_mistakes_do_not_pass(mistake):
    task = small_task(90, 30, optimizer="sgd", num_classes=6)
    state, first = trained(task, CoTeachingPlus(0.4, E_k=1, init_epoch=0))
    right, _ = trained_apart(task, first, by_hand(task, 0.4, E_k=1))
    wrong, _ = trained_apart(task, first, by_hand(task, 0.4, E_k=1, **mistake))
    assert farthest(state, right) < 1e-5
    assert farthest(state, wrong) > 0.02


@given(st.integers(0, 1000), st.floats(0, 0.99), st.floats(0, 1))
@quick
def test_gradients_are_those_of_the_mean_over_the_peers_choice_among_the_disagreeing(seed, tau, agreeing):
    logits, batch = a_batch(seed=seed, agreeing=agreeing)
    method = CoTeachingPlus(tau, E_k=0, init_epoch=0)
    step = method.step(logits, batch, memory_at(method, 1))
    step.loss.backward()
    S = disagreeing(logits).nonzero().flatten().tolist()
    count = max(1, math.floor((1 - tau) * len(S) + 1e-9))
    p = logits.detach().softmax(-1)
    losses = [F.cross_entropy(z, batch.y, reduction="none") for z in logits.detach()]
    for mine, peer in ((0, 1), (1, 0)):
        chosen = torch.zeros(12, dtype=torch.bool)
        chosen[sorted(S, key=lambda i: (losses[peer][i].item(), i))[:count]] = True
        assert torch.equal(step.chosen[mine], chosen)
        torch.testing.assert_close(logits.grad[mine], (p[mine] - F.one_hot(batch.y, 3)) / count * chosen.unsqueeze(1))
    assert bool(step.idle) == (not S)


def test_the_first_epochs_are_co_teaching_bit_for_bit():
    task = small_task(epochs=4)
    states = [start(task, method, "mlp") for method in (CoTeaching(0.4), CoTeachingPlus(0.4, init_epoch=2))]
    equal = []
    for _ in range(4):
        for state in states:
            run_epoch(task, state)
        equal.append(torch.equal(*(weights(state.networks) for state in states)))
    assert equal == [True, True, False, False]


def test_if_all_disagree_it_is_co_teaching():
    logits, batch = a_batch(agreeing=0.0)
    second = logits[0].detach().roll(1, -1)  # another class for every row
    logits = torch.stack([logits[0], second])
    plus, plain = CoTeachingPlus(0.5, init_epoch=0), CoTeaching(0.5)
    ours, theirs = plus.step(logits, batch, memory_at(plus, 30)), plain.step(logits, batch, memory_at(plus, 30))
    assert torch.equal(ours.loss, theirs.loss)
    assert torch.equal(ours.chosen, theirs.chosen)


def test_without_noise_it_is_decoupling_by_the_mean():
    task = small_task(epochs=5)
    ours, _ = trained(task, CoTeachingPlus(0.0, init_epoch=1))
    theirs, _ = trained(task, Decoupling(init_epochs=1, min_share=0.0))
    assert farthest(ours, theirs.networks) < 1e-5


def test_where_the_share_of_few_is_less_than_one_the_best_is_kept_not_all():
    logits = torch.zeros(2, 12, 3)
    logits[:, :, 0] = 5.0
    logits[1, [0, 4], 1] = 6.0  # two disagree, the first row of the data set among them
    batch = Batch(torch.arange(12), torch.zeros(12, dtype=torch.int64))
    logits[:, 4, 0] += 0.5
    method = CoTeachingPlus(0.9, E_k=0, init_epoch=0)
    step = method.step(logits, batch, memory_at(method, 1))
    assert step.chosen.tolist() == [[i == 4 for i in range(12)]] * 2
    all_of_them = CoTeachingPlus(0.0, init_epoch=0)
    assert all_of_them.step(logits, batch, memory_at(all_of_them, 1)).chosen.tolist() == [[i in (0, 4) for i in range(12)]] * 2


def test_where_all_agree_nothing_is_learned_unless_asked():
    logits, batch = a_batch(agreeing=1.0)
    assert not disagreeing(logits).any()
    skip, teach = CoTeachingPlus(0.5, init_epoch=0), CoTeachingPlus(0.5, init_epoch=0, empty="co-teach")
    idle = skip.step(logits, batch, memory_at(skip, 30))
    assert idle.idle
    assert idle.loss == 0
    assert not idle.chosen.any()
    taught = teach.step(logits, batch, memory_at(teach, 30))
    assert not taught.idle
    assert torch.equal(taught.loss, CoTeaching(0.5).step(logits, batch, memory_at(teach, 30)).loss)
    some, _ = a_batch()
    assert torch.equal(*(m.step(some, batch, memory_at(m, 30)).chosen for m in (skip, teach)))  # else no difference


@pytest.mark.parametrize("num_classes", [3, 10])
def test_the_released_loss_takes_probabilities_for_logits_after_the_first_epochs(num_classes):
    logits, batch = a_batch(num_classes=num_classes)
    logits = 20 * logits
    ours, theirs = CoTeachingPlus(0.5, init_epoch=5), CoTeachingPlus(0.5, init_epoch=5, released_loss=True)
    assert torch.equal(*(m.step(logits, batch, memory_at(m, 5)).loss for m in (ours, theirs)))
    step = theirs.step(logits, batch, memory_at(theirs, 6))
    each = [F.cross_entropy(z.softmax(-1)[c], batch.y[c]) for z, c in zip(logits, step.chosen, strict=True)]
    torch.testing.assert_close(step.loss, sum(each))
    most = math.log(math.e + num_classes - 1)
    assert all(most - 1 - 1e-5 <= loss <= most + 1e-5 for loss in each)
    assert ours.step(logits, batch, memory_at(ours, 6)).loss > 2 * most


@pytest.mark.parametrize(
    ("epochs", "init_epoch", "first"), [(200, "auto", 20), (60, "auto", 6), (9, "auto", 0), (200, 5, 5), (200, 0, 0), (3, 5, 3)]
)
def test_how_many_epochs_are_co_teaching(epochs, init_epoch, first):
    method = CoTeachingPlus(0.2, init_epoch=init_epoch)
    initial = [bool(memory_at(method, t, epochs)["initial"]) for t in range(1, epochs + 1)]
    assert initial == [t <= first for t in range(1, epochs + 1)]


def test_an_epoch_reports_how_many_disagreed():
    task = small_task()
    state = start(task, CoTeachingPlus(0.0, init_epoch=0), "mlp")
    for _ in range(3):
        epoch = run_epoch(task, state)
        assert epoch.facts["disagreeing"] == pytest.approx(epoch.chosen.float().mean().item())  # of whom all are kept


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise_rate": -0.1}, r"the noise rate is -0\.1 but must be at least 0 and below 1"),
        ({"noise_rate": 0.5, "E_k": -1}, "E_k is -1 but must not be negative"),
        ({"noise_rate": 0.5, "init_epoch": -1}, "init_epoch is -1 but must not be negative"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        CoTeachingPlus(**fields).init(torch.arange(4), 4, epochs=10)
