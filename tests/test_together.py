"""Runs that take turns are the runs alone."""

import gc
import re
import weakref
from contextlib import suppress
from pathlib import Path

from sprl.config import Config
from sprl.run import prepare
from sprl.together import RunError, together


def test_runs_that_take_turns_are_the_runs_alone():
    configs = [Config(corrupt="symmetric:0.5", epochs=12, seed=seed, method=m) for seed, m in ((0, "sprl"), (1, "sprl"), (1, "standard"))]
    alone = [prepare(config) for config in configs]
    for run in alone:
        list(run)
    runs = [prepare(config) for config in configs]
    order = [(runs.index(run), row["epoch"]) for run, row in together(runs) if row is not None]
    assert [run.rows for run in runs] == [run.rows for run in alone]
    first, last = order.index((1, 1)), order.index((0, 12))
    assert first < last  # in turns, not one after the other


def test_the_documented_loop(capsys):
    text = (Path(__file__).parents[1] / "docs" / "speed.md").read_text()
    loop = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    found = {}
    exec(loop.replace("seed=seed", "seed=seed, epochs=2"), found)
    assert sorted(line.split()[:2] for line in capsys.readouterr().out.splitlines()) == [["0", "1"], ["0", "2"], ["1", "1"], ["1", "2"]]
    assert len(found["runs"][0].labels()) == 1347


def test_a_run_that_fails_is_named_and_let_go():
    runs = [prepare(Config(corrupt="symmetric:0.5", epochs=12, method="standard", lr=lr)) for lr in (1e-3, 1e30)]
    gone = [weakref.ref(run) for run in runs]
    gc.disable()  # its memory is needed at once
    try:
        with suppress(RunError):
            for run, _ in together(runs):
                assert run is not None
        assert runs[1].rows == []
        assert runs[0].state.progress.done == 42  # the first had its turn of that round
        del run, runs
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
