"""Folders from somebody else, with links, pipes and the like where files are expected: nothing outside is changed, nothing hangs."""

import os
import shutil
import signal
import socket
import stat
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from conftest import clusters
from typed import run
from typed import sprl as command

from sprl import store
from sprl.files import CHECKPOINT, FILES, LOCK, NEW

RESUME, MARK, AUDIT, PREDICT, APPLY = (
    ("train", "--resume", "run"),
    ("audit", "run", "--budget", "3"),
    ("audit", "run"),
    ("predict", "run", "pets.npz"),
    ("apply", "run", "--suggestions", "5"),
)
COMPARE = ("compare", "pets.npz", "--methods", "standard", "--seeds", "1", "--epochs", "3", "--store", "store", "--out", "res")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of few rows that has ended, and its data."""
    folder = tmp_path_factory.mktemp("trained")
    x, y = clusters(120)
    np.savez(folder / "pets.npz", x=x[:100], y=y[:100], x_test=x[100:], y_test=y[100:])
    options = ("--method", "standard", "--epochs", "2", "--corrupt", "symmetric:0.3", "--out", "run")
    assert run("train", "pets.npz", *options, cwd=folder).returncode == 0
    return folder


@pytest.fixture
def home(trained, tmp_path, monkeypatch):
    """That run, which somebody else has made; a run and a file of the user's own."""
    shutil.copytree(trained, tmp_path / "home")
    shutil.copytree(trained / "run", tmp_path / "home" / "mine")
    (tmp_path / "home" / "bashrc").write_text("# mine\n")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def typed(capsys, *words):
    """As `command`, within seconds."""

    def late(*anything):
        raise TimeoutError(" ".join(words))

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    try:
        return command(capsys, *words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tree(folder):
    """All that is there: what kind each is, its mode, what is in it."""
    found = {}
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(kind) else os.readlink(path) if path.is_symlink() else None
        found[str(path.relative_to(folder))] = (kind, content)
    return found


def replaced(path, make):
    """What stands there gives way to something of another kind."""
    with suppress(FileNotFoundError):
        path.unlink()
    make(path)


@contextmanager
def unchanged(folder, but=()):
    before = tree(folder)
    yield
    after = tree(folder)
    assert {name: after.get(name) for name in before if name not in but} == {name: was for name, was in before.items() if name not in but}
    assert after.keys() - before.keys() <= set(but)


def refused(capsys, words, message):
    code, said, told = typed(capsys, *words)
    assert (code, said, told.count("\n")) == (2, "", 1), told
    assert message in told


def bind(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.relpath(path))


PIPES = {"a pipe": os.mkfifo, "a socket": bind, "a folder": os.mkdir}


@pytest.mark.parametrize("words", [RESUME, MARK])
@pytest.mark.parametrize("name", [LOCK, *FILES])
def test_a_run_with_a_link_among_its_files_is_not_written_to(home, capsys, name, words):
    if name not in ("config.json", "summary.json"):
        (home / "run" / "summary.json").unlink()
    target = home / "mine" / name if (home / "mine" / name).exists() else home / "bashrc"
    replaced(home / "run" / name, lambda path: path.symlink_to(target))
    with unchanged(home):
        refused(capsys, words, f"{name} is a link, but must be a file: remove it, or put a file in its place")


@pytest.mark.parametrize("words", [RESUME, MARK])
def test_a_link_to_another_run_takes_nothing_out_of_it(home, capsys, words):
    (home / "run" / "summary.json").unlink()
    (home / "run" / NEW).symlink_to(home / "mine")
    with unchanged(home):
        refused(capsys, words, f"{NEW} is a link, but must be a folder")


def test_nor_does_one_within_a_run_that_replaces_another(home, capsys):
    (home / "run" / NEW).mkdir()
    (home / "run" / NEW / CHECKPOINT).symlink_to(home / "mine" / CHECKPOINT)
    with unchanged(home):
        refused(capsys, RESUME, f"{NEW}/{CHECKPOINT} is a link, but must be a file")


def test_a_run_is_begun_in_no_folder_with_such_links(home, capsys):
    (home / "run" / NEW).symlink_to(home / "mine")
    with unchanged(home):
        refused(capsys, ("train", "pets.npz", "--out", "run", "--overwrite"), f"{NEW} is a link")
    (home / "empty").mkdir()
    (home / "empty" / LOCK).symlink_to(home / "bashrc")
    with unchanged(home):
        refused(capsys, ("train", "pets.npz", "--epochs", "1", "--out", "empty"), f"{LOCK} is a link")


@pytest.mark.parametrize("kind", PIPES)
@pytest.mark.parametrize("name", ["summary.json", "config.json", "labels.csv", CHECKPOINT, LOCK])
def test_what_is_no_file_is_refused_or_not_looked_at(home, capsys, name, kind):
    for words in (RESUME, MARK, AUDIT, PREDICT):
        replaced(home / "run" / name, PIPES[kind])
        if name != "summary.json":
            (home / "run" / "summary.json").unlink(missing_ok=True)
        reads = {"summary.json": (RESUME, MARK, AUDIT), "config.json": (RESUME, MARK, AUDIT, PREDICT), "labels.csv": (RESUME, MARK, AUDIT)}
        with unchanged(home):
            if words in reads.get(name, (RESUME, MARK)):
                refused(capsys, words, name)
            else:
                assert typed(capsys, *words)[0] == 0
        shutil.rmtree(home / "run")
        shutil.copytree(home / "mine", home / "run")


@pytest.mark.parametrize("content", ["[" * 200_000, '{"interrupted": ' + "[" * 100_000, "[]", '{"interrupted": 1}', "", "{}" + " " * 2**21])
def test_a_summary_that_is_none_is_written_again(home, capsys, content):
    (home / "run" / "summary.json").write_text(content)
    assert typed(capsys, *AUDIT)[0] == 0
    code, said, told = typed(capsys, *RESUME)
    assert (code, told) == (0, "")
    assert "ended already" not in said
    assert "ended already" in typed(capsys, *RESUME)[1]


def test_links_with_names_of_parts_are_not_written_through(home, capsys):
    outs = ("corrected.csv", "predicted.csv", "list.csv")
    for name in (*FILES, *outs):
        (home / "run" / f".part-{name}").symlink_to(home / "bashrc")
    (home / "run" / "summary.json").unlink()
    with unchanged(home, but={f"run/{name}" for name in (*FILES, *outs)}):
        for words in (APPLY, MARK, (*PREDICT, "--out", "run/predicted.csv"), (*AUDIT, "--out", "run/list.csv"), RESUME):
            assert typed(capsys, *words)[0] == 0


def test_corrected_labels_replace_a_link_and_leave_what_it_leads_to(home, capsys):
    (home / "run" / "corrected.csv").symlink_to(home / "bashrc")
    with unchanged(home):
        refused(capsys, APPLY, "is there already")
    with unchanged(home, but={"run/corrected.csv"}):
        assert typed(capsys, *APPLY, "--overwrite")[0] == 0
    assert not (home / "run" / "corrected.csv").is_symlink()
    assert (home / "run" / "corrected.csv").read_text().startswith("# sprl labels")


def test_predictions_take_no_place_of_a_link(home, capsys):
    (home / "x.csv").symlink_to(home / "not there")
    with unchanged(home):
        refused(capsys, (*PREDICT, "--out", "x.csv"), "x.csv is there already")


def test_only_training_takes_up_what_a_killed_replacement_left(home, capsys):
    shutil.copytree(home / "mine", home / "run" / NEW)
    with unchanged(home, but={"run/labels.csv", "run/list.csv", "run/corrected.csv"}):
        for words in (MARK, (*AUDIT, "--out", "run/list.csv"), AUDIT, PREDICT, APPLY):
            assert typed(capsys, *words)[0] == 0
    (home / "run" / NEW / "config.json").write_bytes((home / "mine" / "config.json").read_bytes().replace(b'"seed": 0', b'"seed": 0 '))
    code, said, _ = typed(capsys, *RESUME)
    assert code == 0
    assert "ended already" not in said
    assert not (home / "run" / NEW).exists()
    assert b'"seed": 0 ' in (home / "run" / "config.json").read_bytes()


def test_folders_that_the_user_names_may_be_links(home, capsys):
    (home / "disk").mkdir()
    (home / "runs").symlink_to(home / "disk")
    (home / "linked").symlink_to(home / "disk" / "here")
    with unchanged(home / "mine"):
        assert typed(capsys, "train", "pets.npz", "--epochs", "1", "--out", "runs/here")[0] == 0
        assert typed(capsys, "train", "--resume", "linked")[0] == 0
        assert typed(capsys, "audit", "linked", "--budget", "3")[0] == 0
        assert typed(capsys, *COMPARE[:-4], "--store", "runs/store", "--out", "runs/res")[0] == 0
    assert (home / "disk" / "here" / "labels.csv").is_file()
    assert (home / "disk" / "res" / "compare.png").is_file()


def test_files_that_are_written_again_keep_their_mode(home, capsys):
    for name in ("labels.csv", "corrected.csv"):
        (home / "run" / name).touch()
        (home / "run" / name).chmod(0o600)
    assert typed(capsys, *MARK)[0] == typed(capsys, *APPLY, "--overwrite")[0] == 0
    assert [stat.S_IMODE((home / "run" / name).stat().st_mode) for name in ("labels.csv", "corrected.csv")] == [0o600, 0o600]


@pytest.mark.parametrize("which", ["unfinished", "the run", "its lock", "its checkpoint", "what replaces it"])
def test_a_store_with_a_link_to_a_run_of_the_user(home, capsys, which):
    assert typed(capsys, *COMPARE)[0] == 0
    key = next(store.each(home / "store")).key
    (home / "store" / f"{key}.json").unlink()
    shutil.rmtree(home / "res")
    unfinished = home / "store" / "unfinished"
    path = unfinished / key
    if which == "unfinished":
        unfinished.rmdir()
        (home / "others").mkdir()
        shutil.copytree(home / "mine", home / "others" / key)
        unfinished.symlink_to(home / "others")
    elif which == "the run":
        path.symlink_to(home / "mine")
    else:
        path.mkdir()
        name = {"its lock": LOCK, "its checkpoint": CHECKPOINT, "what replaces it": NEW}[which]
        (path / name).symlink_to(home / "mine" / name if which != "what replaces it" else home / "mine")
    with unchanged(home):
        code, said, told = typed(capsys, *COMPARE)
    assert code == 2
    assert "is a link, but must be a" in said + told


def test_what_compare_left_when_it_was_killed_goes(home, capsys):
    assert typed(capsys, *COMPARE)[0] == 0
    key = next(store.each(home / "store")).key
    shutil.copytree(home / "mine", home / "store" / "unfinished" / key)  # killed between its record and the end of its folder
    (home / "store" / "unfinished" / ("0" * 16)).mkdir()  # of another comparison
    with unchanged(home, but={name for name in tree(home) if f"unfinished/{key}" in name or name.startswith("res/")}):
        assert typed(capsys, *COMPARE)[0] == 0
    assert os.listdir(home / "store" / "unfinished") == ["0" * 16]


def test_what_predict_left_when_it_was_killed_goes(home, capsys):
    (home / f".part-{'0' * 32}").write_text("id,pre")
    assert typed(capsys, *PREDICT, "--out", "x.csv")[0] == 0
    assert not [name for name in os.listdir(home) if name.startswith(".part")]
