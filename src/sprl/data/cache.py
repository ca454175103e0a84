"""The cache folder: what was decoded or computed once, under a key of all that it depends on.

An entry is a file of bytes and a note beside it (JSON). The note is written last, so an entry without one, or whose size the note does not
tell, was not finished: it is made again. A lock keeps a second writer waiting.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sprl.atomic import clear as clear_parts
from sprl.atomic import written
from sprl.errors import InputError

VERSION = 1  # of what entries hold; raise it when the same key would give other bytes


def folder() -> Path:
    """$SPRL_CACHE, else sprl in the user's cache folder."""
    if os.environ.get("SPRL_CACHE"):
        return Path(os.environ["SPRL_CACHE"])
    try:
        if os.name == "nt":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "sprl" / "cache"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sprl"
    except RuntimeError:
        raise InputError("no home folder for the cache: set SPRL_CACHE to a folder that can be written to") from None


def key(parts: Iterable[bytes]) -> str:
    """A name for all that an entry depends on."""
    digest = hashlib.sha256(f"{VERSION}".encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def entry(name: str, size: int, make: Callable[[Path], dict[str, Any]], say: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """The file of `size` bytes kept under `name`, and its note. Where there is none, `make` fills the file and returns the note."""
    path = folder() / f"{name}.rows"
    note = path.with_suffix(".json")
    found = read(path, note, size)
    if found is not None:
        return path, found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, say):
            found = read(path, note, size)  # another process may have made it meanwhile
            if found is None:
                found = write(path, note, size, make)
    except OSError as error:
        raise InputError(f"cannot use the cache {path.parent}: {error.strerror or error}: set SPRL_CACHE to another folder") from error
    return path, found


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0.2)
    except Timeout:
        say("waiting for another process, which is making the same cache entry")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write(path: Path, note: Path, size: int, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    clear_parts(path.parent)  # which take room
    room = shutil.disk_usage(path.parent).free
    if size > 0.95 * room:
        raise InputError(
            f"the cache needs {size / 1e9:.1f} GB in {path.parent}, where {room / 1e9:.1f} GB are free: "
            "set SPRL_CACHE to a folder with more room, or clear it with `sprl data --clear-cache`"
        )
    note.unlink(missing_ok=True)
    try:
        with written(path) as file:
            file.truncate(size)
            found = make(Path(file.name))
        with written(note) as file:
            file.write(json.dumps({**found, "size": size}).encode())
    except InputError as error:
        if isinstance(error.__cause__, OSError):  # `entry` says what to do
            raise error.__cause__ from error
        raise
    return found


def read(path: Path, note: Path, size: int) -> dict[str, Any] | None:
    """The note of a finished entry, else None."""
    try:
        found = json.loads(note.read_text())
        return found if found["size"] == size == path.stat().st_size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def used() -> tuple[int, int]:
    """How many entries, and their bytes."""
    rows = list(folder().glob("*.rows"))
    return len(rows), sum(path.stat().st_size for path in rows)


def clear() -> tuple[int, int]:
    """Remove all entries but those that a process is writing now. Returns how many are gone, and their bytes."""
    clear_parts(folder())
    count = freed = 0
    for path in folder().glob("*.rows"):
        try:
            with FileLock(path.with_suffix(".lock"), timeout=0):
                size = path.stat().st_size
                path.unlink()
                path.with_suffix(".json").unlink(missing_ok=True)
                freed += size
                count += 1
        except (Timeout, PermissionError):  # Windows removes no file that a run is reading
            continue
    return count, freed
