"""What was made once is kept; what was never finished is not trusted."""

import json
import subprocess
import sys
import threading

import pytest
from filelock import FileLock

from sprl.data import cache, quiet
from sprl.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))


def fill(content):
    def make(path):
        path.write_bytes(content)
        return {"made": True}

    return make


def refuse(path):
    raise AssertionError("made again")


def test_an_entry_is_made_once():
    path, note = cache.entry("a", 3, fill(b"abc"), quiet)
    assert path.read_bytes() == b"abc"
    assert note["made"]
    assert cache.entry("a", 3, refuse, quiet)[0] == path


@pytest.mark.parametrize("damage", ["no note", "torn note", "cut rows", "another size", "no rows", "note of a list"])
def test_an_entry_that_is_not_whole_is_made_again(damage):
    path, _ = cache.entry("a", 3, fill(b"abc"), quiet)
    note = path.with_suffix(".json")
    if damage == "no note":
        note.unlink()
    elif damage == "torn note":
        note.write_text(note.read_text()[:-3])
    elif damage == "cut rows":
        path.write_bytes(b"ab")
    elif damage == "another size":
        note.write_text(json.dumps({"size": 4}))
    elif damage == "no rows":
        path.unlink()
    else:
        note.write_text("[]")
    cache.entry("a", 3, fill(b"xyz"), quiet)
    assert path.read_bytes() == b"xyz"


def test_a_failure_leaves_nothing_to_trust():
    with pytest.raises(KeyboardInterrupt):
        cache.entry("a", 3, lambda path: (_ for _ in ()).throw(KeyboardInterrupt), quiet)
    assert cache.used() == (0, 0)


def test_a_writer_killed_at_work_leaves_nothing_to_trust(tmp_path):
    code = """
import os, signal
from sprl.data import cache, quiet
def make(path):
    path.write_bytes(b"hal")
    os.kill(os.getpid(), signal.SIGKILL)
cache.entry("a", 3, make, quiet)
"""
    for again in (lambda: cache.entry("b", 3, fill(b"abc"), quiet), cache.clear):  # either removes it
        assert subprocess.run([sys.executable, "-c", code]).returncode == -9
        assert len(list(cache.folder().glob(".part-*"))) == 1
        again()
        assert not list(cache.folder().glob(".part-*"))
    assert cache.entry("a", 3, fill(b"abc"), quiet)[0].read_bytes() == b"abc"


def test_a_second_writer_waits_and_uses_what_the_first_made():
    making, go_on, heard = threading.Event(), threading.Event(), []

    def slowly(path):
        making.set()
        go_on.wait(10)
        path.write_bytes(b"abc")
        return {}

    def hear(text):
        heard.append(text)
        go_on.set()

    first = threading.Thread(target=cache.entry, args=("a", 3, slowly, quiet))
    first.start()
    making.wait(10)
    assert cache.entry("a", 3, refuse, hear)[0].read_bytes() == b"abc"
    first.join()
    assert "waiting" in heard[0]


def test_keys_differ_wherever_a_part_does():
    keys = {cache.key(parts) for parts in ([b"a", b"b"], [b"ab"], [b"", b"ab"], [b"b", b"a"], [])}
    assert len(keys) == 5
    assert cache.key([b"a"]) == cache.key([b"a"])


def test_clearing_spares_what_is_being_written():
    cache.entry("a", 3, fill(b"abc"), quiet)
    path, _ = cache.entry("b", 5, fill(b"abcde"), quiet)
    assert cache.used() == (2, 8)
    with FileLock(path.with_suffix(".lock")):
        assert cache.clear() == (1, 3)
    assert cache.used() == (1, 5)
    assert cache.clear() == (1, 5)
    assert cache.clear() == (0, 0)


def test_no_room_and_no_folder(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="set SPRL_CACHE to a folder with more room"):
        cache.entry("a", 2**60, refuse, quiet)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot use the cache .*: set SPRL_CACHE to another folder"):
        cache.entry("a", 3, refuse, quiet)


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SPRL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "sprl"
