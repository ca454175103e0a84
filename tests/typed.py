"""The command as a user types it: in this process, or in one of its own beside a package that was installed."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sprl.cli import main

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def sprl(capsys, *words):
    """The command in this process: its exit code, output and errors."""
    before = sys.argv, warnings.showwarning
    sys.argv = ["sprl", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv, warnings.showwarning = before
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def documented(section):
    """The file that a section of CONTRIBUTING shows, and what an installer makes of its entry point."""
    text = GUIDE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    file = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    group, line = re.search(r"```toml\n\[project.entry-points.\"(.*?)\"\]\n(.*?)```", text, re.DOTALL).groups()
    return file, f"[{group}]\n{line.replace(chr(34), '')}"


def install(folder, file, points):
    """A module `mine` with entry points, as an installer leaves it."""
    (folder / "mine.py").write_text(file)
    about = folder / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)


def beside(folder, *words):
    """The command in a process that finds what is installed in the folder: its exit code, and all that it said."""
    paths = [str(folder), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-m", "sprl", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr
