"""`sprl bench` and `sprl show` as a user types them."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import clusters
from typed import beside, documented, install, sprl

from sprl import store
from sprl.paper.bench import How, look
from sprl.paper.cell import runs_of, unique
from sprl.paper.recipes import RECIPES
from sprl.run import Run
from sprl.spread import Spread

ROOT = Path(__file__).parents[1]
FEW = ("bench", "table2", "--short", "--only", "standard,bootstrap,mentornet,sprl", "--jobs", 1)  # four runs
ONE = ("bench", "table3", "--short", "--jobs", 1)  # a single one


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with 200 rows of one's own to train on, and the same without test rows."""
    x, y = clusters()
    np.savez(tmp_path / "pets.npz", x=x[:200], y=y[:200], x_test=x[300:], y_test=y[300:])
    np.savez(tmp_path / "bare.npz", x=x, y=y)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def ran(capsys, *words):
    code, out, error = sprl(capsys, *words)
    assert (code, error) == (0, ""), error
    return out


def kept(folder):
    """What is in a store, to the byte and the moment."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(folder).glob("[0-9a-f]*.json")}


def has_just_begun(unfinished):
    """Whether a run has one or two epochs behind it."""
    for path in unfinished.glob("*/metrics.jsonl"):
        with suppress(FileNotFoundError):  # it ends just now
            return path.read_text().count("\n") in (1, 2)
    return False


def trained_runs(monkeypatch):
    """The methods of runs that are trained from now on."""
    seen, train = [], Run.train

    def noting(run, pause):
        seen.append(run.config.method)
        return train(run, pause)

    monkeypatch.setattr(Run, "train", noting)
    return seen


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_every_table_and_figure_in_its_short_form(home, capsys):
    for name, recipe in RECIPES.items():
        before, cells = store.all(Path("records")), recipe.cells(short=True)
        runs = unique(cells)
        there = sum(bool(runs_of(cell, before)) for cell in runs)
        out = ran(capsys, "bench", name, "--short", "--jobs", 1)
        assert f"{len(runs)} run{'s' * (len(runs) > 1)}, {there} of them in records/ already" in out
        after = store.all(Path("records"))
        assert len(after) == len(before) + len(runs) - there
        assert all(len(runs_of(cell, after)) == 1 for cell in runs)
        if recipe.is_figure:
            assert "not run" not in out
            ran(capsys, "show", name, "--short", "--out", "again")
            for path in (Path("figures") / f"{name}-short.png", Path("figures") / f"{name}-short.svg"):
                assert path.read_bytes() == (Path("again") / path.name).read_bytes()  # the same records, the same picture
            continue
        table = out[out.index(recipe.title) :]
        assert ran(capsys, "show", name, "--short") == table
        assert "it is not the paper's setting" in table
        rows = rows_of(ran(capsys, "show", name, "--short", "--format", "csv"))
        assert sorted((row["noise"], row["method"]) for row in rows) == sorted((cell.noise, cell.method) for cell in cells)
        assert not [row for row in rows if not 5 < float(row["ours"]) <= 100 or row["paper"]]
        for kind, begins in (("markdown", "# Table" if name != "defaults" else "# CIFAR"), ("latex", "% \\usepackage{booktabs}")):
            text = ran(capsys, "show", name, "--short", "--format", kind)
            assert text.startswith(begins)
            assert all(f"{float(row['ours']):.2f}" in text for row in rows)
            assert ran(capsys, "show", name, "--short", "--format", kind, "--out", f"new/{name}-{kind}").startswith("Files     new/")
            assert Path(f"new/{name}-{kind}").read_text() == text
    assert len(list(Path("figures").iterdir())) == len(list(Path("again").iterdir())) == 2 * sum(r.is_figure for r in RECIPES.values())
    assert not list(Path("records/unfinished").iterdir())


def test_killed_in_the_middle_nothing_that_ended_is_lost(home, capsys, monkeypatch):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SPRL_CHECKPOINT_SECONDS": "1000"}
    command = [sys.executable, "-m", "sprl", *map(str, FEW)]
    with subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL) as process:
        for _ in range(6000):
            if len(kept("records")) >= 2 and has_just_begun(Path("records/unfinished")):
                break
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    before = kept("records")
    assert 2 <= len(before) < 4
    ended = {record.method for record in store.all(Path("records"))}

    seen = trained_runs(monkeypatch)
    out = ran(capsys, *FEW)
    assert f"4 runs, {len(before)} of them in records/ already" in out
    assert sorted(seen) == sorted({"standard", "bootstrap", "mentornet", "sprl"} - ended)
    after = kept("records")
    assert {path: after[path] for path in before} == before
    assert {record.method for record in store.all(Path("records"))} == {"standard", "bootstrap", "mentornet", "sprl"}
    assert not list(Path("records/unfinished").iterdir())
    seen.clear()
    assert "4 runs, 4 of them in records/ already" in ran(capsys, *FEW)
    assert (seen, kept("records")) == ([], after)


def test_ctrl_c_says_how_to_go_on(home, capsys, monkeypatch):
    train = Run.train

    def interrupted(run, pause):
        for row in train(run, pause):
            yield row
            if run.state.t == 3 and run.config.method == "bootstrap":
                signal.raise_signal(signal.SIGINT)

    words = ("bench", "table2", "--short", "--only", "standard,bootstrap", "--jobs", 1, "--seeds", 2, "--seed", 5)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", interrupted)
        code, out, error = sprl(capsys, *words)
    assert (code, error) == (130, "")
    ended = len(kept("records"))
    assert ended < 4
    assert f"Stopped   {ended} of 4 runs have ended, 1 is kept as far as it came" in out
    assert out.splitlines()[-1].strip() == f"go on with: sprl {' '.join(map(str, words))}"
    seen = trained_runs(monkeypatch)
    ran(capsys, *words)
    assert len(seen) == 4 - ended
    assert sorted((r.method, r.seed) for r in store.all(Path("records"))) == [(m, s) for m in ("bootstrap", "standard") for s in (5, 6)]


def test_a_plan_trains_and_writes_nothing(home, capsys, monkeypatch):
    before, seen = sorted(home.rglob("*")), trained_runs(monkeypatch)
    out = ran(capsys, *FEW, "--plan", "--seeds", 2)
    assert "table2    8 runs, 0 of them in records/ already" in out
    assert "digits: 8 runs to make, about" in out
    assert "digits mlp symmetric 0.5: standard, bootstrap, mentornet, sprl" in out
    code, out, error = sprl(capsys, "bench", "table2", "--plan", "--data-dir", "empty")
    assert (code, len(error.splitlines())) == (2, 4)  # nothing of it could be run
    assert "table2    256 runs" in out  # optional ones are not among them
    code, out, error = sprl(capsys, *FEW, "--data", "gone.npz", "--plan")
    assert (code, len(error.splitlines())) == (0, 1)
    assert (seen, sorted(home.rglob("*"))) == ([], before)


def test_runs_are_called_by_what_sets_them_apart(home, capsys, monkeypatch):
    out = ran(capsys, "bench", "fig6", "--short", "--jobs", 1)
    assert re.findall(r"[1-3]/3 +(.*\S) +\d+\.\d %", out) == [f"symmetric 0.5 sprl gamma_d={value}, seed 0" for value in (0, 10, 300)]
    how = How(None, "cpu", "auto", Path("records"), Spread())
    _, runs, _ = look(RECIPES["table2"].cells(), [0], how)
    assert runs[0].name.startswith("MNIST resnet18 ")
    _, runs, _ = look(RECIPES["fig9"].cells(), [0], how)
    assert {run.name.split()[0] for run in runs} == {"MNIST", "CIFAR-100"}


def test_help_has_whole_sentences(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = sprl(capsys, "bench", "--help")
    assert code == 0
    assert "Finished runs are kept as records, a stopped one is gone on with: the same command carries on." in out


def test_a_data_set_that_is_not_there_is_named_and_the_others_are_run(home, capsys):
    words = ("bench", "table2", "--short", "--data", "gone.npz", "--data", "bare.npz", "--only", "standard", "--jobs", 1)
    code, out, error = sprl(capsys, *words)
    assert (code, len(error.splitlines())) == (2, 2)
    assert "sprl: gone.npz is left out, 1 run: " in error
    assert "sprl: bare.npz is left out, 1 run: bare has no test rows to measure accuracy on: give trusted ones" in error
    assert "table2    3 runs, 0 of them in records/ already" in out
    assert [record.data for record in store.all(Path("records"))] == ["digits"]
    assert "digits, mlp\nsymmetric 0.5  standard" in out
    for name in ("table1", "fig5"):  # nothing of it
        code, out, error = sprl(capsys, "bench", name, "--only", "cifar10 resnet18 standard", "--data-dir", "empty")
        assert (code, len(error.splitlines()), len(out.splitlines())) == (2, 1, 1)
        assert error.startswith("sprl: cifar10 is left out, 1 run: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench table22", "unknown table or figure 'table22'; did you mean 'table2'?"),
        ("show fgi5", "did you mean 'fig5'?"),
        ("bench table2 --only cifar11", "unknown word to choose cells by 'cifar11'; did you mean 'cifar10'?"),
        ("bench table2 --only pair:0.5", "unknown word"),
        ("show table2 --only mnist,food102", "unknown word"),
        ("bench table2 --method sprll", "unknown method 'sprll'; did you mean 'sprl'?"),
        ("bench table2 --method sprl", "table2 has sprl already"),
        ("show table2 --corrupt 0.4", "--corrupt symmetric:0.4"),
        ("bench fig5 --method self-paced", "fig5 is a figure"),
        ("show fig5", "nothing of fig5 was run yet: sprl bench fig5"),
        ("show fig5 --short", "nothing of fig5 was run yet: sprl bench fig5 --short"),
        ("show table2 --ran", "nothing of table2 was run yet: sprl bench table2"),
        (
            "show table2 --ran --only mnist,cifar10",
            "nothing of table2 that is 'mnist,cifar10' was run yet: sprl bench table2 --only mnist,cifar10",
        ),
        ("show fig5 --only sprl --store empty", "nothing of fig5 that is 'sprl' was run yet: sprl bench fig5 --only sprl --store empty"),
        (
            "show table2 --ran --short --method self-paced --data pets.npz --corrupt pair:0.1 --only pets",
            "sprl bench table2 --short --method self-paced --data pets.npz --corrupt pair:0.1 --only pets",
        ),
        ("bench table2 --short --corrupt symmetric:2", "noise 'symmetric:2' is out of bounds: a share of labels is at least 0 and below 1"),
        ("bench table2 --short --corrupt pair:0.6", "pair noise of 0.6 is out of bounds"),
        ("show fig5 --format csv", "fig5 is a figure, drawn as PNG and SVG: leave out --format"),
        ("show table2 --out table.txt", "in which format is table.txt to be? --format markdown, latex or csv"),
        ("show table2 --format html", "--format"),
        ("show table2 --format csv --out pets.npz/x", "cannot write to pets.npz"),
        ("show table2 --store nowhere", "there is no folder nowhere"),
        ("bench table2 --short --store pets.npz", "cannot read pets.npz: Not a directory"),
        ("bench table2 --short --seeds 0", "--seeds"),
        ("bench table2 --short --jobs 0", "--jobs"),
        ("bench table2 --short --device tpu", "unknown device 'tpu'"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(home, capsys, words, message):
    before = sorted(home.rglob("*"))
    code, _, error = sprl(capsys, *words.split())
    assert code == 2
    assert error.startswith("sprl: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(home.rglob("*")) == before


def test_an_altered_record_is_left_out_with_a_note(home, capsys, monkeypatch):
    whole = ran(capsys, *ONE)
    [path] = kept("records")
    record = json.loads(path.read_text())
    record["config"]["lr"] = 1e-3 * 2
    path.write_text(json.dumps(record))
    code, out, error = sprl(capsys, "show", "table3", "--short")
    assert (code, len(error.splitlines())) == (0, 1)
    assert error.startswith(f"sprl: note: {path} is no record and is left out: its key is not that of its config and data")
    assert "0 of 2 run" in out
    seen = trained_runs(monkeypatch)
    code, out, error = sprl(capsys, *ONE)
    assert (code, seen) == (0, ["standard"])  # the network that gave the labels is in the cache
    assert out[out.index("Table III") :] == whole[whole.index("Table III") :]


def test_what_was_not_run_says_so(home, capsys):
    out = ran(capsys, "show", "table2", "--only", "cifar10 resnet18 sprl")
    assert out.count("not run") == 4
    assert "92.68" in out
    lines = ran(capsys, "show").splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(RECIPES)
    assert "(0 of 256 runs made)" in lines[1]
    assert "(0 of 36 runs made)" in next(line for line in lines if line.startswith("fig6"))  # two lines of a panel share their runs


def test_what_is_left_out_is_counted(home, capsys):
    words = ("--short", "--only", "standard,bootstrap,sprl")
    ran(capsys, "bench", "table2", "--short", "--only", "standard", "--jobs", 1)
    assert "\n1 of 3 run" in ran(capsys, "show", "table2", *words, "--ran")
    for kind in ("markdown", "latex"):
        out = ran(capsys, "show", "table2", *words, "--ran", "--format", kind)
        assert "1 of 3 run" in out
        assert "bootstrap" not in out
        assert "on digits; it is not the paper's setting" in out
        assert "mean test accuracy of the last ten epochs (of 6: all)" in out
    assert "1 of 3 cells run" in ran(capsys, "show", "table2", *words, "--ran", "--format", "csv", "--out", "few.csv")


def test_a_file_has_the_format_of_its_ending_and_stays_unless_told(home, capsys):
    words = ("show", "table2", "--only", "cifar10 resnet18 sprl")
    for name, kind in (("a.csv", "csv"), ("b.MD", "markdown"), ("c.tex", "latex")):
        Path(name).write_text("mine")
        code, _, error = sprl(capsys, *words, "--out", name)
        assert (code, error) == (2, f"sprl: {name} is there already: choose another --out, or --overwrite it\n")
        assert Path(name).read_text() == "mine"
        ran(capsys, *words, "--out", name, "--overwrite")
        assert Path(name).read_text() == ran(capsys, *words, "--format", kind)


def test_data_of_ones_own_is_known_by_its_content(home, capsys, monkeypatch):
    def bench(data):
        seen.clear()
        out = ran(capsys, "bench", "table2", "--short", "--only", f"standard {Path(data).stem}", "--data", data, "--jobs", 1)
        assert ("1 run, 1 of them in records/ already" in out) == (not seen)
        return out[out.index("Table II") :]

    def shown(data):
        return ran(capsys, "show", "table2", "--short", "--only", f"standard {Path(data).stem}", "--data", data)

    seen = trained_runs(monkeypatch)
    first = bench("pets.npz")
    assert seen == ["standard"]
    (home / "there").mkdir()
    Path("pets.npz").rename("there/pets.npz")
    for path in ("there/pets.npz", "./there/../there/pets.npz", str(home / "there" / "pets.npz")):
        assert bench(path) == shown(path) == first
        assert seen == []
    Path("there/pets.npz").rename("cats.npz")
    assert (bench("cats.npz"), seen) == (first.replace("pets", "cats"), [])  # what it is called now
    [path] = kept("records")
    path.write_text(re.sub(r'"finished": "[0-9]{4}', '"finished": "2000', path.read_text()))  # long before the next, not in the same second
    x, y = clusters()
    np.savez("pets.npz", x=x[100:300], y=y[100:300], x_test=x[300:], y_test=y[300:])
    second = bench("pets.npz")
    assert seen == ["standard"]
    assert second != first
    assert shown("pets.npz") == second  # the latest: records do not tell which file is meant
    Path("cats.npz").replace("pets.npz")
    assert (bench("pets.npz"), seen) == (first, [])


def test_the_records_that_are_kept_here_stand_beside_the_paper(capsys):
    """Those of SPRL were of an earlier reading of the released code, and are being run again."""
    words = ("--store", ROOT / "results" / "records", "--only", "cifar10 resnet18 symmetric:0.5 standard,co-teaching,sprl")
    rows = rows_of(ran(capsys, "show", "table2", *words, "--format", "csv"))
    assert [(row["method"], row["verdict"]) for row in rows] == [
        ("standard", "better"),
        ("co-teaching", "reproduced"),
        ("sprl", "not run"),
    ]


RECIPE = """
from sprl.config import Config
from sprl.paper.cell import Cell
from sprl.paper.recipe import Recipe

def cells():
    asked = {method: Config(corrupt="ordinal:0.3", method=method, network="mlp", epochs=2) for method in ("standard", "gce")}
    return [Cell("digits", "mlp", "ordinal", 0.3, method, config) for method, config in asked.items()]

TINY = Recipe("tiny", "Neighbours", "Two epochs.", cells)
"""


def test_a_method_a_noise_data_and_a_recipe_of_ones_own(home):
    (method, points), (noise, more) = documented("Add a method"), documented("Add a kind of noise")
    install(home, f"{method}\n{noise}\n{RECIPE}", f"{points}\n{more}\n[sprl.recipes]\ntiny = mine:TINY\nbroken = mine:GCE\n")
    words = ("table2", "--short", "--method", "gce", "--corrupt", "ordinal:0.3", "--data", "pets.npz", "--only", "gce,sprl")
    code, said = beside(home, "bench", *words, "--jobs", "1")
    assert code == 0, said
    assert "8 runs, 0 of them in records/ already" in said
    assert said.count("the recipe broken of mine:GCE cannot be loaded") == 1
    code, said = beside(home, "show", *words, "--format", "csv", "--out", "all.csv")
    assert code == 0, said
    rows = rows_of(Path("all.csv").read_text())
    assert [(row["dataset"], row["noise"], row["method"]) for row in rows] == [
        (data, noise, method) for data in ("digits", "pets") for noise in ("symmetric", "ordinal") for method in ("sprl", "gce")
    ]
    assert all(float(row["ours"]) > 25 for row in rows)  # four classes or more
    found = [record.config for record in store.all(Path("records")) if record.method == "sprl"]
    assert sorted((c["data"], c["corrupt"], c["fields"]["T1"], c["fields"]["gamma_d"]) for c in found if c["fields"]["T1"] == "auto") == [
        ("digits", "ordinal:0.3", "auto", "auto"),
        ("pets.npz", "ordinal:0.3", "auto", "auto"),
        ("pets.npz", "symmetric:0.5", "auto", "auto"),
    ]

    code, said = beside(home, "bench", "tiny", "--jobs", "1")
    assert code == 0, said
    assert "tiny      2 runs, 0 of them in records/ already" in said
    code, said = beside(home, "show")
    assert code == 0
    assert "tiny      Neighbours (2 of 2 runs made)" in said
