"""Which runs a comparison takes, and how they come to records."""

import itertools
import math
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pytest
from conftest import clusters

from sprl import crew, store
from sprl.checkpoint import Keeper
from sprl.compare import assign, choose, plan, told
from sprl.config import Config, needs_rate
from sprl.data.catalogue import load
from sprl.errors import InputError, SprlWarning
from sprl.files import held
from sprl.methods import DEMONSTRATIONS, METHODS, Standard
from sprl.run import prepare

NEEDING = [name for name, cls in METHODS.items() if needs_rate(cls)]
CONTENDERS = [name for name in METHODS if name not in DEMONSTRATIONS]


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    x, y = clusters()
    path = tmp_path_factory.mktemp("pets") / "pets.npz"
    np.savez(path, x=x[:200], y=y[:200], x_test=x[300:], y_test=y[300:])
    np.savez(path.with_name("bare.npz"), x=x, y=y)
    return path


@pytest.fixture(scope="module")
def data(pets):
    return load(str(pets))


@pytest.fixture
def config(pets):
    return Config(data=str(pets), corrupt="symmetric:0.3", epochs=4, lr=0.01)


def planned(config, data, *methods, seeds=(0,), texts=()):
    names, named = choose(methods)
    return plan(config, names, named, assign(texts, names), seeds, data)


def trained(groups, data, folder, stop=lambda: False):
    """All events of these runs, trained here."""
    return list(crew.one_by_one(groups, data, folder, stop))


def kinds(events):
    return [(event.kind, event.job.name) for event in events if event.kind not in ("row", "begun")]


# What is to be run


def test_methods_by_name_with_commas_or_all():
    assert choose(["sprl,standard", "curriculum"]) == (["sprl", "standard", "curriculum"], {"sprl", "standard", "curriculum"})
    assert choose(["standard, sprl,standard"])[0] == ["standard", "sprl"]
    assert choose(["all"]) == (CONTENDERS, set())
    assert choose(["sprl,all"]) == (CONTENDERS, {"sprl"})
    assert choose(["standard,resistance"])[0] == ["standard", "resistance"]
    assert choose(["all,resistance"]) == (list(METHODS), {"resistance"})
    assert set(METHODS) - set(CONTENDERS) == {"resistance"} == set(DEMONSTRATIONS)
    with pytest.raises(InputError, match=r"unknown method 'standrad'; did you mean 'standard'\?"):
        choose(["sprl,standrad"])
    with pytest.raises(InputError, match=r"which methods\?"):
        choose([","])


def test_fields_of_one_method_and_of_all_that_have_them():
    values = assign(["curriculum.K=7", "K=5", "sprl.T1=3"], ["standard", "sprl", "curriculum"])
    assert values == {"standard": {}, "sprl": {"K": "5", "T1": "3"}, "curriculum": {"K": "7"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("K", "must be FIELD=VALUE"),
        ("gama_d=5", "unknown field of the methods compared 'gama_d'; did you mean 'gamma_d'?"),
        ("sprl.gama_d=5", "unknown field of sprl 'gama_d'; did you mean 'gamma_d'?"),
        ("curriculm.K=5", "unknown method in --set 'curriculm'; did you mean 'curriculum'?"),
        ("distillation.K=5", "unknown method in --set 'distillation'; choose from: sprl, standard, curriculum"),
    ],
)
def test_fields_that_nobody_has(text, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        assign([text], ["sprl", "standard", "curriculum"])


def test_a_run_for_each_method_and_seed_named_as_the_run_itself(config, data):
    jobs = planned(config, data, "standard,sprl", seeds=(5, 6), texts=["T1=2"]).jobs
    assert [job.name for job in jobs] == ["standard, seed 5", "standard, seed 6", "sprl, seed 5", "sprl, seed 6"]
    for job in jobs:
        asked = replace(config, method=job.config.method, seed=job.config.seed, fields={"T1": 2} if job.config.method == "sprl" else {})
        run = prepare(asked)
        assert job.config == run.config
        assert job.key == store.key_of(run.config.to_json(), run.fingerprint, None)


def test_what_is_wrong_is_told_before_anything_is_trained(config, data, pets):
    with pytest.raises(InputError, match="bare has no test rows to compare methods on: give trusted ones, as x_test"):
        planned(config, load(str(pets.with_name("bare.npz"))), "standard")
    with pytest.raises(InputError, match="sprl: T1 is 4 but must be at least 1 and less than the 4 epochs"):
        planned(config, data, "standard,sprl", texts=["T1=4"])
    with pytest.raises(InputError, match=r"^unknown network 'mpl'"):
        planned(replace(config, network="mpl"), data, "sprl")


@pytest.mark.skipif(not NEEDING, reason="no method needs the noise rate")
def test_methods_that_need_a_rate_that_nobody_knows(config, data):
    config = replace(config, epochs=20)
    unknown = replace(config, corrupt=None)
    found = planned(unknown, data, "all")
    assert found.left_out == NEEDING
    assert {job.config.method for job in found.jobs} == set(CONTENDERS) - set(NEEDING)
    with pytest.raises(InputError, match=f"^{NEEDING[0]} needs to know the share of wrong labels".replace("+", r"\+")):
        planned(unknown, data, f"all,{NEEDING[0]}")
    for known, rate in ((config, 0.3), (replace(unknown, noise_rate=0.25), 0.25)):
        found = planned(known, data, "all")
        assert found.left_out == []
        assert {job.config.fields["noise_rate"] for job in found.jobs if job.config.method in NEEDING} == {rate}
        assert f"{NEEDING[0]} ({rate})" in told(found.jobs)
    assert told(planned(config, data, "mentornet,standard", texts=["rate=0.2"]).jobs) == "told the share of wrong labels: mentornet (0.2)"


def test_a_rate_is_no_change_to_methods_that_do_not_use_it(config, data):
    some, others = (planned(replace(config, noise_rate=rate), data, "standard,sprl").jobs for rate in (None, 0.2))
    assert some[0] == others[0]
    assert some[0].config == others[0].config  # a run that was stopped, too, is gone on with
    assert some[1] != others[1]
    assert others[1].config.fields["noise_rate"] == 0.2
    assert prepare(others[1].config, data).config == others[1].config


# From runs to records


def test_every_method_on_the_same_labels_in_turn_or_together(config, data, tmp_path):
    jobs = planned(replace(config, epochs=12), data, "all", seeds=(0, 1)).jobs
    alone = trained([[job] for job in jobs if job.config.seed == 0], data, tmp_path / "alone")
    assert all(kind == "ended" for kind, _ in kinds(alone))
    together = trained([[job for job in jobs if job.config.method in ("standard", "sprl")]], data, tmp_path / "together")
    records = {record.key: record for record in store.all(tmp_path / "alone")}
    assert len(records) == len(CONTENDERS)
    assert len({record.labels for record in records.values()}) == 1
    side = store.all(tmp_path / "together")
    assert [record.together for record in side] == [4] * 4
    for record in side:
        if record.seed == 0:
            assert record.curves == records[record.key].curves
        else:
            assert record.labels not in {other.labels for other in records.values()}
    assert len(kinds(together)) == 4
    for folder in ("alone", "together"):
        assert list((tmp_path / folder / "unfinished").iterdir()) == []


def test_stopped_anywhere_and_gone_on_with_it_is_the_unbroken_run(config, data, tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "1000")
    jobs = planned(replace(config, epochs=24), data, "sprl,standard").jobs
    trained([[job] for job in jobs], data, tmp_path / "whole")
    calls = itertools.count(1)
    stops = 0
    for group in ([[job] for job in jobs], [jobs]):  # alone; together
        folder, ended = tmp_path / f"broken-{len(group)}", []
        while len(ended) < 2:
            events = trained(group, data, folder, lambda: next(calls) % 40 == 0)  # every so many batches
            ended += [event for event in events if event.kind == "ended"]
            stops += sum(event.kind == "stopped" for event in events)
            assert not any(event.kind == "failed" for event in events)
        for job in jobs:
            one, other = store.read(folder, job.key), store.read(tmp_path / "whole", job.key)
            assert (one.curves, one.summary, one.labels) == (other.curves, other.summary, other.labels)
    assert stops > 4


@dataclass(frozen=True)
class Breaking(Standard):
    """Its loss is not finite from the third epoch on."""

    def init(self, y, num_classes, epochs):
        return {"epoch": y.new_zeros((), dtype=y.dtype)}

    def refresh(self, memory, y, clock, predict):
        return {"epoch": y.new_tensor(clock.t)}

    def step(self, logits, batch, memory):
        step = super().step(logits, batch, memory)
        return step._replace(loss=step.loss * (math.nan * memory["epoch"]).where(memory["epoch"] > 2, 1.0))


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_run_that_fails_leaves_the_others_alone(config, data, tmp_path, monkeypatch, side_by_side):
    jobs = planned(config, data, "standard,curriculum").jobs
    trained([[job] for job in jobs], data, tmp_path / "well")
    monkeypatch.setitem(METHODS, "breaking", Breaking)
    jobs = [jobs[0], *planned(config, data, "breaking").jobs, jobs[1]]
    events = trained([jobs] if side_by_side else [[job] for job in jobs], data, tmp_path / "store")
    assert sorted(kinds(events)) == [("ended", "curriculum, seed 0"), ("ended", "standard, seed 0"), ("failed", "breaking, seed 0")]
    why = next(event.told for event in events if event.kind == "failed")
    assert why.startswith("the loss of epoch 3, batch 1 of 6, is nan: most likely a learning rate of 0.01 is too high")
    for record in store.all(tmp_path / "well"):
        assert store.read(tmp_path / "store", record.key).curves == record.curves
    assert list((tmp_path / "store" / "unfinished").iterdir()) == []  # it would fail again


class Mistaken(Standard):
    """Somebody's method, with a mistake in it."""

    def refresh(self, memory, y, clock, predict):
        return {} if clock.t < 3 else {"nothing": 1 / 0}


def test_a_mistake_in_a_method_fails_its_runs_and_is_told_with_its_place(config, data, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "mistaken", Mistaken)
    jobs = planned(config, data, "mistaken,standard").jobs
    events = trained([[job] for job in jobs], data, tmp_path)
    assert kinds(events) == [("failed", "mistaken, seed 0"), ("ended", "standard, seed 0")]
    why = next(event.told for event in events if event.kind == "failed")
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(test_compare\.py, line \d+\)", why)
    assert list((tmp_path / "unfinished").iterdir()) == []  # what is mended trains from the beginning


def test_a_full_disk_fails_one_run_which_can_be_gone_on_with(config, data, tmp_path, monkeypatch):
    [job] = planned(config, data, "standard").jobs
    saves = itertools.count()

    def save(folder, run, real=crew.Keeper.save.__globals__["save"]):
        if next(saves) == 2:
            try:
                raise OSError(28, "No space left on device")
            except OSError as error:
                raise InputError("cannot write") from error
        real(folder, run)

    monkeypatch.setenv("SPRL_CHECKPOINT_SECONDS", "0")
    with monkeypatch.context() as patch:
        patch.setattr("sprl.checkpoint.save", save)
        assert kinds(trained([[job]], data, tmp_path)) == [("failed", "standard, seed 0")]
    assert (store.unfinished(tmp_path, job.key) / "checkpoint.safetensors").is_file()
    events = trained([[job]], data, tmp_path)
    assert kinds(events) == [("ended", "standard, seed 0")]


def test_a_run_that_another_process_has_is_waited_for(config, data, tmp_path, monkeypatch):
    monkeypatch.setattr(crew, "AGAIN", 0.01)
    first, second = planned(config, data, "standard", seeds=(0, 1)).jobs
    trained([[first]], data, tmp_path / "other")
    path = store.unfinished(tmp_path, first.key)
    path.mkdir(parents=True)
    lock, seen = ExitStack(), []
    lock.enter_context(held(path))
    for event in crew.one_by_one([[first], [second]], data, tmp_path, lambda: False):
        seen.append((event.kind, event.job.name))
        if seen.count(("busy", "standard, seed 0")) == 3:  # now the other process ends
            store.write(tmp_path, store.read(tmp_path / "other", first.key))
            lock.close()
    assert ("ended", "standard, seed 1") in seen
    assert seen[-1] == ("ended", "standard, seed 0")
    assert ("begun", "standard, seed 0") not in seen
    assert not path.exists()


def test_what_is_left_beside_a_record_goes_unless_somebody_has_it_or_the_record_is_none(config, data, tmp_path):
    jobs = planned(config, data, "standard", seeds=(0, 1, 2)).jobs
    trained([jobs], data, tmp_path)
    left, taken, unread = [store.unfinished(tmp_path, job.key) for job in jobs]
    for path in (left, taken, unread):
        path.mkdir()
        (path / "config.json").write_text("{}")
    store.path_of(tmp_path, jobs[2].key).write_text("{}")
    with held(taken), pytest.warns(SprlWarning, match="is no record"):
        crew.tidy(tmp_path, [job.key for job in jobs])
    assert [path.exists() for path in (left, taken, unread)] == [False, True, True]


def test_while_others_have_all_that_is_left_it_sleeps(config, data, tmp_path, monkeypatch):
    jobs = planned(config, data, "standard", seeds=(0, 1, 2)).jobs
    rounds, slept = itertools.count(1), []
    monkeypatch.setattr(crew.time, "sleep", slept.append)
    with ExitStack() as locks:
        for job in jobs[:2]:
            path = store.unfinished(tmp_path, job.key)
            path.mkdir(parents=True)
            locks.enter_context(held(path))
        events = trained([[job] for job in jobs], data, tmp_path, lambda: len(slept) == 3 or next(rounds) > 1000)
    assert slept == [crew.AGAIN] * 3
    found = [event.kind for event in events if event.kind != "row"]
    assert (found.count("ended"), found.count("busy")) == (1, 2 + 2 * 3)  # a look at both before each sleep, and at first


def test_seconds_of_a_run_are_without_the_making_of_another_ones_record(config, data, tmp_path, monkeypatch):
    jobs = planned(config, data, "standard,curriculum", seeds=(0, 1)).jobs
    record_of = store.record_of

    def slow(*words):
        time.sleep(0.3)
        return record_of(*words)

    monkeypatch.setattr(store, "record_of", slow)
    trained([jobs], data, tmp_path)
    seconds = [record.seconds for record in store.all(tmp_path)]
    assert len(seconds) == 4
    assert max(seconds) - min(seconds) < 0.3


def test_what_has_ended_gets_its_record_when_the_rest_is_stopped_or_fails(config, data, tmp_path, monkeypatch):
    short, long = (planned(replace(config, epochs=epochs), data, "standard").jobs[0] for epochs in (2, 6))
    stops = itertools.count()
    kept = trained([[short, long]], data, tmp_path / "stopped", lambda: next(stops) > 40)
    assert sorted(kinds(kept)) == [("ended", short.name), ("stopped", long.name)]
    monkeypatch.setitem(METHODS, "breaking", Breaking)
    [breaking] = planned(config, data, "breaking").jobs
    assert sorted(kinds(trained([[short, breaking]], data, tmp_path / "failed"))) == [("ended", short.name), ("failed", breaking.name)]
    for name in ("stopped", "failed"):
        assert [record.key for record in store.all(tmp_path / name)] == [short.key]


def test_a_checkpoint_of_something_else_is_not_gone_on_from(config, data, tmp_path):
    [job] = planned(config, data, "standard").jobs
    other = prepare(replace(job.config, lr=0.5), data)
    path = store.unfinished(tmp_path, job.key)
    path.mkdir(parents=True)
    next(iter(other))
    Keeper(path, other, lambda: False).save()
    with pytest.warns(UserWarning, match="standard, seed 0 begins anew"):
        events = trained([[job]], data, tmp_path)
    assert kinds(events) == [("ended", "standard, seed 0")]
    assert events[0].told == 0


def test_killed_between_last_epoch_and_record_nothing_is_trained_again(config, data, tmp_path, monkeypatch):
    [job] = planned(config, data, "standard").jobs

    class Killed(BaseException):
        pass

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", dies)
        with pytest.raises(Killed):
            trained([[job]], data, tmp_path)
    assert [event.kind for event in trained([[job]], data, tmp_path)] == ["ended"]
