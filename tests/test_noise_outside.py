"""A kind of noise from outside the package: the file that CONTRIBUTING shows, and one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sprl.errors import InputError
from sprl.noise import NOISES, corrupt

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text().partition("## Add a kind of noise")[2]
FILE = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
LINES = re.search(r"```toml\n\[project.entry-points.\"(.*?)\"\]\n(.*?)```", GUIDE, re.DOTALL)


def sprl(folder, *words):
    paths = [str(folder), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-m", "sprl", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path):
    """As an installer leaves it."""
    (tmp_path / "mine.py").write_text(FILE)
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{LINES[1]}]\n{LINES[2].replace(chr(34), '')}")
    return tmp_path


def test_labels_are_made_wrong_by_it_like_by_ours(installed):
    code, said = sprl(installed, "train", "digits", "--corrupt", "ordinal:0.3", "--method", "co-teaching", "--epochs", "1", "--out", "run")
    assert code == 0, said
    config, summary = (json.loads((installed / "run" / name).read_text()) for name in ("config.json", "summary.json"))
    assert config["fields"]["noise_rate"] == 0.3
    assert (summary["noise"]["kind"], summary["noise"]["requested"]) == ("ordinal", 0.3)
    labels = np.genfromtxt(installed / "run" / "labels.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    given, true = labels["given_label"].astype(int), labels["true_label"].astype(int)
    assert abs((given != true).mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 1347)
    assert set(abs(given - true).tolist()) == {0, 1}


def test_a_broken_one_does_no_harm(installed):
    (installed / "mine.py").write_text("raise RuntimeError('not today')")
    code, said = sprl(installed, "train", "digits", "--corrupt", "symetric:0.3")
    assert code == 2
    assert "the noise ordinal of mine:ordinal cannot be loaded: not today" in said
    assert "did you mean 'symmetric'?" in said


def test_a_wrong_matrix_is_refused(monkeypatch):
    monkeypatch.setitem(NOISES, "mine", lambda rate, num_classes: rate * np.eye(num_classes))
    with pytest.raises(InputError, match=r"row 0 \(from 0\) of mine noise sums to 0\.3, not to 1"):
        corrupt(np.arange(4), "mine:0.3", 4, seed=0)


def test_the_example_is_what_its_text_says():
    found = {}
    exec(FILE, found)
    np.testing.assert_allclose(found["ordinal"](0.2, 4), [[0.8, 0.2, 0, 0], [0.1, 0.8, 0.1, 0], [0, 0.1, 0.8, 0.1], [0, 0, 0.2, 0.8]])
    with pytest.raises(InputError, match=r"ordinal noise of 0\.5 is out of bounds"):
        found["ordinal"](0.5, 4)
