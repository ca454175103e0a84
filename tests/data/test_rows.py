"""Rows on disk give the same numbers as rows in memory."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from sprl.data import rows as rows_module
from sprl.data.rows import FileRows, Streamed, fetch, place, select
from sprl.engine import predict, run_epoch, start
from sprl.errors import InputError
from sprl.machine import free_memory
from sprl.methods import SPRL
from sprl.state import Task
from sprl.training import train
from sprl.tune import held_out_accuracy

CPU = torch.device("cpu")


@pytest.fixture
def pictures(tmp_path):
    """40 pictures of 3 x 8 x 8, in a file and in memory."""
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8))
    (tmp_path / "x.rows").write_bytes(x.numpy().tobytes())
    return FileRows(tmp_path / "x.rows", np.arange(40), 192, (3, 8, 8)), x


def test_rows_of_a_file_are_the_tensor(pictures):
    rows, x = pictures
    assert rows.shape == tuple(x.shape)
    assert rows.nbytes == x.nbytes
    index = torch.tensor([5, 0, 39, 5])
    assert torch.equal(rows[index], x[index])
    assert rows[torch.arange(0)].shape == (0, 3, 8, 8)


def test_of_grey_pictures_one_plane_is_read(pictures):
    rows, x = pictures
    assert torch.equal(replace(rows, shape_of_row=(1, 8, 8))[torch.arange(40)], x[:, :1])


def test_some_rows_in_another_order(pictures):
    rows, x = pictures
    index = torch.tensor([7, 3, 20])
    for source in (rows, x):
        some = select(Streamed(source, CPU), index)
        assert torch.equal(some[torch.tensor([2, 0])], x[[20, 7]])
    assert torch.equal(select(x, index), x[index])


@pytest.mark.parametrize("sizes", [[40], [3] * 13 + [1], [1] * 40, [0, 40, 0]])
def test_parts_come_in_order_however_many_are_read_ahead(pictures, sizes):
    rows, x = pictures
    parts = torch.randperm(40).split(sizes)
    for source in (x, Streamed(x, CPU), Streamed(rows, CPU), Streamed(rows, CPU, ahead=1)):
        got = [part.clone() for part in fetch(source, parts)]
        assert all(torch.equal(part, x[index]) for part, index in zip(got, parts, strict=True))


def test_a_file_cut_short_is_told_from_any_thread(pictures):
    rows, _ = pictures
    rows.path.write_bytes(rows.path.read_bytes()[:-1])
    with pytest.raises(InputError, match="cut short"):
        list(fetch(Streamed(rows, CPU), torch.arange(40).split(8)))


def test_a_file_that_is_removed_is_read_on(pictures):
    """As when the cache is cleared beside a run, which also picks some of the rows and reads them again."""
    rows, x = pictures
    rows.path.unlink()
    assert torch.equal(torch.cat([part.clone() for part in fetch(Streamed(rows, CPU), torch.arange(40).split(8))]), x)
    assert torch.equal(select(Streamed(rows, CPU), torch.tensor([7, 3]))[torch.arange(2)], x[[7, 3]])
    with pytest.raises(InputError, match="has the cache been cleared"):
        FileRows(rows.path, np.arange(40), 192, (3, 8, 8))


@pytest.mark.parametrize("places", [range(40), [5, 0, 39, 5]])
def test_systems_without_reads_by_place_read_the_same(pictures, monkeypatch, places):
    rows, x = pictures
    monkeypatch.delattr(os, "preadv")
    index = torch.tensor(list(places))
    assert torch.equal(rows[index], x[index])
    parts = index.split(3)
    assert torch.equal(torch.cat([part.clone() for part in fetch(Streamed(rows, CPU), parts)]), x[index])


def test_an_epoch_that_breaks_off_leaves_no_reader_behind(pictures):
    import threading

    rows, _ = pictures
    coming = fetch(Streamed(rows, CPU), torch.arange(40).split(1))
    next(coming)
    coming.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sprl-read")]


def test_rows_are_streamed_only_where_they_do_not_fit(pictures, monkeypatch):
    rows, x = pictures
    assert torch.equal(place(rows, CPU), x)
    assert isinstance(place(rows, CPU, stream=True), Streamed)
    monkeypatch.setattr(rows_module, "free_memory", lambda device: 2 * x.nbytes - 1)
    assert isinstance(place(rows, CPU), Streamed)
    assert place(x, CPU) is x  # it is in memory already


def test_free_memory_is_less_than_all():
    assert 0 < free_memory(CPU) < 2**50


def test_streamed_training_gives_the_same_numbers(pictures):
    rows, x = pictures
    y = torch.arange(40) % 2
    results = []
    for source in (x, Streamed(rows, CPU)):
        task = Task(source, y, num_classes=2, epochs=3, batch_size=8, augment=lambda x: x + 0.1 * torch.rand_like(x))
        state = start(task, SPRL(T1=1), "cnn:width=4")
        losses = [epoch.loss for epoch in train(task, state)]
        results.append((losses, predict(state.networks, task.x), state.memory["previous"]))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][2], results[1][2])


def test_predictions_of_some_rows_are_those_of_all(pictures):
    rows, x = pictures
    task = Task(Streamed(rows, CPU), torch.arange(40) % 2, num_classes=2, epochs=2, batch_size=8)
    state = start(task, SPRL(T1=1), "cnn:width=4")
    run_epoch(task, state)
    some = torch.tensor([9, 2, 31])
    torch.testing.assert_close(predict(state.networks, task.x, some), predict(state.networks, x)[some])


def test_tuning_streams_too(pictures):
    from types import SimpleNamespace

    rows, x = pictures
    accuracies = []
    for source in (x, Streamed(rows, CPU)):
        task = Task(source, torch.arange(40) % 2, num_classes=2, epochs=2, batch_size=8)
        run = SimpleNamespace(task=task, config=SimpleNamespace(network="cnn:width=4"))
        accuracies.append(held_out_accuracy(run, torch.arange(8), SPRL(T1=1), 2))
    assert accuracies[0] == accuracies[1]
