"""How files are written: whole or not at all, through no link, and rid of what killed processes left."""

import errno
import os
import secrets
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sprl import atomic
from sprl.atomic import check_kind, written
from sprl.errors import InputError

OTHERS = """
import sys
from pathlib import Path
from sprl.atomic import folder, written
path = Path(sys.argv[1])
with written(path) as file, folder(path.parent) as unpacked:
    file.write(sys.argv[2].encode())
    (unpacked / "big").write_text("big")
    print(Path(file.name).name, unpacked.name, flush=True)
    sys.stdin.read()
"""


def write(path, text, **how):
    with written(path, **how) as file:
        file.write(text.encode())


def names(folder):
    return {path.name for path in folder.iterdir()}


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def another(path, text):
    """A process that is writing to `path`: it ends when its input does. With it come the names of its part and of its folder's."""
    process = subprocess.Popen([sys.executable, "-c", OTHERS, path, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    part, unpacked = process.stdout.readline().split()
    try:
        with process:
            yield process, {part, unpacked, unpacked.removesuffix(".d")}
    finally:
        process.kill()


def test_what_a_reader_sees_is_whole(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("old")
    with written(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_text() == "old"
        file.write(b"w")
    assert path.read_text() == "new"
    with suppress(ZeroDivisionError), written(path) as file:
        file.write(b"half")
        1 / 0  # noqa: B018
    assert path.read_text() == "new"
    assert names(tmp_path) == {"labels.csv"}


def test_a_writer_by_name_fills_the_part_and_puts_no_other_in_its_place(tmp_path):
    path = tmp_path / "x.csv"
    with written(path) as file:
        Path(file.name).write_text("old")
    assert path.read_text() == "old"

    def replaces(part):
        (tmp_path / "other").write_text("new")
        os.replace(tmp_path / "other", part)

    with pytest.raises(AssertionError, match="another file was put in its place"), written(path) as file:
        replaces(file.name)
    assert path.read_text() == "old"
    assert names(tmp_path) == {"x.csv"}


def test_two_live_writers_of_one_file_and_one_that_was_killed(tmp_path):
    """The next writer removes the part and the folder of the killed one, and neither those of the others nor what has such a name."""
    path = tmp_path / "x.csv"
    for name in (".part-mine", f".part-{'g' * 32}", f".part-{'0' * 31}"):
        (tmp_path / name).write_text("mine")
    mine = names(tmp_path)
    with another(path, "one") as (one, parts_of_one), another(path, "two") as (two, parts_of_two), another(path, "three") as (killed, left):
        killed.kill()
        killed.wait()
        assert names(tmp_path) == mine | parts_of_one | parts_of_two | left
        write(path, "four")
        assert names(tmp_path) == mine | parts_of_one | parts_of_two | {"x.csv"}
        for process, text in ((two, "two"), (one, "one")):
            process.communicate()
            assert (process.returncode, path.read_text()) == (0, text)
    assert names(tmp_path) == mine | {"x.csv"}


def test_a_link_of_a_name_that_a_part_could_have_is_never_written_through(tmp_path, monkeypatch):
    victim, path = tmp_path / "bashrc", tmp_path / "x.csv"
    victim.write_text("mine")
    (tmp_path / ".part-x.csv").symlink_to(victim)
    write(path, "whole")
    assert victim.read_text() == "mine"
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)  # as if somebody had foreseen it
    (tmp_path / f".part-{'0' * 32}").symlink_to(victim)
    with pytest.raises(InputError, match=r"cannot write to .*x.csv: File exists"):
        write(path, "again")
    assert (victim.read_text(), path.read_text()) == ("mine", "whole")


def test_what_is_no_part_of_a_killed_process_stays(tmp_path):
    (tmp_path / "mine").write_text("mine")
    hexadecimal = (f".part-{number:032x}" for number in range(3))
    (tmp_path / next(hexadecimal)).symlink_to(tmp_path / "mine")
    (tmp_path / next(hexadecimal)).mkdir()
    os.mkfifo(tmp_path / next(hexadecimal))
    before = names(tmp_path)
    write(tmp_path / "x.csv", "whole")
    assert names(tmp_path) == before | {"x.csv"}
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("had", [0o600, 0o640, 0o664, 0o666, 0o444])
def test_a_file_keeps_its_mode(tmp_path, had):
    path = tmp_path / "x.csv"
    path.write_text("old")
    path.chmod(had)
    with umask(0o022):
        with written(path) as file:
            assert mode(file.name) == had  # while it is written too
        assert mode(path) == had


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path, mask, expected):
    with umask(mask):
        write(tmp_path / "x.csv", "new")
    assert mode(tmp_path / "x.csv") == expected


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "mine").chmod(0o666)
    (tmp_path / "x.csv").symlink_to(tmp_path / "mine")
    with umask(0o077):
        write(tmp_path / "x.csv", "new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "x.csv").is_symlink()
    assert ((tmp_path / "x.csv").read_text(), mode(tmp_path / "x.csv")) == ("new", 0o600)


def test_a_folder_may_be_named_by_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    write(tmp_path / "runs" / "x.csv", "new")
    assert names(tmp_path / "disk") == {"x.csv"}


def test_a_part_that_is_taken_for_a_left_one_before_it_is_locked_is_begun_again(tmp_path, monkeypatch):
    lock, seen = atomic.locked, []

    def late(handle, wait=False):
        if wait and not seen:
            seen.extend(tmp_path.iterdir())
            atomic.remove_left(seen[0])  # as another process does that was faster
            assert not seen[0].exists()
        return lock(handle, wait)

    monkeypatch.setattr(atomic, "locked", late)
    write(tmp_path / "x.csv", "new")
    assert len(seen) == 1
    assert (tmp_path / "x.csv").read_text() == "new"
    assert names(tmp_path) == {"x.csv"}


def test_without_locks_files_are_written_and_parts_stay(tmp_path, monkeypatch):
    def none(*anything):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    left = tmp_path / f".part-{'0' * 32}"
    left.write_text("perhaps somebody is writing it")
    monkeypatch.setattr("fcntl.flock", none)
    write(tmp_path / "x.csv", "new")
    assert names(tmp_path) == {left.name, "x.csv"}
    monkeypatch.setattr(atomic, "fcntl", None)  # as on Windows
    write(tmp_path / "x.csv", "newer")
    assert names(tmp_path) == {"x.csv"}  # there a file that is open cannot be removed


@pytest.mark.parametrize("links", [True, False])
def test_the_one_before_is_kept(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *anything: os.stat("/not/there"))
    path, previous = tmp_path / "now", tmp_path / "before"
    for text in ("1", "2", "3"):
        write(path, text, previous=previous)
    assert (path.read_text(), previous.read_text()) == ("3", "2")
    assert names(tmp_path) == {"now", "before"}


def test_what_is_of_another_kind_is_refused(tmp_path):
    for name in ("file", "folder", "nothing"):
        (tmp_path / f"{name} link").symlink_to(tmp_path / name)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.relpath(tmp_path / "socket"))
    check_kind(tmp_path / "file")
    check_kind(tmp_path / "folder", "a folder")
    check_kind(tmp_path / "nothing")
    kinds = {"file link": "link", "folder link": "link", "nothing link": "link", "folder": "folder", "pipe": "pipe", "socket": "socket"}
    for name, kind in kinds.items():
        with pytest.raises(InputError, match=f"{name} is a {kind}, but must be a file: remove it, or put a file in its place"):
            check_kind(tmp_path / name)
    with pytest.raises(InputError, match="null is a device, but must be a folder"):
        check_kind(Path(os.devnull), "a folder")
