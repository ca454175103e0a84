"""`--together`: each seed's folder is that of the run alone, also when all were stopped and gone on with one by one."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from sprl import commands, seeds_together
from sprl.commands import Stop, begin, go_on
from sprl.config import Config
from sprl.errors import InputError
from sprl.seeds_together import begin_together

CONFIG = Config(corrupt="symmetric:0.2", epochs=8, seed=3)
SAME = ("metrics.jsonl", "model.safetensors", "labels.csv")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "run"
    assert begin(replace(CONFIG, seed=4), str(path), overwrite=False, demonstration=False) == 0
    return {name: (path / name).read_bytes() for name in SAME}


def test_a_seed_beside_others_is_the_run_alone(alone, tmp_path, capsys):
    code = begin_together(CONFIG, 2, str(tmp_path / "runs"), overwrite=False, demonstration=False)
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
    def soon():
        yield After()

    monkeypatch.setattr(seeds_together, "stopping", soon)
    assert begin_together(CONFIG, 2, str(tmp_path / "runs"), overwrite=False, demonstration=False) == 128 + 15
    assert "sprl train --resume" in capsys.readouterr().out
    with pytest.raises(InputError, match="holds a run already"):
        begin_together(CONFIG, 2, str(tmp_path / "runs"), overwrite=False, demonstration=False)
    monkeypatch.setattr(seeds_together, "stopping", commands.stopping)
    assert go_on(str(tmp_path / "runs" / "seed-4"), CONFIG, set(), None, overwrite=False) == 0
    assert {name: (tmp_path / "runs" / "seed-4" / name).read_bytes() for name in SAME} == alone
