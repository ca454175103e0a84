"""What `sprl bench` takes as there, promises, and leaves out."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import clusters
from typed import sprl

from sprl import files
from sprl.config import Config
from sprl.methods import METHODS, SPRL
from sprl.paper import bench
from sprl.paper.bench import How, look, seconds_of
from sprl.paper.recipes import RECIPES
from sprl.run import Run, read
from sprl.spread import Spread

SHORT = ("bench", "table2", "--short", "--jobs", 1)
ONE = (*SHORT, "--only", "standard digits")
PETS = (*SHORT, "--data", "pets.npz")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with rows of four classes, and of two."""
    for name, classes in (("pets", 4), ("two", 2)):
        x, y = clusters(num_classes=classes)
        np.savez(tmp_path / f"{name}.npz", x=x[:200], y=y[:200], x_test=x[300:], y_test=y[300:])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def kept():
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path("records").glob("*.json")}


def test_a_plan_trains_no_network_that_gives_labels(home, trained, monkeypatch, capsys):
    def known(*words):
        found = read(*words)
        return replace(found, clean=found.y)

    read = bench.read
    monkeypatch.setattr(bench, "read", known)  # as of a folder of CIFAR's files
    words = (*PETS, "--corrupt", "generated:5", "--only", "pets standard generated:5")
    code, out, error = sprl(capsys, *words)
    assert (code, error, trained) == (0, "", [("standard", 20), ("standard", 200)])  # the network that gives the labels, and the run
    before = kept()
    assert "1 run, 1 of them in records/ already" in sprl(capsys, *words, "--plan")[1]
    shutil.rmtree("cache")
    trained.clear()
    code, out, error = sprl(capsys, *words, "--plan")
    assert (code, error, trained) == (0, "", [])
    assert "1 run, 0 of them in records/ already" in out
    assert not Path("cache").exists()
    assert sprl(capsys, *words)[0] == 0
    assert (trained, kept()) == ([("standard", 20)], before)  # once the labels are there, so is the record


def test_a_run_that_cannot_be_made_hides_no_other(home, trained, capsys):
    np.savetxt("Q.csv", np.eye(4), delimiter=",")
    words = (*PETS, "--corrupt", "matrix:Q.csv", "--corrupt", "pair:0.1", "--only", "pets standard")
    assert sprl(capsys, *words)[0] == 0
    Path("Q.csv").unlink()
    trained.clear()
    code, out, error = sprl(capsys, *words)
    assert "3 runs, 2 of them in records/ already" in out
    assert (code, trained) == (2, [])
    assert error == "sprl: pets.npz with matrix:Q.csv is left out, 1 run: no such file: Q.csv, which is to hold a matrix of noise\n"


def test_a_plan_promises_no_run_that_must_fail(home, trained, capsys):
    noises = ("--corrupt", "matrix:gone.csv", "--corrupt", "generated:5", "--corrupt", "generated:9000", "--corrupt", "pair:0.1")
    words = (*SHORT, "--data", "two.npz", *noises, "--only", "standard,sprl")
    code, out, error = sprl(capsys, *words, "--plan")
    assert (code, trained) == (0, [])
    lines = error.splitlines()
    left_out = {"digits": ("matrix:gone.csv", "generated:9000"), "two.npz": ("symmetric:0.5", *noises[1:6:2])}
    assert [line.partition(" is left out, 2 runs: ")[0] for line in lines] == [
        f"sprl: {data} with {noise}" for data, some in left_out.items() for noise in some
    ]
    assert "symmetric noise of 0.5 is out of bounds: with 2 classes" in lines[2]
    assert "which of two are right is not known" in lines[4]
    assert "digits: 6 runs to make" in out
    assert "two.npz: 2 runs to make" in out
    assert sprl(capsys, *words, "--plan", "--only", "two matrix:gone.csv")[0] == 2  # nothing of it could be run
    code, out, error = sprl(capsys, *words, "--only", "two standard")
    assert (code, len(error.splitlines())) == (2, 4)  # each is told once
    assert len(kept()) == 1


def test_a_set_that_is_not_the_published_one_is_left_out(home, trained, capsys):
    """Its runs are known by its name alone."""
    folder = home / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(bytes([*range(10)] * 307 + [0, 0, 0]) * 20)  # twenty rows
    for words in (("--plan",), ()):
        code, _, error = sprl(capsys, "bench", "table2", "--only", "cifar10 resnet18 standard pair", *words)
        assert (code, trained, kept()) == (2, [], {})
        why = "cifar10 in data/cifar-10-batches-bin is not what was published: data_batch_1.bin: "
        assert error.startswith(f"sprl: cifar10 is left out, 1 run: {why}")
        assert error.count("\n") == 1


def test_labels_that_are_not_there_are_no_plan(home, monkeypatch, capsys):
    monkeypatch.setattr(bench, "require_published", lambda *_: None)
    monkeypatch.setattr(bench, "read", lambda *_: replace(read(Config(data="pets.npz")), name="cifar10"))
    code, _, error = sprl(capsys, "bench", "defaults", "--only", "human:worse standard", "--plan")
    assert code == 2
    assert error.startswith("sprl: cifar10 with human:worse is left out, 1 run: no labels that people gave to cifar10: get ")


def test_a_precision_that_is_asked_for_is_that_of_the_records(home, capsys):
    assert sprl(capsys, *ONE)[0] == 0
    for precision, there in (("auto", 1), ("fp32", 1), ("bf16", 0)):
        assert f"1 run, {there} of them" in sprl(capsys, *ONE, "--precision", precision, "--plan")[1]
    for wrong in ("--precision", "--device"):
        code, out, error = sprl(capsys, *ONE, wrong, "foo")
        assert (code, out) == (2, "")
        assert error.startswith(f"sprl: unknown {wrong[2:]} 'foo'")


def test_a_store_that_cannot_be_written_to_is_read(home, monkeypatch, capsys):
    assert sprl(capsys, *ONE)[0] == 0
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)
    assert sprl(capsys, *ONE)[0] == 0
    assert sprl(capsys, *ONE, "--seeds", 2, "--plan")[0] == 0
    code, _, error = sprl(capsys, *ONE, "--seeds", 2)
    assert (code, error) == (2, f"sprl: cannot write to records: {home / 'records'} is write-protected\n")


def test_a_plan_counts_the_processes_there_will_be(home, monkeypatch):
    cells = RECIPES["table2"].cells(short=True)
    monkeypatch.setattr(Run, "seconds_expected", lambda run: 10.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    for spread, processes in ((Spread(), 3), (Spread(jobs=2), 2), (Spread(together=8), 1)):
        _, runs, _ = look(cells, [0], How(None, "cpu", "auto", Path("records"), spread))
        T, data = runs[0].config.epochs, read(runs[0].config)
        networks = sum(METHODS[run.config.method].networks for run in runs)
        search = METHODS["f-correction"]().search(T).longest / T  # it alone: SPRL's T1 is given
        assert seconds_of(runs, data, spread) == pytest.approx((10 * networks / processes, 10 * search / processes))
    runs = [run._replace(config=replace(run.config, fields={}, epochs=60)) for run in runs if run.config.method == "sprl"]
    assert seconds_of(runs, data, Spread()) == pytest.approx((10, 10 * SPRL().search(60).longest / 60))
