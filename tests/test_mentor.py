"""The mentor: v* in closed form, and the network that learns it, against a bidirectional LSTM."""

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from sprl import mentor
from sprl.mentor import BATCH, draw_points, learn, new_mentor, optimal, score

PERCENTS = {"burn-in": (0, 18), "hard": (19, 89), "soft": (90, 99)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# The closed form


def test_self_paced_is_a_step_at_the_threshold():
    diff = torch.tensor([-3.0, -0.1, 0.0, 1e-6, 2.0, torch.inf])
    for percent in (0, 50, 99):
        assert optimal("self-paced", diff, torch.tensor(percent), 1.0).tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("percent", [0, 18, 19, 89, 90, 99])
def test_pd_has_three_phases(percent):
    diff = torch.tensor([-3.0, 0.0, 0.25, 1.0, 3.0])
    phase = next(name for name, (first, last) in PERCENTS.items() if first <= percent <= last)
    expected = {"burn-in": [1, 1, 1, 1, 1], "hard": [1, 1, 0, 0, 0], "soft": [1, 1, 0.75, 0, 0]}[phase]
    assert optimal("pd", diff, torch.tensor(percent), 1.0).tolist() == expected


@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("percent", [0, 50, 95])
def test_no_larger_loss_has_a_larger_weight(gamma, percent):
    v = optimal("pd", torch.linspace(-5, 5, 301), torch.tensor(percent), gamma)
    assert (v[1:] <= v[:-1]).all()
    assert ((v >= 0) & (v <= 1)).all()


def test_the_soft_weight_is_the_minimum_of_the_objective():
    """Of v l + gamma v^2 / 2 - (lambda_1 + gamma) v over v in [0, 1] (Eq. 5)."""
    v = torch.linspace(0, 1, 10_001)
    for diff in (-0.3, 0.2, 0.7, 2.5):
        best = v[(v * diff + 2 * v.square() / 2 - 2 * v).argmin()]
        assert optimal("pd", torch.tensor([diff]), torch.tensor(95), 2.0).item() == pytest.approx(best.item(), abs=2e-4)


def test_a_small_gamma_tends_to_the_step():
    diff = torch.tensor([-1.0, -0.1, 0.1, 1.0])
    assert optimal("pd", diff, torch.tensor(95), 1e-6).tolist() == optimal("self-paced", diff, torch.tensor(95), 1.0).tolist()


# The network


def as_lstm(weights):
    """torch's own, with the same weights. Gates in torch's order are input, forget, cell, output; only input and cell count in one step."""
    lstm = nn.LSTM(2, 1, bidirectional=True)
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            for row, at in ((direction, 0), (2 + direction, 2)):
                getattr(lstm, f"weight_ih_l0{suffix}")[at] = weights["lstm"][row]
                getattr(lstm, f"bias_ih_l0{suffix}")[at] = weights["lstm_bias"][row]
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
    return lstm


def test_it_is_a_bidirectional_lstm_of_one_step_and_two_layers():
    weights = new_mentor(generator())
    weights["lstm_bias"] = torch.randn(4)
    loss, diff, percent = draw_points(50, generator(1))
    _, (_, cells) = as_lstm(weights)(torch.stack([loss, diff], dim=1).unsqueeze(0))  # [2, B, 1]
    found = score(weights, loss, diff, percent)
    for b in range(50):
        features = torch.cat([weights["label"][0], weights["percent"][percent[b]], cells[:, b, 0]])
        assert features.shape == (9,)
        hidden = (weights["hidden"] @ features + weights["hidden_bias"]).tanh()
        expected = weights["out"][0] @ hidden + weights["out_bias"][0]  # the bias is added to the output, not to the weights
        torch.testing.assert_close(found[b], expected)


def test_one_percentage_serves_a_batch():
    weights = new_mentor(generator())
    loss, diff, _ = draw_points(20, generator(1))
    assert torch.equal(score(weights, loss, diff, torch.tensor(40)), score(weights, loss, diff, torch.full((20,), 40)))
    assert not torch.equal(score(weights, loss, diff, torch.tensor(40)), score(weights, loss, diff, torch.tensor(41)))


def test_what_lies_off_the_grid_is_moved_to_its_edge():
    weights = new_mentor(generator())
    far = score(weights, torch.tensor([1e4, torch.inf, 3.0]), torch.tensor([50.0, torch.inf, -80.0]), torch.tensor(3))
    assert torch.equal(far, score(weights, torch.tensor([29.0, 29.0, 3.0]), torch.tensor([4.9, 4.9, -5.0]), torch.tensor(3)))


def test_the_grid_is_the_published_one():
    assert (len(mentor.LOSSES), len(mentor.DIFFS)) == (120, 100)
    loss, diff, percent = draw_points(mentor.DRAWN, generator())
    assert len(set(zip(loss.tolist(), diff.tolist(), percent.tolist(), strict=True))) == mentor.DRAWN  # none twice
    assert loss.unique().tolist() == pytest.approx([i / 10 for i in range(100)] + list(range(10, 30)))
    assert diff.unique().tolist() == pytest.approx([-5 + i / 10 for i in range(100)])
    assert percent.unique().tolist() == list(range(100))
    assert [loss.min(), loss.max(), diff.min(), diff.max()] == pytest.approx([edge for pair in mentor.EDGES for edge in pair])


# Its training


def agreement(weights, curriculum):
    """With v*, on points drawn anew: AUROC, and the mean squared error."""
    loss, diff, percent = draw_points(20_000, generator(99))
    v, learned = optimal(curriculum, diff, percent, 1.0), score(weights, loss, diff, percent).sigmoid()
    return roc_auc_score((v > 0.5).numpy(), learned.numpy()), (learned - v).square().mean().item()


@pytest.mark.parametrize(("curriculum", "steps"), [("self-paced", 500), ("pd", 2000)])
def test_a_few_steps_teach_it_the_order_of_the_closed_form(curriculum, steps):
    first, learned = new_mentor(generator()), learn(curriculum, 1.0, steps, 0.1)
    auroc, error = agreement(learned, curriculum)
    assert auroc >= 0.95
    assert error < agreement(first, curriculum)[1] / 2
    for name, weight in learned.items():
        assert torch.equal(weight, first[name]) == (name == "percent")  # random, and never trained
        assert not weight.requires_grad


def test_it_is_learned_once_and_the_same_each_time():
    once = learn("self-paced", 1.0, 20, 0.1)
    assert learn("self-paced", 1.0, 20, 0.1) is once
    torch.randn(5)
    again = learn.__wrapped__("self-paced", 1.0, 20, 0.1)
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert not torch.equal(learn("self-paced", 1.0, 20, 0.1, seed=1)["out"], once["out"])


def test_its_training_is_adam_with_a_falling_rate_and_a_clipped_gradient(monkeypatch):
    monkeypatch.setattr(mentor, "EVERY", 3)
    monkeypatch.setattr(mentor, "CLIP", 0.3)
    learned = learn.__wrapped__("pd", 1.0, 7, 0.1)
    draw = generator()
    weights = new_mentor(draw)
    points = draw_points(mentor.DRAWN, draw)
    order = torch.randperm(mentor.DRAWN, generator=draw)
    names = [name for name in weights if name != "percent"]
    m, s = ({name: torch.zeros_like(weights[name]) for name in names} for _ in range(2))
    clipped = 0
    for step in range(7):
        rows = order[BATCH * step : BATCH * (step + 1)]
        loss, diff, percent = (values[rows] for values in points)
        leaves = {name: weights[name].clone().requires_grad_() for name in names}
        v = optimal("pd", diff, percent, 1.0)
        objective = ((score(weights | leaves, loss, diff, percent).sigmoid() - v) ** 2).mean()  # some targets are between 0 and 1
        gradients = dict(zip(names, torch.autograd.grad(objective, list(leaves.values())), strict=True))
        norm = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
        clipped += bool(norm > 0.3)
        for name, gradient in gradients.items():
            gradient = gradient * min(1, 0.3 / norm)
            m[name] = 0.9 * m[name] + 0.1 * gradient
            s[name] = 0.999 * s[name] + 0.001 * gradient**2
            unbiased = m[name] / (1 - 0.9 ** (step + 1)), s[name] / (1 - 0.999 ** (step + 1))
            weights[name] = weights[name] - 0.1 * 0.9 ** (step // 3) * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
    assert 0 < clipped < 7
    for name in names:
        torch.testing.assert_close(learned[name], weights[name], atol=1e-3, rtol=0)
