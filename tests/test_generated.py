"""Labels that a network gives: made of a few right ones, once, the same for every method."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import clusters
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import sprl

from sprl import checkpoint, files, store
from sprl.config import Config
from sprl.data import cache
from sprl.data.catalogue import load
from sprl.data.rows import FileRows, Streamed
from sprl.engine import predict, start
from sprl.errors import InputError
from sprl.generated import Labeller, beginning, choose, labelled, name_of
from sprl.methods import Standard
from sprl.run import known_rate, prepare
from sprl.seeds import stream_seed
from sprl.state import Task
from sprl.training import train

CONFIG = Config(corrupt="generated:4", network="mlp:width=16", epochs=6, lr=0.01, seed=3)
CLASSES = ("ant", "bee", "cat", "dog")


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Clouds of points that run into each other, and whose labels are known to be right."""
    x, y = clusters(500)
    x += np.random.default_rng(1).normal(scale=3, size=x.shape).astype(np.float32)
    path = tmp_path_factory.mktemp("pets") / "pets.npz"
    np.savez(path, x=x[:400], y=np.array(CLASSES)[y[:400]], x_test=x[400:], y_test=np.array(CLASSES)[y[400:]])
    found = load(str(path))
    return replace(found, clean=found.y)


def entries(folder):
    return sorted(path.name for path in folder.glob("*") if path.suffix != ".lock")


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_as_many_rows_of_each_class_as_asked_for(c, count, seed):
    clean = np.random.default_rng(seed).permutation(np.repeat(np.arange(c), np.arange(c) + 9))
    rows = choose(clean, tuple("abcdef")[:c], count, seed)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(np.bincount(clean[rows], minlength=c), count)


def test_rows_are_chosen_uniformly():
    clean = np.arange(40) % 2
    often = np.bincount(np.concatenate([choose(clean, ("a", "b"), 5, seed) for seed in range(2000)]), minlength=40) / 2000
    assert (abs(often - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)).all()


def test_the_labels_are_those_of_a_network_trained_by_hand(data):
    found, labeller = labelled(data, CONFIG)
    seed = stream_seed(3, "labeller")
    rows = torch.from_numpy(choose(data.clean, CLASSES, 4, seed))
    task = Task(data.x[rows], torch.from_numpy(data.clean)[rows], 4, epochs=6, batch_size=32, lr=0.01, seed=seed)
    state = start(task, Standard(), "mlp:width=16")
    list(train(task, state))
    y = predict(state.networks, data.x).argmax(1).numpy()
    np.testing.assert_array_equal(found.y, y)
    assert found.y.dtype == np.int64
    np.testing.assert_array_equal(found.clean, data.clean)
    test = (predict(state.networks, data.x_test).argmax(1).numpy() == data.y_test).mean()
    assert labeller == Labeller(16, pytest.approx(100 * (y == data.clean).mean()), pytest.approx(100 * test))
    assert 30 < labeller.training_accuracy < 95  # some are wrong, and it learned something


def test_every_method_sees_the_same_labels_made_once(data, trained, kept):
    runs = [prepare(replace(CONFIG, method=method), data) for method in ("standard", "sprl", "co-teaching")]
    assert trained == [("standard", 16)]
    assert len(entries(kept)) == 2  # the labels, and a note
    for run in runs:
        np.testing.assert_array_equal(run.data.y, runs[0].data.y)
        assert torch.equal(run.task.y, torch.from_numpy(runs[0].data.y))
        assert run.labeller == runs[0].labeller
    realised = (runs[0].data.y != data.clean).mean()
    assert 0 < realised < 0.7
    assert runs[2].config.fields["noise_rate"] == known_rate(runs[0].data, CONFIG) == realised
    right = prepare(replace(CONFIG, corrupt=None, method="standard"), data)
    mine, its = (run.state.networks[0][1].weight for run in (right, beginning(right, np.arange(9), stream_seed(3, "labeller"))))
    assert torch.equal(mine, runs[0].state.networks[0][1].weight)
    assert not torch.equal(mine, its)  # the run does not begin where the network began that made its labels


def test_what_the_labels_depend_on(data):
    def name(config, data=data, count=4):
        seed = stream_seed(config.seed, "labeller")
        run = prepare(replace(config, corrupt=None), data)
        rows = choose(data.clean, CLASSES, count, seed)
        return name_of(run, beginning(run, rows, seed), rows)

    first = name(CONFIG)
    same = [{"method": "sprl", "fields": {"T1": 2}}, {"method": "co-teaching"}, {"noise_rate": 0.1}, {"memory": "half"}, {"batch_size": 32}]
    same += [{"schedule": "released"}]
    assert {name(replace(CONFIG, **other)) for other in same} == {first}
    others = [{"seed": 4}, {"epochs": 7}, {"lr": 0.02}, {"batch_size": 16}, {"network": "mlp:width=8"}, {"precision": "bf16"}]
    names = [name(replace(CONFIG, **other)) for other in others]
    names += [name(CONFIG, count=5), name(CONFIG, replace(data, x=data.x + 1)), name(CONFIG, replace(data, x_test=data.x_test + 1))]
    assert len({first, *names}) == 1 + len(names)


def test_wherever_the_rows_lie_the_labels_are_the_same(tmp_path, trained):
    digits = load("digits")
    (tmp_path / "pixels").write_bytes(digits.x.numpy().tobytes())
    filed = replace(digits, x=FileRows(tmp_path / "pixels", np.arange(1347), 64, (1, 8, 8)))
    config = replace(CONFIG, corrupt="generated:9", method="standard")
    runs = [prepare(config, digits), prepare(config, filed), prepare(replace(config, stream=True), filed)]
    assert isinstance(runs[2].task.x, Streamed)
    assert trained == [("standard", 90)]
    for run in runs:
        np.testing.assert_array_equal(run.data.y, runs[0].data.y)


def test_the_schedule_is_that_of_the_whole_run():
    """Though the few rows by themselves would get smaller batches."""
    x, y = clusters(5200)
    whole = replace(load("digits"), x=torch.from_numpy(x), y=y, clean=y, classes=CLASSES, x_test=None, y_test=None)
    whole = replace(whole, index=np.arange(5200), ids=tuple(map(str, range(5200))))
    run = prepare(Config(network="mlp", epochs=9), whole)
    few = beginning(run, choose(y, CLASSES, 20, 0), 0)
    assert few.task.batch_size == run.task.batch_size == 128
    assert (few.task.epochs, few.task.lr, few.config.network, few.config.method) == (9, run.task.lr, "mlp", "standard")
    late = prepare(Config(network="mlp", epochs=9, schedule="released"), whole)
    assert (late.task.schedule, beginning(late, choose(y, CLASSES, 20, 0), 0).task.schedule) == ("released", "published")
    assert len(few.task.y) == 80


def test_what_is_said_and_shown(data):
    said, steps = [], []
    prepare(CONFIG, data, said.append, lambda *step: steps.append(step))
    assert said == ["a network is trained on 16 right labels for 6 epochs, seed 3; the run takes the labels that it gives to all rows"]
    assert steps == [("training the network that gives the labels", t, 6) for t in range(1, 7)]
    prepare(CONFIG, data, said.append)
    assert len(said) == 1


def test_broken_off_it_leaves_nothing(data, kept):
    def stop(what, done, of_all):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(CONFIG, data, progress=stop)
    assert entries(kept) == []
    assert prepare(CONFIG, data).labeller.rows == 16


def test_other_mistakes_are_told_before_anything_is_trained(data, trained):
    for other in ({"method": "spl"}, {"fields": {"T1": -1}}, {"network": "resnet18"}, {"memory": "none"}, {"labels": "other.csv"}):
        with pytest.raises(InputError):
            prepare(replace(CONFIG, **other), data)
    assert trained == []


def test_a_damaged_entry_is_noticed(data, kept):
    before = prepare(CONFIG, data)
    path = next(kept.glob("*.rows"))
    content = path.read_bytes()
    path.write_bytes(content[:-4] + bytes([content[-4] ^ 1, 0, 0, 0]))  # still of its size
    with pytest.raises(InputError, match=r"\.rows has been damaged: delete it, and the labels are made anew"):
        prepare(CONFIG, data)
    path.unlink()
    np.testing.assert_array_equal(prepare(CONFIG, data).data.y, before.data.y)
    note = path.with_suffix(".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "test_accuracy": "high"}))
    with pytest.raises(InputError, match="damaged"):
        prepare(CONFIG, data)


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def without_note(path):
    path.with_suffix(".json").write_text("{")


@pytest.mark.parametrize("harm", [cut, without_note])
def test_an_entry_that_is_not_whole_is_made_anew(data, kept, trained, harm):
    before = prepare(CONFIG, data)
    harm(next(kept.glob("*.rows")))
    np.testing.assert_array_equal(prepare(CONFIG, data).data.y, before.data.y)
    assert len(trained) == 2
    assert cache.used()[0] == 1


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("generated:101", "101 right labels a class are asked for, but ant has 100 rows: give a smaller number"),
        ("generated:0", "lacks the number of right labels a class, 1 or more"),
    ],
)
def test_more_labels_than_there_are_and_none(data, trained, spec, why):
    with pytest.raises(InputError, match=why):
        prepare(replace(CONFIG, corrupt=spec), data)
    assert trained == []


def test_right_labels_must_be_known(data):
    with pytest.raises(InputError, match=r"generated:4 trains a network on right labels, and which of pets are right is not known"):
        prepare(CONFIG, replace(data, clean=None))


def test_a_network_that_learned_nothing(data):
    with pytest.raises(InputError, match="the network that learned 4 right labels gives all rows the same one: let it learn more"):
        prepare(replace(CONFIG, corrupt="generated:1", network="mlp:depth=0", epochs=1, lr=1e-12, seed=0), replace(data, x=data.x * 0))


def test_a_run_gone_on_with_is_the_unbroken_one(data, tmp_path):
    config = replace(CONFIG, method="standard")
    whole, broken = prepare(config, data), prepare(config, data)
    list(whole)
    for row in broken:
        if row["epoch"] == 3:
            checkpoint.save(tmp_path, broken)
            break
    again = prepare(config, data)
    assert checkpoint.load(tmp_path, again)
    list(again)
    assert again.rows == whole.rows


WORDS = ("--corrupt", "generated:20", "--epochs", 4, "--network", "mlp:width=32", "--lr", 0.01)


def test_on_the_command_line(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.chdir(tmp_path)
    found = {}
    for method in ("standard", "sprl"):
        code, out, error = sprl(capsys, "train", "digits", *WORDS, "--method", method, "--out", method)
        assert code == 0, error
        assert ("a network is trained on 200 right labels for 4 epochs" in out) == (method == "standard")
        found[method] = json.loads(Path(method, "summary.json").read_text())["noise"]
    assert trained == [("standard", 200), ("standard", 1347), ("sprl", 1347)]
    noise = found["standard"]
    assert noise == found["sprl"]
    assert (noise["kind"], noise["requested"], noise["labeller"]["rows"]) == ("generated", None, 200)
    assert noise["labeller"]["training_accuracy"] == pytest.approx(100 - 100 * noise["realised"])
    assert 50 < noise["labeller"]["test_accuracy"] < 99
    (tmp_path / "standard" / files.SUMMARY).unlink()  # as if it had been killed at its end
    code, out, error = sprl(capsys, "train", "--resume", "standard")
    assert (code, error) == (0, "")
    assert json.loads((tmp_path / "standard" / files.SUMMARY).read_text())["noise"] == noise


def test_compared_and_kept(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.chdir(tmp_path)
    words = ("compare", "digits", *WORDS, "--methods", "standard,co-teaching", "--seeds", 2, "--jobs", 1, "--together", 2)
    code, _, error = sprl(capsys, *words)
    assert (code, error) == (0, "")
    assert sorted(trained) == [("co-teaching", 1347)] * 2 + [("standard", 200)] * 2 + [("standard", 1347)] * 2
    records = {(record.method, record.seed): record for record in store.all(tmp_path / "records")}
    for seed in (0, 1):
        one, other = (records[method, seed] for method in ("standard", "co-teaching"))
        assert one.labels == other.labels == one.summary["noise"]["labels_sha256"]
        assert one.summary["noise"] == other.summary["noise"]
        assert one.summary["noise"]["labeller"]["rows"] == 200
        assert other.config["fields"]["noise_rate"] == other.summary["noise"]["realised"]  # of its own seed
    assert records["standard", 0].labels != records["standard", 1].labels
    del trained[:]
    assert sprl(capsys, *words)[0] == 0
    assert trained == []
