"""What `import sprl` gives."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sprl


def test_functions_are_where_the_method_page_says():
    text = (Path(__file__).parents[1] / "docs" / "method.md").read_text()
    table = text.partition("| paper |")[2].partition("\n\n")[0]
    named = sorted(set(re.findall(r"`([\w.]+\.\w+)`", table)))
    assert {"functional.cross_entropy", "schedules.curriculum_size", "labels.record"} <= set(named)
    code = f"import sprl; print(all(callable(found) for found in [{', '.join(f'sprl.{name}' for name in named)}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_demo_says_that_it_installs_before_pip_falls_silent(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(Path(__file__).parents[1] / name, tmp_path)
    words = ("make", "--silent", "demo", "PYTHON=true")  # no interpreter, so that nothing is installed
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert re.match(r"Installing into \.venv, .*: about two minutes", done.stdout)


def test_every_public_name_is_there_and_no_other():
    assert all(getattr(sprl, name) is not None for name in dir(sprl))
    with pytest.raises(AttributeError, match="has no attribute 'Sprl'"):
        sprl.Sprl  # noqa: B018
