"""A method from outside the package: the file that CONTRIBUTING shows, and one line."""

import re

import pytest
import torch
from typed import beside, documented, install

from sprl.core import Batch
from sprl.functional import cross_entropy

FILE, POINTS = documented("Add a method")


@pytest.fixture
def installed(tmp_path):
    install(tmp_path, FILE, POINTS)
    return tmp_path


def test_it_is_listed_trained_and_compared_like_ours(installed):
    code, said = beside(installed, "methods")
    assert code == 0
    assert re.search("^gce ", said, re.MULTILINE)
    assert "Towards 0 cross-entropy" in beside(installed, "methods", "gce")[1]
    words = ("--epochs", "2", "--set", "gce.q=0.5", "--corrupt", "symmetric:0.2")
    code, said = beside(installed, "compare", "--methods", "gce,standard", "--seeds", "1", "--jobs", "2", *words)
    assert code == 0, said
    assert re.search(r"gce +\d+\.\d", said)
    code, said = beside(installed, "train", "--method", "gce", "--set", "q=2", "--epochs", "2")
    assert (code, said.strip()) == (2, "sprl: q is 2.0 but must be above 0 and at most 1")


def test_the_example_is_what_its_formula_says():
    found = {}
    exec(FILE, found)
    logits, y = torch.randn(1, 16, 4, dtype=torch.float64), torch.randint(4, (16,))
    batch = Batch(torch.arange(16), y)
    p = logits.softmax(-1)[0, torch.arange(16), y]
    torch.testing.assert_close(found["GCE"](q=0.7).step(logits, batch, {}).loss.double(), ((1 - p**0.7) / 0.7).mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["GCE"](q=1e-4).step(logits, batch, {}).loss, cross_entropy(logits, y).mean(), rtol=1e-3, atol=1e-3)


def test_a_broken_one_does_no_harm(installed):
    (installed / "mine.py").write_text("raise RuntimeError('not today')")
    code, said = beside(installed, "methods")
    assert code == 0
    assert "not today" in said
    assert "co-teaching" in said
