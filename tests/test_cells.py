"""Cells that a spreadsheet does not run, in files that come back as they were written."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.cells import NUMBER, RUNS, guard, guarded, read, unguard, write
from sprl.errors import InputError

odd = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("=+-@'\t\r\n\",;# a1.é\u202e😀"), max_size=8),
)


@given(odd)
def test_a_guarded_text_comes_back_and_runs_nowhere(text):
    assert unguard(guard(text)) == text
    assert not guard(text).startswith(RUNS) or NUMBER.fullmatch(text)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("cat", "cat"),
        ("", ""),
        ("007", "007"),
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        ("=1+1", "'=1+1"),
        ("+a", "'+a"),
        ("-5-3", "'-5-3"),
        ("-5\n", "'-5\n"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("'tis", "''tis"),
        ("a=1", "a=1"),
    ],
)
def test_what_is_guarded(text, cell):
    assert guard(text) == cell
    assert unguard(cell) == text


@settings(deadline=None)
@given(st.lists(st.tuples(odd, odd), max_size=6), st.sampled_from(["", "sprl labels, run=1"]))
def test_a_table_comes_back_whatever_its_cells_hold(tmp_path_factory, rows, note):
    file = tmp_path_factory.getbasetemp() / "cells.csv"
    write(file, pd.DataFrame(rows, columns=["id", "label"], dtype=object), note)
    back = read(file)
    assert back.note == note
    assert list(back.cells.itertuples(index=False, name=None)) == rows
    content = file.read_bytes().decode()
    others = list(csv.reader(io.StringIO(content.partition("\n")[2] if note else content, newline="")))
    assert others == [["id", "label"], *map(list, rows)]  # as Python's own reader has it


def test_the_file_is_what_the_standard_says(tmp_path):
    frame = pd.DataFrame({"id": ["007", 'a,"b"', "=x", "a\rb"], "n": [1, 2, 3, 4], "p": [0.1, 1 / 3, 1e-20, 1.0], "yes": [True, False] * 2})
    write(tmp_path / "a.csv", guarded(frame), "a note")
    lines = ["# a note", "id,n,p,yes", "007,1,0.1,True", '"a,""b""",2,0.3333333333333333,False', "'=x,3,1e-20,True", '"a\rb",4,1.0,False']
    assert (tmp_path / "a.csv").read_bytes().decode() == "\n".join(lines) + "\n"
    assert frame["id"][2] == "=x"  # the table itself stays as it was


@pytest.mark.parametrize(
    "content",
    [
        b"# sprl labels, run=1\nid,label\n007,a b\n",
        b"\xef\xbb\xbf# sprl labels, run=1,,\r\nid,label\r\n007,a b\r\n",
        b'"# sprl labels, run=1"\n"id","label"\n"007","a b"\n',
        b'"# sprl labels"," run=1"\nid,label\n\n007,a b',
    ],
)
def test_what_spreadsheets_make_of_a_file_is_read_alike(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    note, cells = read(tmp_path / "a.csv")
    assert note == "sprl labels, run=1"
    assert cells.to_dict("list") == {"id": ["007"], "label": ["a b"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "not a readable CSV"),
        (b"# a note\n", "is empty"),
        (b"id;label\n1;2\n", "semicolons"),
        (b"id,id\n1,2\n", "more than one column 'id'"),
        (b"id,label\n1,2,3\n", "not a readable CSV"),
        (b"id,label\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        (b'id,label\n"1,2\n', "not a readable CSV"),
        (b"id,label\n\xff,2\n", "not UTF-8"),
        (b"# \xff\nid,label\n", "not UTF-8"),
        (b"\xffid,label\n", "not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.csv")


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="no such file"):
            read(path)
