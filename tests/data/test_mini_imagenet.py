"""Mini-ImageNet in the layouts of its copies, and the division of its pictures where a copy has none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sprl.data import PLAIN, How, mini_imagenet
from sprl.data.mini_imagenet import MINI_IMAGENET, divide
from sprl.data.pictures import File
from sprl.errors import InputError

CLASSES = ("n01532829", "n01558993", "n02110341", "n07584110", "n13133613")
SMALL = replace(MINI_IMAGENET, classes=5, train=50, test=10)
NAMES = {name: [f"{name}{i:08}" for i in range(12)] for name in CLASSES}
# Ravi and Larochelle's lists divide the classes
LISTS = {"train": CLASSES[:3], "val": CLASSES[3:4], "test": CLASSES[4:]}


@pytest.fixture(autouse=True)
def no_cache_of_others(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))


def shoot(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (84, 84), (200, 10, 10)).save(path)


def write_lists(folder: Path, nested: bool = False, lists=LISTS, names=NAMES) -> Path:
    for part, classes in lists.items():
        rows = [(f"{name}.jpg", label) for label in classes for name in names[label]]
        for name, label in rows:
            shoot(folder / "images" / label / name if nested else folder / "images" / name)
        (folder / f"{part}.csv").write_text("filename,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
    return folder


def write_folders(folder: Path, parts: dict[str, dict[str, list[str]]]) -> Path:
    for part, names in parts.items():
        for label, some in names.items():
            for name in some:
                shoot(folder / part / label / f"{name}.jpg")
    return folder


def test_the_set_as_published():
    assert (MINI_IMAGENET.classes, MINI_IMAGENET.train, MINI_IMAGENET.test) == (100, 100 * 500, 100 * 100)


LAYOUTS = {
    "lists": write_lists,
    "lists of nested pictures": lambda folder: write_lists(folder, nested=True),
    "a folder a class": lambda folder: write_folders(folder, {"": NAMES}),
    "images of a folder a class": lambda folder: write_folders(folder, {"images": NAMES}),
    "folders that divide the classes": lambda folder: write_folders(
        folder, {part: {label: NAMES[label] for label in classes} for part, classes in LISTS.items()}
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_that_divide_no_pictures_are_divided_alike(tmp_path, layout):
    folder = LAYOUTS[layout](tmp_path / "mini-imagenet")
    assert SMALL.check(folder) == {}
    data = SMALL.load(folder, PLAIN)
    assert data.name == "mini-imagenet"
    assert data.classes == CLASSES
    assert data.shape == (3, 32, 32)
    assert np.bincount(data.y).tolist() == [10] * 5
    assert np.bincount(data.y_test).tolist() == [2] * 5
    assert data.clean.tolist() == data.y.tolist()
    assert all((folder / id).is_file() for id in data.ids)
    trained = {Path(id).stem for id in data.ids}
    # the same pictures in every layout and on every machine
    assert sorted(name for names in NAMES.values() for name in names if name not in trained) == [
        "n0153282900000004",
        "n0153282900000007",
        "n0155899300000008",
        "n0155899300000011",
        "n0211034100000002",
        "n0211034100000004",
        "n0758411000000005",
        "n0758411000000011",
        "n1313361300000000",
        "n1313361300000010",
    ]


def test_a_division_of_pictures_stays(tmp_path):
    parts = {part: {label: some[first:last] for label, some in NAMES.items()} for part, first, last in (("train", 2, 12), ("test", 0, 2))}
    data = SMALL.load(write_folders(tmp_path / "a", parts), PLAIN)
    assert data.ids[:2] == ("train/n01532829/n0153282900000002.jpg", "train/n01532829/n0153282900000003.jpg")
    assert data.y.tolist() == sorted(list(range(5)) * 10)
    assert data.y_test.tolist() == sorted(list(range(5)) * 2)
    (tmp_path / "b").mkdir()
    for part, names in parts.items():
        write_lists(tmp_path / "b", lists={part: CLASSES}, names=names)
    same = SMALL.load(tmp_path / "b", PLAIN)  # without a val.csv, which divides nothing here
    assert [Path(id).stem for id in same.ids] == [Path(id).stem for id in data.ids]


def test_training_and_validation_pictures_are_trained_on(tmp_path):
    parts = {"train": slice(4, 12), "val": slice(2, 4), "test": slice(0, 2)}
    folder = write_folders(tmp_path, {part: {label: some[rows] for label, some in NAMES.items()} for part, rows in parts.items()})
    data = SMALL.load(folder, PLAIN)
    assert (len(data.y), len(data.y_test)) == (50, 10)
    assert {id.partition("/")[0] for id in data.ids} == {"train", "val"}


def test_the_division_depends_on_class_and_name_alone():
    files = [File(b"", f"{label}/{i}.png", label) for label in ("a", "b") for i in range(600)]
    drawn = {file.id for file in divide(files) if file.test}
    assert sum(id.startswith("a/") for id in drawn) == sum(id.startswith("b/") for id in drawn) == 100
    assert {id[2:] for id in drawn if id.startswith("a/")} != {id[2:] for id in drawn if id.startswith("b/")}
    moved = [File(b"", f"elsewhere/{file.id[2:-4]}.JPEG", file.label) for file in reversed(files) if file.label == "a"]
    assert {file.id for file in divide(moved) if file.test} == {f"elsewhere/{id[2:-4]}.JPEG" for id in drawn if id.startswith("a/")}
    assert [file._replace(test=False) for file in divide(files)] == files


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", "file,label\na.jpg,n1\n", r"train.csv has no column 'filename', only file, label"),
        ("train.csv", "filename,class\na.jpg,n1\n", r"train.csv has no column 'label', only filename, class"),
        ("val.csv", "filename,label\n", "holds no rows"),
        ("val.csv", "filename,label\na.jpg,\n", "the label is missing in one row"),
        ("val.csv", "filename,label\n../a.jpg,n1\n", "val.csv names a file outside of its folder"),
        ("test.csv", "filename,label\na.jpg,n1,x\n", "line 2 has 3 of the header's 2 cells"),
    ],
)
def test_lists_that_are_none(tmp_path, name, content, message):
    folder = write_lists(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        SMALL.load(folder, PLAIN)
    assert "\n" not in str(caught.value)


def test_a_picture_that_is_listed_twice(tmp_path):
    folder = write_lists(tmp_path)
    with (folder / "val.csv").open("a") as file:
        file.write("n0153282900000000.jpg,n01532829\n")
    with pytest.raises(InputError, match=r"name images/n0153282900000000.jpg more than once"):
        SMALL.load(folder, PLAIN)


@pytest.mark.parametrize(
    ("there", "lost"), [(["train"], "val.csv, test.csv"), (["val", "test"], "train.csv"), (["train", "test"], "val.csv")]
)
def test_lists_that_are_missing_are_named(tmp_path, there, lost):
    write_lists(tmp_path, lists={part: LISTS[part] for part in there})
    with pytest.raises(InputError, match=f"lacks {lost}$"):
        mini_imagenet.read(tmp_path)


def test_pictures_that_are_in_no_class(tmp_path):
    shoot(tmp_path / "images" / "a.jpg")
    with pytest.raises(InputError, match=r"holds neither train.csv, val.csv and test.csv nor pictures in a folder a class"):
        mini_imagenet.read(tmp_path)


def test_a_class_that_lacks_a_picture(tmp_path):
    folder = write_folders(tmp_path, {"": NAMES})
    (folder / CLASSES[0] / f"{NAMES[CLASSES[0]][0]}.jpg").unlink()
    assert SMALL.check(folder) == {"test pictures": "number 9, not 10"}  # a sixth of 11 is 1
    with pytest.raises(InputError, match="Complete it, or go on with what is there: --skip-bad"):
        SMALL.load(folder, PLAIN)
    with pytest.warns(match="pictures number"):
        assert len(SMALL.load(folder, How(skip_bad=True)).classes) == 5
