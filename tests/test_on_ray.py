"""`--engine ray`: runs as tasks of a cluster, processes of which may be lost at any moment."""

import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import clusters
from typed import sprl

from sprl import on_ray, ray_task, store
from sprl.compare import Job
from sprl.config import Config
from sprl.crew import Event
from sprl.errors import InputError
from sprl.run import prepare

LOST = "sprl: note: {}, seed {}: its process was lost (WorkerCrashedError), another one goes on\n"
NOISY = ("--corrupt", "symmetric:0.3")
WORDS = ("compare", "pets.npz", "--methods", "standard,curriculum", *NOISY, "--seeds", 2, "--epochs", 80, "--lr", 0.01)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)}
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")


@pytest.fixture
def home(tmp_path, monkeypatch):
    x, y = clusters()
    np.savez(tmp_path / "pets.npz", x=x[:200], y=y[:200], x_test=x[300:], y_test=y[300:])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "1000")
    return tmp_path


@pytest.fixture
def task(monkeypatch):
    """What a task changes in its process is put back."""
    before = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        yield lambda group, folder, keep: ray_task.told(group, folder, keep)
    ray_task.data_of.cache_clear()
    assert signal.getsignal(signal.SIGINT) is before


def jobs_of(*seeds, **more):
    runs = [prepare(Config(data="pets.npz", method="standard", corrupt="symmetric:0.3", seed=seed, epochs=6, **more)) for seed in seeds]
    return [Job(run.config, store.key_of(run.config.to_json(), run.fingerprint, None)) for run in runs]


def kinds(events):
    return [(event.kind, event.job and event.job.config.seed) for event in events if event.kind != "row"]


# A cluster of this machine alone, through the command line.


def started(home, every, *words):
    """The command, which must end by itself within a minute and a quarter."""
    command = [sys.executable, "-m", "sprl", *map(str, words), "--engine", "ray"]
    surroundings = ENVIRONMENT | {"SPRL_CHECKPOINT_SECONDS": str(every)}
    return subprocess.Popen(
        command, cwd=home, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process):
    try:
        out, error = process.communicate(timeout=75)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, error


def first(folder, pattern, process):
    for _ in range(6000):
        found = sorted(folder.glob(pattern))
        if found or process.poll() is not None:
            break
        time.sleep(0.01)
    assert found, ended(process)
    return found[0]


def holder(lock):
    """The process that has the file open."""
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if handle.readlink() == lock:
                return int(handle.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody has {lock}")


@needs_ray
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are found by /proc")
def test_a_worker_that_is_killed_takes_nothing_with_it(home, capsys):
    process = started(home, 0.1, *WORDS, "--jobs", 2)
    checkpoint = first(home / "records" / "unfinished", "*/checkpoint.safetensors", process)
    worker = holder(checkpoint.parent / ".lock")
    assert worker != process.pid
    os.kill(worker, signal.SIGKILL)
    code, out, error = ended(process)
    assert code == 0, error
    assert error in [LOST.format(method, seed) for method in ("standard", "curriculum") for seed in (0, 1)]
    assert "Ray       1 machine, " in out
    assert [line.split()[0] for line in out.splitlines() if "/4  " in line] == ["1/4", "2/4", "3/4", "4/4"]
    assert sprl(capsys, *WORDS, "--jobs", 1, "--store", "whole")[0] == 0
    there = store.all(home / "records")
    assert len(there) == len(store.all(home / "whole")) == 4
    assert sorted(path.name for path in (home / "records").iterdir()) == [*(f"{record.key}.json" for record in there), "unfinished"]
    assert list((home / "records" / "unfinished").iterdir()) == []
    for record in there:
        assert store.read(home / "whole", record.key).curves == record.curves


@needs_ray
def test_ctrl_c_saves_and_the_same_command_goes_on(home, capsys):
    one = ("compare", "pets.npz", "--methods", "standard", *NOISY, "--seeds", 1, "--epochs", 200)
    process = started(home, 1000, *one)
    unfinished = home / "records" / "unfinished"
    first(unfinished, "*/metrics.jsonl", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all that was started
    code, out, error = ended(process)
    assert (code, error) == (130, "")
    assert "Stopped   0 of 1 run have ended, 1 is kept as far as it came" in out
    assert f"go on with: sprl {' '.join(map(str, one))} --engine ray" in out
    assert [path.name for path in (home / "records").iterdir()] == ["unfinished"]
    assert len(list(unfinished.glob("*/checkpoint.safetensors"))) == 1
    assert sprl(capsys, *one)[0] == sprl(capsys, *one, "--store", "whole")[0] == 0  # with or without Ray
    [record], [whole] = store.all(home / "records"), store.all(home / "whole")
    assert record.curves == whole.curves


@pytest.mark.parametrize("words", [WORDS, ("bench", "table2", "--short")])
def test_without_ray_it_says_what_to_install(home, capsys, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, error = sprl(capsys, *words, "--engine", "ray")
    assert (code, out, error) == (2, "", "sprl: --engine ray needs Ray: pip install ray\n")
    assert not (home / "records").exists()


@needs_ray
def test_an_address_of_ray_client_is_refused(home, capsys, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://there:10001")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        code, _, error = sprl(capsys, *WORDS, "--engine", "ray")
    assert code == 2
    assert (
        error
        == "sprl: RAY_ADDRESS is ray://there:10001, but Ray Client passes on no streams: give the command on a machine of the cluster\n"
    )


@pytest.fixture
def join(monkeypatch):
    """Join a cluster of one machine without a GPU, which was started for it or not; or fail to."""

    def join(gpu=None, own=True, error=None):
        def init(**options):
            if error:
                raise error

        worker = SimpleNamespace(_global_node=SimpleNamespace(is_head=lambda: own))
        ray = SimpleNamespace(
            init=init,
            nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}],
            shutdown=lambda: None,
            exceptions=SimpleNamespace(RayError=RayError),
            _private=SimpleNamespace(worker=worker),
        )
        monkeypatch.setattr(on_ray, "package", lambda: ray)
        with on_ray.joined(gpu, "auto") as room:
            return room

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return join


def test_a_cluster_that_does_not_answer_is_not_waited_for(join, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=f"cannot join the Ray cluster {address}: .*refused; RAY_ADDRESS=local starts one"):
            join(error=AssertionError("Ray would wait"))
        taken.listen()
        assert join().fits == 2


def test_what_fits_into_no_machine_waits_for_others_only_where_they_may_come(join):
    assert join(gpu=0.5, own=False) == on_ray.Room(0.5, 0, "1 machine, 2 CPUs, 0 GPUs")
    with pytest.raises(
        InputError, match=r"takes 1 CPU and 0.5 of a GPU, which this machine has not \(1 machine, 2 CPUs, 0 GPUs\): lower --gpu"
    ):
        join(gpu=0.5)


@pytest.mark.parametrize("error", [ConnectionError("Failed to connect"), RuntimeError("Token authentication is enabled")])
def test_a_token_is_named_where_it_may_lack(join, error):
    with pytest.raises(InputError, match=f"cannot join the Ray cluster: {error}; if it asks for a token, .* RAY_AUTH_MODE=token"):
        join(error=error)


def test_marks_of_commands_that_were_killed_are_removed(tmp_path):
    (tmp_path / ".here-0123").touch()
    with on_ray.marked(tmp_path) as one, on_ray.marked(tmp_path) as other:
        assert {one.mark, other.mark} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


# A task, without Ray.


def test_a_task_hands_on_records_and_keeps_none(home, task):
    jobs = jobs_of(0, 1)
    events = list(task(jobs, home / "own", keep=False))
    assert kinds(events) == [("begun", 0), ("begun", 1), ("ended", 0), ("ended", 1)]
    assert list((home / "own").rglob("*.json")) == list((home / "own" / "unfinished").iterdir()) == []
    other = list(task(jobs, home / "records", keep=True))
    assert [record.key for record in store.all(home / "records")] == sorted(job.key for job in jobs)
    for here, there in zip(events, other, strict=True):
        assert here.kind != "ended" or here.told.curves == there.told.curves


def test_a_task_that_is_cut_off_saves_and_another_goes_on(home, task):
    jobs = jobs_of(0, 1)
    stream = task(jobs, home / "own", keep=False)
    list(itertools.takewhile(lambda event: event.kind != "row", stream))
    stream.close()
    assert len(list((home / "own").rglob("checkpoint.safetensors"))) == 2  # of all that take turns
    events = list(task(jobs, home / "own", keep=False))
    begun = {event.job.config.seed: event.told for event in events if event.kind == "begun"}
    assert begun[0] == 1
    assert len([event for event in events if event.kind == "row" and event.job == jobs[0]]) == 5
    whole = {event.job: event.told.curves for event in task(jobs, home / "other", keep=False) if event.kind == "ended"}
    assert whole == {event.job: event.told.curves for event in events if event.kind == "ended"}


def test_a_task_that_is_cancelled_tells_no_more_and_saves(home, task):
    jobs = jobs_of(0, 1)
    stream = task(jobs, home / "own", keep=False)
    list(itertools.takewhile(lambda event: event.kind != "row", stream))
    signal.raise_signal(signal.SIGINT)
    assert list(stream) == []
    assert len(list((home / "own").rglob("checkpoint.safetensors"))) == 2


def test_data_is_read_once_by_each_process_and_its_lack_told(home, task, monkeypatch):
    jobs, read = jobs_of(0, 1), ray_task.read
    seen = []
    monkeypatch.setattr(ray_task, "read", lambda config: seen.append(config.data) or read(config))
    for job in jobs:
        list(task([job], home / "own", keep=False))
    assert seen == ["pets.npz"]
    (home / "pets.npz").unlink()
    ray_task.data_of.cache_clear()
    events = list(task(jobs, home / "own", keep=False))
    assert kinds(events) == [("failed", 0), ("failed", 1)]
    assert "pets.npz" in events[0].told


# What is made of streams, whatever happens to them.


class RayError(Exception):
    """What Ray raises when a process or machine is lost."""


class RayTaskError(RayError):
    """When the task raised something itself."""


class TaskCancelledError(RayError):
    """When it was cancelled."""


@pytest.fixture
def hand_out(home, monkeypatch):
    """All events of groups whose tasks tell what is in the given lists, one after the other; and the tasks as they were handed out."""

    def raising(found):
        if isinstance(found, Exception):
            raise found
        return found

    def play(groups, *streams, stop=lambda: False, limit=None):
        left, tasks, at_once = iter(streams), [], []

        def wait(streams, timeout):
            at_once.append(len(streams))
            return streams[:1], streams[1:]

        def handed_out(remote, task, origin):
            assert origin.mark.exists()
            tasks.append((list(task.group), task.node))
            return iter(next(left))

        ray = SimpleNamespace(
            remote=lambda **options: lambda function: None,
            wait=wait,
            get=raising,
            cancel=lambda stream: None,
            exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, TaskCancelledError=TaskCancelledError),
        )
        monkeypatch.setattr(on_ray, "package", lambda: ray)
        monkeypatch.setattr(on_ray, "handed_out", handed_out)
        events = list(on_ray.on_ray(groups, home / "records", 0.0, limit, stop))
        assert next(left, None) is None
        assert list((home / "records").glob(".here-*")) == []
        play.most = max(at_once)
        return events, tasks

    return play


def test_records_from_elsewhere_are_written_once(home, task, hand_out):
    a, b = jobs_of(0, 1)
    made = {event.job: event for event in task([a, b], home / "own", keep=False) if event.kind == "ended"}
    first = ["node", Event("begun", a, 0), Event("begun", b, 0), made[a], RayError()]
    events, tasks = hand_out([[a, b]], first, ["node", Event("begun", b, 2), made[b]])
    assert kinds(events) == [("begun", 0), ("begun", 1), ("ended", 0), ("note", None), ("begun", 1), ("ended", 1)]
    assert tasks == [([a, b], None), ([b], "node")]  # what has ended is not handed out again; the rest goes where its checkpoints are
    assert {record.key for record in store.all(home / "records")} == {a.key, b.key}
    times = {path: path.stat().st_mtime_ns for path in (home / "records").glob("*.json")}
    events, _ = hand_out([[a, b]], [made[a], made[b]])
    assert kinds(events) == [("ended", 0), ("ended", 1)]
    assert {path: path.stat().st_mtime_ns for path in (home / "records").glob("*.json")} == times


def test_a_run_that_ends_its_process_each_time_fails(home, hand_out):
    a, b = jobs_of(0, 1)
    lost = [[Event("begun", a, 0), RayError()] for _ in range(on_ray.RETRIES + 1)]
    events, tasks = hand_out([[a]], *lost)
    assert kinds(events)[-1] == ("failed", 0)
    assert events[-1].told == "4 processes that trained it were lost (RayError)"
    assert [event.kind for event in events].count("note") == on_ray.RETRIES == len(tasks) - 1
    events, tasks = hand_out([[a, b]], [RayTaskError("Traceback\n\n  File ...\nValueError: no\tsuch thing")])
    assert kinds(events) == [("failed", 0), ("failed", 1)]
    assert events[0].told == "ValueError: no such thing"
    assert len(tasks) == 1  # it would happen again


@pytest.mark.parametrize("limit", [1, 2, None])
def test_no_more_tasks_at_once_than_asked_for(home, hand_out, limit):
    jobs = jobs_of(0, 1, 2)
    events, _ = hand_out([[job] for job in jobs], *([Event("failed", job, "why not")] for job in jobs), limit=limit)
    assert kinds(events) == [("failed", 0), ("failed", 1), ("failed", 2)]
    assert hand_out.most == (limit or 3)


def test_a_run_that_another_process_has_is_asked_for_again(home, task, hand_out, monkeypatch):
    monkeypatch.setattr(on_ray, "AGAIN", 0.01)
    [a] = jobs_of(0)
    [ended] = [event for event in task([a], home / "own", keep=False) if event.kind == "ended"]
    events, _ = hand_out([[a]], [Event("busy", a)], [Event("busy", a)], [ended])
    assert kinds(events) == [("busy", 0), ("busy", 0), ("ended", 0)]


def test_what_was_stopped_is_kept_elsewhere_or_has_a_record_after_all(home, task, hand_out):
    a, b, c = jobs_of(0, 1, 2)
    [ended] = [event for event in task([b], home / "own", keep=False) if event.kind == "ended"]
    stopped = []

    def stream():
        yield from ("node", Event("begun", a, 0))
        stopped.append(True)
        yield Event("row", a, {})
        store.write(home / "records", ended.told)  # by a machine that shares the disk
        yield TaskCancelledError()

    events, _ = hand_out([[a, b], [c]], stream(), ["node"], stop=lambda: bool(stopped))
    assert kinds(events) == [("begun", 0), ("stopped", 0), ("ended", 1), ("note", None), ("stopped", 2), ("note", None)]
    assert {event.told for event in events if event.kind == "note"} == {on_ray.ELSEWHERE}


def test_a_store_that_cannot_be_written_fails_the_run(home, task, hand_out, monkeypatch):
    [a] = jobs_of(0)
    [ended] = [event for event in task([a], home / "own", keep=False) if event.kind == "ended"]

    def full(folder, record):
        raise on_ray.InputError("cannot write to records: no space left")

    monkeypatch.setattr(store, "write", full)
    events, _ = hand_out([[a]], [ended])
    assert [(event.kind, event.told) for event in events] == [("failed", "cannot write to records: no space left")]
