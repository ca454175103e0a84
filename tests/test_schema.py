"""Damaged and crafted checkpoints: each is one clear error, nothing in them is run, nothing absurd is allocated."""

import io
import os
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch

from sprl.checkpoint import load, save
from sprl.config import Config
from sprl.data import arrays
from sprl.errors import InputError
from sprl.files import CHECKPOINT
from sprl.run import prepare

CONFIG = Config(data="points", epochs=16, batch_size=128, lr=0.01)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run in its second epoch, and its checkpoint as bytes."""
    folder = tmp_path_factory.mktemp("kept")
    np.savez(folder / "points.npz", x=np.random.default_rng(0).normal(size=(400, 6)), y=np.arange(400) % 4)
    run = prepare(CONFIG, arrays.load(folder / "points.npz"))
    for _, _ in zip(range(6), run.train(lambda: True), strict=False):
        pass
    save(folder, run)
    return run, (folder / CHECKPOINT).read_bytes()


@pytest.fixture
def fresh(kept):
    return prepare(CONFIG, kept[0].data)


def standing(run):
    """Where a run stands, as bytes and numbers."""
    weights = {name: value.numpy().tobytes() for name, value in run.state.networks.state_dict().items()}
    memory = {name: value.numpy().tobytes() for name, value in run.state.memory.items()}
    return run.state.t, run.state.progress.done, run.rows, weights, memory, run.state.method


def test_whatever_is_damaged_is_noticed(kept, tmp_path):
    run, content = kept
    rng = random.Random(0)
    refused = 0
    for _ in range(40):
        damaged = bytearray(content)
        if rng.random() < 0.2:
            damaged = damaged[: rng.randrange(len(content))]
        else:
            damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / CHECKPOINT).write_bytes(damaged)
        again = prepare(CONFIG, run.data)
        try:
            load(tmp_path, again)
        except InputError:
            refused += 1
        else:  # it lay in the padding between tensors
            assert standing(again) == standing(run)
    assert refused > 20


def memory(value):
    return lambda c: c["state"]["memory"].update(previous=value)


def moments(change):
    return lambda c: change(c["state"]["optimizer"]["state"][0])


def group(**values):
    return lambda c: c["state"]["optimizer"]["param_groups"][0].update(values)


def progress(**values):
    return lambda c: c["state"]["progress"].update(values)


CRAFTED = {
    "a key less": (lambda c: c.pop("warmup"), "it has other keys"),
    "a key more": (lambda c: c.update(more=1), "it has other keys"),
    "a list": (lambda c: [c], "it holds something else"),
    "no format": (lambda c: c.pop("format"), "it holds something else"),
    "another format": (lambda c: c.update(format=1), "has the format 1, this version of sprl reads 5"),
    "another config": (lambda c: c.update(config="0" * 64), "config.json is not the one"),
    "a config that is no hash": (lambda c: c.update(config=0), "it holds something else"),
    "other data": (lambda c: c.update(data="0" * 64), "the data is not what"),
    "another device": (lambda c: c.update(device="cuda"), "was trained on cuda, this is cpu"),
    "versions that are none": (lambda c: c.update(versions=3), "versions has other keys"),
    "a state less": (lambda c: c["state"].pop("order"), "state has other keys"),
    "an epoch beyond the last": (lambda c: c["state"].update(t=10**9), "t is out of range"),
    "an epoch before the first": (lambda c: c["state"].update(t=-1), "t is out of range"),
    "an epoch in words": (lambda c: c["state"].update(t="1"), "t is not of type int"),
    "a weight less": (lambda c: c["state"]["networks"].popitem(), "networks has other keys"),
    "a weight more": (lambda c: c["state"]["networks"].update(more=torch.zeros(3)), "networks has other keys"),
    "another shape": (memory(torch.zeros(4, 400)), r"memory.previous is not float32 of shape \(400, 4\)"),
    "other numbers": (memory(torch.zeros(400, 4).double()), "memory.previous is not float32"),
    "one number for many": (memory(torch.zeros(1).expand(400, 4)), "memory.previous is not float32"),
    "a million million numbers": (memory(torch.zeros(1).expand(10**6, 10**6)), "memory.previous is not float32"),
    "a part of more": (memory(torch.zeros(800, 4)[:400]), "memory.previous is not float32"),
    "gradients": (memory(torch.zeros(400, 4).requires_grad_()), "memory.previous is not float32"),
    "a sparse tensor": (memory(torch.zeros(400, 4).to_sparse()), "it names torch"),
    "a tensor of nothing": (memory(torch.zeros(400, 4, device="meta")), "it names torch"),
    "a parameter": (memory(torch.nn.Parameter(torch.zeros(400, 4))), "it names torch"),
    "text for a tensor": (memory("x"), "memory.previous is not float32"),
    "bytes that are no random state": (lambda c: c["state"]["order"].zero_(), "mt19937"),
    "a random state too many": (lambda c: c["state"]["draws"].append(torch.zeros(3)), "draws is of another length"),
    "moments of other weights": (lambda c: c["state"]["optimizer"]["state"].update({99: {}}), "optimizer.state is of other weights"),
    "a moment less": (moments(lambda m: m.pop("exp_avg")), "optimizer.state.0 has other keys"),
    "a moment of another shape": (moments(lambda m: m.update(exp_avg=torch.zeros(2))), "optimizer.state.0.exp_avg is not float32"),
    "a negative step": (moments(lambda m: m.update(step=torch.tensor(-1.0))), "optimizer.state has a negative step"),
    "another kind of Adam": (group(amsgrad=True), "optimizer.param_groups are others"),
    "a rate in words": (group(lr="fast"), "optimizer.param_groups.0.lr is not of type float"),
    "rows out of range": (progress(rows=torch.arange(5) + 396), "progress.rows are no rows"),
    "negative rows": (progress(rows=torch.arange(5) - 3), "progress.rows are no rows"),
    "rows twice": (progress(rows=torch.zeros(5, dtype=torch.int64)), "progress.rows are no rows"),
    "rows that are no numbers of rows": (progress(rows=torch.arange(5.0)), "progress.rows are no rows"),
    "rows without end": (progress(rows=torch.zeros(1, dtype=torch.int64).expand(10**12)), "progress.rows are no rows"),
    "batches out of range": (progress(done=4), "progress.done is out of range"),
    "batches below zero": (progress(done=-1), "progress.done is out of range"),
    "progress with more": (progress(more=1), "progress has other keys"),
    "a search of other epochs": (lambda c: c.update(warmup={7: (0.5, None)}), "warmup is of other epochs"),
    "a search without the best": (lambda c: c["warmup"].update({1: (0.5, None)}), "warmup lacks the best epoch"),
    "a search with another epoch": (lambda c: c["warmup"][1][1].update(t=2), "warmup holds another epoch"),
    "a search with other weights": (lambda c: c["warmup"][1][1]["networks"].popitem(), "networks has other keys"),
    "a search without the beginning": (lambda c: c["warmup"].update({0: (0.0, None)}), "warmup lacks the beginning"),
    "a search that began with a memory": (lambda c: c["warmup"][0][1]["memory"].update(m=torch.zeros(())), "memory has other keys"),
    "an accuracy that is none": (lambda c: c["warmup"].update({1: (2.0, None)}), "warmup holds no score"),
    "metrics of other epochs": (lambda c: c["rows"].append(c["rows"][0]), "rows are of other epochs"),
    "metrics out of order": (lambda c: c["rows"][0].update(epoch=2), "rows are of other epochs"),
    "metrics that lack one": (lambda c: c["rows"][0].pop("gamma"), "rows are no metrics"),
    "metrics in words": (lambda c: c["rows"][0].update(loss="x"), "rows are no metrics"),
    "another method": (lambda c: c["method"].update(K=11), "method is not that of the config"),
    "a method with more": (lambda c: c["method"].update(more=1), "method has other keys"),
    "a T1 that cannot be": (lambda c: c["method"].update(T1=0), "T1 is 0 but must be at least 1"),
    "no time": (lambda c: c.update(seconds=float("nan")), "seconds is no time"),
    "a step of another device": (lambda c: c.update(stepper="captured"), "stepper is none of this device"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_checkpoint_is_one_clear_error_and_changes_nothing(kept, fresh, tmp_path, name):
    change, message = CRAFTED[name]
    content = torch.load(io.BytesIO(kept[1]), weights_only=True)
    changed = change(content)
    torch.save(changed if isinstance(changed, list) else content, tmp_path / CHECKPOINT)
    assert (tmp_path / CHECKPOINT).stat().st_size < 10**7
    before = standing(fresh)
    with pytest.raises(InputError, match=message) as refused:
        load(tmp_path, fresh)
    assert "\n" not in str(refused.value)
    if name != "bytes that are no random state":  # which only the generator itself can tell, in the middle of it
        assert standing(fresh) == before


def archive(path, pickled, compression=zipfile.ZIP_STORED, **more):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little", **more}.items():
            file.writestr(f"archive/{name}", content)


class Code:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("wrap", [lambda path, content: path.write_bytes(content), archive])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_in_a_checkpoint_is_not_run(fresh, tmp_path, monkeypatch, wrap, protocol):
    monkeypatch.chdir(tmp_path)
    wrap(tmp_path / CHECKPOINT, pickle.dumps(Code(), protocol))
    with pytest.raises(InputError, match="no checkpoint to go on from"):
        load(tmp_path, fresh)
    assert not (tmp_path / "was-run").exists()


def test_a_checkpoint_cannot_make_torch_allocate(fresh, tmp_path):
    """torch's own list of what may be called has bytearray in it."""
    archive(tmp_path / CHECKPOINT, b"\x80\x02cbuiltins\nbytearray\n\x8a\x06" + (2**40).to_bytes(6, "little") + b"\x85R.")
    with pytest.raises(InputError, match="it names builtins bytearray"):
        load(tmp_path, fresh)


def test_a_bomb_is_refused_before_it_unfolds(fresh, tmp_path):
    archive(tmp_path / CHECKPOINT, pickle.dumps({}, 2), zipfile.ZIP_DEFLATED, **{"data/0": bytes(10**7)})
    assert (tmp_path / CHECKPOINT).stat().st_size < 10**5
    with pytest.raises(InputError, match="it is compressed"):
        load(tmp_path, fresh)


def test_an_entry_that_claims_more_than_the_file_holds_is_refused(fresh, tmp_path):
    archive(tmp_path / CHECKPOINT, pickle.dumps({}, 2), **{"data/0": b"1234"})
    content = (tmp_path / CHECKPOINT).read_bytes()
    place = content.rindex(b"PK\x01\x02")  # the last entry of the directory: its sizes stand 20 bytes on
    huge = (2**31).to_bytes(4, "little")
    (tmp_path / CHECKPOINT).write_bytes(content[: place + 20] + huge + huge + content[place + 28 :])
    with pytest.raises(InputError, match="it claims to be larger than it is"):
        load(tmp_path, fresh)


def test_a_tensor_that_claims_more_than_its_entry_is_refused(kept, fresh, tmp_path):
    """It would be cut at the file's end, so copying many of them would take many times the file."""
    with zipfile.ZipFile(io.BytesIO(kept[1])) as file:
        parts = {entry.filename.split("/", 1)[1]: file.read(entry) for entry in file.infolist()}
    size = b"M" + (1600).to_bytes(2, "little")  # of the previous predictions, 400 x 4
    assert size in parts["data.pkl"]
    archive(tmp_path / CHECKPOINT, parts.pop("data.pkl").replace(size, b"J" + (10**9).to_bytes(4, "little")), **parts)
    with pytest.raises(InputError, match=r"memory\.previous is not float32"):
        load(tmp_path, fresh)
