"""MentorNet against its formulae, written out sample by sample, and against Standard where they coincide."""

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
from sprl.mentor import learn, optimal
from sprl.methods import MentorNet, Standard
from sprl.seeds import stream_seed
from sprl.training import train

quick = settings(deadline=None, max_examples=50)
LEARNED = 2000  # steps of the mentor after which, on any processor, it gives some samples no weight; after 500 rounding decides


def weight(curriculum, diff, percent, gamma=1.0):
    """v* of one sample."""
    hard, soft = float(diff <= 0), min(max(1 - diff / gamma, 0.0), 1.0)
    if curriculum == "self-paced":
        return hard
    return 1.0 if percent <= 18 else hard if percent < 90 else soft


def by_hand(task, curriculum="self-paced", percentile=0.7, decay=0.5, gamma=1.0, first_dropout=0.0, dropout=0.0):
    """(1/B) sum v l, with the moving percentile kept from batch to batch."""
    m, draw = None, torch.Generator().manual_seed(stream_seed(task.seed, "draws"))

    def losses_of(logits, index, t):
        nonlocal m
        B, percent = len(index), 100 * (t - 1) // task.epochs
        losses = [-row.log_softmax(0)[task.y[i]] for row, i in zip(logits[0], index, strict=True)]
        now = sorted(loss.item() for loss in losses)[round(percentile * (B - 1))]
        m = now if m is None else decay * m + (1 - decay) * now
        v = [weight(curriculum, loss.item() - m, percent, gamma) for loss in losses]
        if first_dropout or dropout:
            rate = first_dropout if percent < 17 else dropout
            keep = max(1, math.floor(B * (1 - rate) + 1e-9))
            stay = torch.rand(1, B, generator=draw)[0].argsort().tolist()[:keep]
            v = [w if i in stay else 0.0 for i, w in enumerate(v)]
        return [sum(w * loss for w, loss in zip(v, losses, strict=True)) / B] if any(v) else None

    return losses_of


FORMS = {
    "self-paced": {},
    "another percentile": {"percentile": 0.3, "decay": 0.9},
    "none kept at times": {"percentile": 0.0, "decay": 0.95},
    "pd": {"curriculum": "pd", "first_dropout": 0.5, "dropout": 0.05},
    "pd without dropout": {"curriculum": "pd", "first_dropout": 0.0, "dropout": 0.0, "gamma": 0.5},
}


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2), (2, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("form", FORMS)
def test_training_follows_the_formula(n, batch_size, optimizer, form):
    task = small_task(n, batch_size, optimizer, epochs=10 if "pd" in form else 4)  # epoch 10 of 10 begins at 90 %
    state, first = trained(task, MentorNet(**FORMS[form]))
    networks, skipped = trained_apart(task, first, by_hand(task, **FORMS[form]))
    assert farthest(state, networks) < 1e-4
    assert skipped > 0 or form != "none kept at times" or n == 2


def test_pd_has_the_published_dropout():
    task = small_task(epochs=10)
    published, told = (trained(task, MentorNet("pd", **fields))[0] for fields in ({}, {"first_dropout": 0.5, "dropout": 0.05}))
    assert torch.equal(weights(published.networks), weights(told.networks))


# A batch


def memory_of(method, y, t=1, T=100, threshold=None):
    memory = method.init(y, 4, T)
    memory |= method.refresh(memory, y, Clock(t, T), lambda: None)
    return memory if threshold is None else memory | {"threshold": torch.tensor(threshold)}


def a_batch(rows=20, seed=0):
    torch.manual_seed(seed)
    return (2 * torch.randn(1, rows, 4)).requires_grad_(), Batch(torch.arange(rows), torch.randint(4, (rows,)))


def losses_of(logits, batch):
    return F.cross_entropy(logits.detach()[0], batch.y, reduction="none")


@given(st.integers(0, 1000), st.sampled_from(["self-paced", "pd"]), st.sampled_from([1, 50, 95]), st.floats(0.2, 3))
@quick
def test_the_gradient_is_that_of_the_weighted_losses_over_the_batch(seed, curriculum, t, threshold):
    logits, batch = a_batch(seed=seed)
    method = MentorNet(curriculum, first_dropout=0.0, dropout=0.0)
    step = method.step(logits, batch, memory_of(method, batch.y, t, threshold=threshold))
    losses = losses_of(logits, batch)
    m = 0.5 * threshold + 0.5 * losses.sort().values[round(0.7 * 19)]
    torch.testing.assert_close(step.changes["threshold"], m)
    v = torch.tensor([weight(curriculum, d.item(), t - 1) for d in losses - step.changes["threshold"]])
    gradient = (logits.detach()[0].softmax(1) - F.one_hot(batch.y, 4)) * v.unsqueeze(1) / 20  # v constant, over B, not over its sum
    torch.testing.assert_close(torch.autograd.grad(step.loss, logits)[0][0], gradient, atol=1e-6, rtol=1e-4)
    assert torch.equal(step.chosen[0], v > 0)
    assert bool(step.idle) == (not v.any())


def test_the_first_batch_sets_the_threshold_and_it_moves_with_every_batch():
    method = MentorNet(decay=0.9)
    logits, batch = a_batch()
    memory, expected = memory_of(method, batch.y), None
    assert memory["threshold"].isnan()
    for seed in range(5):
        logits, batch = a_batch(seed=seed)
        now = losses_of(logits, batch).sort().values[13].item()
        expected = now if expected is None else 0.9 * expected + 0.1 * now
        memory |= method.step(logits, batch, memory).changes
        assert memory["threshold"].item() == pytest.approx(expected, rel=1e-5)


def test_equal_losses_are_all_chosen_from_the_first_batch_on():
    method = MentorNet(decay=0.95)
    batch = Batch(torch.arange(8), torch.arange(8) % 4)
    memory = memory_of(method, batch.y)
    for _ in range(3):
        step = method.step(torch.zeros(1, 8, 4), batch, memory)
        memory |= step.changes
        assert step.chosen.all()


def test_a_batch_of_one_is_its_own_percentile():
    method = MentorNet()
    logits, batch = a_batch(rows=1)
    step = method.step(logits, batch, memory_of(method, batch.y))
    assert step.changes["threshold"] == losses_of(logits, batch)[0]
    assert step.chosen.all()


def test_permuting_a_batch_changes_nothing():
    method = MentorNet()
    logits, batch = a_batch()
    order = torch.randperm(20)
    one, other = (
        method.step(z, b, memory_of(method, batch.y, threshold=1.0))
        for z, b in ((logits, batch), (logits[:, order], Batch(batch.index[order], batch.y[order])))
    )
    torch.testing.assert_close(one.loss, other.loss)
    assert torch.equal(one.chosen[:, order], other.chosen)


def test_where_nothing_is_kept_the_batch_is_idle():
    method = MentorNet(decay=0.999999)
    logits, batch = a_batch()
    step = method.step(logits, batch, memory_of(method, batch.y, threshold=1e-9))
    assert step.idle
    assert step.loss == 0
    assert not step.chosen.any()


@pytest.mark.parametrize(
    "fields", [{}, {"curriculum": "pd"}, {"burn_in": 50}, {"rate": 0.3}, {"mentor": "learned", "mentor_steps": 3}, {"percentile": 1.0}]
)
@pytest.mark.parametrize("t", [1, 95])
def test_a_loss_that_is_not_finite_has_no_weight_and_spoils_nothing(fields, t):
    method = MentorNet(**{"first_dropout": 0.0, "dropout": 0.0, **fields})
    logits, batch = a_batch()
    with torch.no_grad():
        logits[0, 3] = torch.nan
        logits[0, 5, 2] = torch.inf
        logits[0, 7, batch.y[7]] = -torch.inf
    memory = memory_of(method, batch.y, t, threshold=1.0)
    step = method.step(logits, batch, memory)
    assert step.loss.isfinite()
    assert step.loss > 0
    assert not step.chosen[0, [3, 5, 7]].any()
    gradient = torch.autograd.grad(step.loss, logits)[0]
    assert gradient.isfinite().all()
    assert (gradient[0, [3, 5, 7]] == 0).all()
    if step.changes:
        assert step.changes["threshold"].isfinite()


@pytest.mark.parametrize("fields", [{}, {"curriculum": "pd"}, {"rate": 0.3}, {"mentor": "learned", "mentor_steps": 3}])
@pytest.mark.parametrize("t", [1, 95])
def test_a_batch_of_which_no_loss_is_finite_is_idle_and_forgotten(fields, t):
    method = MentorNet(**fields)
    logits, batch = torch.full((1, 6, 4), torch.nan), Batch(torch.arange(6), torch.arange(6) % 4)
    for threshold in (None, 1.5):
        memory = memory_of(method, batch.y, t, threshold=threshold)
        step = method.step(logits, batch, memory)
        assert step.idle
        assert step.loss == 0
        if step.changes:
            torch.testing.assert_close(step.changes["threshold"], memory["threshold"], equal_nan=True)


# Against Standard, and with dropout


@pytest.mark.parametrize("fields", [{"percentile": 1.0, "decay": 0.0}, {"burn_in": 100}])
def test_weights_of_one_are_standard(fields):
    task = small_task()
    ours, _ = trained(task, MentorNet(**fields))
    standard, _ = trained(task, Standard())
    assert farthest(ours, standard.networks) < 1e-6


def test_the_burn_in_is_as_many_percent_of_training_as_it_says():
    y = torch.arange(20) % 4
    method = MentorNet(burn_in=30)
    logits, _ = a_batch()
    shares = [method.step(logits, Batch(torch.arange(20), y), memory_of(method, y, t, 10)).chosen.float().mean() for t in range(1, 11)]
    assert [share == 1 for share in shares] == [True] * 3 + [False] * 7  # 0, 10, 20 % are below 30


@pytest.mark.parametrize(("t", "rows", "left"), [(1, 20, 10), (17, 20, 10), (18, 20, 19), (18, 128, 121), (1, 3, 1), (1, 1, 1)])
def test_dropout_leaves_an_exact_number_at_random_with_their_weights(t, rows, left):
    method = MentorNet("pd", percentile=1.0, decay=0.0)
    logits, batch = a_batch(rows)
    memory = memory_of(method, batch.y, t)
    steps = [method.step(logits, batch, memory) for _ in range(200)]
    assert {int(step.chosen.sum()) for step in steps} == {left}
    for step in steps[:5]:
        torch.testing.assert_close(step.loss, losses_of(logits, batch)[step.chosen[0]].sum() / rows)  # not rescaled
    often = torch.stack([step.chosen[0] for step in steps]).float().mean(0)
    assert (often - left / rows).abs().max() < 0.15


def test_self_paced_draws_nothing():
    method = MentorNet()
    logits, batch = a_batch()
    before = torch.get_rng_state()
    method.step(logits, batch, memory_of(method, batch.y))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_percentage_is_that_of_the_epochs_done():
    y = torch.arange(4)
    percents = [int(memory_of(MentorNet(), y, t, 60)["percent"]) for t in range(1, 61)]
    assert percents == [math.floor(100 * (t - 1) / 60) for t in range(1, 61)]
    assert max(percents) < 100


# The learned mentor


def test_the_learned_mentor_weighs_as_the_closed_form():
    learned = MentorNet(mentor="learned", mentor_steps=LEARNED)
    logits, batch = a_batch(rows=400)
    for t in (30, 60):
        memory = memory_of(learned, batch.y, t, threshold=1.0)
        step = learned.step(logits, batch, memory)
        losses = losses_of(logits, batch)
        diff = losses - step.changes["threshold"]
        v, exact = learned.weigh(losses, diff, memory), optimal("self-paced", diff, memory["percent"], 1.0)
        torch.testing.assert_close(step.loss, (v * losses).mean())
        assert not v.requires_grad
        assert ((v > 0.5) == (exact > 0.5)).float().mean() > 0.95
        assert ((v > 1e-3) == step.chosen[0]).all()


def test_the_learned_mentor_lies_in_memory_as_a_copy():
    method = MentorNet(mentor="learned", mentor_steps=20)
    y = torch.arange(8) % 4
    memory, shared = method.init(y, 4, 10), learn("self-paced", 1.0, 20, 0.1)
    assert {name for name in memory if name.startswith("mentor.")} == {f"mentor.{name}" for name in shared}
    assert all(memory[f"mentor.{name}"].data_ptr() != value.data_ptr() for name, value in shared.items())
    assert all(torch.equal(memory[f"mentor.{name}"], value) for name, value in shared.items())
    assert all(memory[name].ndim > 0 for name in memory if name.startswith("mentor."))  # or they would be reported
    logits, batch = a_batch(8)
    before = method.step(logits, batch, memory).loss
    memory["mentor.out"].zero_()
    assert method.step(logits, batch, memory).loss != before


@pytest.mark.parametrize("fields", [{"curriculum": "pd"}, {"mentor": "learned", "mentor_steps": 3}, {"rate": 0.2}])
def test_a_step_asks_the_host_nothing(fields):
    method = MentorNet(**fields)
    y = torch.arange(24) % 3
    memory = {name: value.to("meta") for name, value in method.init(y, 3, 10).items()}
    logits = torch.empty(1, 8, 3, device="meta", requires_grad=True)
    step = method.step(logits, Batch(torch.empty(8, dtype=torch.int64, device="meta"), y[:8].to("meta")), memory)
    assert (step.loss.shape, step.chosen.shape, step.idle.shape) == ((), (1, 8), ())
    step.loss.backward()


# The other reading


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_a_rate_it_trains_on_its_own_small_losses(optimizer):
    task = small_task(optimizer=optimizer, epochs=13)

    def by_rate(logits, index, t):
        losses = [-row.log_softmax(0)[task.y[i]] for row, i in zip(logits[0], index, strict=True)]
        keep = max(1, math.floor(len(index) * (1 - 0.4 * min((t - 1) / 10, 1)) + 1e-9))
        return [sum(sorted(losses, key=lambda loss: loss.item())[:keep]) / keep]

    state, first = trained(task, MentorNet(rate=0.4))
    networks, _ = trained_apart(task, first, by_rate)
    assert farthest(state, networks) < 1e-4


def test_a_rate_of_zero_is_standard():
    task = small_task()
    assert farthest(trained(task, MentorNet(rate=0.0))[0], trained(task, Standard())[0].networks) < 1e-6


# Whole runs


@pytest.mark.parametrize("fields", [{}, {"curriculum": "pd"}, {"mentor": "learned", "mentor_steps": LEARNED}, {"rate": 0.33}])
def test_it_learns_through_a_third_of_wrong_labels(task, fields):
    state = start(task, MentorNet(**fields), "mlp")
    epochs = list(train(task, state))
    state.networks.eval()
    with torch.no_grad():
        predicted = state.networks[0](task.x).argmax(1)
    assert (predicted == torch.arange(403) % 4).float().mean() > 0.9
    assert epochs[-1].facts["percent"] == 91
    if "rate" not in fields:
        assert epochs[0].facts["threshold"] > 0
        assert 0.5 < epochs[-1].chosen.float().mean() < 0.95  # some are left out even in the last epoch


def test_the_threshold_is_kept_from_epoch_to_epoch(task):
    state = start(task, MentorNet(decay=0.999), "mlp")
    run_epoch(task, state)
    after = state.memory["threshold"].clone()
    run_epoch(task, state)
    assert (state.memory["threshold"] - after).abs() < 0.05 * after


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"percentile": 1.1}, r"percentile is 1\.1 but must be at least 0 and at most 1"),
        ({"percentile": -0.1}, r"percentile is -0\.1"),
        ({"decay": 1.0}, r"decay is 1\.0 but must be at least 0 and below 1"),
        ({"gamma": 0.0}, r"gamma is 0\.0 but must be above 0"),
        ({"burn_in": 101}, "burn_in is 101 but must be a percentage, 0 to 100"),
        ({"first_dropout": 1.0}, r"first_dropout is 1\.0 but must be at least 0 and below 1"),
        ({"dropout": -0.5}, r"dropout is -0\.5 but must be at least 0 and below 1"),
        ({"mentor_steps": 0}, "mentor_steps is 0 but must be at least 1"),
        ({"mentor_lr": 0.0}, r"mentor_lr is 0\.0 but must be above 0"),
        ({"rate": 1.0}, r"the noise rate is 1\.0 but must be at least 0 and below 1"),
        ({"rate": 0.2, "curriculum": "pd"}, "rate replaces the curriculum"),
        ({"rate": 0.2, "mentor": "learned"}, "rate replaces the curriculum"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        MentorNet(**fields).init(torch.arange(10) % 2, 2, epochs=40)
