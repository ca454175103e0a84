"""`--together`: each seed's folder is that of the run alone, also when all were stopped and gone on with one by one. And what is told at
the end of a run."""

import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from sprl import commands
from sprl.commands import begin, go_on
from sprl.config import Config
from sprl.errors import InputError
from sprl.noise import corrupt
from sprl.stopping import Stop

CONFIG = Config(corrupt="symmetric:0.2", epochs=8, seed=3)
SAME = ("metrics.jsonl", "model.safetensors", "labels.csv")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "run"
    assert begin(replace(CONFIG, seed=4), str(path), overwrite=False, demonstration=False) == 0
    return {name: (path / name).read_bytes() for name in SAME}


def test_a_seed_beside_others_is_the_run_alone(alone, tmp_path, capsys):
    code = begin(CONFIG, str(tmp_path / "runs"), overwrite=False, demonstration=False, count=2)
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["seed-3", "seed-4"]
    assert {name: (tmp_path / "runs" / "seed-4" / name).read_bytes() for name in SAME} == alone
    told = capsys.readouterr().out
    assert "seeds 3 to 4, side by side" in told
    assert "% on average" in told


def test_stopped_runs_go_on_one_by_one(alone, tmp_path, monkeypatch, capsys):
    class After(Stop):
        left = 600

        def __call__(self):
            self.left -= 1
            self.signal = 15 if self.left <= 0 else 0
            return super().__call__()

    @contextmanager
    def soon(once=False):
        yield After()

    monkeypatch.setattr(commands, "stopping", soon)
    assert begin(CONFIG, str(tmp_path / "runs"), overwrite=False, demonstration=False, count=2) == 128 + 15
    assert "sprl train --resume" in capsys.readouterr().out
    with pytest.raises(InputError, match="holds a run already"):
        begin(CONFIG, str(tmp_path / "runs"), overwrite=False, demonstration=False, count=2)
    monkeypatch.undo()
    assert go_on(str(tmp_path / "runs" / "seed-4"), CONFIG, set(), None, overwrite=False) == 0
    assert {name: (tmp_path / "runs" / "seed-4" / name).read_bytes() for name in SAME} == alone


def test_one_that_fails_names_its_seed_and_leaves_nothing_half_begun(tmp_path):
    with pytest.raises(InputError, match=r"^seed \d: the loss of epoch 1"):
        begin(replace(CONFIG, lr=1e30), str(tmp_path / "runs"), overwrite=False, demonstration=False, count=2)
    assert not list((tmp_path / "runs").glob("*/config.json"))


def test_a_folder_of_several_is_neither_a_run_nor_made_inside_one(tmp_path):
    assert begin(replace(CONFIG, epochs=2), str(tmp_path / "runs"), overwrite=False, demonstration=False, count=2) == 0
    with pytest.raises(InputError, match=r"holds 2 runs: name one of them, such as .*seed-3"):
        go_on(str(tmp_path / "runs"), CONFIG, set(), None, overwrite=False)
    with pytest.raises(InputError, match="holds a run itself"):
        begin(replace(CONFIG, epochs=2), str(tmp_path / "runs" / "seed-3"), overwrite=False, demonstration=False, count=2)


def test_the_least_likely_labels_are_named_in_a_short_line(points, tmp_path, capsys):
    x, clean = points
    names = np.array([f"{kind}{'w' * 400}" for kind in ("ant", "bee", "cat", "dog")])
    np.savez(tmp_path / "pets.npz", x=x, y=names[corrupt(clean, "symmetric:0.3", 4, seed=0)])
    config = Config(data=str(tmp_path / "pets.npz"), epochs=10)
    assert begin(config, str(tmp_path / "run"), overwrite=False, demonstration=False) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "the least likely:" in line)
    assert re.search(r" is (ant|bee|cat|dog)w{28}…\? rather (ant|bee|cat|dog)w{28}…;", line)
    assert len(line) < 400
