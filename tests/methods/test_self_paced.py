"""Self-paced learning against a loop over the samples, and its choices against sorted lists."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stepping import OPTIMIZERS, farthest, small_task, trained, trained_apart

from sprl.core import Batch, Clock
from sprl.errors import InputError
from sprl.methods import SelfPaced, Standard

quick = settings(deadline=None, max_examples=100)


def no_pass():
    raise AssertionError("a pass over the data was made")


def by_hand(task, growth="quantile", start=0.5, end=1.0, mu=1.3, warmup=2):
    """v_i = 1 where the loss of the last visit is below lambda, once an epoch; the mean over those of a batch."""
    n, T = len(task.y), task.epochs
    losses, v, state = [math.inf] * n, [True] * n, {"t": 0, "threshold": 0.0}

    def choose(t):
        if t <= warmup:
            return
        ranked = sorted(range(n), key=lambda i: (losses[i], i))
        if growth == "quantile":
            q = start + (end - start) * (t - warmup - 1) / max(T - warmup - 1, 1)
            count = math.floor(q * n + 1e-9)
        else:
            first = max(losses[ranked[max(1, math.floor(start * n + 1e-9)) - 1]] * (1 + 1e-6), 0.01)
            state["threshold"] = first if t == warmup + 1 else state["threshold"] * mu
            count = min(sum(loss < state["threshold"] for loss in losses), math.floor(end * n + 1e-9))
        chosen = ranked[: max(count, 1)]
        v[:] = [i in chosen for i in range(n)]

    def losses_of(logits, index, t):
        if t > state["t"]:
            state["t"] = t
            choose(t)
        rows = [-logits[0][k].log_softmax(0)[task.y[i]] for k, i in enumerate(index)]
        picked = [row for row, i in zip(rows, index, strict=True) if v[i]]
        for row, i in zip(rows, index, strict=True):
            losses[i] = row.item()
        return [sum(picked) / len(picked)] if picked else None

    return losses_of


FIELDS = [
    {"warmup": 1},
    {"start": 0.2, "end": 0.6},
    {"growth": "threshold", "warmup": 1, "start": 0.3},
    {"growth": "threshold", "mu": 2.0, "end": 0.7},
]


@pytest.mark.parametrize(("n", "batch_size"), [(45, 8), (11, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fields", FIELDS)
def test_training_follows_the_alternation(n, batch_size, optimizer, fields):
    task = small_task(n, batch_size, optimizer, epochs=6)
    state, first = trained(task, SelfPaced(**fields))
    networks, skipped = trained_apart(task, first, by_hand(task, **fields))
    assert farthest(state, networks) < 1e-4
    assert skipped > 0 or batch_size > 2  # batches of two of which none was chosen


def test_one_pair_of_samples():
    task = small_task(2, 2, epochs=6, num_classes=2)
    state, first = trained(task, SelfPaced(start=0.1, end=0.3))  # of two, one: never none
    networks, skipped = trained_apart(task, first, by_hand(task, start=0.1, end=0.3))
    assert farthest(state, networks) < 1e-5
    assert state.memory["chosen"].sum() == 1
    assert skipped == 0


@pytest.mark.parametrize("growth", ["quantile", "threshold"])
def test_where_all_are_easy_it_is_standard(growth):
    task = small_task()
    ours, _ = trained(task, SelfPaced(growth, start=1.0))
    standard, _ = trained(task, Standard())
    assert torch.equal(*(torch.cat([p.flatten() for p in state.networks.parameters()]) for state in (ours, standard)))


# Which samples are chosen


def choices(method, p, epochs, y=None):
    """Memory and choice before each epoch in which p [N] is the recorded probability of the given label."""
    y = torch.zeros(len(p), dtype=torch.int64) if y is None else y
    memory = method.init(y, 2, epochs) | {"previous": torch.stack([p, 1 - p], 1)}
    for t in range(1, epochs + 1):
        memory = memory | method.refresh(memory, y, Clock(t, epochs), no_pass)
        yield t, memory


likely = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0]), min_size=1, max_size=40).map(torch.tensor)


@given(likely, st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 4), st.integers(1, 12))
@quick
def test_as_many_are_chosen_as_the_share_says_and_they_are_the_easiest(p, start, end, warmup, epochs):
    start, end, n = min(start, end), max(start, end), len(p)
    for t, memory in choices(SelfPaced(start=start, end=end, warmup=warmup), p, epochs):
        q = start + (end - start) * (t - warmup - 1) / max(epochs - warmup - 1, 1)
        expected = n if t <= warmup else max(1, math.floor(q * n + 1e-9))
        ranked = sorted(range(n), key=lambda i: (-p[i].item(), i))
        assert memory["chosen"].nonzero().flatten().tolist() == sorted(ranked[:expected])


@given(likely, st.floats(0.01, 1), st.floats(1, 3), st.integers(1, 3))
@quick
def test_losses_below_a_threshold_that_grows_by_mu(p, start, mu, warmup):
    n, epochs = len(p), 10
    threshold, before = None, 0
    for t, memory in choices(SelfPaced("threshold", start=start, mu=mu, warmup=warmup), p, epochs):
        if t <= warmup:
            assert memory["chosen"].all()
            assert memory["threshold"].isnan()
            continue
        now = memory["threshold"].item()
        if threshold is not None:
            assert now == pytest.approx(min(threshold * mu, 100.0))
        threshold = now
        losses = -p.clamp(min=torch.finfo(p.dtype).tiny).log()
        assert torch.equal(memory["chosen"], losses < threshold)
        assert memory["chosen"].sum() >= max(before, 1, math.floor(start * n + 1e-9))  # grows with the threshold
        before = int(memory["chosen"].sum())


def test_the_threshold_starts_just_above_the_last_of_the_first_share():
    p = torch.linspace(0.05, 0.95, 20)
    first = dict(choices(SelfPaced("threshold", warmup=1), p, 3))[2]
    assert first["chosen"].tolist() == [False] * 10 + [True] * 10
    assert first["threshold"].item() == pytest.approx(-math.log(p[10]), rel=1e-6)


def test_the_threshold_can_grow_where_losses_are_zero():
    p = torch.tensor([1.0] * 8 + [0.5, 0.1])
    chosen = [int(memory["chosen"].sum()) for _, memory in choices(SelfPaced("threshold", warmup=1), p, 40)]
    assert chosen[1] == 8
    assert chosen[-1] == 10


def test_the_threshold_lets_in_no_more_than_the_end():
    p = torch.linspace(0.05, 0.95, 20)
    for t, memory in choices(SelfPaced("threshold", end=0.7, warmup=1), p, 60):
        assert t == 1 or int(memory["chosen"].sum()) <= 14
    assert memory["chosen"].tolist() == [False] * 6 + [True] * 14


def test_at_least_the_easiest_is_chosen():
    p = torch.tensor([0.2, 0.6, 0.4])
    method = SelfPaced("threshold", mu=1.0, warmup=1)
    memory = dict(choices(method, p, 3))[2] | {"previous": torch.full((3, 2), 1e-30)}  # losses above any threshold of before
    memory["previous"][2, 0] = 1e-20
    assert method.refresh(memory, torch.zeros(3, dtype=torch.int64), Clock(3, 3), no_pass)["chosen"].tolist() == [False, False, True]


@pytest.mark.parametrize("growth", ["quantile", "threshold"])
def test_permuting_the_rows_permutes_the_choice(growth):
    torch.manual_seed(0)
    p, order = torch.rand(50), torch.randperm(50)
    straight, permuted = (dict(choices(SelfPaced(growth), rows, 10)) for rows in (p, p[order]))
    assert all(torch.equal(permuted[t]["chosen"], memory["chosen"][order]) for t, memory in straight.items())


def test_a_batch_with_none_chosen_is_idle():
    logits, batch = torch.randn(1, 4, 3, requires_grad=True), Batch(torch.tensor([3, 1, 5, 0]), torch.tensor([0, 1, 2, 0]))
    memory = {"chosen": torch.tensor([True, False, True, False, True, False])}
    some = SelfPaced().step(logits, batch, memory)
    torch.testing.assert_close(some.loss, -logits[0, 3].log_softmax(0)[0])  # row 0 alone
    assert some.chosen.tolist() == [[False, False, False, True]]
    assert not some.idle
    memory["chosen"][0] = False
    none = SelfPaced().step(logits, batch, memory)
    none.loss.backward()
    assert none.idle
    assert none.loss == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": 0.0}, r"start is 0\.0 and end 1\.0 but they must be 0 < start <= end <= 1"),
        ({"start": 0.6, "end": 0.5}, r"start is 0\.6 and end 0\.5"),
        ({"end": 1.1}, r"end 1\.1"),
        ({"mu": 0.9}, r"mu is 0\.9 but must be at least 1"),
        ({"warmup": 0}, "warmup is 0 but must be at least 1"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        SelfPaced(**fields).init(torch.arange(4), 4, epochs=10)
