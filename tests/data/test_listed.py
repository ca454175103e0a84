"""Food-101 and Clothing1M in small copies of their published layouts, and what is told of copies that are not whole."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from sprl.data import PLAIN, How, clothing1m, food101, pictures
from sprl.data.clothing1m import CLOTHING1M
from sprl.data.decode import Resize
from sprl.data.food101 import FOOD101
from sprl.data.rows import FileRows
from sprl.errors import InputError, SprlWarning

DISHES = ("waffles", "apple_pie", "cheesecake", "cheese_plate")
FOOD = replace(FOOD101, classes=4, train=12, test=4)
CLOTHES = replace(CLOTHING1M, train=20, test=3)


@pytest.fixture(autouse=True)
def no_cache_of_others(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))


def shoot(path: Path, left=(250, 0, 0), right=(0, 0, 250), size=(64, 24)):
    """A wide picture of two colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, right)
    image.paste(left, (0, 0, size[0] // 2, size[1]))
    image.save(path, quality=95)


@pytest.fixture
def food(tmp_path):
    """meta/*.txt and *.json of three training pictures and a test picture of each dish."""
    folder = tmp_path / "food-101"
    (folder / "meta").mkdir(parents=True)
    for part, numbers in (("train", (11, 12, 13)), ("test", (21,))):
        keys = {dish: [f"{dish}/{number}" for number in numbers] for dish in DISHES}
        for dish in DISHES:
            for number in numbers:
                shoot(folder / "images" / dish / f"{number}.jpg")
        (folder / "meta" / f"{part}.txt").write_text("".join(f"{key}\n" for some in keys.values() for key in some))
        (folder / "meta" / f"{part}.json").write_text(json.dumps(keys))
    return folder


@pytest.fixture
def clothes(tmp_path):
    """The key lists of 20 training and 3 test pictures, and labels of more than these."""
    folder = tmp_path / "clothing1M"
    folder.mkdir()
    keys = [f"images/{i % 10}/{i}/{i},{i}.jpg" for i in range(30)]
    for key in keys[:23]:
        shoot(folder / key)
    (folder / "noisy_train_key_list.txt").write_text("\n".join(reversed(keys[:20])))
    (folder / "clean_test_key_list.txt").write_text("\r\n".join(keys[20:23]) + "\r\n\r\n")
    (folder / "noisy_label_kv.txt").write_text("".join(f"{key} {i % 14}\n" for i, key in enumerate(keys)))
    (folder / "clean_label_kv.txt").write_text("".join(f"{key} {(i + 1) % 14}\n" for i, key in enumerate(keys) if i > 15))
    return folder


def test_the_sets_as_published():
    assert (FOOD101.classes, FOOD101.train, FOOD101.test) == (101, 101 * 750, 101 * 250)
    assert (CLOTHING1M.classes, CLOTHING1M.train, CLOTHING1M.test) == (14, 1_000_000, 10_526)


@pytest.mark.parametrize("kind", ["txt", "json"])
def test_food101(food, kind):
    for path in (food / "meta").glob("*.txt" if kind == "json" else "*.json"):
        path.unlink()
    data = FOOD.load(food, PLAIN)
    assert data.name == "food101"
    assert data.classes == ("apple_pie", "cheese_plate", "cheesecake", "waffles")
    assert data.ids[:4] == tuple(f"images/{key}.jpg" for key in ("waffles/11", "waffles/12", "waffles/13", "apple_pie/11"))
    assert [data.classes[y] for y in data.y] == [dish for dish in DISHES for _ in range(3)]
    assert [data.classes[y] for y in data.y_test] == list(DISHES)
    assert data.index.tolist() == list(range(12))
    assert data.clean is None  # nobody knows which labels are wrong
    assert FOOD.check(food) == {}


@pytest.mark.parametrize(("named", "own"), [(DISHES, True), (DISHES[:3], False), ((*DISHES[:3], "soup"), False)])
def test_the_order_of_classes_is_the_files_own(food, named, own):
    (food / "meta" / "classes.txt").write_text("\n".join(named))
    assert food101.read(food)[1] == (named if own else tuple(sorted(DISHES)))


def test_every_picture_becomes_32_by_32_whatever_its_sides(food):
    data = FOOD.load(food, PLAIN)
    assert isinstance(data.x, FileRows)  # of the cache, which streams
    assert data.shape == (3, 32, 32)
    row = data.x[torch.tensor([0])][0].float()
    assert row[0, :, 0].min() > 200  # the left end of the wide picture is there
    assert row[2, :, 31].min() > 200  # and the right one
    cut = FOOD.load(food, How(resize=Resize(24, 24)))
    assert cut.shape == (3, 24, 24)
    again = FOOD.load(food, How(resize=Resize(64, 64, squash=True)))
    assert again.shape == (3, 64, 64)


def test_clothing1m(clothes):
    data = CLOTHES.load(clothes, PLAIN)
    assert data.name == "clothing1m"
    assert (len(data.classes), data.classes[0], data.classes[13]) == (14, "T-Shirt", "Underwear")
    assert data.ids[0] == "images/9/19/19,19.jpg"
    assert data.y.tolist() == [i % 14 for i in reversed(range(20))]
    assert data.y_test.tolist() == [(i + 1) % 14 for i in range(20, 23)]  # those that people gave
    assert data.clean is None
    assert CLOTHES.check(clothes) == {}
    (clothes / "category_names_eng.txt").write_text("\n".join("abcdefghijklmn"))
    assert CLOTHES.load(clothes, PLAIN).classes == tuple("abcdefghijklmn")


def test_a_set_that_lacks_pictures_is_told_of_before_any_is_decoded(food, monkeypatch):
    for name in ("waffles/11", "waffles/12", "cheesecake/21", "cheesecake/12"):
        (food / "images" / f"{name}.jpg").unlink()
    told = "images/waffles/11.jpg, images/waffles/12.jpg, images/cheesecake/12.jpg and 1 more of 16"
    assert FOOD.check(food) == {"pictures": f"missing: {told}"}
    with pytest.warns(SprlWarning, match="left out, as they cannot be read, 4 of 16 pictures"):
        data = FOOD.load(food, How(skip_bad=True))
    assert (len(data.y), len(data.y_test)) == (9, 3)
    monkeypatch.setattr(pictures, "load", lambda *anything: pytest.fail("decoded"))
    with pytest.raises(InputError, match=re.escape(f"food101 in {food}: pictures missing: {told}. Complete it, or")):
        FOOD.load(food, PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": 13}, {"training pictures": "number 12, not 13"}),
        ({"test": 5}, {"test pictures": "number 4, not 5"}),
        ({"train": 75_750, "test": 0}, {"training pictures": "number 12, not 75,750", "test pictures": "number 4, not 0"}),
    ],
)
def test_a_set_of_another_size(food, change, message):
    other = replace(FOOD, **change)
    assert other.check(food) == message
    with pytest.raises(InputError, match="; ".join(f"{what} {why}" for what, why in message.items())):
        other.load(food, PLAIN)
    with pytest.warns(SprlWarning, match="number"):
        assert len(other.load(food, How(skip_bad=True)).y) == 12


def test_a_set_of_other_classes(food):
    with pytest.raises(InputError, match=r"food-101 holds 4 classes, but food101 has 101$"):
        FOOD101.load(food, How(skip_bad=True))


def test_classes_of_unequal_size(food):
    path = food / "meta" / "train.txt"
    path.write_text(path.read_text().replace("waffles/13", "cheesecake/21").replace("cheesecake/21\n", "cheesecake/31\n"))
    shoot(food / "images/cheesecake/31.jpg")
    assert FOOD.check(food) == {"training pictures": "are not as many of each class"}
    assert replace(FOOD, even=False).check(food) == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", b"waffles\n", "train.txt names 'waffles', which is no CLASS/ID"),
        ("train.txt", b"/11\n", "no CLASS/ID"),
        ("train.txt", b"waffles/\n", "no CLASS/ID"),
        ("train.txt", b"waffles/../../../secret\n", r"train.txt names a file outside of its folder: 'images/waffles/../../../secret.jpg'"),
        ("test.txt", b"../secret\n", "outside of its folder"),
        ("test.txt", b"waffles/1\x00\n", "outside of its folder"),
        ("test.txt", b"waffles/\xff\n", "test.txt is no text in UTF-8: byte 8"),
        ("test.txt", b"waffles/1\nwaffles/1\n", "name images/waffles/1.jpg more than once"),
        ("test.txt", b"waffles/11\n", "name images/waffles/11.jpg more than once"),
        ("train.json", b"", "train.json is not readable JSON"),
        ("train.json", b"[" * 100_000, "train.json is not readable JSON"),
        ("train.json", b"\xff", "train.json is not readable JSON"),
        ("train.json", b"[]", "train.json is no list of pictures for each class"),
        ("train.json", b'{"waffles": 3}', "no list of pictures"),
        ("train.json", b'{"waffles": [3]}', "no list of pictures"),
        ("train.json", b'{"waffles": ["waffles/\\ud800"]}', "names a file that cannot be"),
        ("train.json", b'{"waffles": ["waffles/\\u0000"]}', "outside of its folder"),
    ],
)
def test_lists_of_food101_that_are_none(food, name, content, message):
    if name.endswith(".json"):
        (food / "meta" / "train.txt").unlink()
    (food / "meta" / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        FOOD.load(food, PLAIN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("noisy_label_kv", "images/0/0/0,0.jpg 3", r"noisy_label_kv.txt in .* has no label for images/9/19/19,19.jpg, which noisy_train"),
        ("clean_label_kv", "images/0/0/0,0.jpg 14", "'images/0/0/0,0.jpg 14' is no picture with a label from 0 to 13"),
        ("clean_label_kv", "images/0/0/0,0.jpg -1", "a label from 0 to 13"),
        ("clean_label_kv", "images/0/0/0,0.jpg", "a label from 0 to 13"),
        ("clean_label_kv", "images/0/0/0,0.jpg ٣", "a label from 0 to 13"),
        ("clean_label_kv", "x" * 10_000, "a label from 0 to 13"),
    ],
)
def test_labels_of_clothing1m_that_are_none(clothes, name, content, message):
    (clothes / f"{name}.txt").write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        CLOTHES.load(clothes, PLAIN)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("key", ["/etc/secret.jpg", "images/../../secret.jpg"])
def test_keys_of_clothing1m_stay_in_its_folder(clothes, key):
    (clothes / "noisy_train_key_list.txt").write_text(key)
    (clothes / "noisy_label_kv.txt").write_text(f"{key} 1")
    with pytest.raises(InputError, match="outside of its folder"):
        clothing1m.read(clothes)


def test_a_list_that_cannot_be_read(clothes):
    path = clothes / "clean_label_kv.txt"
    path.unlink()
    with pytest.raises(InputError, match=r"cannot read .*clean_label_kv.txt: No such file"):
        clothing1m.read(clothes)


def test_a_whole_set_is_read_without_a_word(clothes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = CLOTHES.load(clothes, How(skip_bad=True))
    assert data.skipped == ()
