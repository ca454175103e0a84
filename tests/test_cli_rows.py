"""Runs on some of the rows, and with augmentation as asked, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typed import sprl

from sprl import store
from sprl.config import Config
from sprl.data.catalogue import load
from sprl.data.rows import Streamed
from sprl.errors import InputError
from sprl.run import prepare, read

WORDS = ("digits", "--rows", 200, "--epochs", 2, "--network", "mlp:width=8", "--lr", 0.01)
TRAIN = ("train", *WORDS, "--method", "standard")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def ran(capsys, *words):
    """What the command says; it must end well, without a note but on rows that are few."""
    code, out, error = sprl(capsys, *words)
    notes = [line for line in error.splitlines() if "are too few to learn from or to judge" not in line]
    assert (code, notes) == (0, [])
    return out


def labels_of(run):
    return pd.read_csv(Path(run) / "labels.csv")


# Rows


def test_a_run_on_some_rows_from_training_to_the_next_run(capsys):
    words = (*TRAIN, "--epochs", 8)
    out = ran(capsys, *words, "--corrupt", "pair:0.1", "--out", "run")
    assert "digits: 200 training rows, 450 test rows, 10 classes" in out
    assert json.loads(Path("run/config.json").read_text())["rows"] == 200
    labels, digits = labels_of("run"), load("digits")
    assert len(labels) == 200
    assert labels["true_label"].value_counts().between(19, 21).all()
    number = dict(zip(digits.ids, range(len(digits.ids)), strict=True))
    rows = [number[str(id)] for id in labels["id"]]
    np.testing.assert_array_equal(labels["true_label"], digits.y[rows])
    np.testing.assert_array_equal(labels["index"], digits.index[rows])

    np.savez("new.npz", x=np.zeros((3, 8, 8), np.uint8))
    assert len(ran(capsys, "predict", "run", "new.npz").splitlines()) == 4
    ran(capsys, "audit", "run", "--budget", 5, "--out", "list.csv")
    assert len(pd.read_csv("list.csv")) == 5
    assert "--rows" in ran(capsys, "apply", "run", "--suggestions", 5)  # in the command to train again
    ran(capsys, *words, "--labels", "run/corrected.csv", "--out", "again")
    again, corrected = labels_of("again"), pd.read_csv("run/corrected.csv", comment="#")
    assert again["id"].tolist() == labels["id"].tolist()
    assert again["given_label"].tolist() == corrected["label"].tolist() != digits.y[rows].tolist()


def test_it_is_gone_on_with(capsys):
    ran(capsys, *TRAIN, "--no-augment", "--out", "run")
    before = {name: Path("run", name).read_bytes() for name in ("metrics.jsonl", "labels.csv", "model.safetensors")}
    Path("run/summary.json").unlink()  # as if it had been killed at its end
    code, _, error = sprl(capsys, "train", "--resume", "run", "--rows", 300, "--augment")
    assert code == 2
    assert "run was started with rows 200, not 300; augment off, not on: leave these options out" in error
    assert "Resuming" in ran(capsys, "train", "--resume", "run", "--rows", 200, "--no-augment")
    assert {name: Path("run", name).read_bytes() for name in before} == before


def test_the_same_rows_whatever_seed_and_noise(capsys):
    ran(capsys, *TRAIN, "--corrupt", "symmetric:0.4", "--seed", 5, "--together", 2, "--out", "two")
    ran(capsys, *TRAIN, "--out", "plain")
    plain, five, six = (labels_of(run) for run in ("plain", "two/seed-5", "two/seed-6"))
    for other in (five, six):
        assert other["id"].tolist() == plain["id"].tolist()
        np.testing.assert_array_equal(other["true_label"], plain["given_label"])
        assert 0.3 < (other["given_label"] != other["true_label"]).mean() < 0.5
    assert (five["given_label"] != six["given_label"]).any()


def test_other_labels_for_all_rows(capsys):
    digits = load("digits")
    np.save("other.npy", np.roll(digits.y, 1))
    ran(capsys, *TRAIN, "--labels", "other.npy", "--out", "run")
    labels = labels_of("run")
    np.testing.assert_array_equal(labels["given_label"], np.roll(digits.y, 1)[np.isin(digits.index, labels["index"])])


def test_labels_that_a_network_gives_to_some_rows(capsys, trained):
    words = ("train", *WORDS, "--corrupt", "generated:5")
    out = ran(capsys, *words, "--method", "standard", "--out", "run")
    assert "a network is trained on 50 right labels" in out
    ran(capsys, *words, "--method", "bootstrap", "--out", "other")
    assert trained == [("standard", 50), ("standard", 200), ("bootstrap", 200)]
    one, other = labels_of("run"), labels_of("other")
    assert len(one) == 200
    assert one["given_label"].tolist() == other["given_label"].tolist()
    assert json.loads(Path("run/summary.json").read_text())["noise"]["labeller"]["rows"] == 50


def test_methods_are_compared_on_the_same_rows(capsys):
    words = ("compare", *WORDS, "--methods", "standard,bootstrap", "--corrupt", "pair:0.2", "--seeds", 2, "--no-augment", "--jobs", 1)
    out = ran(capsys, *words)
    assert "digits: 200 training rows" in out
    records = store.all(Path("records"))
    assert [(record.n, record.test, record.config["rows"], record.config["augment"]) for record in records] == [(200, 450, 200, False)] * 4
    assert "4 of 4 runs are in records/ already" in ran(capsys, *words)
    config = Config("digits", rows=200, augment=False, corrupt="pair:0.2", method="standard", epochs=2, network="mlp:width=8", lr=0.01)
    run = prepare(config)
    assert store.key_of(run.config.to_json(), run.fingerprint, None) in {record.key for record in records}


def test_runs_side_by_side_share_the_rows():
    config = Config("digits", rows=200, epochs=1)
    data = read(config)
    first = prepare(config, data)
    second = prepare(Config("digits", rows=200, epochs=1, seed=1, corrupt="pair:0.3"), data, beside=first)
    assert second.task.x is first.task.x
    assert second.x_test is first.x_test
    whole = prepare(config, load("digits"))  # whoever gives the whole set gets the same run
    assert whole.fingerprint == first.fingerprint


@pytest.fixture
def photos():
    """Forty pictures of 20 x 20, in two folders."""
    rng = np.random.default_rng(0)
    for label, low in (("day", 150), ("night", 0)):
        Path("photos", label).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(rng.integers(low, low + 100, (20, 20, 3), dtype=np.uint8)).save(f"photos/{label}/{i:02}.png")


def test_streamed_rows_are_the_same(capsys, photos):
    words = ("train", "photos", "--rows", 10, "--epochs", 2, "--network", "mlp:width=4")
    for name, more in (("held", ()), ("streamed", ("--stream",))):
        out = ran(capsys, *words, *more, "--out", name)
        assert ("streamed to" in out) == (name == "streamed")
    assert labels_of("held")["id"].str.split("/").str[0].value_counts().to_dict() == {"day": 5, "night": 5}
    for file in ("labels.csv", "metrics.jsonl", "model.safetensors"):
        assert Path("held", file).read_bytes() == Path("streamed", file).read_bytes()
    assert isinstance(prepare(Config("photos", rows=10, stream=True, epochs=1)).task.x, Streamed)


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rows", 1348), "--rows 1,348 is more than the 1,347 training rows of digits: give at most that many"),
        (("--rows", 19), "--rows 19 is too few: give at least 20, two for each class of digits"),
        (("--frozen", "--network", "timm:resnet50", "--weights", "w", "--augment"), "--frozen embeds every picture once, as it is"),
        (("--frozen", "--network", "timm:resnet50", "--weights", "w", "--cutout", 8), "--frozen embeds every picture once, as it is"),
    ],
)
def test_what_cannot_be(capsys, home, command, words, why):
    code, _, error = sprl(capsys, command, "digits", "--epochs", 2, *words)
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"sprl: {why}")
    assert list(home.iterdir()) == []


# Augmentation


def test_augmentation_as_asked(capsys, photos):
    def used(data, augment):
        return str(prepare(Config(data, augment=augment, epochs=1, network="mlp:width=4")).task.augment)

    assert used("photos", None) == used("photos", True) == "translation by up to 2 pixels and horizontal flip"
    assert used("digits", None) == used("digits", False) == used("photos", False) == "none"
    assert "augmentation: translation by up to 1 pixel\n" in ran(capsys, *TRAIN, "--augment")
    assert "augmentation: a hidden square of 3 x 3\n" in ran(capsys, *TRAIN, "--cutout", 3)


def test_a_hidden_square_where_nothing_else_is_asked(capsys, photos):
    def used(**more):
        run = prepare(Config("photos", epochs=1, **{"network": "resnet18"} | more))
        return run.config.cutout, run.task.augment.cutout

    assert used() == used(augment=True) == used(cutout=5) == (5, 5)
    assert used(network="cnn") == used(augment=False) == (None, 0)
    assert used(cutout=0) == (0, 0)
    assert used(cutout=3, augment=False) == used(cutout=3, network="cnn") == (3, 3)
    words = ("train", "photos", "--rows", 4, "--epochs", 1, "--network", "resnet18")
    assert "augmentation: translation by up to 2 pixels, horizontal flip and a hidden square of 5 x 5\n" in ran(capsys, *words)
    assert "augmentation: translation by up to 2 pixels and horizontal flip\n" in ran(capsys, *words, "--cutout", 0)


def test_colour_pictures_and_the_small_cnn_are_trained_on_plainly(capsys, photos):
    train = ("train", "photos", "--device", "cpu", "--epochs", 2)
    assert "\nTraining  standard, 2 epochs" in ran(capsys, *train)
    suits, harms = "plain training suits this small CNN", "SPRL may keep it from learning: --method standard does not"
    told = ran(capsys, *train, "--network", "cnn:width=4")
    assert "Training  standard" in told
    assert suits in told
    told = ran(capsys, *train, "--network", "cnn", "--method", "sprl")
    assert "Training  sprl" in told
    assert harms in told
    assert "Training  sprl" in ran(capsys, *train, "--set", "T1=1")  # which is SPRL's
    told = ran(capsys, *train, "--network", "mlp:width=4")
    assert "Training  sprl" in told
    assert suits not in told
    assert harms not in told


def test_it_makes_a_difference_where_it_makes_one():
    def losses(**more):
        return [row["loss"] for row in prepare(Config("digits", epochs=2, rows=100, method="standard", **more))]

    assert losses() == losses(augment=False) != losses(augment=True)
    assert losses() == losses(cutout=0) != losses(cutout=3)


def test_tables_cannot_be_augmented(capsys, points):
    x, y = points
    np.savez("table.npz", x=x, y=y)
    code, _, error = sprl(capsys, "train", "table.npz", "--augment")
    assert (code, error) == (2, "sprl: --augment is for pictures, and these rows are features: leave it out\n")
    code, _, error = sprl(capsys, "train", "table.npz", "--cutout", 3)
    assert (code, error) == (2, "sprl: --cutout is for pictures, and these rows are features: leave it out\n")
    assert str(prepare(Config("table.npz", augment=False, cutout=0, epochs=1)).task.augment) == "none"


def test_generated_labels_depend_on_it(trained):
    config = {"corrupt": "generated:5", "epochs": 2, "network": "mlp:width=8", "method": "standard", "lr": 0.01}
    asked = ({}, {"seed": 0, "cutout": 0}, {"augment": True}, {"cutout": 3})
    some, same, *others = (prepare(Config("digits", **config, **more)) for more in asked)
    assert trained == [("standard", 50)] * 3
    assert (some.data.y == same.data.y).all()
    assert all((some.data.y != other.data.y).any() for other in others)


def test_help_and_what_a_stranger_may_write(capsys):
    for command in ("train", "compare"):
        out = ran(capsys, command, "--help")
        for words in ("--rows", "--augment", "--no-augment", "--cutout"):
            assert words in out
    for rows in (-1, 0, 10**30):
        with pytest.raises(InputError, match="--rows"):
            prepare(Config("digits", rows=rows))
