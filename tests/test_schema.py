"""Damaged and crafted checkpoints: each is one clear error, nothing in them is run, nothing absurd is allocated."""

import json
import os
import pickle
import random
import resource

import numpy as np
import pytest
import torch
from safetensors import torch as torch_format

from sprl.checkpoint import checksum, load, save
from sprl.config import Config
from sprl.data import arrays
from sprl.errors import InputError
from sprl.files import CHECKPOINT
from sprl.run import prepare
from sprl.tensors import write

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
        else:  # it lay in the spaces that fill the header up
            assert standing(again) == standing(run)
    assert refused > 20


PREVIOUS = "state.memory.previous"
MOMENT = "state.optimizer.0.exp_avg"
ROWS = "state.progress.rows"


def tensor(name, value):
    return lambda tensors, facts: tensors.update({name: value})


def without(name):
    return lambda tensors, facts: tensors.pop(name)


def fact(*way, **values):
    """Change facts, those of `way` where it is given."""

    def change(tensors, facts):
        for step in way:
            facts = facts[step]
        facts.update(values)

    return change


def lacking(tensors, facts):
    facts.pop("warmup")


def another_network(tensors, facts):
    for name in [name for name in tensors if name.startswith("warmup.1.networks.")]:
        del tensors[name]


CRAFTED = {
    "a key less": (lacking, "it has other keys"),
    "a key more": (fact(more=1), "it has other keys"),
    "no format": (lambda tensors, facts: facts.pop("format"), "it is not a checkpoint"),
    "another format": (fact(format=1), "has the format 1, this version of sprl reads 6"),
    "another config": (fact(config="0" * 64), "config.json is not the one"),
    "a config that is no hash": (fact(config=0), "it is not a checkpoint"),
    "other data": (fact(data="0" * 64), "the data is not what"),
    "another device": (fact(device="cuda"), "was trained on cuda, this is cpu"),
    "versions that are none": (fact(versions=3), "versions is not of type dict"),
    "other versions": (fact(versions={}), "versions has other keys"),
    "a version that is none": (fact("versions", torch=2), "versions are not text"),
    "threads in words": (fact(threads="1"), "threads is not of type int"),
    "a state less": (without("state.order"), "it lacks state.order"),
    "a state more": (tensor("state.more", torch.zeros(3)), "it holds state.more, which no checkpoint of this run needs"),
    "a fact more": (fact("state", more=1), "state has other facts"),
    "an epoch beyond the last": (fact("state", t=10**9), "t is out of range"),
    "an epoch before the first": (fact("state", t=-1), "t is out of range"),
    "an epoch in words": (fact("state", t="1"), "t is out of range"),
    "a weight less": (without("state.networks.0.1.weight"), "it lacks state.networks.0.1.weight"),
    "a weight more": (tensor("state.networks.more", torch.zeros(3)), "it holds state.networks.more, which"),
    "another shape": (tensor(PREVIOUS, torch.zeros(4, 400)), r"memory.previous is not float32 \(400, 4\)"),
    "other numbers": (tensor(PREVIOUS, torch.zeros(400, 4).double()), "memory.previous is not float32"),
    "bytes that are no random state": (lambda tensors, facts: tensors["state.order"].zero_(), "mt19937"),
    "a random state too many": (tensor("state.draws.0.1", torch.zeros(3)), "it holds state.draws.0.1, which"),
    "moments of other weights": (tensor("state.optimizer.99.step", torch.zeros(())), "it holds state.optimizer.99.step, which"),
    "a moment less": (without(MOMENT), f"it lacks {MOMENT}"),
    "a moment of another shape": (tensor(MOMENT, torch.zeros(2)), f"{MOMENT} is not float32"),
    "a negative step": (tensor("state.optimizer.0.step", torch.tensor(-1.0)), "state.optimizer.0 has a negative step"),
    "rates of another optimizer": (fact("state", rates=[]), "state.rates are of another length"),
    "a rate in words": (fact("state", rates=[["fast", 0.9, 0.999]]), "state.rates are not rates"),
    "a rate without end": (fact("state", rates=[[float("inf"), 0.9, 0.999]]), "state.rates are not rates"),
    "rows out of range": (tensor(ROWS, torch.arange(5) + 396), "progress.rows are not rows"),
    "negative rows": (tensor(ROWS, torch.arange(5) - 3), "progress.rows are not rows"),
    "rows twice": (tensor(ROWS, torch.zeros(5, dtype=torch.int64)), "progress.rows are not rows"),
    "rows that are no numbers of rows": (tensor(ROWS, torch.arange(5.0)), "progress.rows are not rows"),
    "batches out of range": (fact("state", done=4), "state.done is out of range"),
    "batches below zero": (fact("state", done=-1), "state.done is out of range"),
    "a search of other epochs": (fact(warmup=[[7, 0.5, None]]), "warmup is of other epochs"),
    "a search in words": (fact(warmup="none"), "warmup is of other epochs"),
    "a search without the best": (lambda tensors, facts: facts["warmup"][1].__setitem__(2, None), "warmup lacks the best epoch"),
    "a search with another epoch": (lambda tensors, facts: facts["warmup"][1][2].update(t=2), "warmup holds another epoch"),
    "a search with other weights": (another_network, "it lacks warmup.1.networks"),
    "a search without the beginning": (lambda tensors, facts: facts["warmup"][0].__setitem__(2, None), "warmup lacks the beginning"),
    "a search that began with a memory": (tensor("warmup.0.memory.m", torch.zeros(())), "it holds warmup.0.memory.m, which"),
    "an accuracy that is none": (lambda tensors, facts: facts["warmup"][1].__setitem__(1, 2.0), "warmup holds a score outside 0 to 1"),
    "metrics of other epochs": (lambda tensors, facts: facts["rows"].append(facts["rows"][0]), "rows are of other epochs"),
    "metrics out of order": (lambda tensors, facts: facts["rows"][0].update(epoch=2), "rows are of other epochs"),
    "metrics that lack one": (lambda tensors, facts: facts["rows"][0].pop("gamma"), "rows are not metrics"),
    "metrics in words": (lambda tensors, facts: facts["rows"][0].update(loss="x"), "rows are not metrics"),
    "another method": (fact("method", K=11), "method is not that of the config"),
    "a method with more": (fact("method", more=1), "method is not that of the config"),
    "a T1 that cannot be": (fact("method", T1=0), "T1 is 0 but must be at least 1"),
    "no time": (fact(seconds=float("nan")), "seconds is not a time"),
    "a step of another device": (fact(stepper="captured"), "stepper is not one of this device"),
}


def parts(content):
    """A checkpoint's tensors and facts, to be changed."""
    length = int.from_bytes(content[:8], "little")
    return torch_format.load(content), json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["checkpoint"])


def put_together(path, tensors, words):
    """A checkpoint whose checksum is right, whatever it holds."""
    tensors = dict(sorted(tensors.items()))
    with path.open("wb") as file:
        write(file, tensors, {"checkpoint": words, "crc32": checksum(words, tensors.values())})


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_checkpoint_is_one_clear_error_and_changes_nothing(kept, fresh, tmp_path, name):
    change, message = CRAFTED[name]
    tensors, facts = parts(kept[1])
    change(tensors, facts)
    put_together(tmp_path / CHECKPOINT, tensors, json.dumps(facts))
    before = standing(fresh)
    with pytest.raises(InputError, match=message) as refused:
        load(tmp_path, fresh)
    assert "\n" not in str(refused.value)
    assert standing(fresh) == before


@pytest.mark.parametrize(
    "words", ["", "[1]", "null", "[" * 10**5, '{"format": 6', '"' + "x" * 10**6 + '"'], ids=["none", "list", "null", "deep", "cut", "long"]
)
def test_words_that_are_no_facts_are_one_clear_error(kept, fresh, tmp_path, words):
    put_together(tmp_path / CHECKPOINT, parts(kept[1])[0], words)
    with pytest.raises(InputError, match="cannot resume from") as refused:
        load(tmp_path, fresh)
    assert "\n" not in str(refused.value)


class Code:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_in_a_checkpoint_is_not_run(fresh, tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(pickle.dumps(Code(), protocol))
    with pytest.raises(InputError, match="cannot resume from"):
        load(tmp_path, fresh)
    assert not (tmp_path / "was-run").exists()


def header(**tensors):
    content = json.dumps(tensors).encode()
    return len(content).to_bytes(8, "little") + content


@pytest.mark.parametrize(
    "content",
    [
        (2**62).to_bytes(8, "little") + b"{}",
        header(a={"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}),
        header(a={"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}) + bytes(4),
        header(**{name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}) + bytes(4),
        header(**{"out of memory": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        header(__metadata__={"checkpoint": "[" + "[]," * 2**21 + "[]]"}),
    ],
    ids=["a header", "a tensor", "a shape", "two tensors in one place", "a name that says something else", "many values"],
)
def test_what_claims_more_than_the_file_holds_is_refused(fresh, tmp_path, content):
    (tmp_path / CHECKPOINT).write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="cannot resume from"):
        load(tmp_path, fresh)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_a_pipe_in_its_place_is_refused(fresh, tmp_path):
    os.mkfifo(tmp_path / CHECKPOINT)
    with pytest.raises(InputError, match="it is not a file"):
        load(tmp_path, fresh)
