"""Bootstrap against its formula, written out class by class, and against Standard where they coincide."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart

from sprl.core import Batch
from sprl.errors import InputError
from sprl.methods import Bootstrap, Standard

quick = settings(deadline=None, max_examples=50)
BETA = {"hard": 0.8, "soft": 0.95}
SIZES = [(45, 8), (11, 2), (2, 2)]  # n, batch size: a last batch of five, of three; only one


def a_batch(rows=6, num_classes=4, seed=0):
    torch.manual_seed(seed)
    logits = torch.randn(1, rows, num_classes, requires_grad=True)
    return logits, Batch(torch.arange(rows), torch.randint(num_classes, (rows,)))


def by_formula(logits, y, kind, beta):
    """-sum_k [beta t_k + (1 - beta) z_k] log p_k, the mean over samples. logits [B, C]"""
    total = 0.0
    for row, label in zip(logits, y, strict=True):
        p = row.exp() / row.exp().sum()
        for k in range(len(row)):
            t = float(k == label)
            z = float(k == row.argmax()) if kind == "hard" else p[k]
            total = total - (beta * t + (1 - beta) * z) * p[k].log()
    return total / len(y)


@pytest.mark.parametrize(("n", "batch_size"), SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", BETA)
def test_training_follows_the_formula(n, batch_size, optimizer, kind):
    task = small_task(n, batch_size, optimizer, epochs=3)
    state, first = trained(task, Bootstrap(kind))
    networks, _ = trained_apart(task, first, lambda logits, index, t: [by_formula(logits[0], task.y[index], kind, BETA[kind])])
    assert farthest(state, networks) < 1e-4


@given(st.integers(0, 1000), st.floats(0, 1), st.sampled_from(["hard", "soft"]))
@quick
def test_the_loss_is_the_formula(seed, beta, kind):
    logits, batch = a_batch(seed=seed)
    step = Bootstrap(kind, beta).step(logits, batch, {})
    torch.testing.assert_close(step.loss, by_formula(logits[0], batch.y, kind, beta))
    assert step.chosen.all()
    assert step.idle is None


@given(st.integers(0, 1000), st.floats(0, 1))
@quick
def test_the_hard_gradient_is_p_less_the_target(seed, beta):
    logits, batch = a_batch(seed=seed)
    Bootstrap("hard", beta).step(logits, batch, {}).loss.backward()
    p = logits.detach().softmax(-1)
    target = beta * F.one_hot(batch.y, 4) + (1 - beta) * F.one_hot(p.argmax(-1), 4)
    torch.testing.assert_close(logits.grad, (p - target) / len(batch.y))


def test_the_soft_gradient_goes_through_the_target():
    logits, batch = a_batch()
    Bootstrap("soft", 0.5).step(logits, batch, {}).loss.backward()
    p, log_p = logits.detach().softmax(-1), logits.detach().log_softmax(-1)
    entropy = -(p * log_p).sum(-1, keepdim=True)
    through = -p * (log_p + entropy)  # the gradient of the entropy
    torch.testing.assert_close(logits.grad, (0.5 * (p - F.one_hot(batch.y, 4)) + 0.5 * through) / len(batch.y))


@pytest.mark.parametrize("kind", BETA)
def test_beta_of_one_is_standard(kind):
    task = small_task()
    ours, _ = trained(task, Bootstrap(kind, 1.0))
    standard, _ = trained(task, Standard())
    assert farthest(ours, standard.networks) < 1e-6


def test_where_the_prediction_is_the_label_it_is_standard():
    logits, batch = a_batch()
    batch = Batch(batch.index, logits[0].argmax(-1))
    torch.testing.assert_close(Bootstrap().step(logits, batch, {}).loss, Standard().step(logits, batch, {}).loss)


@pytest.mark.parametrize("kind", BETA)
def test_beta_is_as_published_unless_given(kind):
    logits, batch = a_batch()
    published, told = (Bootstrap(kind, beta).step(logits, batch, {}).loss for beta in ("auto", BETA[kind]))
    assert torch.equal(published, told)
    assert Bootstrap() == Bootstrap("hard", "auto")


@pytest.mark.parametrize("beta", [-0.1, 1.1])
def test_beta_must_be_a_weight(beta):
    with pytest.raises(InputError, match=f"beta is {beta} but must be from 0 to 1"):
        Bootstrap(beta=beta).init(torch.arange(4), 4, epochs=10)
