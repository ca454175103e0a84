"""Checkpoints: resuming anywhere is exact, damaged and crafted files are refused, a failed write harms nothing."""

import errno
import os
import resource
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from saved_runs import CONFIG, always, begun, noisy

from sprl import atomic, checkpoint
from sprl.checkpoint import EVERY, Keeper, load, save
from sprl.config import Config
from sprl.data import arrays
from sprl.engine import never
from sprl.errors import InputError, SprlWarning
from sprl.files import CHECKPOINT, METRICS, PREVIOUS
from sprl.run import prepare
from sprl.tensors import Source


@pytest.fixture
def data(points, tmp_path):
    return noisy(points, tmp_path)


@pytest.fixture
def pictures(tmp_path):
    """Grey pictures of noise, large enough to be shifted at random."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "pictures.npz", x=rng.integers(0, 256, (60, 16, 16), np.uint8), y=np.arange(60) % 3)
    return arrays.load(tmp_path / "pictures.npz")


def standing(run):
    """Where a run stands, as bytes and numbers."""
    weights = {name: value.numpy().tobytes() for name, value in run.state.networks.state_dict().items()}
    memory = {name: value.numpy().tobytes() for name, value in run.state.memory.items()}
    return run.state.t, run.state.progress.done, run.rows, weights, memory, run.state.method


def outcome(run):
    """All that a run leaves."""
    return *standing(run), run.labels().to_csv()


@pytest.mark.parametrize("kind", ["search", "standard", "augmented"])
def test_a_run_killed_after_every_batch_is_the_unbroken_run(data, pictures, tmp_path, kind):
    config, data = {
        "search": (CONFIG, data),
        "standard": (replace(CONFIG, method="standard", epochs=3), data),
        "augmented": (Config(network="cnn", epochs=2, batch_size=16, fields={"T1": 1}), pictures),
    }[kind]
    whole = prepare(config, data)
    list(whole)
    count = searched = 0
    while True:
        run = prepare(config, data)
        assert load(tmp_path, run) == (count > 0)
        searched += bool(run.state.warmup)
        if next(run.train(always), "end") == "end":
            break
        save(tmp_path, run)
        count += 1
    assert outcome(run) == outcome(whole)
    assert count > {"search": 70, "standard": 10, "augmented": 8}[kind]
    assert (searched > 10) == (kind == "search")


def test_saving_does_not_change_the_run(data, tmp_path):
    whole, kept = prepare(CONFIG, data), prepare(CONFIG, data)
    list(whole)
    keeper = Keeper(tmp_path, kept, never, interval=0)
    for row in kept.train(keeper.pause):
        assert not keeper.keep(row)
    assert outcome(kept) == outcome(whole)
    assert len((tmp_path / METRICS).read_text().splitlines()) == 16


def test_rows_are_those_of_the_epochs_done_wherever_it_pauses(data):
    run = prepare(CONFIG, data)
    assert all(len(run.rows) == run.state.t for _ in run.train(always))


def test_checkpoints_come_by_time_and_cost_at_most_a_fiftieth(data, tmp_path, monkeypatch):
    now = [100.0]
    run = prepare(CONFIG, data)
    saved = []

    def slow(folder, run):
        saved.append(now[0])
        now[0] += 2.0

    monkeypatch.setattr(checkpoint, "save", slow)
    keeper = Keeper(tmp_path, run, never, clock=lambda: now[0])
    rows = run.train(keeper.pause)
    for _ in range(4):
        row = next(rows)
        assert row is not None  # nothing was due
        keeper.keep(row)
        now[0] += EVERY / 4 + 0.01
    assert saved == []
    assert next(rows) is None
    keeper.keep(None)
    assert len(saved) == 1
    now[0] += 2.0 / 0.02 - 1
    assert not keeper.pause()
    now[0] += 1
    assert keeper.pause()


def test_runs_that_take_turns_are_saved_no_more_often_in_all_than_one_alone(data, tmp_path, monkeypatch):
    now = [0.0]
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, run: saved.append(folder.name))
    run = prepare(CONFIG, data)
    keepers = [Keeper(tmp_path / str(i), run, never, turns=4, clock=lambda: now[0]) for i in range(4)]
    while now[0] < 12 * EVERY:
        now[0] += 1
        for keeper in keepers:
            keeper.keep(None)
    assert sorted(saved) == [str(i) for i in range(4) for _ in range(3)]  # in the time of twelve, three of each


def test_there_is_one_at_the_end(data, tmp_path):
    config = replace(CONFIG, epochs=2)
    run, again = prepare(config, data), prepare(config, data)
    keeper = Keeper(tmp_path, run, never, interval=1000)
    for row in run.train(keeper.pause):
        keeper.keep(row)
    assert load(tmp_path, again)
    assert list(again.train(never)) == []
    assert outcome(again) == outcome(run)


def test_asked_to_stop_it_saves_once_and_says_so(data, tmp_path):
    run = prepare(CONFIG, data)
    keeper = Keeper(tmp_path, run, always)
    assert next(run.train(keeper.pause)) is None
    assert keeper.keep(None)
    again = prepare(CONFIG, data)
    assert load(tmp_path, again)
    assert again.state.progress.done == 1


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_an_interval_that_is_none_is_refused(data, tmp_path, monkeypatch, text):
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", text)
    with pytest.raises(InputError, match="must be a number of seconds"):
        Keeper(tmp_path, prepare(CONFIG, data), never)


def test_without_a_checkpoint_there_is_nothing_to_load(data, tmp_path):
    run = prepare(CONFIG, data)
    before = standing(run)
    assert not load(tmp_path, run)
    assert standing(run) == before


def test_a_torn_checkpoint_gives_way_to_the_one_before(data, tmp_path):
    run = begun(data, tmp_path, 2)
    next(run.train(always))
    save(tmp_path, run)
    content = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(content[: len(content) // 2])
    again = prepare(CONFIG, data)
    with pytest.warns(SprlWarning, match="taking the one before") as said:
        assert load(tmp_path, again)
    assert len(said) == 1
    assert again.state.progress.done == 2
    assert load(tmp_path, prepare(CONFIG, data))  # the good one has taken its place: no warning now
    assert not (tmp_path / PREVIOUS).exists()


def test_two_torn_checkpoints_are_one_clear_error(data, tmp_path):
    begun(data, tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(b"")
    (tmp_path / PREVIOUS).write_bytes(b"\0" * 1000)
    with (
        pytest.warns(SprlWarning),
        pytest.raises(InputError, match=r"cannot resume from .*checkpoint-previous.safetensors: .* new run"),
    ):
        load(tmp_path, prepare(CONFIG, data))


@pytest.mark.parametrize("place", ["sprl.checkpoint.Source", "sprl.checkpoint.restore"])
def test_a_lack_of_memory_says_nothing_about_the_file(data, tmp_path, monkeypatch, place):
    run = begun(data, tmp_path)
    save(tmp_path, run)
    with monkeypatch.context() as patch:
        patch.setattr(place, Mock(side_effect=RuntimeError("DefaultCPUAllocator: can't allocate memory")))
        with pytest.raises(RuntimeError, match="allocate"):
            load(tmp_path, prepare(CONFIG, data))
    assert {CHECKPOINT, PREVIOUS} <= {p.name for p in tmp_path.iterdir()}


def test_only_the_one_before_is_there_if_it_was_killed_between_two_moves(data, tmp_path):
    begun(data, tmp_path, 3)
    os.replace(tmp_path / CHECKPOINT, tmp_path / PREVIOUS)
    run = prepare(CONFIG, data)
    assert load(tmp_path, run)
    assert run.state.progress.done == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(CONFIG, lr=0.02), "config.json is not the one that checkpoint.safetensors was made with"),
        (replace(CONFIG, seed=1), "config.json is not the one"),
        (replace(CONFIG, fields={"K": 3}), "config.json is not the one"),
    ],
)
def test_the_checkpoint_of_another_config_is_refused(data, tmp_path, config, message):
    begun(data, tmp_path)
    with pytest.raises(InputError, match=message):
        load(tmp_path, prepare(config, data))


def test_other_data_is_refused(data, tmp_path):
    begun(data, tmp_path)
    y = data.y.copy()
    y[5] = (y[5] + 1) % 4
    x = data.x.clone()
    x[0, 0] += 1
    for other in (replace(data, y=y), replace(data, x=x), replace(data, classes=("a", "b", "c", "d"))):
        with pytest.raises(InputError, match="the data is not what"):
            load(tmp_path, prepare(CONFIG, other))


def test_other_threads_and_versions_are_told_in_one_note(data, tmp_path, monkeypatch):
    begun(data, tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(checkpoint, "versions", lambda: {"sprl": "9", "torch": torch.__version__, "numpy": np.__version__, "python": "x"})
    with pytest.warns(SprlWarning, match=r"sprl 9, was .*; python x, was .*; threads 7, was 1: .* only approximately") as said:
        assert load(tmp_path, prepare(CONFIG, data))
    assert len(said) == 1


def test_a_loss_that_is_not_finite_never_overwrites_the_last_good_checkpoint(data, tmp_path):
    run = begun(data, tmp_path, 2)
    before = (tmp_path / CHECKPOINT).read_bytes()
    run.state.progress.losses[1] = torch.nan
    with pytest.raises(InputError, match="epoch 1, batch 2 of 3, is nan"):
        save(tmp_path, run)
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {CHECKPOINT, "points.npz"}


def half_written(file, tensors, words):
    file.write(bytes(1000))
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_the_disk(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "write", half_written)


def write_to_dev_full(folder, monkeypatch):
    full = folder / "full"
    full.symlink_to("/dev/full")
    monkeypatch.setattr(atomic, "begun", lambda path: full.open("wb"))


def limit_the_size(folder, monkeypatch):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def take_the_folder_away(folder, monkeypatch):
    folder.rename(folder.with_name("gone"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (fill_the_disk, "No space left on device"),
        (write_to_dev_full, "No space left on device"),
        (limit_the_size, "File too large"),
        (take_the_folder_away, "No such file or directory"),
    ],
)
def test_a_write_that_fails_is_one_clear_error_and_harms_nothing(data, tmp_path, monkeypatch, spoil, reason):
    folder = tmp_path / "run"
    folder.mkdir()
    run = begun(data, folder, 2)
    before = (folder / CHECKPOINT).read_bytes()
    next(run.train(always))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        spoil(folder, monkeypatch)
        with pytest.raises(InputError, match=f"cannot write to .*/checkpoint.safetensors: {reason}"):
            save(folder, run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder = folder if folder.exists() else folder.with_name("gone")
    assert [(p.name, p.read_bytes()) for p in folder.iterdir()] == [(CHECKPOINT, before)]


def test_a_module_may_keep_views(data, tmp_path):
    """What is kept of a view is the view, not the whole memory that it is a part of."""
    runs = [prepare(CONFIG, data) for _ in range(2)]
    for start, run in enumerate(runs):
        run.state.networks[0].register_buffer("part", torch.arange(start, start + 10.0)[2:5])
    save(tmp_path, runs[0])
    assert load(tmp_path, runs[1])
    assert runs[1].state.networks[0].part.tolist() == [2, 3, 4]


def test_weights_that_are_tied_are_kept_once_and_stay_tied(data, tmp_path):
    runs = [prepare(CONFIG, data) for _ in range(2)]
    for run in runs:
        first = run.state.networks[0]
        first.register_parameter("again", next(first.parameters()))
    save(tmp_path, runs[0])
    kept = [name for name in Source(tmp_path / CHECKPOINT).left if name.startswith("state.networks.")]
    assert len(kept) == len(runs[0].state.networks.state_dict()) - 1
    with torch.no_grad():
        runs[1].state.networks[0].again.zero_()
    assert load(tmp_path, runs[1])
    weight = next(runs[1].state.networks[0].parameters())
    assert runs[1].state.networks[0].again is weight
    assert torch.equal(weight, next(runs[0].state.networks[0].parameters()))


def test_moments_lie_in_memory_as_their_weights_do(pictures, tmp_path):
    """Adam's fused kernel goes through both by the same strides: with others it computes wrong numbers without a word."""
    config = Config(network="cnn", epochs=2, batch_size=16, fields={"T1": 1})
    run = prepare(config, pictures)
    next(run.train(always))
    save(tmp_path, run)
    again = prepare(config, pictures)
    load(tmp_path, again)
    weights = [p for p in again.state.networks.parameters() if p.ndim == 4]
    assert any(not p.is_contiguous() for p in weights)
    for p in again.state.networks.parameters():
        moments = again.state.optimizer.state[p]
        assert moments["exp_avg"].stride() == moments["exp_avg_sq"].stride() == p.stride()


def test_what_was_read_no_longer_lies_in_the_file(data, tmp_path):
    """Else a run whose checkpoint is exchanged under it would change its numbers."""
    begun(data, tmp_path, 5)
    run = prepare(CONFIG, data)
    load(tmp_path, run)
    before = [value.clone() for moments in run.state.optimizer.state.values() for value in moments.values()]
    with (tmp_path / CHECKPOINT).open("r+b") as file:
        file.write(bytes((tmp_path / CHECKPOINT).stat().st_size))
    after = [value for moments in run.state.optimizer.state.values() for value in moments.values()]
    assert before
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_checkpoint_of_an_older_version_is_one_clear_line(data, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"checkpoint.pt is of an older version of sprl: resume the run with that version, or start"):
        load(tmp_path, prepare(CONFIG, data))
