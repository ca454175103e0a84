"""Transition matrices and the labels drawn from them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.errors import InputError
from sprl.noise import corrupt, pair, parse, symmetric

quick = settings(deadline=None, max_examples=100)
CLEAN = np.arange(20_000) % 10


@given(st.integers(2, 100), st.floats(0, 1, exclude_max=True))
@quick
def test_symmetric_spreads_the_rate_over_all_other_classes(c, share):
    rate = share * (c - 1) / c
    Q = symmetric(rate, c)
    np.testing.assert_allclose(Q.sum(1), 1)
    np.testing.assert_allclose(Q.diagonal(), 1 - rate)
    np.testing.assert_allclose(Q[~np.eye(c, dtype=bool)], rate / (c - 1))
    assert (Q.argmax(1) == np.arange(c)).all()


@given(st.integers(2, 100), st.floats(0, 0.5, exclude_max=True))
@quick
def test_pair_gives_the_rate_to_the_next_class(c, rate):
    Q = pair(rate, c)
    for i in range(c):
        expected = np.zeros(c)
        expected[i], expected[(i + 1) % c] = 1 - rate, rate
        np.testing.assert_allclose(Q[i], expected)


@pytest.mark.parametrize("rate", [-0.1, 0.9, 0.95, math.nan])
def test_symmetric_rate_out_of_bounds(rate):
    with pytest.raises(InputError, match=r"symmetric noise of .* is out of bounds: with 10 classes .* below \(c - 1\)/c = 0\.9"):
        symmetric(rate, 10)


@pytest.mark.parametrize("rate", [-0.1, 0.5, 0.8, math.nan])
def test_pair_rate_out_of_bounds(rate):
    with pytest.raises(InputError, match=r"pair noise of .* is out of bounds: .* below 0\.5"):
        pair(rate, 10)


@pytest.mark.parametrize("spec", ["symmetric:0.2", "symmetric:0.5", "symmetric:0.8", "pair:0.45"])
def test_realised_transitions_are_those_asked_for(spec):
    kind, rate = parse(spec)
    given_labels = corrupt(CLEAN, spec, 10, seed=0)
    assert abs((given_labels != CLEAN).mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / len(CLEAN))
    seen = np.zeros((10, 10))
    np.add.at(seen, (CLEAN, given_labels), 1 / 2000)
    Q = {"symmetric": symmetric, "pair": pair}[kind](rate, 10)
    assert (abs(seen - Q) <= 5 * np.sqrt(Q * (1 - Q) / 2000)).all()


def test_pair_noise_names_the_next_class_only():
    given_labels = corrupt(CLEAN, "pair:0.45", 10, seed=0)
    wrong = given_labels != CLEAN
    assert (given_labels[wrong] == (CLEAN[wrong] + 1) % 10).all()


def test_symmetric_noise_names_every_other_class():
    given_labels = corrupt(CLEAN, "symmetric:0.8", 10, seed=0)
    assert {(a, b) for a, b in zip(CLEAN.tolist(), given_labels.tolist(), strict=True)} == {(a, b) for a in range(10) for b in range(10)}


def test_the_seed_alone_decides_which_labels_are_wrong():
    before = CLEAN.copy()
    first, again, other = (corrupt(CLEAN, "symmetric:0.5", 10, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert 0.3 < (first != other).mean() < 0.9  # two independent draws
    np.testing.assert_array_equal(CLEAN, before)


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_a_rate_of_zero_changes_nothing(kind):
    np.testing.assert_array_equal(corrupt(CLEAN, f"{kind}:0", 10, seed=0), CLEAN)


@given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.floats(0, 0.49), st.sampled_from(["symmetric", "pair"]))
@quick
def test_given_labels_are_classes(c, seed, rate, kind):
    given_labels = corrupt(np.arange(200) % c, f"{kind}:{rate}", c, seed)
    assert given_labels.min() >= 0
    assert given_labels.max() < c


def test_parse():
    assert parse("symmetric:0.5") == ("symmetric", 0.5)
    assert parse("pair:.45") == ("pair", 0.45)


def test_a_bare_number_may_mean_either_of_two_options():
    with pytest.raises(InputError, match=r"--corrupt symmetric:0\.2 .*--noise-rate 0\.2"):
        parse("0.2")


@pytest.mark.parametrize("spec", ["symetric:0.2", "symetric"])
def test_an_unknown_kind_gets_a_suggestion(spec):
    with pytest.raises(InputError, match=r"unknown kind of noise 'symetric'; did you mean 'symmetric'\?"):
        parse(spec)


def test_a_kind_without_a_rate_is_told_how_to_write_it():
    with pytest.raises(InputError, match=r"noise 'pair' lacks a rate: write pair:0\.2"):
        parse("pair")
