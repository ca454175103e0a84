"""Processes that train."""

import subprocess
import sys

import pytest

FIRST = """
import signal
from pathlib import Path

from sprl import crew

def work(connection, folder, threads):
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

crew.work = work
if __name__ == "__main__":
    connection, worker = crew.hired(Path("records"), 1)
    blocked = connection.recv()
    worker.process.join()
    assert set(crew.SIGNALS) <= set(blocked), blocked
    assert not set(crew.SIGNALS) & set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be blocked there")
def test_no_signal_reaches_a_process_before_it_can_ignore_them(tmp_path):
    (tmp_path / "first.py").write_text(FIRST)  # in a process that has started none yet
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
