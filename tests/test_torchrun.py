"""One run shared by several processes, as a user starts it: torchrun -m sprl train."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from typed import beside

from sprl import show
from sprl.config import Config
from sprl.engine import never
from sprl.errors import InputError, RankError
from sprl.launch import processes, to_go_on
from sprl.ranks import ALONE, Ranks
from sprl.run import prepare
from sprl.torchrun import Accord, Link, joined, meet, seated

SRC = str(Path(__file__).parents[1] / "src")
TRAIN = ("train", "digits", "--corrupt", "symmetric:0.5", "--epochs", "12")
PIECES = ("metrics.jsonl", "model.safetensors", "labels.csv")
LOST = "sprl: one of the {} processes was lost or told to end, and the run ends here; "
GO_ON = "torchrun --nproc-per-node 2 -m sprl train --resume"
in_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def torchrun(folder, count, *words, seconds="0.2", options=("--standalone",), program=("-m", "sprl")):
    environment = os.environ | {"PYTHONPATH": SRC, "SPRL_CHECKPOINT_SECONDS": seconds, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", *options, "--nproc-per-node", str(count), *program, *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(output):
    return [line for line in output.splitlines() if line.startswith("sprl: ") and not line.startswith("sprl: note: ")]


def until(there, process):
    while process.poll() is None and not there():
        time.sleep(0.02)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def epochs(folder):
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def workers(launcher):
    """The ids of its processes, the first rank first."""
    listed = subprocess.run(["pgrep", "--parent", str(launcher.pid)], capture_output=True, text=True, check=True).stdout.split()
    rank = {pid: Path(f"/proc/{pid}/environ").read_bytes().partition(b"\0RANK=")[2][:1] for pid in map(int, listed)}
    return [pid for pid, number in sorted(rank.items(), key=lambda item: item[1]) if number]


@in_proc
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

    broken = torchrun(tmp_path, 2, *TRAIN, "--out", "run")
    for victim in (0, 1):
        before = epochs(tmp_path / "run")
        until(lambda before=before: epochs(tmp_path / "run") > before + 1, broken)
        os.kill(workers(broken)[victim], signal.SIGKILL)
        began = time.monotonic()
        out = broken.communicate(timeout=120)[0]
        assert time.monotonic() - began < 60
        assert broken.returncode != 0
        assert said(out) == [LOST.format(2) + f"go on with: {GO_ON} run"]
        broken = torchrun(tmp_path, 2, "train", "--resume", "run")
    out = broken.communicate(timeout=120)[0]
    assert broken.returncode == 0, out
    assert "Resuming" in out
    for piece in PIECES:
        assert (tmp_path / "run" / piece).read_bytes() == (tmp_path / "whole" / piece).read_bytes(), piece


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = torchrun(tmp_path, 2, *TRAIN[:-1], "2000", "--out", "run", seconds="600")
    until(lambda: epochs(tmp_path / "run"), process)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode != 0
    assert f"go on with: {GO_ON} run" in out
    assert (tmp_path / "run/checkpoint.safetensors").exists()
    code, out = beside(tmp_path, "train", "--resume", "run")
    assert code == 2
    assert "was trained by 2 processes, this is 1" in out


@in_proc
def test_without_the_machine_that_has_the_store_another_one_speaks(tmp_path):
    """The first rank is killed, and torchrun ends there, with its store."""
    options = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    machines = [torchrun(tmp_path, 1, *TRAIN[:-1], "2000", "--out", "my run", options=options) for _ in range(2)]
    until(lambda: epochs(tmp_path / "my run") > 1, machines[0])
    ranks = {Path(f"/proc/{pid}/environ").read_bytes().partition(b"\0RANK=")[2][:1]: pid for one in machines for pid in workers(one)}
    os.kill(ranks[b"0"], signal.SIGKILL)
    lines = [line for one in machines for line in said(one.communicate(timeout=60)[0])]
    assert lines == [LOST.format(2) + "go on with: torchrun ... -m sprl train --resume 'my run', on each machine as before"]


@in_proc
def test_a_process_that_falls_silent_ends_the_run(tmp_path):
    (tmp_path / "hasty.py").write_text(
        "import datetime, sprl.cli, sprl.torchrun\nsprl.torchrun.SILENCE = datetime.timedelta(seconds=6)\nsprl.cli.main()\n"
    )
    process = torchrun(tmp_path, 2, *TRAIN[:-1], "2000", "--out", "run", program=("hasty.py",))
    until(lambda: epochs(tmp_path / "run") > 1, process)
    other = workers(process)[1]
    os.kill(other, signal.SIGSTOP)
    told = LOST.format(2) + f"go on with: {GO_ON} run\n"
    assert any(line.endswith(told) for line in process.stdout)  # torch's own warnings may stand before it, on the same line
    os.kill(other, signal.SIGKILL)  # as torchrun would, half a minute later
    assert said(process.communicate(timeout=60)[0]) == []


@in_proc
def test_one_that_is_lost_while_results_are_written_changes_nothing(tmp_path):
    process = torchrun(tmp_path, 3, *TRAIN[:-1], "2", "--out", "run")
    until((tmp_path / "run" / "labels.csv").exists, process)
    os.kill(workers(process)[2], signal.SIGKILL)
    out = process.communicate(timeout=60)[0]
    assert said(out) == []
    assert "Next      open run/report.html" in out
    assert (tmp_path / "run" / "summary.json").exists()


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


# One of several processes, alone.


@pytest.fixture
def second(tmp_path, monkeypatch):
    """This process as the second of two, which knows the others by a store only. What joining changes in it is put back."""
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    link = Link(dist.HashStore(), None)
    monkeypatch.setattr("sprl.torchrun.meet", lambda: Ranks(1, 2, link=link))
    monkeypatch.setattr(show.console, "quiet", False)
    before = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        yield link
    signal.signal(signal.SIGTERM, before)


def end_with(error):
    with joined():
        raise error


def test_a_full_disk_is_told_by_whoever_has_it(second):
    second.run = "my run"
    with pytest.raises(
        RankError, match=rf"process 1 of 2: .*No space left on device: 'checkpoint.safetensors'; go on with: {GO_ON} 'my run'$"
    ):
        end_with(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint.safetensors"))
    assert second.has("ended")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # it was to be heard, though torchrun ends all once one has ended


def test_one_that_is_told_to_end_before_training_says_so(second):
    second.store.set("run", "other")
    with pytest.raises(RankError, match=f"told to end, and the run ends here; go on with: {GO_ON} other$"), joined():
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("said_before", [False, True])
def test_only_one_speaks(second, said_before):
    if said_before:
        second.store.add("said", 1)
    with pytest.raises(SystemExit if said_before else RankError):
        end_with(dist.DistNetworkError("Connection reset by peer"))


class Gone:
    """The store of a machine that was cut off."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __getattr__(self, name):
        def silent(*words):
            time.sleep(self.seconds)
            raise dist.DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed.")

        return silent


@pytest.mark.parametrize("seconds", [0, 3])
def test_without_a_store_one_process_of_each_machine_speaks(second, seconds, monkeypatch):
    monkeypatch.setattr("sprl.torchrun.ANSWER", 0.05)
    second.store, second.run = Gone(seconds), "run"
    with pytest.raises(SystemExit):
        end_with(dist.DistNetworkError("Connection reset by peer"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(RankError, match=f"ends here; go on with: {GO_ON} run$"):
        end_with(dist.DistNetworkError("Connection reset by peer"))


@pytest.fixture
def met(monkeypatch):
    """Join as torchrun's only process, which it has started again as often as said."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def again(times):
        surroundings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 1}
        for name, value in (surroundings | {"TORCHELASTIC_RESTART_COUNT": times}).items():
            monkeypatch.setenv(name, str(value))
        try:
            return meet().link
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    return again


def test_when_it_is_started_again_what_was_said_is_said_anew(met):
    link = met(0)
    link.speak_first(0)
    with pytest.raises(SystemExit):
        link.speak_first(0)
    met(1).speak_first(0)


def test_what_keeps_them_from_joining_is_one_line(met, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nope0")
    with pytest.raises(RankError, match=r"^the 1 processes cannot be joined: .*Unable to find address for: nope0$"):
        met(0)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    with pytest.raises(RankError, match=r"^the 1 processes cannot be joined: .*address already in use"):
        met(0)


def test_the_command_to_go_on_can_be_pasted(monkeypatch):
    assert to_go_on("my run") == "sprl train --resume 'my run'"
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert to_go_on("my run") == "torchrun --nproc-per-node 4 -m sprl train --resume 'my run'"
