"""What a person sees of rows."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from sprl.data import Data, Preprocess
from sprl.data.columns import Columns
from sprl.errors import SprlWarning
from sprl.views import features_of, picture_of


def data_of(x, columns=None):
    preprocess = Preprocess.fit(x)
    n = len(x)
    ids = tuple(map(str, range(n)))
    return Data("mine", preprocess(x), np.zeros(n, dtype=np.int64), ("a", "b"), np.arange(n), ids, preprocess, columns=columns)


def opened(found, mode="L"):
    return np.asarray(Image.open(io.BytesIO(found)).convert(mode))


@pytest.mark.parametrize("sides", [(40, 40), (40, 40, 1), (40, 40, 3), (33, 57, 3)])
def test_pixels_are_shown_as_they_are(sides):
    x = np.random.default_rng(0).integers(0, 256, (3, *sides), dtype=np.uint8)
    seen = opened(picture_of(data_of(x))(1), "RGB" if sides[2:] == (3,) else "L")
    assert np.array_equal(seen.reshape(x[1].shape), x[1])


def test_pictures_of_other_numbers_are_stretched_from_black_to_white():
    x = np.random.default_rng(0).normal(50, 9, (4, 40, 40))
    seen = opened(picture_of(data_of(x))(2)).astype(float)
    expected = (x[2] - x[2].min()) / (x[2].max() - x[2].min()) * 255
    assert np.abs(seen - expected).max() <= 1
    assert opened(picture_of(data_of(np.zeros((2, 40, 40))))(0)).max() == 0  # all the same: black, and no division by zero


def test_features_are_shown_by_name_in_their_own_units():
    frame = pd.DataFrame({"height": [1.5, 2.25, 4.0] * 4, "colour": ["red", "blue", "red"] * 4, "place": [[1, 2], [3, 4], [5, 7]] * 4})
    columns = Columns.fit(frame)
    show = features_of(data_of(columns(frame), columns))
    assert list(show(1)) == [("height", "2.25"), ("colour", "blue"), ("place[0]", "missing? (3)"), ("place[1]", "4")]  # 3 is the mean


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_what_was_missing_is_not_shown_as_if_it_were_measured(scale):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"height": scale * (3 + rng.random(200)), "left": scale * rng.normal(size=200), "colour": ["red", "blue"] * 100})
    frame.iloc[7] = None
    frame["left"] -= frame["left"].mean()  # a mean that is 0 but for rounding
    columns = Columns.fit(frame)
    with pytest.warns(SprlWarning, match="cells are missing"):
        show = features_of(data_of(columns(frame), columns))
    height, left, colour = show(7)
    assert height == ("height", f"missing? ({frame['height'].mean():.5g})")
    assert left[1].startswith("missing?")
    assert colour == ("colour", "missing")
    assert not any("missing" in cell for row in range(200) if row != 7 for _, cell in show(row))


def test_a_column_that_is_always_the_same_has_no_gaps():
    frame = pd.DataFrame({"one": [1.0] * 12, "height": [1.5, 2.25, 4.0] * 4})
    columns = Columns.fit(frame)
    assert list(features_of(data_of(columns(frame), columns))(0)) == [("one", "1"), ("height", "1.5")]


def test_features_without_names_are_numbered():
    assert list(features_of(data_of(np.array([[1.0, 2.0], [3.0, 4.0]])))(0)) == [("feature 0", "1"), ("feature 1", "2")]


def test_pictures_have_no_features_and_features_no_picture():
    assert features_of(data_of(np.zeros((2, 8, 8), dtype=np.uint8))) is None
    assert picture_of(data_of(np.eye(3))) is None


def test_rows_on_another_device_than_the_hosts_index(monkeypatch):
    """`data.x` may lie where it trains; the position goes there."""
    data = data_of(np.eye(3))
    asked = []
    monkeypatch.setattr(torch, "tensor", lambda value, device=None, kept=torch.tensor: asked.append(device) or kept(value))
    list(features_of(data)(0))
    assert asked == [data.x.device]
