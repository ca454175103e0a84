"""How every file is written: aside, under a name that nobody can foresee, and moved into place once it is whole.

Whoever looks sees the old file or the new one. No file that is there is opened for writing, so no link is written through. A part is locked
as long as its process lives. Parts that nobody has locked were left by killed processes: the next writing in their folder removes them.
Where a file system has no locks, they stay.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from sprl.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART = ".part-"
UNPACKED = ".d"  # what a part's folder has behind the part's name
LEFT = re.compile(rf"{re.escape(PART)}[0-9a-f]{{32}}")
KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@contextmanager
def written(path: Path, previous: Path | None = None, durable: bool = True) -> Iterator[BufferedWriter]:
    """A new file to fill, which takes the place of `path`, and its mode, once it is whole and, if durable, on the disk.

    `previous`: where to keep what stood at `path` before. Who needs a path takes the file's name, and fills the file that is there.
    """
    try:
        with part(path) as file:
            yield file
            file.flush()
            assert os.path.samestat(os.stat(file.name), os.fstat(file.fileno())), "another file was put in its place, without lock and mode"
            if durable:
                os.fsync(file.fileno())
            if previous is not None and path.exists():
                keep(path, previous)
            if fcntl is None:
                file.close()  # Windows moves no open file
            os.replace(file.name, path)
            if durable:
                flush(path.parent)
    except OSError as error:  # a full disk, a folder taken away
        raise cannot_write(path, error) from error


@contextmanager
def folder(place: Path) -> Iterator[Path]:
    """A new folder in `place` for what is moved from there; gone in the end."""
    with part(place / UNPACKED) as mark:
        path = Path(mark.name + UNPACKED)
        path.mkdir(0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def part(path: Path) -> Iterator[BufferedWriter]:
    """A new file beside `path`, with the mode of what is there, that this process alone has; gone in the end, unless it was moved."""
    clear(path.parent)
    file = begun(path)
    try:
        with file:
            yield file
    finally:
        with suppress(OSError):
            os.unlink(file.name)


def begun(path: Path) -> BufferedWriter:
    """A new file ("x"), so not a link, and locked."""
    mode = mode_of(path)
    while True:
        name = path.with_name(f"{PART}{secrets.token_hex(16)}")
        file = open(name, "xb", opener=lambda name, flags: os.open(name, flags, 0o666 if mode is None else mode))  # noqa: SIM115
        locked(file.fileno(), wait=True)
        if os.path.lexists(name):
            if mode is not None:
                with suppress(OSError):
                    os.chmod(name, mode)  # from which the umask has taken
            return file
        file.close()  # another process took it for a left one before it was locked


def mode_of(path: Path) -> int | None:
    """The permissions of the file that is there, if there is one."""
    try:
        found = os.lstat(path).st_mode
    except OSError:
        return None
    return found & 0o777 if stat.S_ISREG(found) else None


def clear(folder: Path) -> None:
    """Remove the parts that killed processes left in a folder."""
    with suppress(OSError):
        for name in filter(LEFT.fullmatch, os.listdir(folder)):
            with suppress(OSError):
                remove_left(folder / name)


def remove_left(path: Path) -> None:
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return
    if fcntl is None:  # Windows removes no file that a process has open
        os.unlink(path)
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if locked(handle):
            shutil.rmtree(f"{path}{UNPACKED}", ignore_errors=True)
            os.unlink(path)
    finally:
        os.close(handle)


def locked(handle: int, wait: bool = False) -> bool:
    """Whether the file is now locked by us, until it is closed. False: by another process, or there are no locks here."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def keep(path: Path, previous: Path) -> None:
    """As `previous` too, so that there is always one at `path`; where the file system has no links, it is moved."""
    previous.unlink(missing_ok=True)
    try:
        os.link(path, previous)
    except OSError:
        os.replace(path, previous)


def flush(folder: Path) -> None:
    """The names in a folder, onto the disk. Not every system can do this."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_kind(path: Path, wanted: str = "a file") -> None:
    """Refuse what is there if it is of another kind: a link leads to somebody else's files, a pipe has no end."""
    with suppress(OSError):  # nothing is there
        found = KINDS.get(stat.S_IFMT(os.lstat(path).st_mode), "a device")
        if found != wanted:
            raise InputError(f"{path} is {found}, but must be {wanted}: remove it, or put {wanted} in its place")


def cannot_write(path: Path | None, error: OSError) -> InputError:
    return InputError(f"cannot write to {path}: {error.strerror or error}")
