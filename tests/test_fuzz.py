"""Damaged files: the short form of benchmarks/fuzz.py."""

import importlib.util
import warnings
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
SPEC = importlib.util.spec_from_file_location("fuzz", SCRIPT)
fuzz = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz)


@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_damaged_files_are_read_or_refused_in_words(name, tmp_path):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = fuzz.fuzz(name, 40 if name != "cifar" else 5, seed=1, folder=tmp_path)
    assert tally["refused"]
