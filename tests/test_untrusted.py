"""Input of strangers, from the command line on: one line or the right end, never a traceback, and nothing waits for ever."""

import inspect
import io
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from typed import exit_code

from sprl import model, run
from sprl.data.folder import class_files
from sprl.files import last_checkpoint
from sprl.networks import weight

BRIEF = ("--epochs", 3, "--set", "T1=1", "--batch-size", 40)
NO_TEXT = os.fsdecode(b"r\xffn")


@pytest.fixture
def home(tmp_path, monkeypatch, points):
    """Three hundred rows in several kinds of file, in the folder of this process."""
    monkeypatch.chdir(tmp_path)
    x, y = points
    np.savez("pets.npz", x=x[:300], y=np.array(["ant", "bee", "cat", "dog"])[y[:300]])
    return tmp_path


def command(*words):
    return exit_code(words)


def said(capsys):
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return captured.out + captured.err


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_file_whose_name_is_no_text(home, capsys, kind):
    name = os.fsdecode(b"d\xff." + kind.encode())
    if kind == "npz":
        os.rename("pets.npz", name)
    else:
        with open(name, "w") as file:
            file.write("a,b,label\n" + "".join(f"{i % 7},{i % 2},{'xy'[i % 2]}\n" for i in range(60)))
    assert command("train", name, *BRIEF) == 0
    assert "d\\xff" in said(capsys)
    assert (home / "runs" / "d\\xff-1" / "summary.json").is_file()
    assert (home / "runs" / "d\\xff-1" / "curves.png").is_file()


def test_a_folder_whose_name_is_no_text(home, capsys):
    assert command("train", "pets.npz", *BRIEF, "--out", NO_TEXT) == 0
    assert command("audit", NO_TEXT) == 0
    assert command("apply", NO_TEXT, "--suggestions", 3) == 0
    assert command("predict", NO_TEXT, "pets.npz", "--out", "p.csv") == 0
    said(capsys)


def test_class_names_that_cannot_be_written_are_refused_before_training(home, capsys, trained):
    np.savez("half.npz", x=np.arange(40.0)[:, None], y=np.array(["\udcffa", "b"] * 20))
    assert command("train", "half.npz", *BRIEF) == 2
    assert "y holds text that cannot be written as UTF-8" in said(capsys)
    assert not trained


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_told_nothing_by_names(home, monkeypatch, capsys):
    names = np.array(["\x1b]0;title\x07", "\x9b31m", "\u202eevil", "two\nlines"])
    np.savez("named.npz", x=np.load("pets.npz")["x"], y=names[np.arange(300) % 4])
    assert command("train", "named.npz", *BRIEF, "--out", "run") == 0
    said(capsys)
    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        monkeypatch.setattr(sys, "stdout", stream)
        assert command("predict", "run", "named.npz") == 0
    assert all(c.isprintable() or c == "\n" for c in screen.getvalue())
    assert screen.getvalue().count("\n") == 301
    assert "\\x1b]0;title\\x07" in screen.getvalue()
    assert any(name in pipe.getvalue() for name in names.tolist())
    assert command("predict", "run", "named.npz", "--out", "p.csv") == 0
    assert (home / "p.csv").read_bytes().decode() == pipe.getvalue()


def test_a_stdout_that_is_closed_is_no_error(home, monkeypatch, capsys):
    assert command("train", "pets.npz", *BRIEF, "--out", "run") == 0
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        assert command("predict", "run", "pets.npz") == 0
    said(capsys)


def test_without_a_home_the_cache_is_asked_for(home, monkeypatch, capsys):
    for name in ("HOME", "SPRL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # nobody, as in a container
    for words in (("data",), ("data", "--clear-cache")):
        assert command(*words) == 2
        assert "no home folder for the cache: set SPRL_CACHE" in said(capsys)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device"])
def test_what_is_no_file_is_not_waited_for(home, kind):
    assert command("train", "pets.npz", *BRIEF, "--out", "run") == 0
    assert command("train", "pets.npz", *BRIEF, "--out", "bare") == 0
    os.remove("bare/config.json")

    def put(name):
        if kind == "device":
            os.symlink("/dev/zero", name)
        elif kind == "pipe":
            os.mkfifo(name)
        else:
            os.mkfifo(f"{name}.pipe")
            os.symlink(f"{os.path.basename(name)}.pipe", name)

    for name in ("a.npz", "a.npy", "a.csv", "a.pth", "a.json", "bare/config.json"):
        put(name)
    commands = [
        ("train", "a.npz"),
        ("train", "a.csv"),
        ("train", "pets.npz", "--labels", "a.csv"),
        ("train", "pets.npz", "--labels", "a.npy"),
        ("train", "pets.npz", "--corrupt", "matrix:a.csv"),
        ("train", "pets.npz", "--corrupt", "matrix:a.npy"),
        ("train", "pets.npz", "--corrupt", "matrix:a.json"),
        ("predict", "run", "a.npz"),
        ("predict", "run", "a.npy"),
        ("predict", "run", "a.csv"),
        ("audit", "run", "--corrections", "a.csv"),
        ("apply", "run", "a.csv"),
        ("predict", "bare", "pets.npz"),
        ("train", "--resume", "bare"),
    ]
    program = "import sys, json; from typed import exit_code; print([exit_code(words) for words in json.loads(sys.argv[1])])"
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(__file__), *sys.path]))}
    words = [sys.executable, "-c", program, json.dumps(commands)]
    done = subprocess.run(words, env=os.environ | paths, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == [str([2] * len(commands))], done.stderr
    assert done.stderr.count("\n") == len(commands)


def test_a_link_to_a_file_that_the_user_named_is_a_file(home, capsys):
    os.rename("pets.npz", "there.npz")
    os.symlink("there.npz", "here.npz")
    assert command("train", "here.npz", *BRIEF) == 0
    said(capsys)


@pytest.mark.parametrize(
    ("resumed", "why"), [(True, "the checkpoint do not fit together: the network"), (False, "take a smaller --network")]
)
def test_the_network_of_a_strangers_config_takes_no_memory(home, capsys, monkeypatch, resumed, why):
    assert command("train", "pets.npz", *BRIEF, "--out", "run") == 0
    os.remove("run/summary.json")
    config = json.loads((home / "run" / "config.json").read_text())
    (home / "run" / "config.json").write_text(json.dumps(config | {"network": "mlp:width=65536,depth=1000"}))
    if not resumed:
        os.remove(home / "run" / last_checkpoint(home / "run"))
    made = []
    monkeypatch.setattr(run, "start", lambda *_: made.append("networks"))
    assert command("train", "--resume", "run") == 2
    assert why in said(capsys)
    assert not made


def test_what_a_checkpoint_holds_is_enough_for_its_network(home, capsys):
    """The bound is no tighter than a real checkpoint, of one network or two, with a head or whole."""
    for method in ("standard", "decoupling"):
        assert command("train", "pets.npz", "--epochs", 2, "--method", method, "--out", method) == 0
        config, stored = model.read_config(home / method / "config.json")
        assert weight(config.network, (6,), 4) > 0
        model.check_size(home / method, config, stored, (home / method / "checkpoint.safetensors").stat().st_size)
    said(capsys)


def test_a_checkpoint_cut_short_still_gives_way_to_the_one_before(home, capsys, monkeypatch):
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    assert command("train", "pets.npz", *BRIEF, "--out", "run") == 0
    os.remove("run/summary.json")
    os.truncate("run/checkpoint.safetensors", 10)
    assert command("train", "--resume", "run") == 0
    assert "taking the one before" in said(capsys)


def test_links_between_folders_do_not_multiply(tmp_path):
    for one, other in permutations("abcdefgh", 2):
        (tmp_path / one).mkdir(exist_ok=True)
        (tmp_path / one / "p.png").touch()
        (tmp_path / one / f"to-{other}").symlink_to(tmp_path / other)
    files = class_files(os.fsencode(tmp_path), None, Counter())
    assert len(files) == 8 * 8
    for name in "abcdefgh":
        assert len({os.path.realpath(file.path) for file in files if file.label == name}) == 8


def test_folders_may_be_deeper_than_calls(tmp_path):
    deep = tmp_path / "a" / "/".join("d" * 200)
    deep.mkdir(parents=True)
    (deep / "q.png").touch()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        files = class_files(os.fsencode(tmp_path), None, Counter())
    finally:
        sys.setrecursionlimit(before)
    assert [file.label for file in files] == ["a"]
