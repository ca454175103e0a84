"""Rows and labels as they come: what is kept, and what is refused in one line."""

import re
import warnings
import zipfile

import numpy as np
import pytest
import torch

from sprl.data import Preprocess, arrays, check_learnable, digits, encode
from sprl.data.catalogue import load, relabel
from sprl.errors import InputError, SprlWarning


def save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_features_are_standardised_by_the_training_rows():
    x = np.array([[1.0, 5.0], [3.0, 5.0]])
    preprocess = Preprocess.fit(x)
    assert preprocess(x).tolist() == [[-1, 0], [1, 0]]  # a constant column is not divided by zero
    assert preprocess(np.array([[5.0, 6.0]])).tolist() == [[3, 1]]
    assert Preprocess.fit(np.full((7, 1), 0.1)).deviation == (1.0,)  # whose deviation rounds to 1e-17, not to 0


def test_pictures_keep_their_pixels_and_floats_are_standardised_by_channel():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    preprocess = Preprocess.fit(pixels)
    assert preprocess.shape == (3, 5, 6)
    assert torch.equal(preprocess(pixels), torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()))
    floats = pixels / 7.0
    rows = Preprocess.fit(floats)(floats)
    torch.testing.assert_close(rows.mean((0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows.std((0, 2, 3), correction=0), torch.ones(3))
    assert Preprocess.fit(pixels[..., 0]).shape == (1, 5, 6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 3, 4, 5)), r"got an array of shape \(2, 3, 4, 5\)"),
        (np.zeros(3), r"got an array of shape \(3,\)"),
        (np.array([["a"], ["b"]]), "features must be numbers"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "column 1 holds NaN in row 1"),
        (np.array([[1e300], [-1e300]]), "too large to standardise"),
        (np.array([[np.inf, 2.0], [3.0, 4.0]]), "column 0 holds inf in row 0"),
    ],
)
def test_rows_that_cannot_be_used(x, message):
    with pytest.raises(InputError, match=message):
        Preprocess.fit(x)


def test_rows_of_another_shape_or_type_are_refused_when_predicting():
    with pytest.raises(InputError, match=r"trained on 2 features, as \(N, 2\); got an array of shape \(3, 3\)"):
        Preprocess.fit(np.eye(2))(np.eye(3))
    with pytest.raises(InputError, match="as uint8"):
        Preprocess.fit(np.zeros((2, 4, 4), np.uint8))(np.zeros((2, 4, 4)))


@pytest.mark.parametrize(
    ("x", "forms"),
    [
        (np.zeros((2, 8, 6), np.uint8), "pictures of 8 x 6 pixels, as (N, 8, 6) or (N, 8, 6, 1), uint8"),
        (np.zeros((2, 8, 6, 3), np.uint8), "pictures of 8 x 6 pixels, as (N, 8, 6, 3), uint8"),
        (np.zeros((2, 8, 6)), "pictures of 8 x 6 pixels, as (N, 8, 6) or (N, 8, 6, 1)"),
    ],
)
def test_the_forms_that_a_refusal_names_are_taken(x, forms):
    preprocess = Preprocess.fit(x)
    with pytest.raises(InputError) as refused:
        preprocess(x[:, :5])
    assert str(refused.value) == f"the model was trained on {forms}; got an array of shape {x[:, :5].shape}"
    for form in re.findall(r"\(N, ([\d, ]+)\)", forms):
        assert preprocess(x.reshape(2, *map(int, form.split(", ")))).shape == (2, *preprocess.shape)


@pytest.mark.parametrize("labels", [[3, 1, 3], ["b", "a"], [("x", 1), ("a", 2), ("x", 1)], [1, "one", None, 1], np.array([2.0, 1.0])])
def test_labels_of_any_kind_come_back(labels):
    number, classes = encode(labels)
    assert [classes[i] for i in number] == list(labels)
    assert len(set(number)) == len(classes)


def test_bytes_are_text(tmp_path):
    assert load(save(tmp_path / "a.npz", x=np.eye(2), y=np.array([b"dog", b"cat"]))).classes == ("cat", "dog")


def test_what_cannot_be_learned():
    with pytest.raises(InputError, match="1 sample is too few"):
        check_learnable(np.array([0]), 2)
    with pytest.raises(InputError, match="one class"):
        check_learnable(np.array([0, 0, 0]), 1)
    with pytest.raises(InputError, match="each of the 21 rows has a label of its own"):
        check_learnable(np.arange(21), 21)
    check_learnable(np.arange(20), 20)
    check_learnable(np.arange(100) // 2, 50)


def test_digits_are_the_same_whatever_the_seed():
    data = load("digits")
    assert (len(data.y), len(data.y_test)) == (1347, 450)
    assert data.x.dtype == torch.uint8
    assert data.shape == (1, 8, 8)
    assert len(set(data.index)) == 1347
    assert data.ids[0] == f"digits/{data.index[0]}"
    assert abs(np.bincount(data.y_test) - 45).max() <= 2


def test_digits_are_scikit_learns_and_split_as_it_would_wherever_it_keeps_them(monkeypatch):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, y = load_digits().images, load_digits().target
    train, test = train_test_split(np.arange(len(y)), test_size=450, stratify=y, random_state=0)
    for _ in range(2):
        data = load("digits")
        assert (data.index == np.sort(train)).all()
        assert (data.y_test == y[test]).all()
        assert (data.x[:, 0].numpy() == np.round(images[data.index] * (255 / 16))).all()
        assert (data.x_test[:, 0].numpy() == np.round(images[test] * (255 / 16))).all()
        monkeypatch.setattr(digits, "find_spec", lambda name: None)


def test_arrays_keep_their_class_names_and_positions(tmp_path):
    x = np.arange(12.0).reshape(6, 2)
    path = save(tmp_path / "pets.npz", x=x, y=["dog", "cat", "dog", "cat", "dog", "cat"], x_test=x[:2], y_test=["cat", "cat"])
    data = load(path)
    assert data.name == "pets"
    assert data.classes == ("cat", "dog")
    assert data.y.tolist() == [1, 0, 1, 0, 1, 0]
    assert data.y_test.tolist() == [0, 0]
    assert data.index.tolist() == list(range(6))
    assert data.clean is None
    assert load("pets.npz", str(tmp_path)).y.tolist() == data.y.tolist()


GOOD = {"x": np.eye(4), "y": np.array([0, 1, 0, 1])}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GOOD["x"]}, "holds no array 'y'"),
        ({"y": GOOD["y"]}, "holds no array 'x'"),
        ({**GOOD, "y": np.array([0, 0.5, 0, 1])}, r"must be one whole number or string a row, got 0.5 in row 1: .* y.astype\(int\)"),
        ({**GOOD, "y": np.array([0, 1, np.nan, 1], np.float16)}, "got nan in row 2"),
        ({**GOOD, "y": np.array([0, 1, 0, np.inf])}, "got inf in row 3"),
        ({**GOOD, "y": np.array([0, 1, 0, 2.0**53])}, r"got 9007199254740992.0 in row 3"),
        ({**GOOD, "y": np.eye(4)}, r"must be one whole number or string a row, got float64 of shape \(4, 4\): .* y.argmax\(1\)"),
        ({**GOOD, "y": GOOD["y"][:3]}, r"x of shape \(4, 4\) but y of shape \(3,\)"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "holds no rows"),
        ({"x": np.zeros((4, 0)), "y": GOOD["y"]}, "rows must hold something"),
        ({**GOOD, "x_test": np.array(3), "y_test": GOOD["y"]}, "no rows of x_test"),
        ({**GOOD, "x_test": np.eye(4)}, "only one of x_test and y_test"),
        ({**GOOD, "x_test": np.eye(4)[:0], "y_test": GOOD["y"][:0]}, "0 rows of x_test and 0 of y_test"),
        ({**GOOD, "x_test": np.eye(4)[:, :3], "y_test": GOOD["y"]}, "bad.npz: x_test has 3 features where x has 4 features"),
        (
            {**GOOD, "x": np.zeros((4, 8, 8, 3)), "x_test": np.zeros((4, 8, 9, 3)), "y_test": GOOD["y"]},
            r"bad.npz: x_test has pictures of shape \(8, 9, 3\) where x has pictures of shape \(8, 8, 3\)",
        ),
        (
            {**GOOD, "x_test": np.zeros((4, 2, 2)), "y_test": GOOD["y"]},
            r"bad.npz: x_test has pictures of shape \(2, 2\) where x has 4 features",
        ),
        ({**GOOD, "x_test": np.eye(4), "y_test": np.array([0, 1, 2, 0])}, "y_test holds 2, which is no label of y"),
        (
            {**GOOD, "y": np.array([{}, 1, 2, 3], dtype=object)},
            r"bad.npz .* y holds Python objects; save it as .*y.astype\(str\)",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        load(save(tmp_path / "bad.npz", **arrays))


def test_only_the_arrays_that_are_asked_for_are_unpacked(tmp_path):
    """The others are damaged, so that to read them would fail; they are named among the first and the last."""
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    np.savez_compressed(tmp_path / "a.npz", a=x, x=x, y=y, z=np.arange(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        for name in ("a.npy", "z.npy"):
            content[archive.getinfo(name).header_offset + 60] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    assert load(str(tmp_path / "a.npz")).y.tolist() == y.tolist()
    assert np.array_equal(arrays.read_rows(tmp_path / "a.npz"), x)
    for name in ("a", "z"):
        with pytest.raises(InputError, match="not a readable"):
            arrays.read(tmp_path / "a.npz", (name,))


def test_an_array_stands_once(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6.0)[:, None], y=np.arange(6) % 2)
    for twice in ("x.npy", "x"):
        with zipfile.ZipFile(tmp_path / "a.npz") as archive:
            members = [(name, archive.read(name)) for name in ("x.npy", "y.npy")]
        with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
            warnings.simplefilter("ignore")
            for name, content in [*members, (twice, members[0][1])]:
                archive.writestr(name, content)
        with pytest.raises(InputError, match="x stands there twice"):
            load(str(tmp_path / "b.npz"))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_whole_floats_are_labels_and_so_is_a_column_of_them(tmp_path, dtype):
    y = np.array([2, 0, 10, 2], dtype)
    data = load(save(tmp_path / "a.npz", x=np.eye(4), y=y, x_test=np.eye(4)[:2], y_test=y[1:3, None]))
    assert data.classes == ("0", "2", "10")
    assert (data.y.tolist(), data.y_test.tolist()) == ([1, 0, 2, 1], [0, 2])
    np.save(tmp_path / "labels.npy", y[::-1, None])
    assert relabel(data, str(tmp_path / "labels.npy")).tolist() == [1, 2, 0, 1]
    assert load(save(tmp_path / "b.npz", x=np.eye(2), y=[["dog"], ["cat"]])).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", "unknown file, folder or set 'digit'; did you mean 'digits'"),
        ("missing.npz", "no such file or folder: missing.npz"),
        ("broken.npz", "not a readable .npz"),
        ("table.txt", "cannot read"),
    ],
)
def test_data_that_is_not_there(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip")
    (tmp_path / "table.txt").write_text("x")
    with pytest.raises(InputError, match=message):
        load(name)


def test_other_labels_are_matched_by_id(tmp_path):
    data = load(save(tmp_path / "a.npz", **GOOD))
    file = tmp_path / "labels.csv"
    file.write_text("# corrected\nlabel,id\n1,2\n0,3\n1,0\n0,1\n")
    assert relabel(data, str(file)).tolist() == [1, 0, 1, 0]
    file.write_text("id,label\n2,1\n3,0\n0,1\n1,0\nelse,1\n")
    with pytest.warns(SprlWarning, match="ids that a lacks, 1 of them, such as 'else'"):
        assert relabel(data, str(file)).tolist() == [1, 0, 1, 0]
    np.save(tmp_path / "labels.npy", np.array([1, 1, 0, 0]))
    assert relabel(data, str(tmp_path / "labels.npy")).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\n0,1\n1,0\n2,1\n3,0\n0,0\n", "more than one label for '0'"),
        ("label,id\n1\n0,1\n", "lacks labels for 3 of 4 rows"),
        ("id,label\n#,1\n0,1\n", "lacks labels for 3 of 4 rows"),
        ("id,label\n0,1\n", "lacks labels for 3 of 4 rows, the first of them '1'"),
        ("id,klass\n0,1\n", "must have the columns id and label"),
        ("id,label\n0,1\n1,0\n2,9\n3,0\n", "unknown label in .* a new class cannot be brought in here, only with the data"),
        ("id;label\n0;1\n", "semicolons between its cells: save it with commas$"),
        ("# a note\nid\tlabel\n0\t1\n", "tabs between its cells: save it with commas$"),
        ("", "must have the columns id and label"),
    ],
)
def test_other_labels_that_do_not_fit(tmp_path, text, message):
    data = load(save(tmp_path / "a.npz", **GOOD))
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        relabel(data, str(tmp_path / "labels.csv"))
    with pytest.raises(InputError, match="no such file of labels"):
        relabel(data, str(tmp_path / "none.csv"))
