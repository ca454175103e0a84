"""`--shard I/N`: the parts of several commands, and what they come to together."""

import numpy as np
import pytest
from conftest import clusters
from hypothesis import given
from hypothesis import strategies as st
from typed import sprl

from sprl import store
from sprl.run import Run
from sprl.spread import Shard, Spread, shard_of

WORDS = ("compare", "pets.npz", "--corrupt", "symmetric:0.3", "--methods", "standard,curriculum", "--seeds", 3, "--epochs", 4, "--lr", 0.01)
BENCH = ("bench", "table2", "--short", "--only", "standard,bootstrap", "--seeds", 3, "--jobs", 1)


@pytest.fixture
def home(tmp_path, monkeypatch):
    x, y = clusters(120)
    np.savez(tmp_path / "pets.npz", x=x[:80], y=y[:80], x_test=x[80:], y_test=y[80:])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def seen(monkeypatch):
    """Runs that are trained from now on, by method and seed."""
    found, train = [], Run.train

    def noting(run, pause):
        found.append((run.config.method, run.config.seed))
        return train(run, pause)

    monkeypatch.setattr(Run, "train", noting)
    return found


@given(runs=st.integers(0, 60), of=st.integers(1, 70))
def test_shards_are_disjoint_and_complete(runs, of):
    parts = [Spread(shard=Shard(number, of)).part(range(runs)) for number in range(1, of + 1)]
    assert sorted(run for part in parts for run in part) == list(range(runs))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == [run for run in range(runs) if run % of == number] for number, part in enumerate(parts))
    assert Spread().part(range(runs)) == list(range(runs))


def test_two_shards_make_the_whole(home, capsys, seen):
    code, out, error = sprl(capsys, *WORDS, "--jobs", 1, "--shard", "1/2")
    assert (code, error) == (0, "")
    assert sorted(seen) == [("curriculum", 1), ("standard", 0), ("standard", 2)]
    assert "Shard     1/2: 3 runs of these, 3 to train" in out
    assert "3/3 " in out
    assert "Shard     1/2 has ended: 3 of 6 runs have records" in out
    assert "table and chart come with the last of them, or from the same command without --shard" in " ".join(out.split())
    assert "Result" not in out
    assert not (home / "compare").exists()

    seen.clear()
    code, out, _ = sprl(capsys, *WORDS, "--jobs", 1, "--shard", "1/2")  # which runs these are does not depend on what is done
    assert (code, seen, "has ended: 3 of 6 runs have records" in out) == (0, [], True)

    code, last, _ = sprl(capsys, *WORDS, "--jobs", 1, "--shard", "2/2")
    assert code == 0
    assert sorted(seen) == [("curriculum", 0), ("curriculum", 2), ("standard", 1)]
    assert "2/2 has ended: 6 of 6 runs have records" in last
    assert "Result" in last
    names = {path.name: path.read_bytes() for path in (home / "compare" / "pets-symmetric-0.3").iterdir()}
    seen.clear()
    code, out, _ = sprl(capsys, *WORDS)
    assert (code, seen, len(store.all(home / "records"))) == (0, [], 6)
    assert out.splitlines()[-10:] == last.splitlines()[-10:]  # the same table
    for name in ("compare.md", "compare.json"):
        assert (home / "compare" / "pets-symmetric-0.3" / name).read_bytes() == names[name]


def test_a_shard_that_fails_or_has_no_runs(home, capsys, seen):
    code, out, error = sprl(capsys, *WORDS, "--jobs", 1, "--shard", "2/2", "--lr", 1e30)
    assert code == 2
    assert len(error.splitlines()) == 3
    assert "2/2 has ended: 0 of 6 runs have records" in out
    seen.clear()
    code, out, error = sprl(capsys, *WORDS, "--shard", "9/9")
    assert (code, seen, error) == (0, [], "")
    assert "9/9: 0 runs of these, 0 to train" in out


def test_shards_of_a_table_of_the_paper(home, capsys, seen):
    code, out, error = sprl(capsys, *BENCH, "--shard", "2/2")
    assert (code, error) == (0, "")
    assert sorted(seen) == [("bootstrap", 0), ("bootstrap", 2), ("standard", 1)]
    assert "3 runs of shard 2/2, 0 of them in records/ already" in out
    assert "Shard     2/2 has ended: 3 of 6 runs have records" in out
    code, out, _ = sprl(capsys, *BENCH, "--shard", "1/2")
    assert (code, "1/2 has ended: 6 of 6 runs have records" in out) == (0, True)
    assert sorted(seen) == [(method, seed) for method in ("bootstrap", "standard") for seed in (0, 1, 2)]
    code, out, _ = sprl(capsys, *BENCH, "--plan")
    assert (code, "6 runs, 6 of them in records/ already" in out) == (0, True)


@pytest.mark.parametrize("command", ["compare", "bench table2 --short"])
@pytest.mark.parametrize("text", ["3/2", "0/4", "x", "1/0", "1", "/", "-1/4", "1/2/3", "1.0/2", "1/9999999999", ""])
def test_another_part_gets_one_line(home, capsys, command, text):
    code, out, error = sprl(capsys, *command.split(), f"--shard={text}")
    assert (code, out) == (2, "")
    assert error == f"sprl: --shard {text!r} must be I/N, the I-th of N parts, such as 1/4 to 4/4\n"
    assert not (home / "records").exists()


def test_a_part_is_said_as_it_was_given():
    assert str(shard_of("03/12")) == "3/12"
    assert shard_of("1/1") == (1, 1)


@pytest.mark.parametrize("words", [["--gpu", "0.5"], ["--engine", "ray", "--gpu", "1.5"], ["--engine", "spark"]])
def test_other_bad_ways_to_spread(home, capsys, words):
    for command in ("compare", "bench table2 --short"):
        code, _, error = sprl(capsys, *command.split(), *words)
        assert (code, len(error.splitlines())) == (2, 1)
        assert "--engine" in error or "--gpu" in error
    assert not (home / "records").exists()
