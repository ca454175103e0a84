"""What `sprl show` says besides the numbers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typed import sprl

from sprl import store
from sprl.errors import InputError
from sprl.paper.cell import at
from sprl.paper.recipe import Recipe
from sprl.paper.recipes import RECIPES

RECORDS = Path(__file__).parents[2] / "results" / "records"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)


def test_a_recipe_with_a_method_that_is_not_there_is_listed_and_refused(monkeypatch, capsys):
    cells = [at(cell, method="sprll") for cell in RECIPES["fig4"].cells()]
    monkeypatch.setitem(RECIPES, "odd", Recipe("odd", "Odd", "A slip.", lambda: cells))
    code, out, error = sprl(capsys, "show")
    assert (code, error) == (0, "")
    assert "odd       Odd (it cannot be run: unknown method 'sprll'; did you mean 'sprl'?)" in out
    assert "table2    Table II" in out
    for command in ("bench", "show"):
        code, _, error = sprl(capsys, command, "odd")
        assert (code, error) == (2, "sprl: unknown method 'sprll'; did you mean 'sprl'?\n")


def test_whatever_is_wrong_with_a_recipe_the_others_are_listed(monkeypatch, capsys):
    monkeypatch.setitem(RECIPES, "odd", Recipe("odd", "Odd", "A slip.", lambda: 1 / 0))
    monkeypatch.setitem(RECIPES, "even", Recipe("even", "Even", "Nothing.", list))
    code, out, error = sprl(capsys, "show")
    assert (code, error) == (0, "")
    why = r"the recipe odd failed: ZeroDivisionError: division by zero \(test_present\.py, line \d+\)"
    assert re.search(rf"odd       Odd \(it cannot be run: {why}\)\n", out)
    for command in ("bench", "show"):
        code, _, error = sprl(capsys, command, "odd")
        assert code == 2
        assert re.fullmatch(f"sprl: {why}\n", error)
    assert "even      Even (0 of 0 runs made)\n" in out
    for command in ("bench", "show"):
        code, _, error = sprl(capsys, command, "even")
        assert (code, error) == (2, "sprl: there is nothing to run or show: the recipe has no cells, or none in this form\n")


@pytest.mark.parametrize(("part", "kind"), [("make_cells", "Cells"), ("make_panels", "Panels")])
def test_what_a_recipe_returns_is_looked_at(monkeypatch, capsys, part, kind):
    monkeypatch.setitem(RECIPES, "odd", Recipe("odd", "Odd", "A slip.", **{part: lambda: ["a"]}))
    for command in ("bench", "show"):
        code, _, error = sprl(capsys, command, "odd", "--short")
        assert code == 2
        assert error.startswith(f"sprl: {part} of the recipe odd must return a list of {kind} (sprl.paper.")


@pytest.mark.parametrize("more", [{}, {"make_cells": list, "make_panels": list}])
def test_a_recipe_is_a_table_or_a_figure(more):
    with pytest.raises(InputError, match="the recipe odd must have make_cells, for a table, or make_panels, for a figure"):
        Recipe("odd", "Odd", "A slip.", **more)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "table2", "--format", "csv", "--out", ""), "--out needs the name of a file, or for figures of a folder"),
        (("show", "fig5", "--out", ""), "--out needs the name of a file"),
        (("show", "table2", "--format", "csv", "--out", "."), ". is a folder: --out names the file that a table is written to"),
        (("show", "table2", "--format", "csv", "--out", "folder"), "folder is a folder"),
        (("show", "table2", "--data", ""), "--data needs a file, a folder or the name of a set"),
        (("bench", "table2", "--data", ""), "--data needs a file"),
        (("bench", "--short", "--only", "x"), "of which table or figure? Give its NAME beside --short, --only; sprl show lists all"),
        (("show", "--ran", "--store", "folder"), "Give its NAME beside --ran"),
        (("show", "table2", "--only", "bob's"), 'cannot read the words "bob\'s": No closing quotation'),
        (("show", "table2", "--only", ","), "cannot read the words ',': a comma stands between two words"),
        (("show", "tablea5"), "did you mean 'tableA5'?"),
        (("show", "authors", "--out", "curves.png"), "--out curves.png: for a figure give the folder that its PNG and SVG go to"),
        (("bench", "table2", "--short", "--seeds", "100000000", "--plan"), "--seeds"),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(capsys, words, message):
    code, out, error = sprl(capsys, *words)
    assert (code, out, len(error.splitlines())) == (2, "", 1)
    assert message in error
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_where_only_ascii_can_be_written_nothing_breaks():
    words = [sys.executable, "-m", "sprl", "show", "table2", "--ran", "--store", str(RECORDS)]
    done = subprocess.run(words, env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "140"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d\d\.\d\d\?\d\.\d\d", done.stdout)  # a deviation, its sign a ?


def test_a_store_that_cannot_be_read_is_not_empty(monkeypatch, capsys):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.os, "listdir", denied)
    for words in (("show",), ("show", "table2"), ("bench", "table2", "--short", "--plan")):
        assert sprl(capsys, *words) == (2, "", "sprl: cannot read records: Permission denied\n")


def test_records_of_another_version_are_taken_with_a_note(capsys):
    words = ("table2", "--short", "--only", "standard,bootstrap")
    assert sprl(capsys, "bench", *words, "--jobs", 1)[0] == 0
    assert sprl(capsys, "show", *words)[2] == ""
    path = min(Path("records").glob("*.json"))
    path.write_text(re.sub(r'("versions": \{"sprl": )"[^"]*"', r'\1"0.0.7"', path.read_text()))
    code, out, _ = sprl(capsys, "bench", *words)
    assert code == 0
    assert "2 runs, 2 of them in records/ already\n          records made with other versions: 1 (sprl 0.0.7, torch " in out
    for format in ("terminal", "csv"):
        code, out, error = sprl(capsys, "show", *words, "--format", format)
        assert (code, "versions" in out, len(error.splitlines())) == (0, False, 1)
        assert error.startswith("sprl: note: records made with other versions: 1 (sprl 0.0.7, torch ")


def test_swept_cells_of_a_table_are_told_apart(monkeypatch, capsys):
    monkeypatch.setitem(RECIPES, "swept", Recipe("swept", "Warm-ups", "Swept.", RECIPES["fig9"].cells))
    for format in ("terminal", "markdown", "latex", "csv"):
        code, out, error = sprl(capsys, "show", "swept", "--only", "mnist T1=5,T1=100", "--format", format)
        assert (code, error) == (0, "")
        assert re.findall(r"T1=\d+", out) == ["T1=5", "T1=100"]


def test_what_a_figure_lacks_is_a_line_for_each_noise(capsys):
    assert sprl(capsys, "bench", "figA2", "--short", "--only", "standard", "--jobs", 1)[0] == 0
    code, out, error = sprl(capsys, "show", "figA2", "--short")
    assert (code, error) == (0, "")
    methods = "bootstrap, f-correction, decoupling, mentornet, co-teaching, co-teaching+, sprl"
    assert out.splitlines()[1:] == [f"          not run: digits mlp symmetric 0.5: {methods}"]


def test_a_bench_shows_the_runs_that_it_was_asked_for(capsys):
    for seed in ("0", "1"):
        code, out, error = sprl(capsys, "bench", "table2", "--short", "--only", "standard", "--jobs", "1", "--seed", seed)
        assert (code, error) == (0, "")
        assert re.search(r"^1 run: \d+ epochs", out, re.MULTILINE), out
    assert re.search(r"^2 runs: \d+ epochs", sprl(capsys, "show", "table2", "--short", "--only", "standard")[1], re.MULTILINE)
