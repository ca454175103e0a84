"""SPRL, and what stands in place of its resistance, against Algorithm 1 written out as a loop over the samples."""

import math
from fractions import Fraction

import pytest
import torch
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart

from sprl.core import Batch, Clock
from sprl.functional import distillation, resistance, smoothing
from sprl.labels import new_record
from sprl.methods import SPRL, Curriculum, Distillation, LabelSmoothing

T1, K = 2, 10
FAMILY = {"resistance": SPRL, "distillation": Distillation, "label-smoothing": LabelSmoothing, "nothing": Curriculum}


def no_pass():
    raise AssertionError("a pass over the data was made")


def by_hand(task, against, gamma_d):
    n, T, C = len(task.y), task.epochs, task.num_classes
    previous = [None] * n
    now = {"t": 0, "confident": 0, "gamma": 0.0}
    v = [True] * n

    def begin(t):
        now["t"] = t
        if t == 1:
            return
        likely = [previous[i][int(task.y[i])].item() for i in range(n)]
        if t <= T1 + 1:
            now["confident"] = max(now["confident"], sum(p >= 0.5 for p in likely))
        if t <= T1:
            return
        m = max(1, n // 10, min(now["confident"], n // 2))
        size = n
        if t - 1 > T1:  # Eq. 6 of the epoch before
            every = max(1, math.floor(Fraction(T - T1) / (K - Fraction(m * K, n) + 1)))
            size = min(m + (t - 1 - T1) // every * max(1, n // K), n)
        chosen = sorted(range(n), key=lambda i: (-likely[i], i))[:size]
        v[:] = [i in chosen for i in range(n)]
        gamma_max = gamma_d * (10 - math.ceil(Fraction(10 * m, n)))
        now["gamma"] = 0.0 if against == "nothing" else gamma_max * math.exp(-5 * (1 - (t - T1) / (T - T1)) ** 2)

    def holding(log_p, i):
        if against == "label-smoothing":
            return sum((1 / C) * (math.log(1 / C) - log_p[j]) for j in range(C))
        if previous[i] is None:
            return 0.0 * log_p.sum()
        own = sum(-previous[i][j] * log_p[j] for j in range(C))
        return own + sum(p * math.log(p) for p in previous[i].tolist() if p > 0) if against == "distillation" else own

    def losses_of(logits, index, t):
        if t > now["t"]:
            begin(t)
        log_p = [row.log_softmax(0) for row in logits[0]]
        picked = [-log_p[k][task.y[i]] for k, i in enumerate(index) if v[i]]
        held = [holding(log_p[k], i) for k, i in enumerate(index)]
        for k, i in enumerate(index):
            previous[i] = log_p[k].detach().exp()
        if not picked and against == "nothing":
            return None
        return [sum(picked) / max(len(picked), 1) + now["gamma"] * sum(held) / len(held)]

    return losses_of


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch_size", [2, 8])
@pytest.mark.parametrize("against", FAMILY)
def test_it_is_algorithm_1(against, batch_size, optimizer):
    task = small_task(n=45, batch_size=batch_size, optimizer=optimizer, epochs=9)
    state, first = trained(task, FAMILY[against].as_published(T1=T1, gamma_d=0.5))
    networks, skipped = trained_apart(task, first, by_hand(task, against, 0.5))
    assert farthest(state, networks) < 2e-4
    if against != "nothing" or batch_size == 2:
        assert (skipped > 0) == (against == "nothing")  # there batches of which nothing is chosen teach nothing
    others = [name for name in FAMILY if name not in (against, {"resistance": "distillation", "distillation": "resistance"}.get(against))]
    assert all(farthest(state, trained_apart(task, first, by_hand(task, other, 0.5))[0]) > 1e-3 for other in others[:1])


def test_the_formulae():
    torch.manual_seed(0)
    logits, previous = torch.randn(2, 5, 4), torch.randn(5, 4).softmax(-1)
    p = logits.softmax(-1)
    torch.testing.assert_close(distillation(logits, previous), (previous * (previous / p).log()).sum(-1))
    torch.testing.assert_close(smoothing(logits), (0.25 * (0.25 / p).log()).sum(-1))
    assert (distillation(logits, p) < 1e-6).all()  # nothing to learn from oneself
    assert (distillation(logits, torch.zeros(5, 4)) == 0).all()  # nor from nobody
    assert smoothing(torch.zeros(1, 3, 4)).abs().max() < 1e-6


def test_distillation_has_the_gradient_of_resistance():
    logits, previous = torch.randn(1, 6, 4, requires_grad=True), torch.randn(6, 4).softmax(-1)
    gradients = [torch.autograd.grad(loss(logits, previous).sum(), logits)[0] for loss in (resistance, distillation)]
    assert torch.equal(*gradients)


def test_a_batch_of_which_nothing_is_chosen_is_idle_only_where_nothing_resists():
    y = torch.arange(8) % 4
    batch, logits = Batch(torch.arange(8), y), torch.randn(1, 8, 4)
    for against, cls in FAMILY.items():
        method = cls(T1=T1, gamma_d=1.0)
        memory = new_record(torch.full((8, 4), 0.25)) | method.init(y, 4, 10) | {"chosen": torch.zeros(8, dtype=torch.bool)}
        for gamma in (0.0, 2.0):
            strength = method.refresh(memory | {"confident": torch.tensor(4)}, y, Clock(10, 10), no_pass)["gamma"] * gamma
            assert bool(method.step(logits, batch, memory | {"gamma": strength}).idle) == (against == "nothing" or gamma == 0)
