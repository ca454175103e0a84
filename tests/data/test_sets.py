"""Benchmark sets: found or not, right or not, and what a user is told."""

import gzip
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sprl.data import idx, sets
from sprl.data.sets import BENCHMARKS, BenchmarkSet, File, check, data_folder, find, status
from sprl.errors import InputError


def digest(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


ONE, TWO = b"first file", gzip.compress(b"second file", mtime=0)
TOY = BenchmarkSet(
    name="toy",
    description="",
    licence="",
    folders=("toy/raw", "other"),
    files=(File("one", len(ONE), digest(ONE)), File("two.gz", len(TWO), digest(TWO), (File("two", 11, digest(b"second file")),))),
    downloads=(),
    load=lambda folder, how: pytest.fail("not to be loaded"),
)


def put(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def test_the_data_folder(monkeypatch):
    monkeypatch.delenv("SPRL_DATA", raising=False)
    assert data_folder(None) == Path("data")
    monkeypatch.setenv("SPRL_DATA", "/sets")
    assert data_folder(None) == Path("/sets")
    assert data_folder("mine") == Path("mine")


def test_the_first_folder_with_any_of_the_files(tmp_path):
    assert find(TOY, str(tmp_path)) is None
    for folder in (tmp_path, tmp_path / "other", tmp_path / "toy" / "raw"):
        put(folder, two=b"")
        assert find(TOY, str(tmp_path)) == folder


def test_a_set_whose_files_have_common_names_is_told_by_its_folder(tmp_path):
    common = replace(TOY, told_by_folder=True, files=(File("lists/one.txt"), File("images/")))
    put(tmp_path / "lists", one_txt=b"")
    (tmp_path / "images").mkdir()
    assert find(common, str(tmp_path)) is None
    assert sets.places(common, str(tmp_path)) == [tmp_path / "toy/raw", tmp_path / "other"]
    (tmp_path / "other" / "images").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "other"):  # above it, or itself
        assert status(common, str(folder)) == sets.Status(tmp_path / "other", ("lists/one.txt",))
    put(tmp_path / "other" / "lists", one_txt=b"whatever its size")
    assert check(common, str(tmp_path)).complete


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path):
    put(tmp_path, images=b"")
    (tmp_path / "list").mkdir()
    assert not File("images/").is_in(tmp_path)
    assert not File("list").is_in(tmp_path)
    assert File("list/").is_in(tmp_path)
    assert File("*/").is_in(tmp_path)
    assert not File("*/").is_in(tmp_path / "list")
    assert not File("*/").is_in(tmp_path / "nowhere")


def test_status_counts_bytes_and_check_compares_them(tmp_path):
    assert status(TOY, str(tmp_path)) == check(TOY, str(tmp_path)) == sets.Status(None, ("one", "two.gz"))
    where = put(tmp_path / "other", one=ONE)
    assert status(TOY, str(tmp_path)) == sets.Status(where, ("two.gz",))
    put(where, two_gz=TWO[:-1])
    assert status(TOY, str(tmp_path)) == sets.Status(where, (), {"two.gz": f"has {len(TWO) - 1} bytes, not {len(TWO)}"})
    put(where, two_gz=TWO)
    assert status(TOY, str(tmp_path)).complete
    assert check(TOY, str(tmp_path)).complete
    put(where, one=ONE[::-1])
    assert status(TOY, str(tmp_path)).complete
    assert check(TOY, str(tmp_path)) == sets.Status(where, (), {"one": f"its md5 is {digest(ONE[::-1])}, not {digest(ONE)}"})


def test_unpacked_files_do_as_well(tmp_path):
    put(tmp_path, one=ONE, two=b"second file")
    assert check(TOY, str(tmp_path)).complete
    put(tmp_path, two=b"SECOND file")
    assert check(TOY, str(tmp_path)).wrong.keys() == {"two"}


def test_the_check_of_what_files_hold(tmp_path):
    put(tmp_path, one=ONE, two=b"second file")
    assert check(replace(TOY, check=lambda folder: {"rows": "odd"}), str(tmp_path)).wrong == {"rows": "odd"}

    def refuse(folder):
        raise InputError("no label")

    assert check(replace(TOY, check=refuse), str(tmp_path)).wrong == {"toy": "no label"}


def test_a_file_that_cannot_be_read_is_wrong(tmp_path, monkeypatch):
    put(tmp_path, one=ONE, two=b"second file")

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sets, "md5", refuse)
    assert check(TOY, str(tmp_path)).wrong == {"one": "cannot be read: Permission denied", "two": "cannot be read: Permission denied"}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_entries_are_whole(name):
    which = BENCHMARKS[name]
    assert which.name == name
    assert which.folders
    assert which.description
    assert which.licence
    assert which.downloads or which.origin
    for source in which.downloads:
        assert source.url.startswith("https://")
        assert re.fullmatch("[0-9a-f]{32}", source.md5)
        assert source.unpacks_to or source.name in [file.name for file in which.files]
    for file in which.files:
        for form in (file, *file.copies):
            assert not form.md5 or re.fullmatch("[0-9a-f]{32}", form.md5)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_data_that_is_not_there(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPRL_DATA", raising=False)
    with pytest.raises(InputError) as caught:
        sets.load(name)
    for words in (*(file.name for file in BENCHMARKS[name].files), *(f"data/{folder}" for folder in BENCHMARKS[name].folders)):
        assert words in str(caught.value)
    if not BENCHMARKS[name].downloads:
        assert str(caught.value).endswith(BENCHMARKS[name].origin)
        return
    assert str(caught.value).endswith(f"Fetch with: sprl data {name} --download")
    with pytest.raises(InputError, match=f"Fetch with: sprl data {name} --download --data-dir 'my data'$"):
        sets.load(name, "my data")


def test_the_pickled_cifar(tmp_path):
    put(tmp_path / "cifar-10-batches-py", batches_meta=b"")
    with pytest.raises(InputError, match=r"cifar-10-batches-py holds the pickled version, .*\. Fetch with: sprl data cifar10 --download"):
        sets.load("cifar10", str(tmp_path))


def write_mnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, shape in zip(idx.TRAIN + idx.TEST, [(4, 2, 2), (4,), (2, 2, 2), (2,)], strict=True):
        sides = b"".join(side.to_bytes(4, "big") for side in shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(bytes([0, 0, 8, len(shape)]) + sides + bytes(range(int(np.prod(shape))))))


def test_mnist_is_loaded_from_its_folder(tmp_path):
    write_mnist(tmp_path / "mnist")
    data = sets.load("mnist", str(tmp_path))
    assert (data.name, data.ids[3], data.classes) == ("mnist", "mnist/3", ("0", "1", "2", "3"))
    assert data.clean.tolist() == data.y.tolist() == [0, 1, 2, 3]
    assert data.y_test.tolist() == [0, 1]


def test_damaged_data_is_to_be_fetched_again(tmp_path):
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / f"{idx.TRAIN[0]}.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz .*Fetch again with: sprl data mnist --download --data-dir"):
        sets.load("mnist", str(tmp_path))
    (tmp_path / "mnist" / f"{idx.TEST[0]}.gz").unlink()
    with pytest.raises(InputError, match=r"mnist needs t10k-images-idx3-ubyte.gz, not found in .*mnist. Fetch with"):
        sets.load("mnist", str(tmp_path))


def test_the_files_that_a_picture_set_lacks(tmp_path):
    put(tmp_path / "clothing1M", noisy_label_kv_txt=b"")
    (tmp_path / "clothing1M" / "noisy.label.kv.txt").rename(tmp_path / "clothing1M" / "noisy_label_kv.txt")
    with pytest.raises(InputError) as caught:
        sets.load("clothing1m", str(tmp_path))
    needed = "noisy_train_key_list.txt, clean_test_key_list.txt, clean_label_kv.txt, images/"
    assert f"clothing1m needs {needed}, not found in {tmp_path / 'clothing1M'}. Its authors send" in str(caught.value)


@pytest.mark.parametrize("how", ["packed", "plain"])
def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch, how):
    def fashion(content: bytes) -> tuple[File, ...]:
        name = "train-labels-idx1-ubyte"
        return (File(f"{name}.gz", len(content), digest(content), (File(name, len(content), digest(content)),)),)

    digits, clothes = b"labels of digits", b"labels of dress."
    mnist = replace(TOY, name="mnist", files=fashion(digits), folders=("MNIST/raw",))
    other = replace(TOY, name="fashion-mnist", files=fashion(clothes), folders=("FashionMNIST/raw",))
    monkeypatch.setattr(sets, "BENCHMARKS", {"mnist": mnist, "fashion-mnist": other})
    path = put(tmp_path) / f"train-labels-idx1-ubyte{'.gz' if how == 'packed' else ''}"
    path.write_bytes(digits)
    assert find(mnist, str(tmp_path)) == tmp_path
    assert find(other, str(tmp_path)) is None
    with pytest.raises(InputError, match=re.escape(f"not found in {tmp_path}/FashionMNIST/raw, {tmp_path} (holds mnist).")):
        sets.load("fashion-mnist", str(tmp_path))
    path.write_bytes(clothes)
    assert find(mnist, str(tmp_path)) is None
    assert find(other, str(tmp_path)) == tmp_path
    path.write_bytes(b"of neither")
    assert find(mnist, str(tmp_path)) == find(other, str(tmp_path)) == tmp_path


def test_fashion_mnist_has_names_for_its_classes(tmp_path):
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    data = sets.load("fashion-mnist", str(tmp_path))
    assert (data.name, data.ids[3]) == ("fashion-mnist", "fashion-mnist/3")
    assert (len(data.classes), data.classes[0], data.classes[9]) == (10, "T-shirt/top", "Ankle boot")
    assert data.clean.tolist() == data.y.tolist() == [0, 1, 2, 3]


def test_an_unknown_set():
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        sets.load("minst")


def test_nobody_is_assured_of_contents_that_were_not_compared():
    published, unknown = "what the files hold is what was published", "all files are there; nothing to compare their contents with"
    by_name, by_size = (replace(TOY, files=(File("one", size), File("two.gz", size and len(TWO)))) for size in (None, len(ONE)))
    assert [which.assured() for which in (TOY, by_name, by_size)] == [published, unknown, unknown]
    assert replace(by_size, check=lambda folder: {}).assured() == published
    assert replace(TOY, assurance="so far").assured() == "so far"
    assert all(which.assured() in (published, sets.LISTED) for which in sets.BENCHMARKS.values())
