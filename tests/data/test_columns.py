"""Columns of a table to features, against a slow reading cell by cell."""

import datetime
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.data.columns import MOST_VALUES, Columns
from sprl.errors import InputError, SprlWarning


@pytest.fixture
def frame() -> pd.DataFrame:
    """A column of each kind that can be used, eight rows, no gaps."""
    return pd.DataFrame(
        {
            "height": [1.5, 2, 3, 4, 5, 6, 7, 8],
            "sold": [True, False] * 4,
            "colour": ["red", "blue"] * 4,
            "price": ["1", "2.5", "-3e1", "4"] * 2,
            "vector": [[1, 2], (3, 4), np.array([5.0, 6.0]), [7, 8]] * 2,
        }
    )


NAMES = ("height", "sold", "colour=blue", "colour=red", "price", "vector[0]", "vector[1]")


def quietly(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SprlWarning)
        return columns(frame)


def test_each_kind_of_column_becomes_numbers(frame):
    columns = Columns.fit(frame)
    assert columns.names == NAMES
    x = columns(frame)
    assert x.dtype == np.float64
    assert x[2].tolist() == [3, 1, 0, 1, -30, 5, 6]
    assert x[1].tolist() == [2, 0, 1, 0, 2.5, 3, 4]


def test_other_columns_and_their_order_do_not_matter(frame):
    columns = Columns.fit(frame)
    other = frame.assign(more=object())[["vector", "price", "more", "colour", "sold", "height"]]
    assert (columns(other) == columns(frame)).all()


def test_missing_numbers_become_the_training_mean_with_one_warning(frame):
    frame.loc[0, "height"] = None
    frame["sold"] = pd.array([None, True, True, False, *[True] * 4], dtype="boolean")
    frame["vector"] = [[1, None], None, [3, 5], [5, 7], *[[3, 6]] * 4]
    columns = Columns.fit(frame)
    with pytest.warns(SprlWarning) as told:
        x = columns(frame)
    assert len(told) == 1
    assert "'height' (1 of 8 rows), 'sold' (1 of 8 rows), 'vector' (2 of 8 rows)" in str(told[0].message)
    assert x[0].tolist() == [35 / 7, 6 / 7, 0, 1, 1, 1, 6]
    assert x[1, -2:].tolist() == [3, 6]
    new = frame.assign(height=None, price=float("nan"), vector=None)[:3]
    assert quietly(columns, new)[:, [0, 4, 5, 6]].tolist() == [[5, -22.5 / 4, 3, 6]] * 3


def test_missing_and_unknown_text_is_none_of_the_values(frame):
    columns = Columns.fit(frame)
    frame.loc[1, "colour"] = "green"
    frame.loc[2, "colour"] = None
    with pytest.warns(SprlWarning, match=r"'colour' \(2 of 8 rows\)"):
        assert columns(frame)[:3, 2:4].tolist() == [[0, 1], [0, 0], [0, 0]]


def test_values_are_the_same_whatever_type_holds_them():
    columns = Columns.fit(pd.DataFrame({"a": ["1", "2", "x", "True"] * 2}))
    assert columns.names == ("a=1", "a=2", "a=True", "a=x")
    for cells, place in (([1, 2], [0, 1]), ([1.0, 2.0], [0, 1]), ([True, True], [2, 2]), (pd.Categorical(["x", "1"]), [3, 0])):
        assert columns(pd.DataFrame({"a": cells})).argmax(1).tolist() == place


def test_true_and_1_are_two_values():
    columns = Columns.fit(pd.DataFrame({"a": pd.Series([True, 1, "x", 1.0] * 2, dtype=object)}))
    assert columns.names == ("a=1", "a=True", "a=x")
    assert columns(pd.DataFrame({"a": pd.Series([1, True, "x"], dtype=object)})).tolist() == np.eye(3).tolist()


def test_categories_stay_names_even_if_they_look_like_numbers():
    assert Columns.fit(pd.DataFrame({"a": pd.Categorical([3, 1] * 3)})).names == ("a=1", "a=3")


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (pd.date_range("2020", periods=6), "date cells"),
        ([datetime.date(2020, 1, 1)] * 6, "date cells"),
        ([None] * 6, "all missing"),
        ([f"text {i}" for i in range(6)], "text with 6 different values"),
        (["1", "2", "3", "4", "5", "?"], "text with 6 different values, no number in 1 of 6 rows, such as '?'"),
        ([[1, 2], [1]] * 3, "a list of 1 numbers in row 11, not of 2"),
        ([[[1, 2], [3, 4]]] * 6, "a list of 2 x 2 numbers in row 10, not of 4"),
        ([["a"]] * 6, "lists of other things than numbers"),
        ([[]] * 6, "empty lists"),
        ([{"a": 1}] * 6, "dict cells"),
        ([1j] * 6, "complex128 cells"),
    ],
)
def test_columns_that_cannot_be_used_are_left_out_and_named(cells, why):
    frame = pd.DataFrame({"odd": cells, "fine": range(6)}).set_index(pd.RangeIndex(10, 16))
    with pytest.warns(SprlWarning) as told:
        columns = Columns.fit(frame)
    assert [str(w.message) for w in told] == [f"columns left out: 'odd' ({why})"]
    assert columns.names == ("fine",)
    with pytest.raises(InputError, match="no column that can be used"):
        Columns.fit(frame[["odd"]])


@pytest.mark.parametrize(("rows", "values", "kept"), [(6, 3, True), (6, 4, False), (200, MOST_VALUES, True), (200, MOST_VALUES + 1, False)])
def test_text_with_few_values_is_kept(rows, values, kept):
    frame = pd.DataFrame({"a": [f"v{i % values}" for i in range(rows)], "b": 0.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if not kept else "error", SprlWarning)
        assert len(Columns.fit(frame).names) == 1 + kept * values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": "tall"}, "'height' held numbers in training, but here 'tall' in row 0"),
        ({"height": np.inf}, "'height' holds inf in row 0"),
        ({"vector": [[1, 2]] * 7 + [[1, 2, 3]]}, "a list of 3 numbers in row 7, not of 2"),
        ({"vector": 1.0}, "'vector' holds number cells, but in training its cells were of the kind list"),
        ({"height": [[1.0]] * 8}, "'height' holds list cells"),
        ({"colour": [["red"]] * 8}, "'colour' holds list cells"),
        ({"price": pd.date_range("2020", periods=8)}, "'price' holds date cells"),
    ],
)
def test_new_rows_that_do_not_fit(frame, change, message):
    with pytest.raises(InputError, match=message):
        Columns.fit(frame)(frame.assign(**change))


def test_lacking_columns_are_named_with_what_may_be_meant(frame):
    columns = Columns.fit(frame)
    with pytest.raises(InputError, match=r"lacks 'sold', 'colour', which .* did you mean 'color' for 'colour'\?") as told:
        columns(frame.drop(columns="sold").rename(columns={"colour": "color"}))
    assert "'color' for 'sold'" not in str(told.value)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": [1.0, -np.inf]}, index=["x", "y"]), "'a' holds inf in row y"),
        (pd.DataFrame({"a": [[1.0], [np.inf]]}), "'a' holds inf in row 1"),
        (pd.DataFrame({"a": [1e308, 1e308]}), "too large to standardise"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column 'a'"),
        (pd.DataFrame(index=range(3)), "no column that can be used as a feature$"),
    ],
)
def test_tables_that_cannot_be_used(frame, message):
    with pytest.raises(InputError, match=message):
        Columns.fit(frame)


def test_no_rows_are_no_trouble(frame):
    assert Columns.fit(frame)(frame[:0]).shape == (0, len(NAMES))


cell = st.none() | st.floats(-1e6, 1e6) | st.integers(-9, 9) | st.booleans() | st.sampled_from(["a", "b", "NA", "1.5", "é"])
tables = st.integers(2, 12).flatmap(
    lambda n: st.dictionaries(st.text(max_size=3), st.lists(cell, min_size=n, max_size=n), max_size=4).map(
        lambda columns: pd.DataFrame({"sure": np.arange(n)} | {f"_{k}": pd.Series(v, dtype=object) for k, v in columns.items()})
    )
)


def slowly(columns: Columns, frame: pd.DataFrame) -> list[list[float]]:
    """The features, a cell at a time."""

    def word(cell):
        return str(int(cell)) if type(cell) is float and cell == int(cell) else str(cell)

    def features(column, cell):
        if column.kind == "text":
            return [float(cell is not None and word(cell) == value) for value in column.values]
        there = [float(c) for c in frame[column.name] if c is not None]
        return [sum(there) / len(there) if cell is None else float(cell)]

    return [[f for column in columns.columns for f in features(column, frame[column.name].iloc[i])] for i in range(len(frame))]


@settings(deadline=None, max_examples=40)
@given(tables, st.randoms(use_true_random=False))
def test_any_table_survives_json_and_follows_its_rows(frame, random):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SprlWarning)
        columns = Columns.fit(frame)
        x = columns(frame)
        again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
        order = random.sample(range(len(frame)), len(frame))
        assert again == columns
        assert x.shape == (len(frame), len(columns.names))
        np.testing.assert_allclose(x, slowly(columns, frame), rtol=1e-12, atol=1e-9)
        assert (again(frame.iloc[order]) == x[order]).all()
        assert (np.vstack([columns(frame[i : i + 1]) for i in range(len(frame))]) == x).all()  # a row's features are its own


GOOD = {"name": "a", "kind": "number", "mean": [1.0], "values": []}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {},
        {"columns": None},
        {"columns": []},
        {"columns": ["a"]},
        {"columns": [GOOD, GOOD]},
        *(
            {"columns": [GOOD | change]}
            for change in (
                {"name": 1},
                {"kind": "date"},
                {"kind": []},
                {"mean": []},
                {"mean": [1.0, 2.0]},
                {"mean": [math.nan]},
                {"mean": [math.inf]},
                {"mean": [10**400]},
                {"mean": ["1"]},
                {"mean": [True]},
                {"mean": 1.0},
                {"values": ["a"]},
                {"kind": "list", "mean": []},
                {"kind": "text"},
                {"kind": "text", "mean": [], "values": []},
                {"kind": "text", "mean": [], "values": [1]},
                {"kind": "text", "mean": [], "values": ["a", "a"]},
                {"kind": "text", "mean": [], "values": "ab"},
            )
        ),
        {"columns": [{"name": "a"}]},
    ],
)
def test_descriptions_that_are_off_are_a_value_error(stored):
    with pytest.raises(ValueError, match="column"):
        Columns.from_json(stored)


def test_a_good_description_is_read():
    assert Columns.from_json({"columns": [GOOD]})(pd.DataFrame({"a": [2, 3]})).tolist() == [[2], [3]]
