"""Losses and choices against PyTorch's own and against slow loops."""

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.functional import (
    counted,
    cross_entropy,
    disagreement,
    kept,
    likeliest,
    masked_mean,
    ranked,
    resistance,
    shares,
    small_loss,
    smallest,
    spread,
)
from sprl.noise import corrupt

quick = settings(deadline=None, max_examples=100)
probabilities = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda w: torch.tensor(w) / sum(w))
class_sizes = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any)


def one_hot_predictions(labels, num_classes):
    return F.one_hot(torch.as_tensor(labels), num_classes).float()


def test_cross_entropy_and_its_gradient_are_pytorch_s():
    torch.manual_seed(0)
    logits, y = torch.randn(2, 6, 5, requires_grad=True), torch.randint(5, (6,))
    ours = cross_entropy(logits, y)
    theirs = F.cross_entropy(logits.flatten(0, 1), y.repeat(2), reduction="none").view(2, 6)
    torch.testing.assert_close(ours, theirs)
    weights = torch.rand(2, 6)
    torch.testing.assert_close(*(torch.autograd.grad((loss * weights).sum(), logits)[0] for loss in (ours, theirs)))


def test_losses_of_half_precision_are_computed_in_float32():
    torch.manual_seed(0)
    logits, y, previous = torch.randn(6, 5).bfloat16(), torch.randint(5, (6,)), torch.rand(6, 5).softmax(-1)
    torch.testing.assert_close(cross_entropy(logits, y), cross_entropy(logits.float(), y))
    torch.testing.assert_close(resistance(logits, previous), resistance(logits.float(), previous))


def test_resistance_is_the_double_sum_of_equation_7():
    torch.manual_seed(0)
    logits, previous = torch.randn(2, 5, 4), torch.rand(5, 4).softmax(-1)
    losses = resistance(logits, previous)
    for network in range(2):
        for i in range(5):
            exps = [math.exp(z) for z in logits[network, i].tolist()]
            slow = -sum(q * math.log(e / sum(exps)) for q, e in zip(previous[i].tolist(), exps, strict=True))
            assert losses[network, i].item() == pytest.approx(slow, rel=1e-5)


def test_resistance_of_a_row_never_visited_is_zero_and_pulls_nowhere():
    logits = torch.randn(3, 4, requires_grad=True)
    losses = resistance(logits, torch.zeros(3, 4))
    assert losses.tolist() == [0, 0, 0]
    losses.sum().backward()
    assert torch.equal(logits.grad, torch.zeros(3, 4))


def test_resistance_sends_no_gradient_to_the_previous_prediction():
    logits, previous = torch.randn(3, 4, requires_grad=True), torch.rand(3, 4, requires_grad=True)
    resistance(logits, previous).sum().backward()
    assert previous.grad is None
    assert logits.grad.abs().sum() > 0


@given(probabilities, probabilities)
@quick
def test_resistance_is_least_where_the_prediction_repeats_itself(previous, other):
    logits = previous.log().requires_grad_()
    least = resistance(logits, previous)
    least.backward()
    torch.testing.assert_close(logits.grad, torch.zeros(4), atol=1e-6, rtol=0)
    assert resistance(other.log(), previous) >= least - 1e-6


def test_masked_mean_takes_the_chosen_alone():
    values = torch.tensor([[1.0, 2.0, 6.0], [1.0, 2.0, 6.0]])
    mask = torch.tensor([[True, False, True], [False, True, False]])
    assert masked_mean(values, mask).tolist() == [3.5, 2.0]


def test_masked_mean_of_none_is_zero_with_zero_gradient():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    mean = masked_mean(values, torch.tensor([False, False]))
    mean.backward()
    assert mean.item() == 0
    assert values.grad.tolist() == [0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40), st.lists(st.integers(0, 12), min_size=4, max_size=4)
)
@quick
def test_smallest_are_those_a_sort_of_each_group_gives(rows, counts):
    expected = [False] * len(rows)
    for g, count in enumerate(counts):
        members = sorted((value, i) for i, (value, group) in enumerate(rows) if group == g)
        for _, i in members[:count]:
            expected[i] = True
    values, group = torch.tensor(rows).T
    assert smallest(values.float(), group, torch.tensor(counts)).tolist() == expected


@given(class_sizes, st.data())
@quick
def test_shares_sum_to_the_total_with_one_of_each(sizes, data):
    total = data.draw(st.integers(0, sum(sizes)))
    counts = shares(total, torch.tensor(sizes)).tolist()
    non_empty = sum(size > 0 for size in sizes)
    assert all(min(size, 1) <= count <= size for count, size in zip(counts, sizes, strict=True))
    assert sum(counts) == max(total, non_empty)


@given(class_sizes, st.data())
@quick
def test_shares_are_the_largest_remainders_where_each_gets_some(sizes, data):
    n = sum(sizes)
    total = data.draw(st.integers(0, n))
    exact = [Fraction(size * total, n) for size in sizes]
    counts = [math.floor(e) for e in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda g: (counts[g] - exact[g], g))
    for g in by_remainder[: total - sum(counts)]:
        counts[g] += 1
    got = shares(total, torch.tensor(sizes)).tolist()
    if all(count > 0 for count, size in zip(counts, sizes, strict=True) if size):
        assert got == counts
        assert all(abs(a - b) < 1 for a, b in zip(got, exact, strict=True))
    else:  # someone was topped up, at the cost of the largest
        assert max(got) <= max(*counts, 1)


def test_shares_leave_their_argument_alone():
    sizes = torch.tensor([90, 10])
    assert shares(50, sizes).tolist() == [45, 5]
    assert sizes.tolist() == [90, 10]


@pytest.mark.parametrize(("kind", "low", "high"), [("symmetric:0.5", 0.98, 1), ("symmetric:0.2", 0.95, 1), ("pair:0.4", 0, 0.01)])
def test_spread_tells_symmetric_from_pair_noise(kind, low, high):
    clean = torch.arange(5000) % 10
    given_labels = torch.from_numpy(corrupt(clean.numpy(), kind, 10, seed=0))
    assert low <= spread(one_hot_predictions(clean, 10), given_labels).item() <= high + 1e-6


def test_spread_is_not_too_low_for_few_samples():
    clean = torch.arange(500) % 10
    draws = [torch.from_numpy(corrupt(clean.numpy(), "symmetric:0.5", 10, seed)) for seed in range(10)]
    assert sum(spread(one_hot_predictions(clean, 10), y).item() for y in draws) / 10 > 0.98  # 0.91 with the plain entropy


def test_spread_by_hand():
    # 100 rows predicted 0, given 1 or 2 in equal parts: of 9,900 ordered pairs 2 x 50 x 49 share their label
    y = torch.tensor([1, 2] * 50)
    assert spread(one_hot_predictions([0] * 100, 4), y).item() == pytest.approx(math.log(9900 / 4900) / math.log(3), rel=1e-5)


def test_masked_classes_do_not_spoil_the_resistance():
    logits = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    loss = resistance(logits, logits.detach().softmax(1)).sum()
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
@quick
def test_spread_is_a_share_or_cannot_tell(rows):
    predicted, y = torch.tensor(rows).T
    value = spread(one_hot_predictions(predicted, 4), y).item()
    wrong = torch.bincount(predicted[predicted != y])
    if (wrong * (wrong - 1)).sum() / 2 < 5 * 3:  # too few pairs predicted alike
        assert math.isnan(value)
    else:
        assert 0 <= value <= 1 + 1e-6


def test_spread_of_two_classes_cannot_tell():
    assert math.isnan(spread(one_hot_predictions([0, 1, 0], 2), torch.tensor([1, 0, 0])).item())


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 1.5, -2.0, math.inf]), min_size=6, max_size=6), min_size=1, max_size=3))
@quick
def test_ranks_sorted_and_counted_are_those_of_a_stable_sort(rows):
    values = torch.tensor(rows)
    expected = [[sorted(range(6), key=lambda i: (row[i], i)).index(i) for i in range(6)] for row in rows]
    assert ranked(values).tolist() == counted(values).tolist() == expected


@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=3), st.integers(0, 8), st.data())
@quick
def test_small_losses_are_those_a_sort_gives(rows, keep, data):
    among = data.draw(st.lists(st.booleans(), min_size=6, max_size=6))
    keeps = data.draw(st.just(torch.tensor(keep)) | st.lists(st.integers(0, 8), min_size=len(rows), max_size=len(rows)).map(torch.tensor))
    masks = small_loss(torch.tensor(rows).float(), keeps, torch.tensor(among))
    for mask, values, count in zip(masks.tolist(), rows, keeps.expand(len(rows)).tolist(), strict=True):
        members = sorted((value, i) for i, value in enumerate(values) if among[i])
        assert [i for i in range(6) if mask[i]] == sorted(i for _, i in members[:count])


def test_small_losses_among_all_and_a_mask_for_each_network():
    losses = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 1.0]])
    assert small_loss(losses, torch.tensor(1)).tolist() == [[False, True, False], [True, False, False]]
    among = torch.tensor([[True, False, True], [False, True, True]])
    assert small_loss(losses, torch.tensor([1, 2]), among).tolist() == [[False, False, True], [False, True, True]]


@given(st.integers(0, 99), st.integers(1, 100), st.integers(1, 5000))
@quick
def test_kept_is_the_floor_in_exact_fractions(part, whole, count):
    forget = Fraction(min(part, whole - 1), whole)
    expected = max(1, math.floor((1 - forget) * count))
    rate = torch.tensor(float(forget), dtype=torch.float64)
    assert kept(rate, count).item() == kept(rate, torch.tensor(count)).item() == expected


def test_kept_does_not_err_by_rounding():
    assert int((1 - 0.9) * 10) == 0
    assert kept(torch.tensor(0.9, dtype=torch.float64), 10) == 1


def test_two_networks_disagree_where_their_classes_differ():
    logits = torch.tensor([[[2.0, 1.0], [0.0, 1.0], [5.0, 4.0]], [[9.0, 1.0], [3.0, 1.0], [4.0, 5.0]]])
    assert disagreement(logits).tolist() == [False, True, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_of_equally_likely_classes_the_lower_one(dtype):
    torch.manual_seed(0)
    p = (torch.randint(4, (200, 33)) / 4).to(dtype)
    assert likeliest(p).tolist() == [row.index(max(row)) for row in p.tolist()]
