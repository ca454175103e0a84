"""Transition matrices and the labels drawn from them."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl import noise, store
from sprl.config import Config
from sprl.data.catalogue import load
from sprl.errors import InputError, SprlWarning
from sprl.noise import checked, corrupt, expected, pair, parse, requested, symmetric, symmetric_all, transition
from sprl.run import known_rate, prepare

quick = settings(deadline=None, max_examples=100)
CLEAN = np.arange(20_000) % 10
SKEWED = [[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]


@given(st.integers(2, 100), st.floats(0, 1 - 1e-9))  # nearer to 1 it is rounded to a rate that is out of bounds
@quick
def test_symmetric_spreads_the_rate_over_all_other_classes(c, share):
    rate = share * (c - 1) / c
    Q = symmetric(rate, c)
    np.testing.assert_allclose(Q.sum(1), 1)
    np.testing.assert_allclose(Q.diagonal(), 1 - rate)
    np.testing.assert_allclose(Q[~np.eye(c, dtype=bool)], rate / (c - 1))
    assert (Q.argmax(1) == np.arange(c)).all()


@given(st.integers(2, 100), st.floats(0, 1, exclude_max=True))
@quick
def test_symmetric_all_is_symmetric_noise_of_a_lower_rate(c, share):
    Q = symmetric_all(share, c)
    np.testing.assert_allclose(Q.sum(1), 1)
    np.testing.assert_allclose(Q.diagonal(), 1 - share + share / c)  # drawn anew, a label may be the true one
    np.testing.assert_allclose(Q, symmetric(share * (c - 1) / c, c), atol=1e-12)
    np.testing.assert_allclose(expected(f"symmetric-all:{share!r}", np.arange(c), c), share * (c - 1) / c, atol=1e-9)


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


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, math.nan])
def test_symmetric_all_rate_out_of_bounds(rate):
    with pytest.raises(InputError, match=r"symmetric-all noise of .* is out of bounds: .* below 1; with 10 classes 0\.9 of these"):
        symmetric_all(rate, 10)


@pytest.mark.parametrize(
    ("spec", "rate"),
    [
        ("symmetric:0.2", 0.2),
        ("symmetric:0.5", 0.5),
        ("symmetric:0.8", 0.8),
        ("symmetric-all:0.5", 0.45),
        ("symmetric-all:0.9", 0.81),
        ("pair:0.45", 0.45),
    ],
)
def test_realised_transitions_are_those_asked_for(spec, rate):
    given_labels = corrupt(CLEAN, spec, 10, seed=0)
    assert expected(spec, CLEAN, 10) == rate  # exactly: it names runs
    assert abs((given_labels != CLEAN).mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / len(CLEAN))
    seen = np.zeros((10, 10))
    np.add.at(seen, (CLEAN, given_labels), 1 / 2000)
    kind, asked = parse(spec)
    Q = {"symmetric": symmetric, "symmetric-all": symmetric_all, "pair": pair}[kind](asked, 10)
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


@pytest.mark.parametrize("kind", [torch.tensor, list, lambda y: torch.tensor(y, dtype=torch.uint8)])
def test_labels_of_any_kind_are_corrupted_alike(kind):
    np.testing.assert_array_equal(corrupt(kind(CLEAN), "symmetric:0.5", 10, seed=3), corrupt(CLEAN, "symmetric:0.5", 10, seed=3))


@pytest.mark.parametrize("clean", [[], np.zeros(0, np.int64)])
def test_no_labels_stay_none(clean):
    assert corrupt(clean, "pair:0.2", 2, seed=0).tolist() == []


@pytest.mark.parametrize(
    ("clean", "why"),
    [
        (torch.zeros(4), "labels must be one whole number a sample, got float32"),
        (np.zeros(4), "got float64"),
        (["cat", "dog"], "got <U3"),
        ([[0, 1]], r"got int64 of shape \(1, 2\)"),
        ([0, 2], r"labels must lie in 0\.\.1, got 0\.\.2"),
    ],
)
def test_what_are_no_labels(clean, why):
    with pytest.raises(InputError, match=why):
        corrupt(clean, "pair:0.2", 2, seed=0)


@pytest.mark.parametrize("kind", ["symmetric", "symmetric-all", "pair"])
def test_a_class_alone_has_no_noise(kind):
    with pytest.raises(InputError, match=f"{kind} noise needs two classes or more: with 1 no label can be wrong"):
        corrupt(np.zeros(4, np.int64), f"{kind}:0.2", 1, seed=0)


@pytest.mark.parametrize("kind", ["symmetric", "symmetric-all", "pair"])
def test_a_rate_of_zero_changes_nothing(kind):
    np.testing.assert_array_equal(corrupt(CLEAN, f"{kind}:0", 10, seed=0), CLEAN)


@given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.floats(0, 0.49), st.sampled_from(["symmetric", "symmetric-all", "pair"]))
@quick
def test_given_labels_are_classes(c, seed, rate, kind):
    given_labels = corrupt(np.arange(200) % c, f"{kind}:{rate}", c, seed)
    assert given_labels.min() >= 0
    assert given_labels.max() < c


def test_parse():
    assert parse("symmetric:0.5") == ("symmetric", 0.5)
    assert parse("pair:.45") == ("pair", 0.45)
    assert parse("symmetric-all:0.5") == ("symmetric-all", 0.5)
    assert parse("matrix:C:/mine/Q.csv") == ("matrix", "C:/mine/Q.csv")
    assert parse("generated:400") == ("generated", 400)
    assert [requested(spec) for spec in ("symmetric-all:0.5", "matrix:Q.csv", "generated:400")] == [0.5, None, None]


def test_a_bare_number_may_mean_either_of_two_options():
    with pytest.raises(InputError, match=r"--corrupt symmetric:0\.2 .*--noise-rate 0\.2"):
        parse("0.2")


@pytest.mark.parametrize("spec", ["symetric:0.2", "symetric"])
def test_an_unknown_kind_gets_a_suggestion(spec):
    with pytest.raises(InputError, match=r"unknown kind of noise 'symetric'; did you mean 'symmetric'\?"):
        parse(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("pair", r"noise 'pair' lacks a rate: write pair:0\.2"),
        ("pair:", r"noise 'pair:' lacks a rate: write pair:0\.2"),
        ("symmetric-all:half", r"lacks a rate: write symmetric-all:0\.2"),
        ("matrix", "lacks a file: write matrix:Q.csv"),
        ("matrix:", "lacks a file"),
        *((f"generated{value}", "lacks the number of right labels a class, 1 or more: write generated:400") for value in ("", ":", ":x")),
        *((f"generated:{value}", "right labels a class, 1 or more") for value in ("0", "-3", "2.5", "nan", "inf")),
    ],
)
def test_a_kind_without_its_value_is_told_how_to_write_it(spec, why):
    with pytest.raises(InputError, match=why):
        parse(spec)


@st.composite
def distributions(draw):
    """A matrix of transitions, many of which are excluded, and a seed."""
    c = draw(st.integers(2, 12))
    weights = np.array(draw(st.lists(st.lists(st.sampled_from([0, 0, 1, 3, 10]), min_size=c, max_size=c), min_size=c, max_size=c)), float)
    weights[weights.sum(1) == 0] = 1
    return weights / weights.sum(1, keepdims=True), draw(st.integers(0, 2**32 - 1))


@given(distributions())
@quick
def test_any_matrix_is_followed(case):
    Q, seed = case
    c, n = len(Q), 600
    clean = np.arange(n * c) % c
    try:
        noise.NOISES["drawn"] = lambda rate, num_classes: Q
        given_labels = corrupt(clean, "drawn:0.5", c, seed)
        assert expected("drawn:0.5", clean, c) == pytest.approx(1 - Q.diagonal().mean(), abs=1e-9)
    finally:
        del noise.NOISES["drawn"]
    seen = np.zeros((c, c))
    np.add.at(seen, (clean, given_labels), 1 / n)
    assert (seen[Q == 0] == 0).all()
    assert (abs(seen - Q) <= 8 * np.sqrt(Q * (1 - Q) / n) + 2 / n).all()  # of very many draws


def write(path, Q):
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in Q) + "\n\n", encoding="utf-8-sig")
    elif path.suffix == ".json":
        path.write_text(json.dumps(Q))
    else:
        np.save(path, np.array(Q, np.float32))
    return f"matrix:{path}"


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".json"])
def test_a_matrix_from_a_file(tmp_path, suffix):
    spec = write(tmp_path / f"Q{suffix}", SKEWED)
    np.testing.assert_allclose(transition(spec, 3), SKEWED, atol=1e-7)
    clean = np.arange(9_000) % 3
    seen = np.zeros((3, 3))
    np.add.at(seen, (clean, corrupt(clean, spec, 3, seed=0)), 1 / 3000)
    Q = np.array(SKEWED)
    assert (abs(seen - Q) <= 5 * np.sqrt(Q * (1 - Q) / 3000) + 1e-9).all()
    assert expected(spec, clean, 3) is None  # nobody asked for a rate


NAN = [[0.5, 0.5, 0], [0, math.nan, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    ("Q", "why"),
    [
        ([[1, 0], [0, 1]], r"has the shape \(2, 2\), but must have \(3, 3\): a row a true class, a column a given one"),
        ([1, 0, 0], r"has the shape \(3,\)"),
        ([*SKEWED, [0, 0, 1]], r"has the shape \(4, 3\)"),
        (NAN, r"has nan in row 1, column 1 \(from 0\), which is no probability"),
        ([[1, 0, 0], [0, 1, 0], [0, math.inf, 0]], "has inf in row 2, column 1"),
        ([[1, 0, 0], [-0.5, 1.5, 0], [0, 0, 1]], r"has -0\.5 in row 1, column 0"),
        ([[1, 0, 0], [0.3, 0.3, 0.3], [0, 0, 1]], r"row 1 \(from 0\) of .* sums to 0\.9, not to 1"),
        ([[1, 0, 0], [0, 0, 0], [0, 0, 1]], "sums to 0, not to 1"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".json", ".csv"])
def test_what_is_no_matrix_of_transitions(tmp_path, Q, why, suffix):
    Q = [Q] if suffix == ".csv" and not isinstance(Q[0], list) else Q
    why = r"has the shape \(1, 3\)" if suffix == ".csv" and len(Q) == 1 else why
    with pytest.raises(InputError, match=why) as error:
        corrupt(np.arange(3), write(tmp_path / f"Q{suffix}", Q), 3, seed=0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("Q.csv", b"a,b\n1,0\n0,1\n", "does not hold a matrix, a line a row, numbers with commas between them: could not convert"),
        ("Q.csv", b"1,0\n1\n", "does not hold a matrix, a line a row"),
        ("Q.csv", b"\xff\xfe1,0", "does not hold a matrix"),
        ("Q.csv", b"1;0\n0;1\n", "could not convert"),
        ("Q.csv", b"", r"has the shape \(0,\)"),
        ("Q.json", b"[[1, 0], [0", r"does not hold a matrix, a list of rows, \[\[0\.9, 0\.1\], \[0\.2, 0\.8\]\]"),
        ("Q.json", b'{"a": 1}', "does not hold a matrix, a list of rows"),
        ("Q.json", b"[" * 100_000, "does not hold a matrix, a list of rows"),
        ("Q.npy", b"\x93NUMPY", "not a readable .npy file"),
        ("Q.txt", b"1,0\n0,1\n", "comes in a .csv, .npy or .json file, not in"),
        ("Q.pkl", b"", "comes in a .csv, .npy or .json file, not in"),
        ("Q.csv", None, "no such file: .*Q.csv, which is to hold a matrix of noise"),
    ],
)
def test_files_that_hold_no_matrix(tmp_path, name, content, why):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=why):
        transition(f"matrix:{tmp_path / name}", 2)


def test_pickles_and_huge_files_are_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "Q.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"not a readable \.npy file without pickled objects: the array holds Python objects"):
        transition(f"matrix:{tmp_path / 'Q.npy'}", 2)
    monkeypatch.setattr(noise, "LARGEST", 3)
    with pytest.raises(InputError, match="too large for a matrix"):
        transition(write(tmp_path / "Q.csv", SKEWED), 3)


def test_text_is_no_number():
    with pytest.raises(InputError, match="mine must be numbers, not <U1"):
        checked([["1", "0"], ["0", "1"]], 2, "mine")


def test_labels_by_a_network_have_no_matrix():
    with pytest.raises(InputError, match="generated:20 needs data to train a network on, and has no matrix: sprl train DATA --corrupt gen"):
        corrupt(CLEAN, "generated:20", 10, seed=0)


@pytest.mark.parametrize(
    ("spec", "told", "kind", "asked"),
    [("symmetric:0.3", 0.3, "symmetric", 0.3), ("symmetric-all:0.4", 0.3, "symmetric-all", 0.4), ("matrix", None, "matrix", None)],
)
def test_what_a_run_tells_of_its_noise_and_is_told_itself(pets, tmp_path, spec, told, kind, asked):
    """The two conventions have a name each; co-teaching gets the true rate."""
    Q = [[0.6, 0.4, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0.1, 0.1, 0.1, 0.7]]
    spec = write(tmp_path / "Q.csv", Q) if spec == "matrix" else spec
    run = prepare(Config(data=str(pets), corrupt=spec, method="co-teaching", epochs=1, seed=2))
    realised = float((run.data.y != run.data.clean).mean())
    assert run.config.fields["noise_rate"] == (realised if told is None else told)
    list(run)
    found = run.noise()
    assert (found["kind"], found["requested"], found["realised"], found["labeller"]) == (kind, asked, realised, None)
    summary = run.summary(run.labels())
    assert summary["noise"] == found
    assert summary["noise_rate_realised"] == realised
    record = store.record_of(run)
    assert record.summary["noise"] == found
    assert record.labels == found["labels_sha256"]
    assert store.read(store.write(tmp_path, record).parent, record.key) == record


def test_noise_of_labels_that_nobody_damaged(pets, tmp_path):
    data = load(str(pets))
    own, other = prepare(Config(epochs=1), data), tmp_path / "y.npy"
    np.save(other, np.roll(data.y, 1))
    given_labels = prepare(Config(labels=str(other), epochs=1), data)
    assert [(run.noise()["kind"], run.noise()["requested"], run.noise()["realised"]) for run in (own, given_labels)] == [
        (None, None, None),
        ("file", None, None),
    ]
    assert own.noise()["labels_sha256"] != given_labels.noise()["labels_sha256"]
    assert known_rate(data, own.config) is None


def test_a_record_of_other_labels_than_its_noise_is_left_out(pets, tmp_path):
    run = prepare(Config(data=str(pets), corrupt="symmetric-all:0.2", method="standard", epochs=1))
    list(run)
    record = store.record_of(run)
    path = store.write(tmp_path, record)
    content = json.loads(path.read_text())
    content["summary"]["noise"]["labels_sha256"] = "0" * 64
    path.write_text(json.dumps(content))
    with pytest.warns(SprlWarning, match="its noise is not that of its labels"):
        assert store.read(tmp_path, record.key) is None
