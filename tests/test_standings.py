"""What a comparison makes of records: the table, the sentence, the chart."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from sprl import chart, compare
from sprl.compare import Job, Standing, fitting, legend, markdown, standings, table, verdict
from sprl.config import Config
from sprl.methods import METHODS
from sprl.store import Record


def record(method, seed, accuracy, precision=(90.0,), seconds=0.5, together=1, device="cpu"):
    """As far as tables look at it."""
    T = len(accuracy)
    config = {"method": method, "seed": seed, "epochs": T, "weights": None}
    curves = {"epoch": [*range(1, T + 1)], "test_accuracy": [*accuracy], "precision": [*precision] * T, "recall": [50.0] * T}
    rest = {"n": 1, "classes": 2, "test": 3, "summary": {}, "seconds": seconds * T, "together": together}
    words = {"data": "d", "fingerprint": "f", "labels": "l", "device": device, "precision": "fp32", "step": "eager", "finished": ""}
    key = f"{method}-{seed}"
    rest["weights"] = None
    return Record(
        key=key, config=config, edition=1, curves=curves, seconds_an_epoch=seconds, threads=1, versions={}, revision=None, **rest, **words
    )


def places(**scores):
    """Standings of methods, each with its accuracies by seed."""
    records = {r.key: r for method, values in scores.items() for seed, v in enumerate(values) for r in [record(method, seed, [v] * 12)]}
    jobs = [Job(Config(method=r.method, seed=r.seed), r.key) for r in records.values()]
    return standings(jobs, records)


def test_the_table_is_the_records_by_hand():
    one, two = record("sprl", 0, [10, *range(80, 92)]), record("sprl", 1, [99, *range(70, 82)], seconds=0.25)
    other = record("standard", 0, [50.0] * 13, seconds=2.0)
    jobs = [Job(Config(method=m, seed=s), f"{m}-{s}") for m, s in (("standard", 0), ("sprl", 0), ("sprl", 1))]
    ranked = standings(jobs, {r.key: r for r in (one, two, other)})
    assert [place.method for place in ranked] == ["sprl", "standard"]
    last = [np.mean(range(82, 92)), np.mean(range(72, 82))]  # 86.5, 76.5
    assert ranked[0].last10 == pytest.approx((np.mean(last), np.std(last, ddof=1)))
    assert ranked[0].best == pytest.approx((95.0, np.std([91, 99], ddof=1)))
    assert ranked[0].seconds == pytest.approx((0.375, np.std([0.5, 0.25], ddof=1)))
    assert table(ranked) == [
        ["method", "last ten", "best", "precision", "recall", "s/epoch"],
        ["sprl", "81.5±7.1", "95.0±5.7", "90.0±0.0", "50.0±0.0", "0.375±0.177"],
        ["standard", "50.0", "50.0", "90.0", "50.0", "2.00"],
    ]
    assert "over 1 to 2 seeds" in legend(ranked)


def test_a_run_that_failed_is_marked():
    jobs = [Job(Config(method=m, seed=s), f"{m}-{s}") for m in ("sprl", "standard") for s in (0, 1)]
    kept = {r.key: r for r in (record("standard", 0, [60.0]), record("standard", 1, [62.0]))}
    ranked = standings(jobs, kept | {"sprl-1": record("sprl", 1, [90.0])})
    assert table(ranked)[1][:2] == ["sprl *", "90.0"]
    ranked = standings(jobs, kept)
    assert [row[:2] for row in table(ranked)[1:]] == [["standard", "61.0±1.4"], ["sprl *", "-"]]
    assert verdict(ranked) == "standard: 61.0 %; deviation over 2 seeds 1.4; there is nothing to compare it with"
    assert "\\* sprl, seed 0 failed: why" in markdown("t", ranked, jobs, {"sprl, seed 0": "why"})
    assert verdict(standings(jobs, {})) == "no run came to its end"


def test_seconds_that_cannot_be_compared_are_called_so():
    def words(*runs):
        return legend([Standing("sprl", tuple(record("sprl", seed, [60.0], together=r, device=d) for seed, (r, d) in enumerate(runs)))])

    assert "seconds an epoch; mean" in words((1, "cpu"), (1, "cpu"))
    assert "seconds an epoch (2 runs side by side);" in words((2, "cpu"), (2, "cpu"))
    assert "seconds an epoch (up to 4 runs side by side);" in words((4, "cpu"), (1, "cpu"))
    assert "seconds an epoch (on a GPU and cpu, which differ);" in words((1, "cpu"), (1, "a GPU"))


def test_methods_left_out_are_named():
    text = markdown("t", places(sprl=[90.0]), [], {}, ["co-teaching", "co-teaching+"])
    assert "left out, as nobody knows the share of wrong labels that they need (--noise-rate): co-teaching, co-teaching+" in text
    assert "left out" not in markdown("t", places(sprl=[90.0]), [], {})


def test_where_the_truth_is_not_known_the_columns_are_left_out():
    bare = record("sprl", 0, [60.0])
    for name in ("precision", "recall"):
        del bare.curves[name]
    ranked = [Standing("sprl", (bare,))]
    assert table(ranked)[0] == ["method", "last ten", "best", "s/epoch"]
    assert "precision" not in legend(ranked)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": [96, 97], "b": [93, 94.5]}, "a won: 96.5 %, 2.8 points ahead of b; more than the deviations over 2 seeds, 0.7 and 1.1"),
        ({"b": [93, 96], "a": [96, 97]}, "a won: 96.5 %, 2.0 points ahead of b; no more than the deviations over 2 seeds, 0.7 and 2.1"),
        ({"a": [96], "b": [93]}, "a won: 96.0 %, 3.0 points ahead of b; one seed does not tell how much of that is chance"),
        ({"a": [96, 97], "b": [93]}, "a won: 96.5 %, 3.5 points ahead of b; one seed does not tell how much of that is chance"),
        ({"a": [96, 97, 98], "b": [93, 95]}, "a won: 97.0 %, 3.0 points ahead of b; more than the deviations over 3 and 2 seeds, 1.0 and "
         "1.4"),
        ({"a": [96, 97], "b": [96, 97], "c": [94, 95]}, "a and b are level: 96.5 %, 2.0 points ahead of c; more than the deviations over 2 "
         "seeds, 0.7 and 0.7"),
        ({"a": [96, 97], "b": [96, 97.04]}, "b and a are level: 96.5 %; deviations over 2 seeds, 0.7 and 0.7"),
        ({"a": [96, 97]}, "a: 96.5 %; deviation over 2 seeds 0.7; there is nothing to compare it with"),
        ({"a": [96]}, "a: 96.0 %; one seed; there is nothing to compare it with"),
    ],
)  # fmt: skip
def test_who_won(scores, words):
    assert verdict(places(**scores)) == words


def test_the_table_fits_a_narrow_terminal():
    ranked = places(**{method: [100.0, 99.0, 0.0] for method in METHODS})
    rows = table(ranked)
    assert len(rows) == 1 + len(METHODS)
    assert sum(max(map(len, column)) for column in zip(*rows, strict=True)) + 2 * (len(rows[0]) - 1) <= 80


def test_a_narrower_one_gets_less_of_it():
    rows = table(places(**{method: [99.0, 98.0] for method in METHODS}))
    whole = sum(compare.widths(rows)) + 2 * (len(rows[0]) - 1)
    assert fitting(rows, whole) == rows
    bare = fitting(rows, whole - 1)
    assert bare[0] == rows[0]
    assert "±" not in str(bare)
    assert [len(fitting(rows, width)[0]) for width in (whole - 1, 48, 1)] == [6, 4, 2]
    for width in range(30, whole):
        assert all(sum(compare.widths(found)) + 2 * (len(found[0]) - 1) <= width for found in [fitting(rows, width)])


def test_names_at_the_ends_of_lines_do_not_touch():
    rng = np.random.default_rng(0)
    for _ in range(200):
        heights = {str(i): float(h) for i, h in enumerate(rng.choice([*rng.random(6), 0.5, 0.5], 12))}
        placed = chart.apart(heights)
        up = sorted(placed, key=placed.__getitem__)
        assert [heights[name] for name in up] == sorted(heights.values())
        assert all(placed[b] - placed[a] > chart.LINE - 1e-9 for a, b in itertools.pairwise(up))
    assert chart.apart({"a": 0.1, "b": 0.9}) == {"a": 0.1, "b": 0.9}
    assert list(chart.apart({"first": 0.5, "second": 0.5})) == ["second", "first"]  # from below


@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_a_chart_of_any_length(tmp_path, epochs):
    rng = np.random.default_rng(0)
    curves = {method: 50 + 50 * rng.random((seeds, epochs)) for method, seeds in zip(METHODS, itertools.cycle((1, 3)), strict=False)}
    chart.draw(curves, "a $b_{ title", Path(tmp_path / "chart"))
    assert (tmp_path / "chart").read_bytes().startswith(b"\x89PNG")


def test_no_two_methods_look_alike():
    assert len({chart.style(method) for method in METHODS}) == len(METHODS)
    assert compare.ALL not in METHODS
