"""Proposition 1 and Fig. 4: what the resistance loss does to predictions."""

import math
from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sprl.functional import cross_entropy, resistance
from sprl.labels import new_record, record, see

positive = st.fractions(Fraction(1, 1000), 1)
quick = settings(deadline=None, max_examples=200)


def updated(p, previous, eta):
    """Eq. 9: a gradient step on one entry, independent of the others."""
    return p + eta * previous / p


@given(positive, positive, positive, positive, st.fractions(Fraction(1, 1000), 100))
@quick
def test_the_three_cases_of_proposition_1(a, b, previous_j, previous_k, eta):
    p_j, p_k = max(a, b), min(a, b)
    if p_j == p_k:
        p_j += Fraction(1, 7)
    now, before = p_j / p_k, previous_j / previous_k
    after = updated(p_j, previous_j, eta) / updated(p_k, previous_k, eta)
    if before < now:
        assert after < now
    elif before > now**2:
        assert now < after < before
    else:
        assert after <= now <= before


@given(st.fractions(Fraction(11, 10), 10), positive, st.fractions(0, 1), st.fractions(Fraction(1, 1000), 100))
@quick
def test_case_three_draws_the_entries_together(now, p_k, where, eta):
    before = now + where * (now**2 - now)  # anywhere from now to its square
    after = updated(now * p_k, before, eta) / updated(p_k, Fraction(1), eta)
    assert 1 <= after <= now


@given(st.lists(st.floats(0.05, 1), min_size=4, max_size=4), st.lists(st.floats(0.05, 1), min_size=4, max_size=4))
@quick
def test_the_gradient_of_resistance_is_equation_8_and_a_constant(p, previous):
    p, previous = (torch.tensor(v, dtype=torch.float64) / sum(v) for v in (p, previous))
    p.requires_grad_()
    resistance(p.log(), previous).backward()
    torch.testing.assert_close(p.grad, 1 - previous / p.detach(), atol=1e-4, rtol=1e-4)  # the 1: softmax keeps the sum


def test_resistance_alone_drives_predictions_to_uniform():
    """Fig. 4 on tiny data: after cross-entropy has fitted it, the resistance loss climbs to log 10."""
    torch.manual_seed(0)
    n, warmup = 100, 30
    y = torch.arange(n) % 10
    x = torch.randn(10, 20)[y] + 0.5 * torch.randn(n, 20)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    memory, losses = new_record(torch.zeros(n, 10)), []
    for epoch in range(warmup + 100):
        total = 0.0
        for index in torch.randperm(n).split(20):
            logits = network(x[index])
            loss = cross_entropy(logits, y[index]) if epoch < warmup else resistance(logits, memory["previous"][index])
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
            record(memory, see(logits.unsqueeze(0), y[index]), index)
            total += loss.sum().item() / n
        losses.append(total)
    assert losses[warmup - 1] < 0.1
    assert losses[warmup] < 0.5
    assert 2.2 < losses[-1] <= math.log(10) + 1e-3
    assert memory["previous"].max() < 0.25
