"""The folder of a run: whole files whatever happens, one process at a time, an older run that stays until the new one has begun."""

import json
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import replace

import pytest
from saved_runs import CONFIG, always, begun, noisy

from sprl.checkpoint import Keeper, load, save
from sprl.engine import never
from sprl.errors import InputError
from sprl.files import CHECKPOINT, adopt, check_folder, held, held_to_train, make_folder, tidy, write_config, write_results
from sprl.run import prepare
from sprl.views import write_page


@pytest.fixture
def data(points, tmp_path):
    return noisy(points, tmp_path)


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs."""


def killing(monkeypatch, at):
    """Every change of a name in a folder counts; the process dies before the one numbered `at`."""
    count = [0]

    def counted(call):
        def counting(*args, **options):
            count[0] += 1
            if count[0] > at:
                raise Killed
            return call(*args, **options)

        return counting

    for name in ("replace", "link", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def test_killed_between_any_two_moves_of_a_saving_one_whole_checkpoint_is_there(data, tmp_path, monkeypatch):
    seen = set()
    for at in range(5):
        folder = tmp_path / str(at)
        folder.mkdir()
        run = begun(data, folder, 2)
        next(run.train(always))
        with monkeypatch.context() as patch:
            killing(patch, at)
            with suppress(Killed):
                save(folder, run)
        assert (folder / "checkpoint.safetensors").is_file()  # at every moment
        again = prepare(CONFIG, data)
        assert load(folder, again)
        seen.add((at, again.state.progress.done))
    assert seen == {(0, 2), (1, 2), (2, 2), (3, 3), (4, 3)}


def test_a_run_that_replaces_another_leaves_it_whole_until_it_has_a_checkpoint(data, tmp_path, monkeypatch):
    """And killed anywhere in the exchange, the folder holds the one or the other."""
    old = prepare(replace(CONFIG, epochs=1, method="standard"), data)
    list(old)
    (tmp_path / "old").mkdir()
    write_config(tmp_path / "old", old)
    write_results(tmp_path / "old", old, write_page)
    save(tmp_path / "old", old)
    before = {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()}
    for at in range(40):
        folder = shutil.copytree(tmp_path / "old", tmp_path / str(at))
        run = prepare(CONFIG, data)
        keeper = Keeper(folder, run, never, replaces=True, interval=1000)
        keeper.keep(next(run.train(keeper.pause)))
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
        whole = False
        with monkeypatch.context() as patch:
            killing(patch, at)
            with suppress(Killed):
                keeper.save()
                whole = True
        with held_to_train(folder):
            found = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}
            if found == before:
                assert not whole
            else:
                assert found.keys() == {"config.json", CHECKPOINT}
                assert json.loads(found["config.json"])["epochs"] == 16
                again = prepare(CONFIG, data)
                assert load(folder, again)
                assert again.state.t == 1
        if whole:
            break
    assert 8 < at < 39


def test_adopting_twice_is_adopting_once(data, tmp_path):
    run = begun(data, tmp_path)
    write_config(tmp_path, run)
    (tmp_path / ".new").mkdir()
    next(run.train(always))
    write_config(tmp_path / ".new", run)
    save(tmp_path / ".new", run)
    os.replace(tmp_path / ".new" / "config.json", tmp_path / "config.json")  # half done
    adopt(tmp_path)
    tidy(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", CHECKPOINT, "points.npz"}
    again = prepare(CONFIG, data)
    assert load(tmp_path, again)
    assert again.state.progress.done == 2


def test_one_process_holds_a_folder_and_tidies_it(tmp_path):
    (tmp_path / f".part-{'0' * 32}").write_text("half")
    (tmp_path / "mine.txt").write_text("mine")
    with held(tmp_path):
        assert {p.name for p in tmp_path.iterdir()} == {".lock", "mine.txt"}
        with pytest.raises(InputError, match="another process is training in"), held(tmp_path):
            pass
    with held(tmp_path):
        pass


def test_a_folder_that_is_taken_away_is_one_clear_error(data, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    run = prepare(CONFIG, data)
    row = next(run.train(never))
    with held(folder):
        folder.rename(tmp_path / "gone")
        for keeper in (Keeper(folder, run, never), Keeper(folder, run, always), Keeper(folder, run, always, replaces=True)):
            with pytest.raises(InputError, match=r"cannot write to .*run.*: No such file or directory"):
                keeper.keep(row)
    assert {p.name for p in (tmp_path / "gone").iterdir()} == {".lock"}


def test_a_folder_with_nothing_but_what_a_killed_process_left_counts_as_empty(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".lock").touch()
    (path / ".part-config.json").write_text("{")
    check_folder(str(path), overwrite=False)
    assert make_folder(str(path), "data", overwrite=False) == path
    (path / "mine.txt").touch()
    with pytest.raises(InputError, match="holds other files and no run"):
        check_folder(str(path), overwrite=True)


def test_a_folder_that_cannot_be_written_to_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(InputError, match=r"cannot write to .*file is a file"):
            make_folder(str(path), "data", overwrite=False)
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)
    (tmp_path / "run" / f".part-{'0' * 32}").mkdir()  # stands in the way of every file
    with pytest.raises(InputError, match=r"cannot write to .*run: File exists"), held(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*run: .*file is a file"):
        check_folder(str(tmp_path / "file" / "run"), overwrite=False)
    check_folder(str(tmp_path / "not" / "yet" / "there"), overwrite=False)
