"""Power lost at any moment of a writing, played on a disk in memory: whoever looks afterwards finds the old file or the new one, whole.

The disk is as unkind as POSIX allows. What was written to a file since its last fsync is there, or a part of it, or nothing. Each change
of a name since the last fsync of its folder is there or not, whatever became of those before it. A move between two folders is one change,
which the fsync of the folder that it goes to puts on the disk. Real calls are made, and noted; before each, all files are looked at.
"""

import itertools
import os
import random
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import clusters
from saved_runs import CONFIG, always, noisy

from sprl import atomic, store
from sprl.checkpoint import Keeper, save
from sprl.corrections import CORRECTED, Labelled, apply, suggested, write
from sprl.engine import never
from sprl.files import CHECKPOINT, PREVIOUS, held_to_train, write_config, write_results
from sprl.run import prepare
from sprl.views import write_page

CALLS = ("fsync", "replace", "link", "unlink", "mkdir", "rmdir")
CUTS = 3  # random outcomes for the content of files, for each outcome for their names
MOST = 128  # outcomes for names that are tried; more are drawn from
FOLDER = -1  # instead of the number of a file
COUNT = itertools.count(5)  # so that each writing writes something else


class Disk:
    """The files below a folder: `seen` by processes, and what of them is on the disk. `states`: all trees that a loss of power may leave,
    before each call and at the end. `skips`: which fsync does nothing."""

    def __init__(self, root, monkeypatch, skips=None):
        self.root, self.skips, self.rng, self.states = root, skips, random.Random(0), []
        self.seen, self.written, self.pending = {}, {}, []
        self.look()
        self.names, self.synced, self.pending = dict(self.seen), dict(self.written), []
        for name in CALLS:
            monkeypatch.setattr(os, name, self.noting(name, getattr(os, name)))

    def look(self):
        """At files that are new, and at what is in all of them."""
        for path in self.root.rglob("*"):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                self.written[found.st_ino] = path.read_bytes()
                self.change("create", str(path.relative_to(self.root)), found.st_ino)
            else:
                self.change("create", str(path.relative_to(self.root)), FOLDER)

    def change(self, kind, *words):
        if kind != "create" or words[0] not in self.seen:
            self.pending.append((kind, *words))
            applied(self.seen, kind, *words)

    def noting(self, name, call):
        def noted(*words, dir_fd=None, **options):
            self.step()
            if name == "fsync":
                self.sync(words[0])
                return
            call(*words, **({} if dir_fd is None else {"dir_fd": dir_fd}), **options)
            if name != "mkdir":
                place = Path("" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}"))
                self.change(name, *(os.path.relpath(place / word, self.root) for word in words))

        return noted

    def step(self):
        self.look()
        self.states.append([tree for _ in range(CUTS) for tree in self.trees()])

    def trees(self):
        count = len(self.pending)
        drawn = (self.rng.choices((True, False), k=count) for _ in range(MOST))
        for chosen in itertools.product((True, False), repeat=count) if 2**count <= MOST else drawn:
            names = dict(self.names)
            for change in itertools.compress(self.pending, chosen):
                applied(names, *change)
            reached = {name for name in names if all(str(parent) in names for parent in [*Path(name).parents][:-1])}
            yield {name: self.torn(names[name]) for name in reached if names[name] != FOLDER}

    def torn(self, number):
        old, new = self.synced.get(number, b""), self.written[number]
        return self.rng.choice((old, new, new[: self.rng.randrange(len(new) + 1)])) if old != new else new

    def sync(self, handle):
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and self.skips != "file":
            self.synced[found.st_ino] = self.written[found.st_ino]
        elif stat.S_ISDIR(found.st_mode) and self.skips != "folder":
            folder = Path(os.readlink(f"/proc/self/fd/{handle}")).relative_to(self.root)
            done = [change for change in self.pending if Path(goes_to(*change)).parent == folder]
            self.pending = [change for change in self.pending if change not in done]
            for change in done:
                applied(self.names, *change)


def goes_to(kind, *words):
    return words[1] if kind in ("replace", "link") else words[0]


def applied(names, kind, *words):
    """To a dict of names. A change that presumes one that was lost does nothing."""
    if kind == "create":
        names[words[0]] = words[1]
    elif kind in ("unlink", "rmdir"):
        names.pop(words[0], None)
    elif words[0] in names and (kind == "replace" or words[1] not in names):
        names[words[1]] = names.pop(words[0]) if kind == "replace" else names[words[0]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in the middle of an epoch, and one that has ended, in the folder `run`."""
    folder = tmp_path_factory.mktemp("trained")
    data = noisy(clusters(), folder)
    ended = prepare(replace(CONFIG, epochs=2, method="standard"), data)
    list(ended)
    (folder / "run").mkdir()
    write_config(folder / "run", ended)
    write_results(folder / "run", ended, write_page)
    save(folder / "run", ended)
    run = prepare(CONFIG, data)
    rows = run.train(always)
    next(rows)
    return folder, run, rows, ended


def checkpoint(folder, trained):
    _, run, rows, _ = trained
    next(rows)
    save(folder, run)
    return [CHECKPOINT, PREVIOUS]


def record(folder, trained):
    found = replace(store.record_of(trained[3]), seconds=next(COUNT))
    return [store.write(folder, found).name]


def corrected(folder, trained):
    run = Labelled.read(trained[0] / "run")
    write(folder / CORRECTED, run, apply(run, suggested(run, next(COUNT))))
    return [CORRECTED]


def first(tree, names):
    """What a reader takes."""
    return next((tree[name] for name in names if name in tree), None)


def outcomes(tmp_path, monkeypatch, trained, writer, skips=None):
    """What a reader may find, before each call and at the end: "old", "new", "nothing", or "broken"."""
    for _ in range(2):
        names = writer(tmp_path, trained)
    old = first({path.name: path.read_bytes() for path in tmp_path.iterdir()}, names)
    with monkeypatch.context() as patch:
        disk = Disk(tmp_path, patch, skips)
        writer(tmp_path, trained)
        disk.step()
    new = first({path.name: path.read_bytes() for path in tmp_path.iterdir()}, names)
    assert old != new
    told = {old: "old", new: "new", None: "nothing"}
    return [{told.get(first(tree, names), "broken") for tree in trees} for trees in disk.states]


WRITERS = pytest.mark.parametrize("writer", [checkpoint, record, corrected])


@WRITERS
@pytest.mark.parametrize("links", [True, False])
def test_the_old_file_or_the_new_one_is_there_and_in_the_end_the_new_one(tmp_path, monkeypatch, trained, writer, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *words: os.stat("/not/there"))
    found = outcomes(tmp_path, monkeypatch, trained, writer)
    assert found[0] == {"old"}
    assert {"old", "new"} in found
    assert set.union(*found) == {"old", "new"}
    assert found[-1] == {"new"}


@WRITERS
def test_it_is_seen_where_the_file_is_not_put_on_the_disk(tmp_path, monkeypatch, trained, writer):
    assert "broken" in set.union(*outcomes(tmp_path, monkeypatch, trained, writer, skips="file"))


@WRITERS
def test_it_is_seen_where_the_folder_is_not_put_on_the_disk(tmp_path, monkeypatch, trained, writer):
    assert outcomes(tmp_path, monkeypatch, trained, writer, skips="folder")[-1] == {"old", "new"}


def test_it_is_seen_where_a_file_is_written_in_place(tmp_path, monkeypatch, trained):
    def in_place(folder, _):
        (folder / "x").write_bytes(bytes([next(COUNT)] * 1000))
        atomic.flush(folder)
        return ["x"]

    assert "broken" in set.union(*outcomes(tmp_path, monkeypatch, trained, in_place))


def replaced(tmp_path, monkeypatch, trained, skips=None):
    """A new run takes the place of one that has ended. Returns what the folder holds after a loss of power and the next command."""
    folder = shutil.copytree(trained[0] / "run", tmp_path / "run")
    keeper = Keeper(folder, trained[1], never, replaces=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch, skips)
        keeper.save()
        disk.step()
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    told, found = {frozenset(before.items()): "old", frozenset(after.items()): "new"}, []
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # which takes long
    for trees in disk.states:
        found.append(set())
        for tree in {frozenset(tree.items()) for tree in trees}:
            shutil.rmtree(folder)
            for name, content in tree:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            with held_to_train(folder):
                left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
            found[-1].add(told.get(frozenset(left.items()), "broken"))
            if "broken" in found[-1]:
                return found
    return found


def test_the_run_that_was_there_or_the_one_that_replaces_it_is_there(tmp_path, monkeypatch, trained):
    found = replaced(tmp_path, monkeypatch, trained)
    assert found[0] == {"old"}
    assert set.union(*found) == {"old", "new"}
    assert found[-1] == {"new"}


@pytest.mark.parametrize("skips", ["file", "folder"])
def test_it_is_seen_where_its_steps_are_not_put_on_the_disk(tmp_path, monkeypatch, trained, skips):
    assert "broken" in set.union(*replaced(tmp_path, monkeypatch, trained, skips))
