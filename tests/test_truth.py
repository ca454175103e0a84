"""What the true labels tell of an epoch, against counting row by row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.truth import told


def counted(chosen, p, y, clean, seen):
    """The same by hand. Of half_precision, where labels at the edge of the half are equally likely, the least and the most it may be."""
    rows = range(len(y))
    right = [i for i in rows if y[i] == clean[i]]
    found = {"recall": 100 * sum(bool(chosen[i]) for i in right) / max(len(right), 1)}
    trained_on = [i for i in rows if chosen[i]]
    if trained_on:
        found["precision"] = 100 * sum(y[i] == clean[i] for i in trained_on) / len(trained_on)
    for name, is_right in (("p_true_right", True), ("p_true_wrong", False)):
        those = [p[i][clean[i]] for i in rows if seen[i] and (y[i] == clean[i]) == is_right]
        if those:
            found[name] = sum(those) / len(those)
    visited = [i for i in rows if seen[i]]
    if visited:
        half, bounds = max(len(visited) // 2, 1), []
        for first in (True, False):  # of equally likely labels the wrong ones first, then the right ones
            likeliest = sorted(visited, key=lambda i: (-p[i][y[i]], (y[i] == clean[i]) == first))[:half]
            bounds.append(100 * sum(y[i] == clean[i] for i in likeliest) / half)
        found["half_precision"] = tuple(bounds)
    return found


def compare(chosen, p, y, clean, seen):
    got = told(*(torch.as_tensor(np.asarray(part)) for part in (chosen, p, y, clean, seen)))
    expected = counted(*(np.asarray(part).tolist() for part in (chosen, p, y, clean, seen)))
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        least, most = value if isinstance(value, tuple) else (value, value)
        assert least - 1e-4 <= got[name] <= most + 1e-4, name
    return got


@given(st.integers(1, 40), st.integers(2, 5), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([2, 50, 10**6]), st.integers(0, 10**6))
@settings(deadline=None, max_examples=200)
def test_it_is_what_counting_gives(n, num_classes, noise, levels, seed):
    """With few levels of probability there are many ties; rows never visited hold zeros."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(num_classes, size=n)
    y = np.where(rng.random(n) < noise, rng.integers(num_classes, size=n), clean)
    seen, chosen = rng.random(n) < rng.choice([0, 0.5, 1]), rng.random(n) < rng.choice([0, 0.5, 1])
    p = rng.integers(1, levels + 1, size=(n, num_classes)) * seen[:, None]
    p = (p / np.maximum(p.sum(1, keepdims=True), 1)).astype(np.float32)
    compare(chosen, p, y, clean, seen)


P = [[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]]


def test_by_hand():
    got = compare([True, True, False, True], P, [0, 1, 1, 0], [0, 0, 1, 1], [True] * 4)
    assert got["precision"] == pytest.approx(100 / 3)  # of rows 0, 1, 3 the first
    assert got["recall"] == 50  # of rows 0 and 2 the first
    assert got["half_precision"] == 50  # rows 3 (0.9, wrong) and 2 (0.8, right)
    assert got["p_true_right"] == pytest.approx((0.7 + 0.8) / 2)
    assert got["p_true_wrong"] == pytest.approx((0.6 + 0.1) / 2)


def test_nothing_chosen_has_no_precision():
    got = compare([False] * 4, P, [0, 1, 1, 0], [0, 0, 1, 1], [True] * 4)
    assert "precision" not in got
    assert got["recall"] == 0


def test_without_wrong_or_right_labels():
    y = np.array([0, 1, 1, 0])
    got = compare([True] * 4, P, y, y, [True] * 4)
    assert "p_true_wrong" not in got
    assert (got["precision"], got["recall"], got["half_precision"]) == (100, 100, 100)
    got = compare([True] * 4, P, 1 - y, y, [True] * 4)
    assert "p_true_right" not in got
    assert (got["precision"], got["recall"], got["half_precision"]) == (0, 0, 0)


def test_rows_never_visited_tell_nothing():
    y, clean = [0, 1, 1, 0], [0, 0, 1, 1]
    got = compare([True] * 4, [[0, 0], P[1], P[2], [0, 0]], y, clean, [False, True, True, False])
    assert got["half_precision"] == 100  # of the two visited the second, whose label is right
    assert got["p_true_right"] == pytest.approx(0.8)
    assert got["p_true_wrong"] == pytest.approx(0.6)
    assert compare([True] * 4, np.zeros((4, 2)), y, clean, [False] * 4).keys() == {"precision", "recall"}


def test_half_of_an_odd_number_is_rounded_down_and_is_never_none():
    assert compare([True] * 3, P[:3], [0, 1, 1], [0, 1, 0], [True] * 3)["half_precision"] == 0  # row 2 alone
    assert compare([True], P[:1], [0], [0], [True])["half_precision"] == 100


def test_of_equally_likely_labels_any_may_be_in_the_half():
    even = np.full((6, 2), 0.5)
    got = compare([True] * 6, even, [0] * 6, [0, 0, 0, 1, 1, 1], [True] * 6)
    assert got["half_precision"] == pytest.approx(np.round(got["half_precision"] * 3 / 100) * 100 / 3)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_predictions_in_two_bytes(kind):
    part = [torch.tensor(values) for values in ([True, False], [[0.75, 0.25], [0.5, 0.5]], [0, 1], [0, 0], [True, True])]
    part[1] = part[1].to(kind)
    assert told(*part) == {"precision": 100, "recall": 100, "half_precision": 100, "p_true_right": 0.75, "p_true_wrong": 0.5}
