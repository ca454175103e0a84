"""One run shared by several processes, as a user starts it: torchrun -m sprl train."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typed import beside

from sprl.config import Config
from sprl.engine import never
from sprl.errors import InputError
from sprl.ranks import ALONE, Ranks
from sprl.run import prepare
from sprl.spread import processes
from sprl.torchrun import Accord, seated

SRC = str(Path(__file__).parents[1] / "src")
TRAIN = ("train", "digits", "--corrupt", "symmetric:0.5", "--epochs", "20")
PIECES = ("metrics.jsonl", "model.safetensors", "labels.csv")


def torchrun(folder, count, *words, seconds="0.2"):
    environment = os.environ | {"PYTHONPATH": SRC, "SPRL_CHECKPOINT_SECONDS": seconds, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m", "sprl", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(output):
    return [line for line in output.splitlines() if line.startswith("sprl: ")]


def workers(launcher):
    """The ids of its processes, the first rank first."""
    listed = subprocess.run(["pgrep", "--parent", str(launcher.pid)], capture_output=True, text=True, check=True).stdout.split()
    rank = {pid: Path(f"/proc/{pid}/environ").read_bytes().partition(b"\0RANK=")[2][:1] for pid in map(int, listed)}
    return [pid for pid, number in sorted(rank.items(), key=lambda item: item[1]) if number]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_it_is_as_good_as_one_process_and_goes_on_to_the_same_end_when_one_is_killed(tmp_path):
    whole = torchrun(tmp_path, 2, *TRAIN, "--out", "whole")
    out = whole.communicate(timeout=120)[0]
    assert whole.returncode == 0, out
    assert out.count("shared by 2 processes") == 1
    summary = json.loads((tmp_path / "whole/summary.json").read_text())
    assert summary["processes"] == 2
    alone = beside(tmp_path, *TRAIN, "--out", "alone")
    assert alone[0] == 0, alone[1]
    # with batch norm, of which each process takes the statistics of its share
    assert abs(json.loads((tmp_path / "alone/summary.json").read_text())["last10"] - summary["last10"]) <= 2

    for victim in (0, 1):
        name = f"run-{victim}"
        broken = torchrun(tmp_path, 2, *TRAIN, "--out", name)
        metrics = tmp_path / name / "metrics.jsonl"
        while broken.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 5):
            time.sleep(0.05)
        os.kill(workers(broken)[victim], signal.SIGKILL)
        began = time.monotonic()
        out = broken.communicate(timeout=120)[0]
        assert time.monotonic() - began < 60
        assert broken.returncode != 0
        lost = "one of the 2 processes was lost, and the run ends here"
        assert said(out) == [f"sprl: {lost}: go on with as many and sprl train --resume {name}"]
        again = torchrun(tmp_path, 2, "train", "--resume", name)
        out = again.communicate(timeout=120)[0]
        assert again.returncode == 0, out
        assert "Resuming" in out
        for piece in PIECES:
            assert (tmp_path / name / piece).read_bytes() == (tmp_path / "whole" / piece).read_bytes(), piece


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = torchrun(tmp_path, 2, *TRAIN[:-1], "2000", "--out", "run", seconds="600")
    metrics = tmp_path / "run/metrics.jsonl"
    while process.poll() is None and not metrics.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode != 0
    assert "go on with: as many processes (2) and sprl train --resume run" in out
    assert (tmp_path / "run/checkpoint.pt").exists()
    code, out = beside(tmp_path, "train", "--resume", "run")
    assert code == 2
    assert "was trained by 2 processes, this is 1" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("train", "nothing.npz"), "no such file or folder: nothing.npz"),  # by all, once they have joined
        (("train", "--set", "foo"), "--set 'foo' must be FIELD=VALUE"),  # before
        (("compare",), "it goes with sprl train, not with sprl compare"),
    ],
)
def test_what_is_wrong_is_told_once(words, why, tmp_path):
    process = torchrun(tmp_path, 2, *words)
    out = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert len(said(out)) == 1, out
    assert why in said(out)[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Config(sync_norm=True), "--sync-norm is for GPUs"),
        (Config(graph=True), "--graph and --compile are for a single process"),
        (Config(compile=True), "--graph and --compile are for a single process"),
    ],
)
def test_what_several_processes_cannot_do(config, why):
    with pytest.raises(InputError, match=why):
        seated(Ranks(0, 2), replace(config, device="cpu"))


def test_sync_norm_is_for_several():
    with pytest.raises(InputError, match="--sync-norm is for runs that torchrun shares"):
        seated(ALONE, Config(sync_norm=True))


def test_batches_too_small_to_share():
    with pytest.raises(InputError, match="batches of 6, of which the last may have 3 rows, are too small for 2 processes"):
        prepare(Config(batch_size=6), ranks=Ranks(0, 2))


def test_a_number_of_processes_that_is_none(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(InputError, match="WORLD_SIZE is 'many'"):
        processes()
    monkeypatch.setenv("WORLD_SIZE", "")
    assert processes() == 1


def test_it_is_agreed_on_about_once_a_second(monkeypatch):
    """However long a batch takes; the one that is asked to stop stops all."""
    now = [0.0]
    monkeypatch.setattr("sprl.torchrun.time.monotonic", lambda: now[0])
    for seconds in (0.001, 0.1, 5.0):
        asked, times = [False], []
        accord = Accord(ALONE, lambda asked=asked: asked[0])
        for _ in range(4000):
            now[0] += seconds
            before = accord.last
            assert not accord.pause(never)
            times += [now[0] - before] if accord.last != before else []
        assert max(times) <= max(1.1, 1.1 * seconds)
        assert times[-1] >= min(0.4, seconds)
        asked[0] = True
        while not accord.pause(never):
            now[0] += seconds
        assert accord()
