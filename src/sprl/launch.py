"""How this process was started: alone, or by torchrun as one of several."""

import os
import shlex

from sprl.errors import ensure


def processes() -> int:
    """That torchrun started to share one run."""
    text = os.environ.get("WORLD_SIZE") or "1"
    ensure(text.isdecimal(), f"WORLD_SIZE is {text!r}, but torchrun sets it to a number of processes: unset it")
    return int(text)


def to_go_on(name: str) -> str:
    """The command that resumes a run, with as many processes as there are now."""
    count, command = processes(), f"train --resume {shlex.quote(name)}"
    if count == 1:
        return f"sprl {command}"
    if os.environ.get("LOCAL_WORLD_SIZE") == str(count):
        return f"torchrun --nproc-per-node {count} -m sprl {command}"
    return f"torchrun ... -m sprl {command}, on each machine as before"
