"""Cells that a spreadsheet does not run, in files that come back as they were written."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.cells import NUMBER, check_header, guard, guarded, lines, read, unguard, write
from sprl.data.columns import by_name
from sprl.errors import InputError

odd = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("=+-@'\t\r\n\",;# a1.é\u202e😀\uff1d\uff0b\uff0d\uff20"), max_size=8),
)


@given(odd)
def test_a_guarded_text_comes_back_and_runs_nowhere(text):
    assert unguard(guard(text)) == text
    assert unguard(guard(guard(text))) == guard(text)
    assert not text or NUMBER.fullmatch(text) or guard(text)[0] not in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


@given(odd)
def test_what_runs_nothing_stays_as_it_is(text):
    text = re.sub(r"[=+\-@'\t\r\n\uff1d\uff0b\uff0d\uff20]", "", text)
    assert guard(text) == unguard(text) == text


@settings(deadline=None)
@given(st.lists(st.tuples(odd, odd), min_size=1, max_size=4), st.sampled_from(",;\t"))
def test_a_spreadsheet_that_splits_at_other_marks_runs_nothing_either(rows, mark):
    cells = pd.DataFrame(rows, columns=["id", "label"], dtype=object)
    lines_of = "".join(lines(guarded(cells)))
    seen = [cell for row in csv.reader(io.StringIO(lines_of, newline=""), delimiter=mark) for cell in row]
    numbers = {text for row in rows for text in row if NUMBER.fullmatch(text)}
    assert not [cell for cell in seen if re.match(r"[=+\-@\uff1d\uff0b\uff0d\uff20]", cell) and cell.split(",")[0] not in numbers]


def test_formulas_of_strangers():
    hot = ["\n=1+1", "\uff1d1+1", "\uff20SUM(1)", "a;=1+1", "a\t=1+1", "a;'=1", 'a;"=1+1', "a\r\n@x", ";;=1"]
    assert [guard(text) for text in hot] == [
        "'\n'=1+1",
        "'\uff1d1+1",
        "'\uff20SUM(1)",
        "a;'=1+1",
        "a\t'=1+1",
        "a;''=1",
        "a;'\"=1+1",
        "a\r\n'@x",
        ";;'=1",
    ]


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
        ("\t=1", "'\t'=1"),
        ("\r=1", "'\r'=1"),
        ("'tis", "''tis"),
        ("a=1", "a=1"),
        ("a-b; c - d", "a-b; c - d"),
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


def test_of_very_many_columns_the_one_that_is_there_twice_is_found_at_once(tmp_path):
    class Name(str):
        compared = 0

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    header = [Name(f"c{i}") for i in range(5000)] + [Name("c4999")]
    with pytest.raises(InputError, match="more than one column 'c4999'"):
        check_header(tmp_path, header)
    frame = pd.DataFrame(np.zeros((1, 5001)), columns=header)
    with pytest.raises(InputError, match="more than one column 'c4999'"):
        by_name(frame)
    assert Name.compared < 10 * len(header)


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="no such file"):
            read(path)
