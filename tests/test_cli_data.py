"""Your data through the command line: a folder nobody prepared, tables, benchmark sets."""

import io
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
import typed
from PIL import Image

SETS = ("mnist", "fashion-mnist", "cifar10", "cifar100", "mini-imagenet", "food101", "clothing1m")


def run(*words, cwd):
    return typed.run(*words, cwd=cwd, SPRL_CACHE=str(cwd / "cache"))


def written(path, array, mode, **how):
    """The picture in this mode, whatever it loses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array).convert(mode)
    image.save(path, **how)


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    """Bright days and dark nights of all sizes and modes, two shots of dusk, a wrong label, a broken file, odd names."""
    folder = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(0)
    kinds = [("RGB", "jpg"), ("L", "png"), ("RGBA", "png"), ("P", "gif"), ("CMYK", "jpg"), ("RGB", "webp"), ("LA", "png"), ("1", "png")]
    for label, low, high, count in (("day", 150, 256, 130), ("night", 0, 100, 130), ("dusk & dawn", 90, 160, 2)):
        for i in range(count):
            mode, suffix = kinds[i % len(kinds)]
            size = rng.integers(15, 90, 2)
            level = 250 if mode == "1" and label == "day" else 5 if mode == "1" else 0
            array = np.full((*size, 3), level, np.uint8) if level else rng.integers(low, high, (*size, 3), dtype=np.uint8)
            written(folder / "shots" / label / f"{i:03}.{suffix}", array, mode)
    day = folder / "shots" / "day"
    written(day / "wrong.png", rng.integers(0, 100, (40, 40, 3), dtype=np.uint8), "RGB")
    (day / "broken.jpg").write_bytes((day / "000.jpg").read_bytes()[:200])
    (day / ".DS_Store").write_bytes(b"\0")
    (day / "._000.jpg").write_bytes(b"\0")
    (folder / "shots" / "nothing").mkdir()
    (day / "again").symlink_to(folder / "shots")
    with open(os.path.join(os.fsencode(day), b"\xff [bold]=1+1,\n\x1b[31m.png"), "wb") as file:
        Image.new("RGB", (30, 30), (240, 240, 240)).save(file, "png")
    return folder


def test_a_folder_nobody_prepared(shots):
    refused = run("train", "shots", "--epochs", 15, cwd=shots)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("sprl: one picture cannot be read: day/broken.jpg (")
    assert "--skip-bad" in refused.stderr
    assert not (shots / "runs").exists()

    done = run("train", "shots", "--skip-bad", "--epochs", 15, cwd=shots)
    assert done.returncode == 0, done.stderr
    assert "left out, as they cannot be read, one picture: day/broken.jpg" in done.stderr
    assert "without pictures are left out: nothing" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    labels = pd.read_csv(shots / "runs" / "shots-1" / "labels.csv")
    assert set(labels["given_label"]) == {"day", "night", "dusk & dawn"}
    assert "day/broken.jpg" not in set(labels["id"])
    suspect = labels[labels["is_label_issue"] & labels["given_label"].ne("dusk & dawn")].nsmallest(1, "label_quality").iloc[0]
    assert (suspect["id"], suspect["predicted_label"]) == ("day/wrong.png", "night")
    assert json.loads((shots / "runs" / "shots-1" / "summary.json").read_text())["skipped"] == 1
    gap = set(range(labels["index"].max() + 1)) - set(labels["index"])
    assert len(gap) == 1  # the broken picture's place

    new = run("predict", "runs/shots-1", "shots/night", cwd=shots)
    assert new.returncode == 0, new.stderr
    rows = pd.read_csv(io.StringIO(new.stdout))
    assert rows.columns.tolist() == ["id", "predicted_label", "confidence"]
    assert rows["id"][0] == "000.jpg"
    assert (rows["predicted_label"] == "night").mean() > 0.95
    one = run("predict", "runs/shots-1", "shots/day/001.png", cwd=shots)
    assert one.stdout.splitlines()[1].startswith("shots/day/001.png,day,")


def test_streamed_training_writes_the_same_metrics(shots):
    for flags in ([], ["--stream"]):
        out = f"out{len(flags)}"
        done = run("train", "shots", "--skip-bad", "--epochs", 3, "--network", "cnn:width=4", "--out", out, *flags, cwd=shots)
        assert done.returncode == 0, done.stderr
        assert ("streamed to cpu" in done.stdout) == bool(flags)
    assert (shots / "out0" / "metrics.jsonl").read_bytes() == (shots / "out1" / "metrics.jsonl").read_bytes()
    assert (shots / "out0" / "labels.csv").read_bytes() == (shots / "out1" / "labels.csv").read_bytes()


@pytest.fixture
def table(tmp_path, points):
    x, y = points
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(x.shape[1])])
    frame["colour"] = np.array(["red", "green", "blue", "red"])[y]
    frame["kind"] = np.array(["ant", "bee", "NA", "dog"])[y]
    frame["split"] = np.where(np.arange(len(y)) < 320, "train", "test")
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path


def test_a_table(table):
    asked = run("train", "table.csv", cwd=table)
    assert (asked.returncode, len(asked.stderr.splitlines())) == (2, 1)
    assert "--label-column" in asked.stderr
    done = run("train", "table.csv", "--label-column", "kind", "--epochs", 8, "--corrupt", "symmetric:0.3", cwd=table)
    assert done.returncode == 0, done.stderr
    assert "320 training rows, 80 test rows, 4 classes, 9 features" in done.stdout
    assert json.loads((table / "runs" / "table-1" / "summary.json").read_text())["last10"] > 90
    new = run("predict", "runs/table-1", "table.csv", cwd=table)
    given = pd.read_csv(table / "table.csv", keep_default_na=False)["kind"]
    predicted = [line.split(",")[1] for line in new.stdout.splitlines()[1:]]
    assert np.mean(given == predicted) > 0.9


def test_other_labels_for_a_list_of_pictures(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(12):
        written(tmp_path / "pictures" / f"{i}.png", rng.integers(0, 256, (20, 20, 3), dtype=np.uint8), "RGB")
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"pictures/{i}.png,{'ab'[i % 2]}\n" for i in range(12)))
    (tmp_path / "other.csv").write_text("id,label\n" + "".join(f"pictures/{i}.png,{'ab'[i % 3 == 0]}\n" for i in reversed(range(12))))
    done = run("train", "list.csv", "--labels", "other.csv", "--epochs", 1, "--network", "mlp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    labels = pd.read_csv(tmp_path / "runs" / "list-1" / "labels.csv")
    assert labels["id"].tolist() == [f"pictures/{i}.png" for i in range(12)]
    assert labels["given_label"].tolist() == ["ab"[i % 3 == 0] for i in range(12)]


def test_the_sets_and_the_cache(tmp_path):
    listed = run("data", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    for words in (*SETS, "licence", "sprl data cifar10 --download", "human:worse", "human:noisy", str(tmp_path / "cache")):
        assert words in listed.stdout
    missing = run("data", "mnist", "--data-dir", "here", cwd=tmp_path)
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)
    assert "train-images-idx3-ubyte.gz" in missing.stderr
    assert "t10k-labels-idx1-ubyte.gz" in missing.stderr
    unknown = run("data", "cifar11", cwd=tmp_path)
    assert (unknown.returncode, unknown.stderr) == (2, "sprl: unknown set 'cifar11'; did you mean 'cifar10'?\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "a.rows").write_bytes(b"abc")
    assert "1 entries removed" in run("data", "--clear-cache", cwd=tmp_path).stdout
    assert not list((tmp_path / "cache").glob("*.rows"))


def write_food(folder):
    """A small copy of Food-101: 101 classes, two training pictures and a test picture each."""
    for part, count in (("train", 202), ("test", 101)):
        keys = [f"dish_{i % 101:03}/{part}{i // 101 or ''}" for i in range(count)]
        for i, key in enumerate(keys):
            written(folder / "images" / f"{key}.jpg", np.full((30 + i, 60, 3), i, np.uint8), "RGB")
        (folder / "meta").mkdir(exist_ok=True)
        (folder / "meta" / f"{part}.txt").write_text("\n".join(keys))


def write_clothes(folder):
    """A small copy of Clothing1M: three training pictures of each class, and a test picture."""
    keys = [f"images/{i % 10}/{i},0.jpg" for i in range(56)]
    for i, key in enumerate(keys):
        written(folder / key, np.full((40, 30 + i, 3), 4 * i, np.uint8), "RGB")
    (folder / "noisy_train_key_list.txt").write_text("\n".join(keys[:42]))
    (folder / "clean_test_key_list.txt").write_text("\n".join(keys[42:]))
    for name in ("noisy_label_kv.txt", "clean_label_kv.txt"):
        (folder / name).write_text("\n".join(f"{key} {i % 14}" for i, key in enumerate(keys)))


def write_mini_imagenet(folder):
    """A small copy of Mini-ImageNet: a folder a class, six pictures each."""
    for i in range(600):
        written(folder / f"n{i // 6:08}" / f"{i}.png", np.full((84, 84, 3), i // 6, np.uint8), "RGB")


@pytest.mark.parametrize(
    ("name", "folder", "write", "rows"),
    [
        ("food101", "food-101", write_food, "202 training rows, 101 test rows, 101 classes"),
        ("clothing1m", "clothing1M", write_clothes, "42 training rows, 14 test rows, 14 classes"),
        ("mini-imagenet", "mini-imagenet", write_mini_imagenet, "500 training rows, 100 test rows, 100 classes"),
    ],
)
def test_sets_of_pictures(tmp_path, name, folder, write, rows):
    write(tmp_path / "data" / folder)
    few = f"training pictures number {rows.split()[0]}, not "
    checked = run("data", name, cwd=tmp_path)
    assert (checked.returncode, len(checked.stderr.splitlines())) == (2, 1)
    assert f"{name} is not whole in data/{folder}: {few}" in checked.stderr
    done = run("train", name, "--skip-bad", "--stream", "--epochs", 1, "--network", "mlp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows in done.stdout
    assert "streamed" in done.stdout
    assert f"{name} in data/{folder}: {few}" in done.stderr


def test_a_set_of_pictures_that_is_not_whole(tmp_path):
    write_clothes(tmp_path / "data" / "clothing1M")
    refused = run("train", "clothing1m", cwd=tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "clothing1m in data/clothing1M: training pictures number 42, not 1,000,000" in refused.stderr
    (tmp_path / "data" / "clothing1M" / "clean_label_kv.txt").unlink()
    missing = run("data", "clothing1m", cwd=tmp_path)
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)
    assert "clothing1m is not whole in data/clothing1M: 1 files missing (clean_label_kv.txt)" in missing.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "cifar10", "--data-dir", "nowhere"], "cifar10 needs data_batch_1.bin.*sprl data cifar10 --download --data-dir nowhere"),
        (["train", "digits", "--frozen"], "--frozen goes with a network of timm"),
        (["train", "digits", "--weights", "x.pth"], "--weights goes with a network of timm"),
        (["train", "digits", "--network", "timm:resnet18", "--frozen"], "--frozen needs weights"),
        (["train", "digits", "--labels", "human:worse"], "unknown set with labels that people gave 'digits'"),
        (["train", ".", "--size", "4"], "--size 4 is out of range"),
        (["train", "."], "is empty: it should hold a folder of pictures for each class"),
        (["data", "--download"], "which set is to be downloaded"),
        (["data", "clothing1m", "--download"], "clothing1m cannot be downloaded: put .* in data/clothing1M. Its authors send its address"),
        (["data", "mini-imagenet"], "mini-imagenet is not whole in any of data/mini-imagenet, .*4 files missing .train.csv, val.csv, "),
        (
            ["train", "mini-imagenet"],
            "mini-imagenet needs train.csv, val.csv, test.csv, images/, not found in data/mini-imagenet, .*https:",
        ),
        (
            ["train", "cifar100"],
            "cifar100 needs train.bin, test.bin, not found in data/cifar-100-binary, data. Fetch with: sprl data cifar100",
        ),
    ],
)
def test_bad_input_gets_one_line(tmp_path, words, message):
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert re.search(message, done.stderr)
    assert not (tmp_path / "runs").exists()
