"""Tables: what is read from them, in which order, and what is refused in one line."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from sprl.data import How, Preprocess, table
from sprl.data.catalogue import relabel
from sprl.errors import InputError, SprlWarning


@pytest.fixture
def write(tmp_path):
    """A function that writes text or bytes to a file, and gives its path."""

    def write(content: str | bytes, name: str = "pets.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_features_labels_and_positions(write):
    data = table.load(write("weight,label,colour\n4,cat,black\n30,dog,brown\n5,cat,brown\n20,dog,black\n"), How())
    assert data.name == "pets"
    assert data.classes == ("cat", "dog")
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.index.tolist() == [0, 1, 2, 3]
    assert data.ids == ("0", "1", "2", "3")
    assert data.columns.names == ("weight", "colour=black", "colour=brown")
    x = np.array([[4, 1, 0], [30, 0, 1], [5, 0, 1], [20, 1, 0.0]])
    assert torch.equal(data.x, Preprocess.fit(x)(x))
    assert data.x_test is None


def test_a_split_keeps_rows_labels_ids_and_positions_together(write):
    path = write("id,a,split,label\nq,1,Train,x\nr,2,test,y\ns,3,train,y\nt,9,TEST,x\nu,5,train,x\n")
    data = table.load(path, How())
    assert data.index.tolist() == [0, 2, 4]
    assert data.ids == ("q", "s", "u")
    assert data.y.tolist() == [0, 1, 0]
    assert data.y_test.tolist() == [1, 0]
    assert data.preprocess.mean == (3.0,)  # of the training rows alone
    deviation = np.sqrt(8 / 3)
    torch.testing.assert_close(data.x_test, torch.tensor([[-1 / deviation], [6 / deviation]], dtype=torch.float32))


def test_no_column_is_learned_from_test_rows(write):
    path = write("a,colour,label,split\n1,red,x,train\n3,red,y,train\n,blue,y,test\n")
    with pytest.warns(SprlWarning, match=r"'a' \(1 of 3 rows\), 'colour' \(1 of 3 rows\)"):
        data = table.load(path, How())
    assert data.columns.names == ("a", "colour=red")
    assert data.x_test.tolist() == [[0, -1]]


@pytest.mark.parametrize("word", ["val", "valid", "Validation"])
def test_validation_rows_serve_as_test_rows_where_there_are_none(write, word):
    head = f"a,label,split\n1,x,train\n2,y,train\n3,y,{word}\n"
    assert table.load(write(head), How()).y_test.tolist() == [1]
    with pytest.warns(SprlWarning, match="rows for validation are left out, as there are test rows: 1"):
        data = table.load(write(head + "4,x,test\n"), How())
    assert data.y_test.tolist() == [0]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["10", "9", "9"], ("9", "10")),
        (["NA", "None", "null"], ("NA", "None", "null")),
        (["2.0", "1.0", "2.0"], ("1", "2")),
        (["True", "False", "True"], ("False", "True")),
        (["1.5", "beta", "1.5"], ("1.5", "beta")),
        (["007", "7", "7"], ("007", "7")),
        (["-1", "+1", "-1"], ("-1", "+1")),
        (["b ", "b", "a"], ("a", "b")),
        (["é", "中", "é"], ("é", "中")),
    ],
)
def test_labels_become_class_names_in_order(write, labels, classes):
    data = table.load(write("a,kind\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels))), How(label="kind"))
    assert data.classes == classes
    expected = [str(int(float(v))) if ".0" in v else v.strip() for v in labels]
    assert [data.classes[i] for i in data.y] == expected


SNOW = 1234567890123456789  # of which float64 cannot tell the next from it


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([SNOW + 1, SNOW, 5], ("5", str(SNOW), str(SNOW + 1))),
        ([2**60 + 2, 2**60, 2**60 + 1], (str(2**60), str(2**60 + 1), str(2**60 + 2))),
        ([2**64 - 1, 2**64 - 2, 2**64 - 1], (str(2**64 - 2), str(2**64 - 1))),
        ([f"{SNOW}", f"{SNOW + 1}", "1.0"], ("1", str(SNOW), str(SNOW + 1))),
        (["1" + "0" * 40, "-1" + "0" * 40, "9"], ("-1" + "0" * 40, "9", "1" + "0" * 40)),
        (["7.0", f"{2**53 - 1}.0", "7.0"], ("7", str(2**53 - 1))),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_are_exact_whatever_their_size(tmp_path, labels, classes, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2, 3], "label": labels})
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    data = table.load(path, How())
    assert data.classes == classes
    assert [int(data.classes[i]) for i in data.y] == [int(str(label).removesuffix(".0")) for label in labels]
    other = tmp_path / "labels.csv"
    other.write_text("id,label\n" + "".join(f"{2 - i},{data.classes[c]}\n" for i, c in enumerate(data.y)))
    assert relabel(data, str(other)).tolist() == data.y.tolist()[::-1]


names = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=5)  # \r: pandas forgets to quote it
names = names.filter(lambda name: name == name.strip() and not table.NUMBER.fullmatch(name))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(names, st.floats(-1e9, 1e9), names), min_size=1, max_size=8, unique_by=lambda row: row[2]))
def test_what_pandas_writes_comes_back(write, rows):
    frame = pd.DataFrame(rows, columns=["label", "a", "id"])
    path = write(frame.to_csv(index=False, lineterminator="\n"))
    data = table.load(path, How())
    assert [data.classes[i] for i in data.y] == frame["label"].tolist()
    assert data.ids == tuple(frame["id"])
    ids, x = table.read_new(path, data.columns)
    assert ids == data.ids
    np.testing.assert_allclose(x[:, 0], frame["a"], rtol=1e-12, atol=1e-12)  # pandas 2 reads about so many digits


def test_new_rows_are_read_as_the_training_rows_were(write):
    data = table.load(write("id,a,zip,label\n1,1,012,x\n2,2,12,y\n3,3,12,y\n4,6,?,x\n5,3,012,x\n6,3,?,x\n"), How())
    assert data.columns.names == ("a", "zip=012", "zip=12", "zip=?")
    with pytest.warns(SprlWarning, match=r"'a' \(1 of 2 rows\)"):
        ids, x = table.read_new(write("zip,other,a\n012,x,1\n12,y,\n", "new.csv"), data.columns)
    assert ids == ("0", "1")
    assert x.tolist() == [[1, 1, 0, 0], [3, 0, 1, 0]]
    with pytest.raises(InputError, match="lacks 'zip'"):
        table.read_new(write("a\n1\n", "new.csv"), data.columns)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("\ufeffa,label\n1,x\n2,y\n", "bom.csv"),
        ("a,label\r\n1,x\r\n2,y\r\n", "windows.csv"),
        ("a\tlabel\n1\tx\n2\ty", "tabs.tsv"),
        ("a, label\n1, x\n2, y\n", "spaces.csv"),
        ("\na,label\n1,x\n\n2,y\n\n", "blank.csv"),
        ('"a","label"\n"1","x"\n"2","y"\n', "quotes.CSV"),
        ("a,label\n1,x,\n2,y,\n", "commas.csv"),
    ],
)
def test_csv_as_programs_write_it(write, content, name):
    data = table.load(write(content, name), How())
    assert (data.classes, data.y.tolist(), data.x.tolist()) == (("x", "y"), [0, 1], [[-1], [1]])


def test_a_byte_order_mark_is_no_part_of_the_first_column(write):
    assert table.load(write("\ufefflabel,a\n007,1\n7,2\n"), How()).classes == ("007", "7")


def test_row_numbers_that_pandas_wrote_are_no_feature(write):
    frame = pd.DataFrame({"a": [1, 2], "label": ["x", "y"]})
    with pytest.warns(SprlWarning, match="without a name"):
        assert table.load(write(frame.to_csv()), How()).columns.names == ("a",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (" ", "holds nothing but blanks"),
        (" \n", "holds nothing but blanks"),
        ("\n \n", "holds nothing but blanks"),
        ("\ufeff ", "holds nothing but blanks"),
        ("a,label\n", "holds no rows"),
        ("a,kind\n1,x\n", "has no column 'label', only a, kind: .* --label-column NAME"),
        ("a,label\n1,x\n2\n", "line 3 has 1 of the header's 2 cells"),
        ("label,a\nx,1\ny\n", "line 3 has 1 of the header's 2 cells"),
        ("a,label\n1,x\n2,y,3\n", "line 3 has 3 of the header's 2 cells"),
        ("a,label\n1,x,4\n2,y,3\n", "line 2 has 3 of the header's 2 cells"),
        ('a,label\n1,x\n2,"y\n', "is not a readable CSV file: EOF inside string"),
        ("a;label\n1;x\n", "semicolons between its cells: save it with commas, or with tabs as .tsv"),
        ("a\tlabel\n1\tx\n", "tabs between its cells: save it with commas, or with tabs as .tsv"),
        ("a,label\n" + "".join(f"{i},word {i}\n" for i in range(90)), "each of the 90 rows has a label of its own: is 'label' the column"),
        ("a,a,label\n1,2,x\n", "more than one column 'a'"),
        ("a,label\n1,café\n".encode("latin-1"), "not UTF-8: byte 0xe9 at position 13"),
        ("a,label\n1,x\n".encode("utf-16"), "not UTF-8: byte 0xff at position 0"),
        ("a,label\n1,x\0\n", "NUL byte at position 11"),
        ("a,label\n1,x\n2,\n3,\n", r"the label is missing in 2 rows \(1, 2, counted from 0\)"),
        ("a,label\n1,x\n2, \n", r"the label is missing in one row \(1, counted from 0\)"),
        ("a,label\n1,0.5\n2,1\n", "the label 0.5 looks like a quantity, not a class"),
        ("a,label\n1,1.2345678901234568e+18\n2,1\n", r"the label 1.2345678901234568e\+18 is a float too large .* as integers or text"),
        (f"a,label\n1,{2**53 + 1}.0\n2,1\n", "the label 9007199254740993.0 is a float too large"),
        ("a,label\n1,1e400\n2,1\n", "the label 1e400 looks like a quantity"),
        ("a,label,split\n1,x,train\n2,x,dev\n", "the split in row 1 is 'dev'"),
        ("a,label,split\n1,x,train\n2,x,\n", "the split in row 1 is ''"),
        ("a,label,split\n1,x,test\n", "no rows to train on"),
        ("a,label,split\n1,x,train\n2,z,test\n", "'z' is the label of test rows, but of no row to train on"),
        ("id,a,label\n7,1,x\n7,2,y\n", "more than one row with the id '7'"),
        ("id,a,label\n7,1,x\n,2,y\n", "the id is missing in one row"),
        ("label\nx\ny\n", "no column that can be used"),
        ("a,label\ninf,x\n1,y\n", "'a' holds inf in row 0"),
        ("path,label\n,x\n", "the path is missing in one row"),
    ],
)
def test_tables_that_cannot_be_used(write, content, message):
    path = write(content)
    with pytest.raises(InputError, match=message) as told:
        table.load(path, How())
    assert "\n" not in str(told.value)
    assert str(path) in str(told.value) or "column" in str(told.value)


def test_files_that_are_no_tables(tmp_path, write):
    for path, message in (
        (write("a", "a.txt"), "a table is a file named .csv, .tsv, .parquet"),
        (tmp_path / "no.csv", "cannot read .* No such file"),
    ):
        with pytest.raises(InputError, match=message):
            table.load(path, How())
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot read"):
        table.load(tmp_path / "folder.csv", How())


@pytest.fixture
def gallery(tmp_path, monkeypatch):
    """A folder with five pictures of one colour each, red 0, 10, ... 40."""
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "gallery"
    (folder / "in").mkdir(parents=True)
    for i in range(5):
        Image.new("RGB", (6, 4), (10 * i, 0, 0)).save(folder / "in" / f"{i}.png")
    return folder


def red(rows):
    return rows[torch.arange(len(rows))][:, 0, 0, 0].tolist()


@pytest.mark.parametrize("column", ["path", "file_name"])
def test_a_list_of_pictures(gallery, column):
    rows = ["in/3.png,b,train", "in/1.png,a,test", "../gallery/in/0.png,a,train", f"{gallery}/in/4.png,b,train"]
    (gallery / "metadata.csv").write_text("\n".join([f"{column},label,split", *rows]))
    data = table.load(gallery / "metadata.csv", How())
    assert data.name == "gallery"
    assert data.shape == (3, 4, 6)
    assert red(data.x) == [30, 0, 40]
    assert data.y.tolist() == [1, 0, 1]
    assert data.index.tolist() == [0, 2, 3]
    assert data.ids == ("in/3.png", "../gallery/in/0.png", f"{gallery}/in/4.png")
    assert red(data.x_test) == [10]
    assert data.columns is None


def test_positions_of_pictures_count_the_damaged_ones_and_ids_name_them(gallery):
    (gallery / "in" / "1.png").write_bytes(b"no picture")
    (gallery / "list.csv").write_text("path,label,id\nin/0.png,a,zero\nin/1.png,a,one\nin/2.png,b,two\n")
    with pytest.raises(InputError, match=r"one \(not a picture\)"):
        table.load(gallery / "list.csv", How())
    with pytest.warns(SprlWarning, match=r"one \(not a picture\)"):
        data = table.load(gallery / "list.csv", How(skip_bad=True))
    assert data.index.tolist() == [0, 2]
    assert data.ids == ("zero", "two")


def test_a_picture_listed_twice_is_two_rows(gallery):
    (gallery / "list.csv").write_text("path,label\nin/0.png,a\nin/0.png,b\nin/2.png,b\n")
    data = table.load(gallery / "list.csv", How())
    assert data.ids == ("in/0.png (row 0)", "in/0.png (row 1)", "in/2.png")
    assert red(data.x) == [0, 0, 20]
    assert data.y.tolist() == [0, 1, 1]
    assert data.index.tolist() == [0, 1, 2]


def test_pictures_that_are_missing_are_named_where_one_is_listed_twice(gallery):
    (gallery / "list.csv").write_text("path,label\nin/0.png,a\nin/0.png,b\nin/no.png,b\n")
    with pytest.raises(InputError, match=r"in/no.png \(no such file\)"):
        table.load(gallery / "list.csv", How())


def test_ids_are_row_numbers_where_paths_cannot_tell_rows_apart(tmp_path):
    paths = ["a (row 1)", "a", "a"]
    assert table.ids_of("list", pd.DataFrame({"path": paths}), paths) == ("0", "1", "2")


def test_few_rows_may_each_have_their_own_label(write):
    assert len(table.load(write("a,label\n" + "".join(f"{i},word {i}\n" for i in range(20))), How()).classes) == 20


class TestParquet:
    @pytest.fixture(autouse=True)
    def needs_pyarrow(self):
        pytest.importorskip("pyarrow")

    @pytest.fixture
    def frame(self):
        return pd.DataFrame(
            {
                "vector": list(np.arange(12.0).reshape(6, 2)),
                "colour": pd.Categorical(["red", "blue"] * 3),
                "label": [0.0, 1, 10, 0, 1, 10],
                "when": pd.date_range("2020", periods=6),
            }
        )

    def test_a_table(self, tmp_path, frame):
        frame.to_parquet(tmp_path / "a.parquet")
        with pytest.warns(SprlWarning, match=r"columns left out: 'when' \(date cells\)$"):
            data = table.load(tmp_path / "a.parquet", How())
        assert data.classes == ("0", "1", "10")
        assert data.y.tolist() == [0, 1, 2] * 2
        assert data.columns.names == ("vector[0]", "vector[1]", "colour=blue", "colour=red")
        ids, x = table.read_new(tmp_path / "a.parquet", data.columns)
        assert ids == tuple("012345")
        assert x[1].tolist() == [2, 3, 1, 0]

    def test_csv_and_parquet_agree(self, tmp_path, frame):
        frame = frame.drop(columns=["vector", "when"]).assign(
            a=[1.5, None, 3, 4, 5, 6], id=list("abcdef"), split=["train", "test"] * 3, label=["x"] * 6
        )
        frame.to_parquet(tmp_path / "a.parquet")
        frame.to_csv(tmp_path / "a.csv", index=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SprlWarning)
            one, other = (table.load(tmp_path / f"a.{kind}", How()) for kind in ("parquet", "csv"))
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.x_test, other.x_test)
        assert (one.ids, one.columns, one.index.tolist()) == (other.ids, other.columns, other.index.tolist())

    def test_an_index_with_a_name_is_a_column(self, tmp_path, frame):
        frame.drop(columns="when").assign(id=list("abcdef")).set_index("id").to_parquet(tmp_path / "a.parquet")
        assert table.load(tmp_path / "a.parquet", How()).ids == tuple("abcdef")

    def test_folders_are_no_columns(self, tmp_path, frame):
        (tmp_path / "label=5").mkdir()
        frame.drop(columns=["when", "label"]).to_parquet(tmp_path / "label=5" / "a.parquet")
        with pytest.raises(InputError, match="has no column 'label', only vector, colour"):
            table.load(tmp_path / "label=5" / "a.parquet", How())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"label": [None, "x"] * 3}, r"the label is missing in 3 rows \(0, 2, 4, counted"),
            ({"label": 0.5}, "looks like a quantity"),
            ({"label": pd.array([SNOW, None] * 3, "Int64")}, "the label is missing in 3 rows"),
            ({"label": [float(SNOW), 1.0] * 3}, r"the label 1.2345678901234568e\+18 is a float too large"),
            ({"label": [[1]] * 6}, "'label' holds list cells"),
            ({"image": [None] + [{"bytes": b"", "path": "a.png"}] * 5}, "'image' holds the pictures themselves.* save_to_disk"),
            ({"path": "a\0b"}, "the column path holds a NUL"),
        ],
    )
    def test_what_cannot_be_used(self, tmp_path, frame, change, message):
        frame.assign(**change).to_parquet(tmp_path / "a.parquet")
        with pytest.raises(InputError, match=message):
            table.load(tmp_path / "a.parquet", How())

    def test_damaged_files(self, tmp_path, frame):
        frame.to_parquet(tmp_path / "a.parquet")
        whole = (tmp_path / "a.parquet").read_bytes()
        for content in (b"", b"PAR1", whole[:-20], whole[:200] + b"x" * 200 + whole[400:]):
            (tmp_path / "a.parquet").write_bytes(content)
            with pytest.raises(InputError, match="is not a readable Parquet file") as told:
                table.load(tmp_path / "a.parquet", How())
            assert "\n" not in str(told.value)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="needs pyarrow: pip install pyarrow"):
        table.load(tmp_path / "a.parquet", How())


def test_metadata_in_each_part(tmp_path, monkeypatch):
    from PIL import Image

    from sprl.data.catalogue import load as load_any

    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    for part, count in (("train", 3), ("test", 2)):
        (tmp_path / "f" / part).mkdir(parents=True)
        for i in range(count):
            Image.new("L", (4, 4), 10 * i).save(tmp_path / "f" / part / f"{i}.png")
        lines = "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(count))
        (tmp_path / "f" / part / "metadata.csv").write_text("file_name,label\n" + lines)
    data = load_any(str(tmp_path / "f"))
    assert data.ids == ("train/0.png", "train/1.png", "train/2.png")
    assert (data.y.tolist(), data.y_test.tolist()) == ([0, 1, 0], [0, 1])
    assert data.name == "f"
