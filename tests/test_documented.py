"""What README and CONTRIBUTING show is run as it stands there; methods and noises of CONTRIBUTING are in files of their own."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from typed import GUIDE, sprl

from sprl.data import catalogue, sets
from sprl.noise import corrupt

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(text, after):
    return re.findall(r"```python\n(.*?)```", text.partition(after)[2], re.DOTALL)


@pytest.fixture
def letters(tmp_path, monkeypatch):
    """The data set of CONTRIBUTING, and files for it."""
    file, entry = blocks(GUIDE, "## Add a data set\n")[:2]
    reader = {}
    exec(file, reader)
    names = vars(sets) | {"letters": SimpleNamespace(**reader)}
    monkeypatch.setitem(sets.BENCHMARKS, "letters", eval(f"{{{entry}}}", names)["letters"])
    monkeypatch.setattr(catalogue, "SETS", (*catalogue.SETS, "letters"))
    rng, folder = np.random.default_rng(0), tmp_path / "letters"
    folder.mkdir()
    for name, count in (("train.txt", 400), ("test.txt", 100)):
        y = np.arange(count) % 2
        np.savetxt(folder / name, np.column_stack([y, rng.normal(3 * y[:, None], 1, (count, 3))]))
    return tmp_path


def test_a_data_set_is_checked_and_trained_on(letters, capsys, monkeypatch):
    monkeypatch.chdir(letters)
    code, _, error = sprl(capsys, "data", "letters", "--data-dir", ".")
    assert (code, error) == (0, "")
    words = ("--data-dir", ".", "--corrupt", "symmetric:0.2", "--epochs", 3, "--out", "run")
    code, out, error = sprl(capsys, "train", "letters", *words)
    assert code == 0, error
    assert "letters: 400 training rows, 100 test rows, 2 classes" in out
    assert (letters / "run" / "labels.csv").read_text().splitlines()[1].startswith("letters/")


@pytest.mark.parametrize("content", ["0 1 2 3\n5 1 2 3\n", "0 1\n1\n", "A 1 2 3\n"])
def test_a_damaged_file_of_it_gets_one_line(letters, capsys, content):
    (letters / "letters" / "train.txt").write_text(content)
    code, _, error = sprl(capsys, "train", "letters", "--data-dir", letters, "--out", letters / "run")
    assert (code, len(error.splitlines())) == (2, 1)
    assert "train.txt" in error


def test_the_loop_in_readme_finds_wrong_labels(points):
    x, clean = points
    y = corrupt(clean, "symmetric:0.3", 4, seed=0)
    torch.manual_seed(0)
    yours = {
        "dataset": TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        "network": torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)),
        "y": y,
        "num_classes": 4,
        "epochs": 60,
    }
    exec(blocks(README, "**In your own loop**")[0], yours)
    found = yours["loss"].label_issues()["is_label_issue"].to_numpy()
    assert (found == (y != clean)).mean() > 0.95


@pytest.mark.parametrize("command", ["train", "predict", "audit", "apply", "tune", "compare", "bench", "show", "data"])
def test_help_ends_with_examples_of_its_options(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = sprl(capsys, command, "--help")
    options, _, shown = out.partition("Examples:")
    lines = [line.strip() for line in shown.splitlines() if line.strip().startswith(f"sprl {command}")]
    assert code == 0
    assert len(lines) > 1
    assert set(re.findall(r"--[a-z-]+", " ".join(lines))) <= set(re.findall(r"--[a-z-]+", options))
