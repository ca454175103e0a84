"""The schedules against hand-computed values and against Eq. 6 and 11 in exact fractions."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl import schedules

quick = settings(deadline=None, max_examples=200)


@st.composite
def plans(draw):
    """Arguments of curriculum_size but for t, with m as start_size gives it."""
    n, T = draw(st.integers(1, 3000)), draw(st.integers(2, 300))
    m = schedules.start_size(draw(st.integers(0, n)), n)
    return {"n": n, "m": m, "T": T, "T1": draw(st.integers(1, T - 1)), "K": draw(st.integers(1, 30))}


def equation_6(t, n, m, T, T1, K):
    """Eq. 6 as it is written, both floors at least 1."""
    if t <= T1:
        return n
    every = max(1, math.floor(Fraction(T - T1) / (K - Fraction(m * K, n) + 1)))
    return min(m + math.floor(Fraction(t - T1, every)) * max(1, math.floor(Fraction(n, K))), n)


def first_epoch_with_all(size, n, T1, T):
    return next(t for t in range(T1 + 1, T + 1) if size(t) == n)


@given(plans())
@quick
def test_curriculum_size_is_equation_6(plan):
    epochs = range(1, plan["T"] + 1)
    assert [schedules.curriculum_size(t, **plan) for t in epochs] == [equation_6(t, **plan) for t in epochs]


@given(plans())
@quick
def test_curriculum_only_grows_after_warmup_and_never_beyond_n(plan):
    sizes = [schedules.curriculum_size(t, **plan) for t in range(plan["T1"] + 1, plan["T"] + 1)]
    assert sizes == sorted(sizes)
    assert plan["m"] <= sizes[0]
    assert sizes[-1] <= plan["n"]


@pytest.mark.parametrize(
    ("m", "sizes"),
    [
        # a step of n/K = 5000 every 180/6 = 30 epochs
        (25_000, {1: 50_000, 20: 50_000, 21: 25_000, 49: 25_000, 50: 30_000, 169: 45_000, 170: 50_000, 200: 50_000}),
        # every 180/10 = 18 epochs
        (5_000, {20: 50_000, 21: 5_000, 37: 5_000, 38: 10_000, 181: 45_000, 182: 50_000, 200: 50_000}),
    ],
    ids=["m = n/2", "m = n/10"],
)
def test_curriculum_size_by_hand(m, sizes):
    assert {t: schedules.curriculum_size(t, n=50_000, m=m, T=200, T1=20) for t in sizes} == sizes


@pytest.mark.parametrize(("m", "epoch"), [(25_000, 170), (8_000, 191)])
def test_epoch_at_which_equation_6_holds_all_samples(m, epoch):
    def size(t):
        return schedules.curriculum_size(t, n=50_000, m=m, T=200, T1=20)

    assert first_epoch_with_all(size, 50_000, 20, 200) == epoch


def test_where_K_does_not_divide_n_the_steps_are_rounded_down():
    # 180 / (11 - 10/19) = 17.2, so ten steps of floor(19/10) = 1: eight samples never enter
    sizes = {t: schedules.curriculum_size(t, n=19, m=1, T=200, T1=20) for t in (21, 36, 37, 200)}
    assert sizes == {21: 1, 36: 1, 37: 2, 200: 11}


def test_short_schedules_grow_every_epoch():
    # floor(4/10) = 0 would divide by zero
    assert [schedules.curriculum_size(t, n=100, m=10, T=5, T1=1) for t in range(1, 6)] == [100, 20, 30, 40, 50]


@pytest.mark.parametrize(("tenths", "second", "last"), [(1, 38, 166), (2, 40, 166), (3, 43, 169), (4, 47, 172), (5, 52, 172)])
def test_released_growth_steps_at_the_epochs_of_the_code(tenths, second, last):
    """Of training, which takes delta(t - 1): shared facts of the code, T1 20."""
    size = {t: schedules.curriculum_size_released(t - 1, n=50_000, tenths=tenths, T=200, T1=20) for t in range(2, 201)}
    assert (size[21], size[22], size[second - 1]) == (50_000, 5_000 * tenths, 5_000 * tenths)
    assert size[second] == 5_000 * (tenths + 1)
    assert (size[last - 1], size[last]) == (45_000, 50_000)


@given(st.integers(1, 3000), st.integers(1, 3000), st.data())
@quick
def test_start_tenths_are_whole_tenths_of_those_counted_plus_one(n, counted, data):
    """However the number of the confident was rounded when it was scaled to n."""
    counted = min(n, counted)
    confident = data.draw(st.integers(0, counted))
    assert schedules.start_tenths(confident * n // counted, n, counted) == min(math.floor(Fraction(10 * confident, counted)) + 1, 5)


@given(st.integers(1, 3000), st.integers(1, 5), st.integers(2, 300), st.data())
@quick
def test_released_growth_steps_through_tenths(n, tenths, T, data):
    T1 = data.draw(st.integers(1, T - 1))
    sizes = [schedules.curriculum_size_released(t, n=n, tenths=tenths, T=T, T1=T1) for t in range(T1 + 1, T + 1)]
    assert sizes == sorted(sizes)
    assert set(sizes) <= {n * k // 10 for k in range(tenths, 11)}


@given(st.floats(0.01, 1e4), st.integers(2, 300), st.data())
@quick
def test_resistance_weight_rises_from_zero_to_its_largest(gamma_max, T, data):
    T1 = data.draw(st.integers(1, T - 1))
    weights = [schedules.resistance_weight(t, gamma_max=gamma_max, T=T, T1=T1) for t in range(T1, T + 1)]
    assert weights[0] == 0
    assert weights[-1] == gamma_max
    assert all(a < b for a, b in itertools.pairwise(weights))


def test_resistance_weight_by_hand():
    # halfway, mu = 1/2: e^(-5/4)
    assert schedules.resistance_weight(110, gamma_max=80.0, T=200, T1=20) == pytest.approx(80 * math.exp(-1.25))


@pytest.mark.parametrize("n", [10, 30, 1000, 50_000])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_largest_resistance_is_exact_at_whole_tenths(n, k):
    m = k * n // 10
    assert schedules.largest_resistance(7.0, m=m, n=n) == 7.0 * (10 - k)
    assert schedules.largest_resistance(7.0, m=m + 1, n=n) == 7.0 * (9 - k)


@given(st.integers(1, 10**6), st.data())
@quick
def test_largest_resistance_is_the_ceiling(n, data):
    m = data.draw(st.integers(1, n))
    assert schedules.largest_resistance(1.0, m=m, n=n) == 10 - math.ceil(Fraction(10 * m, n))


@pytest.mark.parametrize(
    ("confident", "n", "m"),
    [(0, 100, 10), (10, 100, 10), (11, 100, 11), (50, 100, 50), (51, 100, 50), (100, 100, 50), (0, 5, 1), (5, 5, 2), (1, 1, 1)],
)
def test_start_size_is_clamped(confident, n, m):
    assert schedules.start_size(confident, n) == m


@pytest.mark.parametrize(("noise_rate", "m"), [(0.5, 325), (0.2, 500), (0.0, 500), (0.8, 130), (0.9, 100)])
def test_start_size_from_a_known_noise_rate(noise_rate, m):
    assert abs(schedules.start_size_known(noise_rate, 1000) - m) <= 1  # 0.65 (1 - rate) n may round either way


def test_learning_rate_and_beta1_change_after_two_fifths():
    lr = {t: schedules.learning_rate(t, lr=1e-3, T=200) for t in (1, 80, 81, 82, 200)}
    assert lr == pytest.approx({1: 1e-3, 80: 1e-3, 81: 1e-3, 82: 1e-3 * 119 / 120, 200: 1e-3 / 120})
    assert [schedules.adam_beta1(t, T=200) for t in (1, 80, 81, 200)] == [0.9, 0.9, 0.1, 0.1]


@given(st.integers(1, 300))
@quick
def test_learning_rate_is_constant_then_falls_in_equal_steps(T):
    D = math.floor(Fraction(2, 5) * T)
    rates = [schedules.learning_rate(t, lr=1.0, T=T) for t in range(1, T + 1)]
    assert rates[: D + 1] == [1.0] * (D + 1)
    assert rates[D:] == pytest.approx([1 - i / (T - D) for i in range(T - D)])
    assert rates[-1] == pytest.approx(1 / (T - D))


def test_forget_rate_by_hand():
    rates = [schedules.forget_rate(t, tau=0.5, T_k=10) for t in (1, 2, 6, 10, 11, 200)]
    assert rates == pytest.approx([0, 0.05, 0.25, 0.45, 0.5, 0.5])
    assert [schedules.forget_rate(t, tau=0.2, T_k=1) for t in (1, 2, 3)] == [0, 0.2, 0.2]
    assert [schedules.forget_rate(t, tau=0.2, T_k=0) for t in (1, 2)] == [0.2, 0.2]


@pytest.mark.parametrize(("c", "epoch"), [(0.5, 101), (1.0, 11), (2.0, 5)])
def test_the_power_is_of_the_epoch_so_tau_is_reached_without_a_jump(c, epoch):
    rates = [schedules.forget_rate(t, tau=0.4, T_k=10, c=c) for t in range(1, 120)]
    assert rates[epoch - 2] < rates[epoch - 1] == rates[-1] == 0.4
    assert rates[epoch - 2] == pytest.approx(0.4 * (epoch - 2) ** c / 10)


@given(st.floats(0, 0.99), st.integers(0, 30), st.floats(0.1, 3))
@quick
def test_forget_rate_rises_to_tau(tau, T_k, c):
    rates = [schedules.forget_rate(t, tau=tau, T_k=T_k, c=c) for t in range(1, 60)]
    assert rates == sorted(rates)
    assert rates[0] == (0 if T_k else tau)
    assert rates[-1] <= tau


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 10), st.integers(1, 60))
@quick
def test_self_paced_share_is_all_then_goes_from_start_to_end_in_equal_steps(start, end, warmup, T):
    shares = [schedules.self_paced_share(t, start=start, end=end, T=T, warmup=warmup) for t in range(1, T + 1)]
    assert shares[:warmup] == [1.0] * min(warmup, T)
    paced = shares[warmup:]
    if paced:
        assert paced[0] == start
    if len(paced) > 1:
        step = (end - start) / (len(paced) - 1)
        assert paced[-1] == pytest.approx(end)
        assert [b - a for a, b in itertools.pairwise(paced)] == pytest.approx([step] * (len(paced) - 1), abs=1e-12)
