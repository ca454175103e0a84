"""MNIST's files: what they hold, and what is refused."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sprl.data.idx import load, read
from sprl.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 5, 4), dtype=np.uint8)
Y = np.arange(12, dtype=np.uint8) % 3
FILES = {
    "train-images-idx3-ubyte": X,
    "train-labels-idx1-ubyte": Y,
    "t10k-images-idx3-ubyte": X[:6],
    "t10k-labels-idx1-ubyte": Y[:6],
}


def encode(array, shape=None):
    shape = array.shape if shape is None else shape
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    for name, array in FILES.items():
        (tmp_path / name).write_bytes(encode(array))
    return tmp_path


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_any_array_comes_back(tmp_path_factory, shape, packed):
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(encode(array)) if packed else encode(array))
    np.testing.assert_array_equal(read(path), array)


GOOD = encode(X)
BROKEN = {
    "empty": (b"", "is no idx file of one to four sides: it begins with nothing"),
    "another format": (b"\x89PNG" + GOOD, "begins with 89 50 4e 47"),
    "no sides": (bytes([0, 0, 8, 0]), "no idx file"),
    "five sides": (encode(np.zeros((1,) * 5, np.uint8)), "no idx file"),
    "floats": (bytes([0, 0, 0x0D]) + GOOD[3:], "values of type 0x0d"),
    "header cut": (GOOD[:10], "ends within its header"),
    "no rows": (encode(X, (0, 5, 4)), "holds nothing"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_idx_file(tmp_path, content, message, packed):
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", GOOD[:-1], "should hold 240 values by its header, which is more than it can"),
        ("a", GOOD + b"\0", "holds more than the 240 values"),
        ("a.gz", gzip.compress(GOOD[:-1]), "ends after 239 of 240 values"),
        ("a.gz", gzip.compress(GOOD + b"\0"), "holds more than the 240 values"),
        ("a.gz", gzip.compress(GOOD)[:-9], "ended before"),
        ("a.gz", gzip.compress(GOOD)[:-8] + bytes(8), "CRC"),
        ("a.gz", GOOD, "cannot be read: Not a gzipped file"),
    ],
)
def test_counts_must_agree_with_what_is_there(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_header_that_claims_too_much_takes_no_memory(tmp_path, name):
    claim = encode(X, (2**32 - 1, 2**10, 2**10))
    (tmp_path / name).write_bytes(gzip.compress(claim) if name.endswith("gz") else claim)
    tracemalloc.start()
    with pytest.raises(InputError, match="more than it can"):
        read(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_file_that_deflate_makes_as_small_as_it_can_is_read(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(encode(np.zeros(10**6, np.uint8))))
    assert 10**6 / path.stat().st_size > 900
    assert not read(path).any()


def test_pictures_and_labels_become_data(folder):
    data = load(folder, "shapes")
    assert data.name == "shapes"
    assert data.x.shape == (12, 1, 5, 4)
    assert data.shape == (1, 5, 4)
    assert torch.equal(data.x[:, 0], torch.from_numpy(X))
    assert torch.equal(data.x_test[:, 0], torch.from_numpy(X[:6]))
    assert data.y.dtype == np.int64
    assert data.y.tolist() == Y.tolist()
    assert data.y_test.tolist() == Y[:6].tolist()
    assert data.classes == ("0", "1", "2")
    assert data.index.tolist() == list(range(12))
    assert data.ids[7] == "shapes/7"
    assert data.clean is None  # nobody vouches for the labels of a folder


def test_names_of_the_classes(folder):
    assert load(folder, "a", ("cat", "dog", "eel", "fox")).classes == ("cat", "dog", "eel", "fox")
    with pytest.raises(InputError, match="the training labels go up to 2, but a has 2 classes"):
        load(folder, "a", ("cat", "dog"))


@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted", "dotted.gz"])
def test_the_names_of_other_copies(tmp_path, spelling):
    for name, array in FILES.items():
        name = spelling.replace("dotted", name.replace("-idx", ".idx")).format(name)
        (tmp_path / name).write_bytes(gzip.compress(encode(array)) if name.endswith(".gz") else encode(array))
    assert load(tmp_path, "a").y_test.tolist() == Y[:6].tolist()


def test_test_rows_may_be_left_out_but_not_half_of_them(folder):
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\[.gz\] is missing"):
        load(folder, "a")
    (folder / "t10k-images-idx3-ubyte").unlink()
    data = load(folder, "a")
    assert data.x_test is None
    assert data.y_test is None


def test_all_that_is_missing_or_damaged_is_told_at_once(folder):
    (folder / "train-images-idx3-ubyte").unlink()
    (folder / "train-labels-idx1-ubyte").write_bytes(encode(Y)[:-1])
    (folder / "t10k-labels-idx1-ubyte").write_bytes(encode(X))
    with pytest.raises(InputError) as caught:
        load(folder, "a")
    for words in (
        "train-images-idx3-ubyte[.gz] is missing",
        "train-labels-idx1-ubyte should hold 12",
        "t10k-labels-idx1-ubyte has the shape",
    ):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels-idx1-ubyte", Y[:11], "holds 12 pictures, but train-labels-idx1-ubyte 11 labels"),
        ("t10k-images-idx3-ubyte", X[:5], "holds 5 pictures, but t10k-labels-idx1-ubyte 6 labels"),
        ("t10k-images-idx3-ubyte", X[:6, :4], r"test pictures are \(4, 4\) pixels large, training pictures \(5, 4\)"),
        ("t10k-labels-idx1-ubyte", Y[:6] + 1, "test labels go up to 3, the training labels only to 2"),
    ],
)
def test_files_must_fit_each_other(folder, name, array, message):
    (folder / name).write_bytes(encode(array))
    with pytest.raises(InputError, match=message):
        load(folder, "a")
