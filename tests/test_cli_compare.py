"""`sprl compare` as a user types it."""

import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from conftest import clusters
from PIL import Image
from typed import sprl

from sprl import contest, crew, store
from sprl.compare import Job, Standing
from sprl.config import Config
from sprl.run import Run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "SPRL_CHECKPOINT_SECONDS": "1000"}
WORDS = (
    "compare",
    "pets.npz",
    "--methods",
    "standard,curriculum",
    "--corrupt",
    "symmetric:0.3",
    "--seeds",
    2,
    "--epochs",
    12,
    "--lr",
    0.01,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Two hundred rows to train on, a hundred to test with; the same without test rows."""
    x, y = clusters()
    classes = np.array(["ant", "bee", "cat", "dog"])[y]
    np.savez(tmp_path / "pets.npz", x=x[:200], y=classes[:200], x_test=x[300:], y_test=classes[300:])
    np.savez(tmp_path / "bare.npz", x=x, y=classes)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(home, *words):
    command = [sys.executable, "-m", "sprl", *map(str, words)]
    return subprocess.Popen(
        command, cwd=home, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(found):
    for _ in range(6000):
        if found():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


def trained_runs(monkeypatch):
    """The names of runs that are trained from now on."""
    seen, train = [], Run.train

    def noting(run, pause):
        seen.append((run.config.method, run.config.seed))
        return train(run, pause)

    monkeypatch.setattr(Run, "train", noting)
    return seen


def test_a_comparison_and_nothing_trained_twice(home, capsys, monkeypatch):
    seen = trained_runs(monkeypatch)
    code, out, error = sprl(capsys, *WORDS, "--jobs", 1)
    assert (code, error) == (0, "")
    assert sorted(seen) == [("curriculum", 0), ("curriculum", 1), ("standard", 0), ("standard", 1)]
    for words in ("2 methods, seeds 0 to 1: 4 runs of 12 epochs in batches of 32", "4/4", "compare/pets-symmetric-0.3/ compare.png"):
        assert words in out
    records = store.all(home / "records")
    of = {method: sorted((r for r in records if r.method == method), key=lambda r: r.seed) for method in ("standard", "curriculum")}
    assert [[r.seed for r in found] for found in of.values()] == [[0, 1], [0, 1]]
    assert [r.labels for r in of["standard"]] == [r.labels for r in of["curriculum"]]
    assert of["standard"][0].labels != of["standard"][1].labels
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("method "))
    assert lines[first].split() == ["method", "last", "ten", "best", "precision", "recall", "s/epoch"]
    shown = {line.split()[0]: line.split()[1:] for line in lines[first + 1 : first + 3]}
    written = {row["method"]: row for row in json.loads((home / "compare" / "pets-symmetric-0.3" / "compare.json").read_text())["methods"]}
    for method, found in of.items():
        curves = [r.curves["test_accuracy"] for r in found]
        last = [statistics.mean(curve[-10:]) for curve in curves]
        for name, values, place in (
            ("last10", last, 0),
            ("best", [max(curve) for curve in curves], 1),
            ("precision", [statistics.mean(r.curves["precision"][-10:]) for r in found], 2),
            ("recall", [statistics.mean(r.curves["recall"][-10:]) for r in found], 3),
        ):
            mean, deviation = statistics.mean(values), statistics.stdev(values)
            assert shown[method][place] == f"{mean:.1f}±{deviation:.1f}"
            assert written[method][name] == pytest.approx({"mean": mean, "deviation": deviation})
        assert written[method]["records"] == {str(r.seed): r.key for r in found}
    ranked = sorted(written.values(), key=lambda row: -row["last10"]["mean"])
    assert list(shown) == [row["method"] for row in ranked]
    ahead = ranked[0]["last10"]["mean"] - ranked[1]["last10"]["mean"]
    assert f"{ranked[0]['last10']['mean']:.1f} %, {ahead:.1f} points ahead of {ranked[1]['method']}" in lines[-1] or ahead < 0.05

    files = {path: path.read_bytes() for path in (home / "records").glob("*.json")}
    seen.clear()
    code, again, _ = sprl(capsys, *WORDS)
    assert (code, seen) == (0, [])
    assert "4 of 4 runs are in records/ already" in again
    assert again.splitlines()[-8:] == lines[-8:]  # the same table
    assert {path: path.read_bytes() for path in (home / "records").glob("*.json")} == files
    code, out, _ = sprl(capsys, *WORDS, "--methods", "sprl", "--seeds", 3, "--jobs", 1, "--set", "sprl.T1=2")
    assert code == 0
    assert sorted(seen) == [("curriculum", 2), ("sprl", 0), ("sprl", 1), ("sprl", 2), ("standard", 2)]


def test_one_method_and_one_seed(home, capsys):
    code, out, _ = sprl(capsys, "compare", "pets.npz", "--methods", "standard", "--seeds", 1, "--seed", 7, "--epochs", 2, "--out", "here")
    assert code == 0
    assert "Comparing standard, seed 7: 1 run of 2 epochs" in out
    assert "%; one seed; there is nothing to compare it with" in out.splitlines()[-1]
    assert {path.name for path in (home / "here").iterdir()} == {"compare.png", "compare.md", "compare.json"}
    assert "precision" not in out  # labels as they are: the truth is not known
    [record] = store.all(home / "records")
    assert (record.seed, record.threads) == (7, 1)


def test_other_data_under_the_same_name_is_trained_on(home, capsys, monkeypatch):
    words = ("compare", "pets.npz", "--methods", "standard", "--seeds", 1, "--epochs", 2)
    assert sprl(capsys, *words)[0] == 0
    arrays = dict(np.load(home / "pets.npz"))
    (home / "there").mkdir()
    (home / "pets.npz").rename(home / "there" / "animals.npz")
    seen = trained_runs(monkeypatch)
    for place in ("there/animals.npz", "animals.npz"):  # the same data elsewhere
        assert sprl(capsys, "compare", place, *words[2:], "--data-dir", "there")[0] == 0
    assert seen == []
    arrays["x"] = arrays["x"].copy()
    arrays["x"][1] = 0
    np.savez(home / "pets.npz", **arrays)
    code, out, _ = sprl(capsys, *words)
    assert (code, seen, "already" in out) == (0, [("standard", 0)], False)
    assert len(store.all(home / "records")) == 2  # the other's record is still there


def test_a_damaged_record_is_trained_again(home, capsys, monkeypatch):
    assert sprl(capsys, *WORDS, "--jobs", 1)[0] == 0
    [path, *_] = sorted((home / "records").glob("*.json"))
    before = json.loads(path.read_text())
    path.write_text(path.read_text()[:500])
    seen = trained_runs(monkeypatch)
    code, out, error = sprl(capsys, *WORDS, "--jobs", 1)
    assert code == 0
    assert error.startswith("sprl: note: records/")
    assert "is no record and is left out" in error
    assert "3 of 4 runs are in records/ already" in out
    assert seen == [(before["config"]["method"], before["config"]["seed"])]
    assert json.loads(path.read_text())["curves"] == before["curves"]


def test_a_signal_saves_and_the_same_command_goes_on(home, capsys, monkeypatch):
    assert sprl(capsys, *WORDS, "--jobs", 1, "--store", "whole")[0] == 0
    train = Run.train

    def interrupted(run, pause):
        for row in train(run, pause):
            yield row
            if run.state.t == 5 and run.config.seed == 1:
                signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", interrupted)
        code, out, error = sprl(capsys, *WORDS, "--jobs", 1)
    assert (code, error) == (143, "")
    assert "Stopped   2 of 4 runs have ended, 1 is kept as far as it came" in out
    assert out.splitlines()[-1].strip() == f"go on with: sprl {' '.join(map(str, WORDS))} --jobs 1"
    assert sprl(capsys, *WORDS, "--jobs", 1)[0] == 0
    for record in store.all(home / "whole"):
        assert store.read(home / "records", record.key).curves == record.curves


def test_workers_save_at_ctrl_c_and_two_commands_share_the_rest(home, capsys):
    long = (*WORDS, "--epochs", 60)
    unfinished = home / "records" / "unfinished"
    process = started(home, *long, "--jobs", 2)
    wait_for(lambda: list(unfinished.glob("*/metrics.jsonl")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to workers too
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "")
    assert f"go on with: sprl {' '.join(map(str, long))} --jobs 2" in out
    assert list(unfinished.glob("*/checkpoint.safetensors"))

    both = [started(home, *long, "--jobs", 1) for _ in range(2)]
    outs = [process.communicate(timeout=120) for process in both]
    assert [(process.returncode, error) for process, (_, error) in zip(both, outs, strict=True)] == [(0, "")] * 2
    assert outs[0][0].splitlines()[-8:] == outs[1][0].splitlines()[-8:]
    assert list(unfinished.iterdir()) == []
    assert sprl(capsys, *long, "--jobs", 1, "--store", "whole")[0] == 0
    assert len(store.all(home / "records")) == 4
    for record in store.all(home / "whole"):
        assert store.read(home / "records", record.key).curves == record.curves


def test_a_worker_that_dies_is_reported_and_the_rest_goes_on(home, capsys):
    def kill():
        wait_for(lambda: list((home / "records" / "unfinished").glob("*/metrics.jsonl")))
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    code, out, error = sprl(capsys, *WORDS, "--epochs", 60, "--jobs", 2)
    killer.join()
    assert code == 2
    assert len(error.splitlines()) == 1
    assert "failed: its process was ended by SIGKILL, perhaps for want of memory: fewer --jobs take less" in error
    assert len(store.all(home / "records")) == 3
    name = error.removeprefix("sprl: ").split(" failed")[0]
    assert f"\n{name.split(',')[0]} *" in out
    assert f"* {name} failed: its process was ended by SIGKILL" in out
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "sprl,standart"], "unknown method 'standart'; did you mean 'standard'?"),
        (["--seeds", "0"], "--seeds"),
        (["--jobs", "0"], "--jobs"),
        (["--together", "0"], "--together"),
        (["--set", "gama_d=5"], "unknown field of the methods compared 'gama_d'; did you mean 'gamma_d'?"),
        (["--set", "sprl.T1=1.5"], "sprl: T1 cannot be '1.5'"),
        (["--network", "mpl"], "unknown network 'mpl'"),
        (["--corrupt", "0.5"], "--corrupt symmetric:0.5"),
        (["--store", ""], "--store and --out need the name of a folder"),
        (["--store", "pets.npz"], "cannot write to pets.npz"),
        (["--out", "pets.npz/x"], "cannot write to pets.npz/x"),
        (["--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(home, capsys, words, message):
    before = sorted(home.rglob("*"))
    code, _, error = sprl(capsys, "compare", "pets.npz", "--methods", "standard,sprl", "--epochs", 2, *words)
    assert code == 2
    assert error.startswith("sprl: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(home.rglob("*")) == before


def test_without_test_rows_it_says_what_to_do(home, capsys):
    code, _, error = sprl(capsys, "compare", "bare.npz", "--methods", "standard")
    assert code == 2
    assert error.startswith("sprl: bare has no test rows to compare methods on: give trusted ones, as x_test and y_test of an .npz")
    assert len(error.splitlines()) == 1


def test_side_by_side_on_a_cpu_works_and_gains_nothing(home, capsys):
    code, out, _ = sprl(capsys, *WORDS, "--together", 4)
    assert code == 0
    assert "on a CPU runs side by side take turns, which gains nothing: --jobs does" in out
    assert [record.together for record in store.all(home / "records")] == [4] * 4
    assert "(4 runs side by side)" in " ".join(out.split())


def test_a_run_that_fails_is_told_and_marked(home, capsys):
    code, out, error = sprl(capsys, *WORDS, "--lr", 1e30, "--jobs", 1)
    assert code == 2
    assert len(error.splitlines()) == 4
    assert "sprl: standard, seed 0 failed: the loss of epoch 1, batch" in error
    assert "* standard, seed 0 failed: the loss of epoch 1, batch" in out
    assert out.splitlines()[-1] == "Result    no run came to its end"
    assert "compare.png" not in out
    assert not (home / "compare").exists()  # so that an earlier comparison there stays


def test_pictures_in_a_folder(home, capsys):
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("test", 3)):
        for name, grey in (("black", 30), ("white", 220)):
            (home / "photos" / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = (grey + rng.integers(-20, 20, (8, 8, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(home / "photos" / split / name / f"{i}.png")
    words = ("compare", "photos", "--methods", "standard,curriculum", "--seeds", 2, "--jobs", 1, "--epochs", 1, "--network", "mlp")
    code, out, error = sprl(capsys, *words)
    assert (code, error) == (0, "")
    assert [record.test for record in store.all(home / "records")] == [6] * 4
    code, out, _ = sprl(capsys, *words, "--together", 2)
    assert (code, "4 of 4 runs are in records/ already" in out) == (0, True)


def test_data_that_is_gone_when_a_worker_reads_it(home, tmp_path):
    ours, theirs = multiprocessing.Pipe()
    group = [Job(Config(data="gone.npz", method="standard", seed=seed), str(seed)) for seed in (0, 1)]
    ours.send(group)
    ours.send(None)
    handlers = {number: signal.getsignal(number) for number in crew.SIGNALS}
    try:
        with warnings.catch_warnings():
            crew.work(theirs, tmp_path / "records", None)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    events = [ours.recv() for _ in range(3)]
    assert [(event.kind, event.job) for event in events] == [("failed", group[0]), ("failed", group[1]), ("free", None)]
    assert "gone.npz" in events[0].told


def test_on_a_terminal_of_60_columns_no_line_is_longer(home, capsys, monkeypatch):
    assert sprl(capsys, *WORDS, "--jobs", 1)[0] == 0
    monkeypatch.setattr(contest.console, "_force_terminal", True)
    monkeypatch.setattr(contest.console, "_width", 60)
    places = [Standing(m, tuple(r for r in store.all(home / "records") if r.method == m)) for m in ("standard", "curriculum")]
    capsys.readouterr()
    contest.print_table(places)
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("curriculum") for line in lines)
    assert "mean of the last ten epochs" in " ".join(" ".join(lines).split())


def test_help_teaches(capsys):
    code, out, _ = sprl(capsys, "compare", "--help")
    assert code == 0
    for words in ("--methods", "--seeds", "--jobs", "--together", "--store", "same wrong labels", "sprl compare mine.npz"):
        assert words in out
