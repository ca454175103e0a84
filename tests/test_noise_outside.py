"""A kind of noise from outside the package: the file that CONTRIBUTING shows, and one line."""

import json

import numpy as np
import pytest
from typed import beside, documented, install

from sprl.errors import InputError
from sprl.noise import NOISES, corrupt

FILE, POINTS = documented("Add a kind of noise")


@pytest.fixture
def installed(tmp_path):
    install(tmp_path, FILE, POINTS)
    return tmp_path


def test_labels_are_made_wrong_by_it_like_by_ours(installed):
    code, said = beside(
        installed, "train", "digits", "--corrupt", "ordinal:0.3", "--method", "co-teaching", "--epochs", "1", "--out", "run"
    )
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
    code, said = beside(installed, "train", "digits", "--corrupt", "symetric:0.3")
    assert code == 2
    assert "the noise ordinal of mine:ordinal cannot be loaded: not today" in said
    assert "did you mean 'symmetric'?" in said


def test_a_wrong_matrix_is_refused(monkeypatch):
    monkeypatch.setitem(NOISES, "mine", lambda rate, num_classes: rate * np.eye(num_classes))
    with pytest.raises(InputError, match=r"row 0 \(from 0\) of mine noise sums to 0\.3, not to 1"):
        corrupt(np.arange(4), "mine:0.3", 4, seed=0)


def test_one_that_fails_is_told_with_its_place(monkeypatch):
    monkeypatch.setitem(NOISES, "mine", lambda rate, num_classes: np.eye(num_classes) / (0 * num_classes // 0))
    with pytest.raises(InputError, match=r"^mine noise failed: ZeroDivisionError: .* \(test_noise_outside\.py, line \d+\)$"):
        corrupt(np.arange(4), "mine:0.3", 4, seed=0)


def test_the_example_is_what_its_text_says():
    found = {}
    exec(FILE, found)
    np.testing.assert_allclose(found["ordinal"](0.2, 4), [[0.8, 0.2, 0, 0], [0.1, 0.8, 0.1, 0], [0, 0.1, 0.8, 0.1], [0, 0, 0.2, 0.8]])
    with pytest.raises(InputError, match=r"ordinal noise of 0\.5 is out of bounds"):
        found["ordinal"](0.5, 4)
