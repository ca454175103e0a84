"""Runs that are stopped, killed and gone on with, as a user sees them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typed import sprl

from sprl import checkpoint, commands, files
from sprl.noise import corrupt
from sprl.run import Run
from sprl.timm_models import import_timm

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "140", "SPRL_CHECKPOINT_SECONDS": "0"}  # after every batch
RESULTS = ("metrics.jsonl", "model.safetensors", "labels.csv")
WORDS = ("train", "pets.npz", "--labels", "others.csv", "--epochs", 24)


def results(folder):
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture
def home(tmp_path, points, monkeypatch):
    """Three hundred rows, and other labels for them in another file; both are named by relative paths."""
    x, clean = points
    classes = np.array(["ant", "bee", "cat", "dog"])
    np.savez(tmp_path / "pets.npz", x=x[:300], y=classes[clean[:300]])
    wrong = classes[corrupt(clean[:300], "symmetric:0.3", 4, seed=0)]
    (tmp_path / "others.csv").write_text("id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(wrong)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(home, *words):
    command = [sys.executable, "-m", "sprl", *map(str, words)]
    return subprocess.Popen(command, cwd=home, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path, enough=lambda path: True):
    for _ in range(3000):
        with suppress(FileNotFoundError):
            if path.exists() and enough(path):
                return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not come")


def test_a_killed_run_gone_on_with_from_elsewhere_is_the_unbroken_run(home, capsys, tmp_path_factory):
    assert sprl(capsys, *WORDS, "--out", "whole/run")[0] == 0
    whole, broken = home / "whole" / "run", home / "broken" / "run"
    process = started(home, *WORDS, "--out", "broken/run")
    wait_for(broken / "checkpoint-previous.safetensors")
    process.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
    code, _, error = sprl(capsys, "train", "--resume", "broken/run")
    assert code == 2
    assert "another process is training in" in error
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (broken / "summary.json").exists()
    with chdir(tmp_path_factory.mktemp("elsewhere")):
        code, out, error = sprl(capsys, "train", "--resume", broken)
    assert code == 0, error
    assert "Resuming  in epoch" in out
    assert results(broken) == results(whole)
    assert "approximately" not in error
    page = (broken / "report.html").read_bytes()  # what one mails
    assert page == (whole / "report.html").read_bytes()
    assert b"sprl apply run corrections.csv" in page
    assert str(home).encode() not in page


def test_a_signal_saves_and_names_the_command_to_go_on(home, capsys):
    assert sprl(capsys, *WORDS, "--out", "whole")[0] == 0
    process = started(home, *WORDS, "--out", "my run")
    wait_for(home / "my run" / "metrics.jsonl", lambda path: path.read_text().count("\n") > 2)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert "Traceback" not in error
    assert "go on with: sprl train --resume 'my run'" in out
    summary = json.loads((home / "my run" / "summary.json").read_text())
    assert summary["interrupted"]
    assert summary["epochs"] == len((home / "my run" / "metrics.jsonl").read_text().splitlines()) < 24
    assert {"model.safetensors", "labels.csv", "curves.png"} <= {p.name for p in (home / "my run").iterdir()}
    assert sprl(capsys, "train", "--resume", "my run")[0] == 0
    assert results(home / "my run") == results(home / "whole")
    before = {p: p.read_bytes() for p in (home / "my run").iterdir()}
    code, out, _ = sprl(capsys, "train", "--resume", "my run")
    assert code == 0
    assert "my run has ended already" in out
    assert {p: p.read_bytes() for p in (home / "my run").iterdir()} == before


class Killed(BaseException):
    """Stands for kill -9: nothing after it is done."""


def killing(monkeypatch, at):
    """The process dies before the move of a file numbered `at`; what it would tidy up on its way out stays."""
    moves = [0]

    def mortal(call, step):
        def living(*args, **options):
            moves[0] += step
            if moves[0] > at:
                raise Killed
            return call(*args, **options)

        return living

    for name in ("replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, mortal(getattr(os, name), int(name == "replace")))


SHORT = ("train", "pets.npz", "--epochs", 3, "--method", "standard")


def test_killed_before_any_move_of_a_file_it_ends_as_the_unbroken_run(home, capsys, monkeypatch):
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr("sprl.curves.draw", lambda run, path: path.write_bytes(b"PNG"))  # slow
    words = ("train", "pets.npz", "--epochs", 2, "--method", "standard", "--batch-size", 150)
    assert sprl(capsys, *words, "--out", "whole")[0] == 0
    for at in range(60):
        with monkeypatch.context() as patch, suppress(Killed):
            killing(patch, at)
            assert sprl(capsys, *words, "--out", at)[0] == 0
            break
        if at == 0:
            assert [p.name[:6] for p in sorted((home / "0").iterdir())] == [".lock", ".part-"]
            assert sprl(capsys, *words, "--out", at)[0] == 0  # the folder counts as empty
        else:
            code, out, error = sprl(capsys, "train", "--resume", at)
            assert code == 0, error
            assert ("from the beginning" in out) == (at < 2)
        assert results(home / str(at)) == results(home / "whole")
        assert not list((home / str(at)).glob(".part-*"))
    assert 12 < at < 59


def test_a_config_repeats_its_run_and_holds_no_half_written_file(home, capsys):
    assert sprl(capsys, "train", "--epochs", 2, "--out", "demonstration")[0] == 0
    first = results(home / "demonstration")
    for name in ("summary.json", "checkpoint.safetensors", *RESULTS):
        (home / "demonstration" / name).unlink()
    code, out, _ = sprl(capsys, "train", "--resume", "demonstration")
    assert code == 0
    assert "from the beginning: it has no checkpoint yet" in out
    assert results(home / "demonstration") == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--epochs", 80, "--lr", 0.01],
            "r was started with epochs 3, not 80; lr 0.001, not 0.01: leave these options out, or start a new run",
        ),
        (["--method", "sprl"], "r was started with method standard, not sprl"),
        (["--corrupt", "pair:0.1"], "corrupt none, not pair:0.1"),
        (["--frozen"], "frozen off, not on"),
        (["--seed", 1], "seed 0, not 1"),
        (["--device", "cuda"], "device auto, not cuda"),
        (["--overwrite"], "--overwrite begins anew, --resume goes on"),
        (["--out", "elsewhere"], "--resume goes on in r: leave out --out"),
        (["--set", "K=3"], "unknown field of standard 'K'"),
    ],
)
def test_options_beside_resume_must_be_those_of_the_run(home, capsys, words, message):
    assert sprl(capsys, *SHORT, "--out", "r")[0] == 0
    code, out, error = sprl(capsys, "train", "--resume", "r", *words)
    assert (code, out) == (2, "")
    assert message in error
    assert len(error.splitlines()) == 1
    same = ("pets.npz", "--epochs", 3, "--method", "standard", "--network", "auto", "--seed", 0, "--out", "r", "--device", "cpu")
    assert sprl(capsys, "train", "--resume", "r", *same)[0] == 0
    assert sprl(capsys, "train", "--resume", home / "r", home / "pets.npz")[0] == 0


def test_fields_of_the_method_are_compared_one_by_one(home, capsys):
    assert sprl(capsys, "train", "pets.npz", "--epochs", 3, "--set", "T1=1", "--out", "r")[0] == 0
    assert sprl(capsys, "train", "--resume", "r", "--set", "T1=1", "--set", "K=10")[0] == 0
    assert "with T1 1, not auto; K 10, not 3:" in sprl(capsys, "train", "--resume", "r", "--set", "T1=auto", "--set", "K=3")[2]


def test_what_is_no_run_is_refused_and_left_alone(home, capsys):
    (home / "empty").mkdir()
    for name in ("nowhere", "empty", "pets.npz"):
        code, _, error = sprl(capsys, "train", "--resume", name)
        assert (code, error) == (2, f"sprl: {name} is no run: it holds no config.json\n")
    assert {p.name for p in home.iterdir()} == {"empty", "pets.npz", "others.csv"}
    assert not list((home / "empty").iterdir())


def test_an_edited_config_is_refused(home, capsys):
    assert sprl(capsys, *SHORT, "--out", "r")[0] == 0
    config = json.loads((home / "r" / "config.json").read_text())
    (home / "r" / "config.json").write_text(json.dumps({**config, "lr": 0.5}))
    (home / "r" / "summary.json").unlink()
    code, _, error = sprl(capsys, "train", "--resume", "r")
    assert code == 2
    assert "config.json is not the one that checkpoint.safetensors was made with" in error


def test_overwriting_leaves_the_older_run_until_there_is_something_to_show(home, capsys, monkeypatch):
    assert sprl(capsys, *SHORT, "--out", "r")[0] == 0
    (home / "r" / "checkpoint.safetensors").unlink()  # as of an older version
    before = {p.name: p.read_bytes() for p in (home / "r").iterdir()}
    other = ("train", "pets.npz", "--epochs", 2, "--set", "T1=1", "--out", "r", "--overwrite")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", lambda run, pause: fails())
        assert sprl(capsys, *other)[::2] == (2, "sprl: the worst\n")
    assert {p.name: p.read_bytes() for p in (home / "r").iterdir()} == before
    assert sprl(capsys, *other)[0] == 0
    assert json.loads((home / "r" / "config.json").read_text())["epochs"] == 2
    assert {p.name for p in (home / "r").iterdir()} == before.keys() | {"checkpoint.safetensors"}
    assert len((home / "r" / "metrics.jsonl").read_text().splitlines()) == 2


def fails():
    raise files.InputError("the worst")
    yield


def test_a_loss_that_is_not_finite_is_one_line_that_names_the_last_good_checkpoint(home, capsys, monkeypatch):
    words = ("train", "pets.npz", "--lr", 1e20, "--epochs", 3, "--method", "standard", "--out", "r")
    code, _, error = sprl(capsys, *words)
    assert code == 2
    assert error.startswith("sprl: the loss of epoch 1, batch ")
    assert "checkpoint" not in error
    assert not (home / "r").exists()  # nothing had come of it
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    code, _, error = sprl(capsys, *words)
    assert code == 2
    assert error.startswith("sprl: the loss of epoch 1, batch ")
    assert error.endswith("; the last good checkpoint is r/checkpoint.safetensors\n")


def test_a_full_disk_is_one_line_with_the_way_to_go_on(home, capsys, monkeypatch):
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    real = checkpoint.write
    count = [0]

    def filled(file, tensors, words):
        count[0] += 1
        if count[0] == 5:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        real(file, tensors, words)

    monkeypatch.setattr(checkpoint, "write", filled)
    code, _, error = sprl(capsys, *SHORT, "--out", "r")
    assert code == 2
    assert error == (
        "sprl: cannot write to r/checkpoint.safetensors: No space left on device; "
        "the last good checkpoint is r/checkpoint.safetensors; make room, then sprl train --resume r\n"
    )
    assert sprl(capsys, "train", "--resume", "r")[0] == 0
    assert sprl(capsys, *SHORT, "--out", "whole")[0] == 0
    assert results(home / "r") == results(home / "whole")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_out_of_memory_is_one_line_that_says_what_to_lower(home, capsys, monkeypatch, error):
    def greedy(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("sprl.engine.check_losses", greedy)  # at the end of the first epoch
        code, _, told = sprl(capsys, *SHORT, "--out", "r")
    assert code == 2
    assert told.startswith("sprl: there is not enough memory: lower --batch-size (now 32) or, for pictures, --size;")
    assert "--stream or --memory half" in told
    assert len(told.splitlines()) == 1
    assert not (home / "r").exists()
    monkeypatch.setattr(commands, "prepare", greedy)
    assert "lower --batch-size or" in sprl(capsys, *SHORT, "--out", "r")[2]


def test_a_second_signal_breaks_off_at_once_and_harms_nothing(home, capsys, monkeypatch):
    real = files.write_results

    def impatient(path, run, write_page):
        signal.raise_signal(signal.SIGTERM)
        return real(path, run, write_page)

    def interrupted(run, pause):
        for row in train(run, pause):
            yield row
            if run.state.t == 2:
                signal.raise_signal(signal.SIGTERM)

    train = Run.train
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_results", impatient)
        patch.setattr(Run, "train", interrupted)
        assert sprl(capsys, *SHORT, "--out", "r")[0] == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not (home / "r" / "summary.json").exists()
    assert sprl(capsys, "train", "--resume", "r")[0] == 0
    assert sprl(capsys, *SHORT, "--out", "whole")[0] == 0
    assert results(home / "r") == results(home / "whole")


@pytest.mark.parametrize("options", [["--frozen"], []])
def test_networks_of_timm_are_gone_on_with_too(home, capsys, monkeypatch, options):
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install 'sprl[photos]'")
    monkeypatch.setenv("SPRL_CACHE", str(home / "cache"))
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    torch.manual_seed(1)
    save_file(import_timm().create_model("test_vit", num_classes=5).state_dict(), home / "weights.safetensors")
    rng = np.random.default_rng(0)
    np.savez(home / "photos.npz", x=rng.integers(0, 256, (24, 32, 32, 3), np.uint8), y=np.arange(24) % 2)
    words = ("train", "photos.npz", "--network", "timm:test_vit", "--weights", "weights.safetensors", "--epochs", 3, "--batch-size", 8)
    assert sprl(capsys, *words, *options, "--out", "whole")[0] == 0
    with monkeypatch.context() as patch, suppress(Killed):
        killing(patch, 9)
        sprl(capsys, *words, *options, "--out", "broken")
    capsys.readouterr()
    code, out, error = sprl(capsys, "train", "--resume", "broken")
    assert code == 0, error
    assert "Resuming  in epoch 2 of 3" in out
    assert results(home / "broken") == results(home / "whole")


def test_data_that_was_moved_is_named_anew_and_other_data_is_refused(home, capsys):
    code, _, _ = sprl(capsys, *SHORT, "--out", "r")
    assert code == 0
    (home / "r" / "summary.json").unlink()
    before = results(home / "r")
    (home / "there").mkdir()
    (home / "pets.npz").rename(home / "there" / "animals.npz")
    code, _, error = sprl(capsys, "train", "--resume", "r")
    assert (code, "pets.npz" in error) == (2, True)
    code, _, error = sprl(capsys, "train", "there/animals.npz", "--resume", "r")
    assert code == 0, error
    assert results(home / "r") == before

    (home / "r" / "summary.json").unlink()
    arrays = dict(np.load(home / "there" / "animals.npz"))
    arrays["x"] = arrays["x"].copy()
    arrays["x"][1] = 0  # one row of many
    np.savez(home / "others.npz", **arrays)
    code, _, error = sprl(capsys, "train", "others.npz", "--resume", "r")
    assert code == 2
    assert "the data is not what" in error


def test_results_that_were_lost_are_written_again(home, capsys):
    assert sprl(capsys, *SHORT, "--out", "r")[0] == 0
    before = results(home / "r")
    (home / "r" / "model.safetensors").unlink()
    assert sprl(capsys, "train", "--resume", "r")[0] == 0
    assert results(home / "r") == before
