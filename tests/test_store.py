"""Records: what names a run, what is kept of it, and what is not taken for a record."""

import hashlib
import json
import os
import subprocess
import threading
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from sprl import store
from sprl.config import Config, make_method
from sprl.data.catalogue import load
from sprl.errors import InputError, SprlWarning
from sprl.methods import METHODS, SPRL
from sprl.run import prepare


@pytest.fixture(scope="module")
def config(pets):
    return Config(data=str(pets), corrupt="symmetric:0.3", method="sprl", fields={"T1": 2}, epochs=12, lr=0.01, seed=3)


@pytest.fixture(scope="module")
def run(config):
    run = prepare(config)
    list(run)
    return run


@pytest.fixture(scope="module")
def record(run):
    return store.record_of(run)


def key_of(run):
    return store.key_of(run.config.to_json(), run.fingerprint, None)


def test_a_run_is_named_by_what_it_computes(run, tmp_path):
    name = key_of(run)
    assert store.KEY.fullmatch(name)
    config = run.config.to_json()
    same = {"data": "there.npz", "data_dir": "d", "labels": "l.csv", "device": "cuda:1", "stream": True, "graph": False, "compile": True}
    same |= {"weights": "there.pth", "noise_rate": 0.3}  # the content counts; what a method makes of the rate is in its fields
    assert store.key_of({**config, **same}, run.fingerprint, None) == name
    others = [
        {"method": "standard", "fields": {}},
        {"seed": 4},
        {"epochs": 13},
        {"lr": 0.02},
        {"corrupt": "pair:0.3"},
        {"precision": "bf16"},
    ]
    others += [{"fields": {**config["fields"], "K": 9}}, {"network": "mlp:width=8"}]
    keys = [store.key_of({**config, **other}, run.fingerprint, None) for other in others]
    keys += [store.key_of(config, "other data", None), *(store.key_of(config, run.fingerprint, weights) for weights in ("one", "two"))]
    assert len({name, *keys}) == 1 + len(keys)


def test_fields_that_came_later_count_where_they_are_set(run):
    name, config = key_of(run), run.config.to_json()
    assert all(config[field] in (None, was) for field, was in store.LATER.items())
    older = {field: value for field, value in config.items() if field not in store.LATER}
    assert store.key_of(older, run.fingerprint, None) == store.key_of({**config, "cutout": 0}, run.fingerprint, None) == name
    others = [{"rows": 100}, {"rows": 200}, {"augment": True}, {"augment": False}, {"rows": 100, "augment": False}, {"cutout": 8}]
    others += [{"schedule": "released"}]
    keys = [store.key_of({**config, **other}, run.fingerprint, None) for other in others]
    assert len({name, *keys}) == 1 + len(keys)


def test_a_methods_fields_that_came_later_count_where_they_are_set(run, monkeypatch):
    name, config = key_of(run), run.config.to_json()

    def keyed(**values):
        return store.key_of({**config, "fields": {**config["fields"], **values}}, run.fingerprint, None)

    assert SPRL.later == {"start": config["fields"]["start"]}
    without = {field: value for field, value in config["fields"].items() if field != "start"}
    assert store.key_of({**config, "fields": without}, run.fingerprint, None) == keyed(start="all") == name != keyed(start="last-class")
    monkeypatch.setattr(SPRL, "later", {})
    assert keyed() != name  # a field that nothing is said of counts
    monkeypatch.setattr(SPRL, "later", ["start"])
    with pytest.raises(InputError, match="the `later` of sprl must be a dict"):
        keyed()


def test_what_a_method_did_before_is_another_run(run):
    config = run.config.to_json()
    assert config["fields"]["gamma_d"] == "auto"
    assert store.key_of(config, run.fingerprint, None, of=2) == key_of(run) != store.key_of(config, run.fingerprint, None, of=1)
    given = {**config, "fields": {**config["fields"], "gamma_d": 5.0}}  # which means what it always did
    assert store.key_of(given, run.fingerprint, None, of=1) == store.key_of(given, run.fingerprint, None)


def test_every_record_that_was_kept_is_still_read_by_its_name():
    paths = sorted((Path(__file__).parents[1] / "results" / "records").glob("*.json"))
    assert len(paths) >= 148
    assert [record.key for record in store.each(paths[0].parent)] == [path.stem for path in paths]  # a note would be an error


def test_what_was_run_is_still_found_by_its_name():
    """Whoever asks for the run of a record of ours, with all that came later at its default, finds it: but for the released growth, which
    was another when those in results/earlier were run."""
    results = Path(__file__).parents[1] / "results"
    for folder in ("records", "earlier"):
        for path in sorted((results / folder).glob("[0-9a-f]*.json")):
            kept = json.loads(path.read_text())
            fields = asdict(make_method(kept["config"]["method"], kept["config"]["fields"]))
            asked = json.loads(json.dumps(Config(**{**kept["config"], "fields": fields}).to_json()))
            found = store.key_of(asked, kept["fingerprint"], kept["weights"]) == kept["key"]
            assert found == (folder == "records"), path


def test_weights_are_known_by_their_content(run, tmp_path):
    one, two = tmp_path / "a" / "one.pth", tmp_path / "b" / "one.pth"
    for path, content in ((one, b"some"), (two, b"others")):
        path.parent.mkdir()
        path.write_bytes(content)
    assert store.content_of(str(one)) == hashlib.sha256(b"some").hexdigest() != store.content_of(str(two))
    two.write_bytes(b"some")
    assert store.content_of(str(one)) == store.content_of(str(two))
    assert [store.content_of(text) for text in (None, "pretrained", "none.pth")] == [None, "pretrained", "none.pth"]
    tuned = replace(run, config=replace(run.config, weights=str(two)))
    record = store.record_of(tuned)
    assert record.weights == store.content_of(str(one))
    two.unlink()
    assert store.record_of(tuned, weights=record.weights).key == record.key != key_of(run)
    store.write(tmp_path, record)
    assert store.read(tmp_path, record.key) == record  # without the file
    path = store.path_of(tmp_path, record.key)
    path.write_text(path.read_text().replace(record.weights, "0" * 64))
    with pytest.warns(SprlWarning, match="its key is not that of"):
        assert store.read(tmp_path, record.key) is None


@pytest.mark.parametrize("method", METHODS)
def test_defaults_filled_in_or_asked_for_are_the_same_run(config, pets, method):
    data = load(str(pets))
    asked = replace(config, method=method, fields={}, epochs=120)
    filled = prepare(asked, data)
    again = prepare(filled.config, data)
    assert key_of(filled) == key_of(again)
    assert filled.config.batch_size == 32
    assert key_of(prepare(replace(asked, batch_size=32, network=filled.config.network), data)) == key_of(filled)


def test_a_record_holds_all_of_the_run(run, record):
    assert record.key == key_of(run)
    assert record.config == run.config.to_json()
    assert (record.method, record.seed, record.epochs) == ("sprl", 3, 12)
    assert (record.n, record.classes, record.test, record.data) == (300, 4, 100, "pets")
    assert record.fingerprint == run.fingerprint
    assert record.curves["epoch"] == list(range(1, 13))
    for name in ("loss", "chosen", "test_accuracy", "precision", "recall", "gamma"):
        assert record.curves[name] == [row[name] for row in run.rows]
    assert record.summary["noise_rate_realised"] == (run.data.y != run.data.clean).mean()
    assert record.seconds == round(run.seconds, 3)
    assert record.seconds_an_epoch == record.seconds / 12
    assert (record.device, record.threads, record.precision, record.step, record.together) == ("cpu", 1, "fp32", "eager", 1)
    assert {"sprl", "torch", "numpy", "python"} == record.versions.keys()
    assert record.finished.endswith("+00:00")


def test_its_numbers_by_hand(run, record):
    accuracy = [row["test_accuracy"] for row in run.rows]
    assert record.accuracy == accuracy
    assert record.last10 == pytest.approx(np.mean(accuracy[-10:])) == record.summary["last10"]
    assert record.best == max(accuracy) == record.summary["best_oracle"]
    assert record.chosen_precision == pytest.approx(np.mean([row["precision"] for row in run.rows[-10:]]))
    assert record.chosen_recall == pytest.approx(np.mean([row["recall"] for row in run.rows[-10:]]))
    labels = run.labels()
    wrong, doubt = labels["given_label"] != labels["true_label"], 1 - labels["label_quality"]
    found = record.summary["detection"]
    assert found["auroc"] == pytest.approx(roc_auc_score(wrong, doubt))
    assert found["average_precision"] == pytest.approx(average_precision_score(wrong, doubt))
    assert found["f1"] == f1_score(wrong, labels["is_label_issue"])


def test_what_was_found_out_and_what_is_not_known_yet(config):
    run = prepare(replace(config, fields={}, epochs=40))
    list(run)
    record = store.record_of(run)
    assert record.summary["found"] == {"T1": run.state.method.T1}
    assert record.config["fields"]["T1"] == "auto"
    assert record.curves["spread"][0] is None
    assert isinstance(record.curves["spread"][-1], float)


def test_without_truth_or_test_rows_there_is_nothing_to_score(points, tmp_path):
    x, y = points
    np.savez(tmp_path / "bare.npz", x=x, y=y)
    run = prepare(Config(data=str(tmp_path / "bare.npz"), method="standard", epochs=2))
    list(run)
    record = store.record_of(run)
    assert (record.last10, record.best, record.chosen_precision, record.chosen_recall, record.test) == (None, None, None, None, 0)
    assert record.summary["detection"] is None
    store.write(tmp_path, record)
    assert store.read(tmp_path, record.key) == record


def test_the_same_wrong_labels_for_every_method(config, pets):
    data, hashes = load(str(pets)), {}
    for method in ("standard", "sprl"):
        for seed in (0, 1):
            run = prepare(replace(config, method=method, fields={}, epochs=1, seed=seed), data)
            list(run)
            hashes[method, seed] = store.record_of(run).labels
    assert hashes["standard", 0] == hashes["sprl", 0] != hashes["standard", 1] == hashes["sprl", 1]


def test_written_and_read_it_is_the_same(record, tmp_path):
    path = store.write(tmp_path / "new" / "store", record)
    assert path.name == f"{record.key}.json"
    assert store.read(path.parent, record.key) == record
    assert store.read(path.parent, "0" * 16) is None
    for name in ("notes.json", "README.md", "f" * 16):
        (path.parent / name).write_text("not a record")
    assert store.all(path.parent) == [record]
    assert store.all(tmp_path / "none") == []
    assert path.read_text().count("\n") == len(asdict(record)) + 3  # a line each, for whoever looks


def changed(**fields):
    return lambda content: {**content, **fields}


def curves(**some):
    return lambda content: {**content, "curves": {**content["curves"], **some}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: json.dumps(c)[: len(json.dumps(c)) // 2], "damaged"),
        (lambda c: b"\xff\x00" * 50, "damaged"),
        (lambda c: "", "damaged"),
        (lambda c: "[" * 100_000, "damaged"),
        (lambda c: "[1, 2]", "format"),
        (changed(format=2), "format"),
        (lambda c: {k: v for k, v in c.items() if k != "seconds"}, "other fields"),
        (changed(more=1), "other fields"),
        (changed(n="300"), "its n is no int"),
        (changed(n=True), "its n is no int"),
        (changed(seconds=-1), "its seconds is -1"),
        (lambda c: json.dumps(c).replace(f'"seconds": {c["seconds"]}', '"seconds": 1e999'), "its seconds is inf"),
        (lambda c: json.dumps(c).replace(f'"seconds": {c["seconds"]}', '"seconds": NaN'), "it holds NaN"),
        (lambda c: {**c, "config": {**c["config"], "lr": 0.1}}, "its key is not that of"),
        (lambda c: {**c, "config": {"method": "sprl"}}, "lacks method or seed"),
        (lambda c: {**c, "config": {**c["config"], "weights": 3}}, "lacks weights"),
        (changed(fingerprint="another"), "its key is not that of"),
        (changed(weights="some"), "its weights are not those of its config"),
        (changed(curves={}), "it lacks epochs"),
        (curves(epoch=[2, 1]), "it lacks epochs"),
        (curves(epoch=[*range(12)]), "it lacks epochs"),
        (curves(loss=[1.0]), "its curve loss"),
        (curves(loss=["x"] * 12), "its curve loss"),
        (curves(loss="abcdefghijkl"), "its curve loss"),
        (curves(test_accuracy=[50.0] * 11 + [None]), "its test accuracies have gaps"),
        (curves(test_accuracy=[50.0] * 11 + [250.0]), "its test accuracies are no percentages"),
        (lambda c: {**c, "curves": {k: v for k, v in c["curves"].items() if k != "test_accuracy"}}, "its test accuracies have gaps"),
        (changed(summary={}), "its summary"),
        (curves(test_accuracy=[50.0] * 12), "its result is not that of its curve"),
        (changed(edition=1), "its key is not that of its config and data"),
        (changed(edition=-1), "its edition is -1"),
        (changed(versions={"torch": 2}), "its versions"),
        (lambda c: " " * (store.LARGEST + 1), "too large"),
    ],
)
def test_what_is_no_record_is_left_out_with_a_note(record, tmp_path, change, why):
    path = store.write(tmp_path, record)
    content = change(json.loads(path.read_text()))
    content = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.warns(SprlWarning, match=f"{record.key}.json is no record and is left out: .*{why}"):
        assert store.read(tmp_path, record.key) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert store.all(tmp_path) == []
    store.write(tmp_path, record)
    assert store.all(tmp_path) == [record]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_left_out_with_a_note(tmp_path, make):
    make(tmp_path / f"{'0' * 16}.json")
    with pytest.warns(SprlWarning, match=r"0\.json is no record and is left out: it is no file"):
        assert store.all(tmp_path) == []


def test_under_another_name_it_is_not_taken(record, tmp_path):
    store.write(tmp_path, record).rename(tmp_path / f"{'0' * 16}.json")
    with pytest.warns(SprlWarning, match="its name is another's"):
        assert store.read(tmp_path, "0" * 16) is None


def test_whoever_reads_while_others_write_sees_it_whole(record, tmp_path):
    store.write(tmp_path, record)
    threads = [threading.Thread(target=lambda: [store.write(tmp_path, record) for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert store.read(tmp_path, record.key) == record
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == [f"{record.key}.json"]


def test_the_revision_is_that_of_the_checkout(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    def revision():
        store.revision.cache_clear()
        return store.revision()

    package = tmp_path / "src" / "sprl"
    package.mkdir(parents=True)
    monkeypatch.setattr(store, "__file__", str(package / "store.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (package / "__init__.py").write_text("")
    try:
        git("init", "--quiet")
        assert revision().startswith("source:")  # part of no commit: installed into a folder of something else's
        git("add", ".")
        git("commit", "--quiet", "--message", "first")
        commit = git("rev-parse", "HEAD")
        assert revision() == commit
        (tmp_path / "notes").write_text("beside the source")
        assert revision() == commit
        (package / "new.py").write_text("")
        assert revision() == f"{commit}+changes"
        monkeypatch.setenv("PATH", "")
        assert (found := revision()).startswith("source:")
        package.joinpath("more.py").write_text("")
        assert revision() != found
    finally:
        store.revision.cache_clear()


def test_a_store_that_cannot_be_written_to(record, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write to"):
        store.write(Path(tmp_path / "file" / "store"), record)


def test_a_store_that_cannot_be_read(tmp_path):
    assert store.all(tmp_path / "none yet") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot read .*file: Not a directory"):
        store.all(tmp_path / "file")


def test_other_versions_are_counted_and_named(record):
    old = replace(record, versions=record.versions | {"torch": "1.0"})
    assert store.other_versions([record]) == ""
    assert store.other_versions([record, old, old]) == f"records made with other versions: 2 (sprl {record.versions['sprl']}, torch 1.0)"
    assert store.other_versions([record, old], ["sprl", "python"]) == ""
