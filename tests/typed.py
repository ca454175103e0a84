"""The command as a user types it: in this process, or in one of its own beside a package that was installed."""

import os
import re
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest import mock

import pytest

from sprl.cli import main

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def sprl(capsys, *words):
    """The command in this process: its exit code, output and errors."""
    code = exit_code(words)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def run(*words, cwd, **environment):
    """The same from another folder, as subprocess.run tells of it: a process of its own would first spend seconds on importing torch."""
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    surroundings = mock.patch.dict(os.environ, {"COLUMNS": "140", **environment})
    with chdir(cwd), surroundings, redirect_stdout(out), redirect_stderr(err):
        code = exit_code(words)
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(words, code, out.read(), err.read())


def in_its_own_process(*words, cwd):
    """The same as a shell starts it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "140"}
    return subprocess.run([sys.executable, "-m", "sprl", *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True)


def exit_code(words):
    with warnings.catch_warnings(), mock.patch.object(sys, "argv", ["sprl", *map(str, words)]), pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


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
