"""The verdict on labels from their qualities."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sprl.audit import ENOUGH, SHARPNESS, WINDOW, confusions, judge, mixture_share, recalibrate, select, valley
from sprl.errors import InputError

qualities = arrays(np.float64, st.integers(1, 200), elements=st.floats(0, 1))


def heaps(n=2000, rate=0.3, apart=3.0, width=0.8, seed=0):
    """Log odds for the label: right ones around +apart, wrong ones around -apart; and which are wrong."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < rate
    return rng.normal(np.where(wrong, -apart, apart), width), wrong


def quality_of(for_label):
    return 1 / (1 + np.exp(-for_label))


@given_(qualities)
@settings(deadline=None, max_examples=200)
def test_any_qualities_get_a_sane_verdict(quality):
    verdict = judge(quality)
    assert verdict.wrong.shape == quality.shape
    assert np.isfinite(verdict.wrong).all()
    assert ((verdict.wrong >= 0) & (verdict.wrong <= 1)).all()
    assert 0 <= verdict.low <= verdict.rate <= verdict.high <= 1
    assert verdict.rate == pytest.approx(verdict.wrong.mean())


@given_(qualities)
@settings(deadline=None, max_examples=100)
def test_lower_quality_is_never_less_likely_wrong(quality):
    wrong = judge(quality).wrong[np.argsort(quality)]
    assert (np.diff(wrong) <= 1e-12).all()


@pytest.mark.parametrize("rate", [0.03, 0.2, 0.5, 0.7])
def test_two_heaps_are_told_apart(rate):
    for_label, wrong = heaps(rate=rate)
    verdict = judge(quality_of(for_label))
    assert verdict.clear
    assert verdict.low <= wrong.mean() <= verdict.high
    assert abs(verdict.rate - wrong.mean()) < 0.015
    assert ((verdict.wrong > 0.5) == wrong).mean() > 0.998


def test_the_interval_spans_what_is_counted_where_right_labels_are_trusted_little():
    """As with many small classes: a network that is sure of nothing doubts every label a bit, and the sum of doubts is too high."""
    rng = np.random.default_rng(0)
    wrong = rng.random(4000) < 0.1
    verdict = judge(quality_of(np.where(wrong, rng.normal(-2.5, 0.4, 4000), rng.normal(0.4, 0.5, 4000))))
    assert verdict.clear
    assert verdict.rate > 1.5 * wrong.mean()
    assert verdict.low <= wrong.mean() <= verdict.high


def test_one_heap_of_trusted_labels_has_no_wrong_ones():
    verdict = judge(quality_of(np.random.default_rng(0).normal(2.5, 1.0, 3000)))
    assert not verdict.clear
    assert verdict.rate < 0.001
    assert verdict.low == 0
    assert not (verdict.wrong > 0.5).any()


def test_a_heap_that_straddles_the_tie_is_not_clear_and_the_interval_says_so():
    verdict = judge(quality_of(np.random.default_rng(0).normal(0.5, 0.7, 3000)))
    assert not verdict.clear
    assert verdict.high - verdict.low > 0.15


def test_a_network_that_has_learned_nothing_accuses_nobody():
    for_label = np.random.default_rng(0).normal(-1.5, 0.8, 3000)
    verdict = judge(quality_of(for_label))
    assert (verdict.low, verdict.high, verdict.clear) == (0, 1, False)
    assert not (verdict.wrong > 0.5).any()
    assert len(select(verdict.wrong, precision=0.6).rows) == 0
    assert np.array_equal(np.argsort(-verdict.wrong), np.argsort(for_label))  # the ranking stays


def test_heaps_that_are_classes_accuse_nobody():
    """A network that knows only how large the classes are supports the large one and contradicts the small one."""
    rng = np.random.default_rng(0)
    given = np.repeat(["many", "few"], [770, 230])
    for_label = rng.normal(np.where(given == "many", 1.2, -1.2), 0.2)
    assert judge(quality_of(for_label)).clear
    verdict = judge(quality_of(for_label), given)
    assert not verdict.clear
    assert verdict.low == 0
    assert verdict.high > 0.23  # all of the class that it does not know
    assert not (verdict.wrong > 0.5).any()
    for_label[:20] = -4.0  # wrong ones in the class that it knows
    assert np.flatnonzero(judge(quality_of(for_label), given).wrong > 0.5).tolist() == list(range(20))
    rare = np.repeat(["many", "few"], [980, 20])  # too few to be a heap: they may well be wrong
    assert judge(quality_of(np.where(rare == "many", 2.0, -2.0)), rare).clear


def test_small_classes_may_hold_more_wrong_labels_than_show():
    """As many as the worst of the others, but not more than they have; the estimate and the lower end stay."""
    for_label, _ = heaps(rate=0.2)
    given = np.repeat(["many", "most", "rare", "few"], [900, 1000, 80, 20])
    for_label[1900:] = 3.0  # learned as they are
    plain, verdict = judge(quality_of(for_label)), judge(quality_of(for_label), given)
    assert (verdict.rate, verdict.low) == (plain.rate, plain.low)
    assert (verdict.high - plain.high) * 2000 == pytest.approx(100, abs=1)
    for_label[:1900] = 3.0  # none is wrong anywhere
    assert judge(quality_of(for_label), given).high == pytest.approx(judge(quality_of(for_label)).high, abs=1e-3)
    even = np.arange(2000) % 7
    for_label, _ = heaps(rate=0.2)
    assert judge(quality_of(for_label), even).high == judge(quality_of(for_label)).high


def test_wrong_labels_in_every_class_are_no_classes():
    for_label, wrong = heaps(rate=0.7)
    given = np.random.default_rng(1).integers(0, 10, len(wrong))
    assert judge(quality_of(for_label), given).clear


@given_(st.integers(2, 300))
@settings(deadline=None, max_examples=30)
def test_labels_that_all_look_right_are_ranked_all_the_same(n):
    for_label = np.linspace(1, 4, n)
    verdict = judge(quality_of(for_label[::-1]))
    assert np.argsort(-verdict.wrong, kind="stable").tolist() == list(range(n))[::-1]
    assert verdict.high > 0


def test_the_valley_by_a_fine_search():
    for_label, _ = heaps(n=20_000, rate=0.4, apart=1.5, width=0.7)
    found = valley(for_label)
    # where two normal densities of these heights cross
    assert found == pytest.approx(0.7**2 / 3 * math.log(0.4 / 0.6), abs=0.15)
    assert WINDOW[0] < found < WINDOW[1]


def test_a_handful_of_outliers_is_no_heap():
    for_label = np.concatenate([np.random.default_rng(0).normal(3, 0.5, 2000), np.full(int(2000 * ENOUGH) - 5, -2.0)])
    assert valley(for_label) is None


@given_(arrays(np.float64, st.integers(1, 60), elements=st.floats(1e-3, 1e3)))
@settings(deadline=None, max_examples=100)
def test_the_mixture_share_maximises_the_likelihood(against):
    def likelihood(r):
        return np.log(1 - r + r * against).sum()

    best = max(likelihood(r) for r in np.linspace(0, 1, 201) if (1 - r + r * against).min() > 0)
    share = mixture_share(against)
    assert 0 <= share <= 1
    assert likelihood(share) >= best - 1e-6 * max(1, abs(best))


def test_without_a_valley_the_probabilities_average_to_the_mixture_share():
    for_label = np.random.default_rng(0).normal(0.7, 1.3, 4000)
    verdict = judge(quality_of(for_label))
    assert not verdict.clear
    assert verdict.rate == pytest.approx(mixture_share(np.exp(-SHARPNESS * for_label)), abs=1e-6)


def test_select_by_precision_is_the_longest_list_that_keeps_it():
    wrong = np.array([0.99, 0.2, 0.97, 0.9, 0.6])
    rows, expected = select(wrong, precision=0.95)
    assert rows.tolist() == [0, 2, 3]
    assert expected == pytest.approx(0.99 + 0.97 + 0.9)
    assert len(select(wrong, precision=0.995).rows) == 0
    assert select(wrong, precision=0.995).expected == 0


@given_(arrays(np.float64, st.integers(1, 50), elements=st.floats(0, 1)), st.floats(0.01, 1), st.integers(1, 60))
@settings(deadline=None, max_examples=100)
def test_selections_keep_their_promise(wrong, precision, budget):
    for rows, expected in (select(wrong), select(wrong, precision), select(wrong, budget=budget), select(wrong, precision, budget)):
        assert len(set(rows.tolist())) == len(rows)
        assert (np.diff(wrong[rows]) <= 0).all()
        assert expected == pytest.approx(wrong[rows].sum())
    listed = select(wrong, precision).rows
    assert not len(listed) or wrong[listed].mean() >= precision - 1e-9
    longer = np.sort(wrong)[::-1][: len(listed) + 1]
    assert len(longer) == len(listed) or longer.mean() < precision + 1e-9
    assert len(select(wrong, budget=budget).rows) == min(budget, len(wrong))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"precision": 0}, "above 0"),
        ({"precision": 1.1}, "up to 1"),
        ({"precision": math.nan}, "out of bounds"),
        ({"budget": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_selected(asked, message):
    with pytest.raises(InputError, match=message):
        select(np.array([0.5]), **asked)


def test_verdicts_of_a_person_move_the_rest():
    wrong = np.full(1000, 0.9)
    rows = np.arange(100)
    after = recalibrate(wrong, rows, rows < 60)
    assert (after[:60] == 1).all()
    assert (after[60:100] == 0).all()
    assert after[100:] == pytest.approx(0.6, abs=0.01)
    assert recalibrate(wrong, rows[:0], rows[:0] < 0).tolist() == wrong.tolist()
    assert recalibrate(wrong, rows[:2], rows[:2] < 0)[-1] == pytest.approx(0.3)  # two verdicts do not turn nine in ten to none


@pytest.mark.parametrize("count", [50, 200])
def test_true_verdicts_on_the_most_suspicious_do_not_spoil_the_rate(count):
    for_label, wrong = heaps(rate=0.2, apart=1.5, width=0.7)
    verdict = judge(quality_of(for_label))
    rows = select(verdict.wrong, budget=count).rows
    after = recalibrate(verdict.wrong, rows, wrong[rows])
    assert after.mean() == pytest.approx(wrong.mean(), abs=0.06)
    assert wrong[select(after, precision=0.95).rows].mean() > 0.92


def test_confusions_by_hand():
    table = pd.DataFrame(
        {"given_label": ["a", "a", "b", "b"], "predicted_label": ["a", "b", "b", "b"], "wrong_probability": [0.1, 0.8, 0.3, 0.0]}
    )
    assert confusions(table, ["a", "b", "c"]).tolist() == [[pytest.approx(1.2), 0, 0], [0.8, 2, 0], [0, 0, 0]]
