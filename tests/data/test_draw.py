"""Some rows of a set: which ones, that all that is told of a row stays with it, and whose labels they get."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.data import Data, Preprocess
from sprl.data.catalogue import load, relabel
from sprl.data.rows import FileRows
from sprl.errors import InputError, SprlWarning

CLASSES = ("ant", "bee", "cat")


def made(y, **more):
    """A set whose rows, ids and positions say which of them they are."""
    n = len(y)
    return Data(
        name="pets",
        x=torch.arange(n).unsqueeze(1) * torch.ones(2),
        y=np.asarray(y),
        classes=CLASSES,
        index=10 * np.arange(n),
        ids=tuple(f"row {i}" for i in range(n)),
        preprocess=Preprocess((2,)),
        **more,
    )


@pytest.fixture
def pets():
    y = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [50, 30, 20]))
    x_test, y_test = torch.arange(8.0).reshape(4, 2), np.array([0, 1, 2, 0])
    return made(np.roll(y, 7), clean=y, x_test=x_test, y_test=y_test, skipped=("lost",))


def positions(data):
    return data.index // 10


@given(st.lists(st.integers(2, 40), min_size=2, max_size=3), st.data())
@settings(deadline=None, max_examples=100)
def test_the_same_share_of_each_class_as_near_as_it_goes(sizes, data):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    count = data.draw(st.integers(2 * len(sizes), len(y)))
    drawn = made(y).draw(count)
    counts = np.bincount(drawn.y, minlength=len(sizes))
    assert counts.sum() == len(drawn.y) == count
    for some, size in zip(counts, sizes, strict=True):
        share = size * count / len(y)
        assert some >= 1
        assert abs(some - share) < 1 or share < 1 or counts.min() == 1  # a class that has too few takes from the largest


def test_all_that_is_told_of_a_row_stays_with_it(pets):
    drawn = pets.draw(30)
    rows = positions(drawn)
    assert len(rows) == len(set(rows)) == 30
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(drawn.x[:, 0].numpy(), rows)
    np.testing.assert_array_equal(drawn.y, pets.y[rows])
    np.testing.assert_array_equal(drawn.clean, pets.clean[rows])
    assert drawn.ids == tuple(f"row {i}" for i in rows)
    np.testing.assert_array_equal(np.bincount(drawn.clean), [15, 9, 6])
    others = {f.name for f in fields(Data)} - {"x", "y", "clean", "index", "ids", "part"}
    assert all(getattr(drawn, name) is getattr(pets, name) for name in others)
    assert drawn.part.whole is pets


def test_always_the_same_rows_and_taken_once(pets):
    drawn = pets.draw(30)
    np.testing.assert_array_equal(pets.draw(30).index, drawn.index)
    assert pets.draw(None) is pets
    assert pets.draw(100) is pets
    assert drawn.draw(30) is drawn
    assert drawn.draw(None) is drawn
    np.testing.assert_array_equal(drawn.draw(40).index, pets.draw(40).index)  # of the whole, not of a part
    other = replace(pets, y=pets.y[::-1].copy()).draw(30)  # given labels do not decide where true ones are known
    np.testing.assert_array_equal(other.index, drawn.index)
    assert positions(drawn).tolist() != positions(replace(pets, clean=np.roll(pets.clean, 1)).draw(30)).tolist()


def test_rows_are_drawn_from_everywhere():
    rows = positions(made(np.arange(3000) % 3).draw(600))
    assert (abs(np.bincount(rows // 300) - 60) < 5 * np.sqrt(60 * 0.8)).all()
    assert len(set(np.diff(rows))) > 10


def test_rows_in_a_file_are_not_read_for_it(tmp_path, pets):
    pixels = torch.arange(100, dtype=torch.uint8).reshape(100, 1, 1, 1).expand(100, 1, 2, 2)
    (tmp_path / "pixels").write_bytes(pixels.contiguous().numpy().tobytes())
    filed = replace(pets, x=FileRows(tmp_path / "pixels", np.arange(100), 4, (1, 2, 2)), preprocess=Preprocess((1, 2, 2)))
    drawn = filed.draw(30)
    assert isinstance(drawn.x, FileRows)
    assert torch.equal(drawn.x[torch.arange(30)], pixels[torch.from_numpy(positions(pets.draw(30)))])


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (101, "--rows 101 is more than the 100 training rows of pets: give at most that many"),
        (5, "--rows 5 is too few: give at least 6, two for each class of pets"),
        (0, "--rows 0 is too few"),
        (-3, "--rows -3 is too few"),
    ],
)
def test_too_many_and_too_few(pets, count, why):
    with pytest.raises(InputError, match=why):
        pets.draw(count)
    with pytest.raises(InputError, match="more than the 100 training rows"):
        pets.draw(30).draw(101)
    assert len(pets.draw(6).y) == 6


# Other labels


def test_labels_in_the_order_of_the_whole_set(tmp_path, pets):
    other = (pets.y + 1) % 3
    np.save(tmp_path / "other.npy", np.array(CLASSES)[other])
    drawn = pets.draw(30)
    np.testing.assert_array_equal(relabel(drawn, str(tmp_path / "other.npy")), other[positions(drawn)])
    np.save(tmp_path / "few.npy", np.array(CLASSES)[other[:30]])
    with pytest.raises(InputError, match="holds 30 labels, but pets has 100 training rows"):
        relabel(drawn, str(tmp_path / "few.npy"))


def test_labels_by_id_of_the_whole_set_or_of_the_part(tmp_path, pets):
    drawn, other, file = pets.draw(30), (pets.y + 1) % 3, tmp_path / "other.csv"
    lines = [f"row {i},{CLASSES[other[i]]}\n" for i in range(100)]
    file.write_text("id,label\n" + "".join(lines))
    np.testing.assert_array_equal(relabel(drawn, str(file)), other[positions(drawn)])  # a note of ids that are not drawn would be an error
    file.write_text("id,label\n" + "".join(lines[i] for i in positions(drawn)[::-1]))
    np.testing.assert_array_equal(relabel(drawn, str(file)), other[positions(drawn)])
    with pytest.raises(InputError, match="lacks labels for 70 of 100 rows"):
        relabel(pets, str(file))
    file.write_text("id,label\n" + "".join(lines) + "stranger,ant\n")
    with pytest.warns(SprlWarning, match="ids that pets lacks, 1 of them, such as 'stranger'"):
        relabel(drawn, str(file))
    file.write_text("id,label\n" + "".join(lines[i] for i in positions(drawn)[1:]))
    with pytest.raises(InputError, match=f"lacks labels for 1 of 30 rows, the first of them '{drawn.ids[0]}'"):
        relabel(drawn, str(file))


def test_labels_that_people_gave(tmp_path, pets):
    pets = replace(pets, name="cifar10")
    worse = (pets.clean + 1) % 3
    np.savez(tmp_path / "cifar10n.npz", clean=pets.clean, worse=worse)
    drawn = pets.draw(30)
    np.testing.assert_array_equal(relabel(drawn, "human:worse", str(tmp_path)), worse[positions(drawn)])


def test_the_built_in_set():
    digits = load("digits")
    drawn = digits.draw(100)
    assert np.bincount(drawn.y).tolist() == [10] * 10
    assert drawn.x_test is digits.x_test
