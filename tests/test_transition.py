"""Transition matrices: the forward loss against its formula, the estimator where the answer is known."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.errors import InputError, SprlWarning
from sprl.functional import cross_entropy
from sprl.noise import pair, symmetric
from sprl.transition import FLOOR, anchor_percentile, as_transition, estimate, forward_loss, noise_rate

quick = settings(deadline=None, max_examples=50)


def some_transition(num_classes, seed=0):
    torch.manual_seed(seed)
    return (0.5 * torch.randn(num_classes, num_classes) + 5 * torch.eye(num_classes)).softmax(1)


def some_batch(rows=20, num_classes=5, seed=0):
    torch.manual_seed(seed)
    return torch.randn(1, rows, num_classes, requires_grad=True), torch.randint(num_classes, (rows,))


# The loss


@given(st.integers(0, 1000), st.integers(2, 8))
@quick
def test_the_forward_loss_is_its_formula(seed, num_classes):
    logits, y = some_batch(num_classes=num_classes, seed=seed)
    logits, T = logits.detach(), some_transition(num_classes, seed)
    for row, label, loss in zip(logits[0].double(), y, forward_loss(logits, y, T)[0], strict=True):
        p = row.exp() / row.exp().sum()
        assert float(loss) == pytest.approx(-np.log(sum(float(p[i] * T[i, label]) for i in range(num_classes))), rel=1e-5)


def test_with_the_identity_it_is_cross_entropy_to_the_last_bit():
    logits, y = some_batch()
    ours, plain = forward_loss(logits, y, torch.eye(5)), cross_entropy(logits, y)
    assert torch.equal(ours, plain)
    assert torch.equal(*(torch.autograd.grad(loss.mean(), logits)[0] for loss in (ours, plain)))


@given(st.integers(0, 1000))
@quick
def test_given_labels_have_probabilities_that_sum_to_one(seed):
    logits, _ = some_batch(seed=seed)
    T = some_transition(5, seed)
    every = torch.stack([forward_loss(logits, torch.full((20,), j), T) for j in range(5)])
    torch.testing.assert_close((-every).exp().sum(0), torch.ones(1, 20))


def test_it_is_stable_where_a_product_of_probabilities_would_not_be():
    logits = torch.tensor([[[300.0, 0, -300], [0, -300, 300]]], requires_grad=True)
    T = as_transition(((1.0, 0, 0), (1, 0, 0), (0, 1, 0)), 3)  # nothing is labelled as class 2
    loss = forward_loss(logits, torch.tensor([2, 2]), T)
    torch.testing.assert_close(loss, torch.full((1, 2), -np.log(FLOOR), dtype=torch.float32))
    loss.sum().backward()
    assert logits.grad.isfinite().all()


# The estimate


def posteriors(T, of_each, seed=0):
    """Predictions of given labels [N, C] for `of_each` certain samples of each true class, and as many of which nothing is certain."""
    C = len(T)
    torch.manual_seed(seed)
    unsure = torch.distributions.Dirichlet(torch.ones(C)).sample((of_each * C,))
    clean = torch.cat([torch.eye(C).repeat(of_each, 1), unsure])
    return (clean @ T)[torch.randperm(2 * of_each * C)]


@pytest.mark.parametrize("percentile", [97.0, 100.0])
@pytest.mark.parametrize("Q", [symmetric(0.2, 10), symmetric(0.5, 10), pair(0.4, 10)])
def test_exact_posteriors_give_the_matrix(Q, percentile):
    Q = torch.from_numpy(Q)
    torch.testing.assert_close(estimate(posteriors(Q.float(), 20), percentile), Q, atol=1e-6, rtol=0)


def test_a_matrix_without_symmetry_is_not_transposed():
    T = some_transition(4, seed=3)
    assert (T - T.T).abs().max() > 0.01
    torch.testing.assert_close(estimate(posteriors(T, 30), 100.0).float(), T)


@pytest.mark.parametrize("num_classes", [10, 100])
def test_estimating_changes_nothing_and_can_be_done_twice(num_classes):
    torch.manual_seed(0)
    p = (3 * torch.randn(1000, num_classes)).softmax(1)
    before = p.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SprlWarning)  # 97 takes anchors of other classes where there are a hundred
        first, second = estimate(p, 97.0), estimate(p, 97.0)
    assert torch.equal(p, before)
    assert torch.equal(first, second)
    assert (first > 0).all()  # nothing was set to zero on the way
    torch.testing.assert_close(first.sum(1), torch.ones(num_classes, dtype=torch.float64))


@pytest.mark.parametrize(("count", "dropped"), [(100, 3), (134, 5), (1000, 30), (20, 1), (1, 0)])
def test_outliers_are_three_in_a_hundred_by_rank(count, dropped):
    sure = torch.linspace(0.6, 0.99, count)[torch.randperm(count, generator=torch.Generator().manual_seed(0))]
    p = torch.stack([sure, 1 - sure], dim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SprlWarning)  # nobody is of the second class
        found = estimate(p, 97.0)[0, 0]
    assert found.item() == pytest.approx(sure.sort(descending=True).values[dropped].item())


def test_a_class_of_which_all_are_quite_sure_keeps_its_anchor():
    """A threshold at the 97th percentile, 1.0 here, would leave out every one of them."""
    p = torch.eye(10).repeat(20, 1)
    assert torch.equal(estimate(p, 97.0), torch.eye(10, dtype=torch.float64))


def test_the_percentile_suits_the_number_of_classes():
    even = [torch.full((50, c), 1 / c) for c in (2, 10, 16, 17, 100, 1000)]
    assert [anchor_percentile(p) for p in even] == [97.0, 97.0, 97.0, 100.0, 100.0, 100.0]
    assert anchor_percentile(torch.tensor([[0.49, 0.49, 0.02]])) == 100.0  # of the rarest, three in a hundred are more than all
    T = some_transition(100)
    p = posteriors(T, 5)
    torch.testing.assert_close(estimate(p, anchor_percentile(p)).float(), T)
    with pytest.warns(SprlWarning, match="mostly labelled as another class"):  # why: three in a hundred are more than a class has
        assert (estimate(p, 97.0).float() - T).abs().max() > 0.1


def test_samples_in_another_order_give_the_same():
    torch.manual_seed(0)
    p = (torch.randn(200, 5) * 2).softmax(1)
    assert torch.equal(estimate(p, 97.0), estimate(p[torch.randperm(200)], 97.0))


def test_a_class_that_is_never_predicted_is_taken_as_right_with_a_warning():
    p = posteriors(torch.from_numpy(symmetric(0.2, 4)).float(), 20)
    p[:, 2] = p[:, 2].clamp(max=0.01)
    with pytest.warns(SprlWarning, match="predicted for no sample, so that labels are taken as right: class 2, counted from 0") as said:
        T = estimate(p, 100.0)
    assert len(said) == 1
    assert T[2].tolist() == [0, 0, 1, 0]
    torch.testing.assert_close(T.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_class_whose_anchor_is_another_s_is_warned_of():
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.45, 0.55], [0.6, 0.4]])
    with pytest.warns(SprlWarning, match="mostly labelled as another class: class 1, counted") as said:
        T = estimate(p, 97.0)  # without the only one that is class 1
    assert len(said) == 1
    assert T[1].tolist() == pytest.approx([0.6, 0.4])


def test_many_classes_are_not_all_listed():
    p = F.one_hot(torch.zeros(300, dtype=torch.int64), 20).float()
    with pytest.warns(SprlWarning, match="class 1, 2, 3, 4, 5, 6, 7, 8 and 11 more"):
        estimate(p, 100.0)


# Matrices that are given


def test_a_matrix_that_is_given_keeps_its_entries_but_for_zeros():
    T = as_transition(((0.9, 0.1), (0.0, 1.0)), 2)
    assert T.dtype == torch.float32
    torch.testing.assert_close(T, torch.tensor([[0.9, 0.1], [0.0, 1.0]]))
    assert (T > 0).all()
    torch.testing.assert_close(as_transition(((0.9004, 0.1), (0.0, 1.0)), 2).sum(1), torch.ones(2))  # rounded by whoever wrote it


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ((), "matrix must have 2 rows of 2 numbers"),
        (((1.0, 0.0),), "matrix must have 2 rows of 2 numbers"),
        (((1.0, 0.0), (1.0,)), "matrix must have 2 rows of 2 numbers"),
        (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)), "matrix must have 2 rows of 2 numbers"),
        (((1.0, 0.0), (1.5, -0.5)), "entries that are no probabilities"),
        (((1.0, 0.0), (float("nan"), 1.0)), "entries that are no probabilities"),
        (((1.0, 0.0), (float("inf"), 1.0)), "entries that are no probabilities"),
        (((1.0, 0.0), (0.5, 0.6)), r"row 1 of matrix sums to 1\.1 but must sum to 1"),
        (((0.9, 0.3), (0.1, 0.8)), r"row 0 of matrix sums to 1\.2 but must sum to 1"),
        (((0.0, 0.0), (0.0, 1.0)), "row 0 of matrix sums to 0 but must sum to 1"),
    ],
)
def test_what_is_no_transition_matrix(matrix, message):
    with pytest.raises(InputError, match=message) as error:
        as_transition(matrix, 2)
    assert "\n" not in str(error.value)


# The share of wrong labels


def test_the_noise_rate_follows_from_the_matrix():
    y = torch.arange(1000) % 10
    for Q, rate in ((symmetric(0.2, 10), 0.2), (pair(0.4, 10), 0.4), (np.eye(10), 0.0)):
        assert noise_rate(torch.from_numpy(Q).float(), y).item() == pytest.approx(rate, abs=1e-6)


def test_the_noise_rate_counts_true_classes_not_given_ones():
    true = torch.tensor([0.7, 0.2, 0.1])
    T = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]])
    y = torch.repeat_interleave(torch.arange(3), (true @ T * 1000).round().long())
    assert noise_rate(T, y).item() == pytest.approx(0.7 * 0.5 + 0.1 * 0.2, abs=1e-3)
    assert 0 <= noise_rate(torch.full((3, 3), 1 / 3), y).item() <= 1  # no inverse


def test_the_noise_rate_of_a_matrix_without_an_inverse_is_the_same_each_time():
    y = torch.arange(1000) % 7
    T = torch.randn(10, 10, generator=torch.Generator().manual_seed(1)).softmax(1)
    T[1:5] = T[0]  # classes with the same anchor
    rates, kept = set(), []
    for size in range(200):
        kept.append(torch.rand(size + 1))  # so that it lies elsewhere in memory
        rates.add(noise_rate(T.clone(), y).item())
    assert len(rates) == 1
