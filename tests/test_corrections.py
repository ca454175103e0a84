"""Corrections put into a run's labels, or refused."""

import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl import cells, corrections
from sprl.audit import judge
from sprl.config import Config
from sprl.corrections import Corrections, Labelled, apply, labels_hash, read, read_note, run_id, suggested, write
from sprl.data.catalogue import relabel
from sprl.errors import InputError

CLASSES = ("=cat", 'dog, "big"', "'bird", "[bold]é\n", "-5")


def table(n=40, wrong=8, seed=0):
    """labels.csv as a table: the first `wrong` labels are, plainly."""
    rng = np.random.default_rng(seed)
    given = rng.integers(0, len(CLASSES), n)
    bad = np.arange(n) < wrong
    quality = np.where(bad, 0.05, 0.95) + rng.uniform(-0.02, 0.02, n)
    names = np.array(CLASSES, dtype=object)
    return pd.DataFrame(
        {
            "id": [f"{'=' if i % 3 else ''}{i:03}" for i in range(n)],
            "index": np.arange(n),
            "given_label": names[given],
            "predicted_label": names[np.where(bad, (given + 1) % len(CLASSES), given)],
            "confidence": 0.9,
            "label_quality": quality,
            "wrong_probability": judge(quality).wrong,
            "is_label_issue": bad,
        }
    )


def saved(folder, frame, classes=CLASSES):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**Config().to_json(), "model": {"classes": list(classes)}}))
    cells.write(folder / "labels.csv", cells.guarded(frame))
    return folder


@pytest.fixture
def run(tmp_path):
    return Labelled.read(saved(tmp_path / "run", table()))


def corrections_file(path, run, rows, labels=None, note=None):
    """rows: (id, given, corrected, verdict)."""
    note = f"sprl corrections, run={run_id(run.path)}, labels={labels or run.hash}" if note is None else note
    cells.write(path, cells.guarded(pd.DataFrame(rows, columns=list(corrections.COLUMNS), dtype=object)), note)
    return path


def test_labels_are_read_back_as_they_were_written(run):
    wanted = table()
    pd.testing.assert_frame_equal(run.table.drop(columns="index"), wanted.drop(columns="index"), check_dtype=False, check_exact=True)
    assert run.table["id"][3] == "003"
    assert run.cells["given_label"].str.startswith("'").any()
    assert run.verdict.wrong.tolist() == wanted["wrong_probability"].tolist()


def test_runs_and_labels_are_known_by_their_hashes(run):
    assert run_id(run.path) == hashlib.sha256((run.path / "config.json").read_bytes()).hexdigest()[:12]
    text = "".join(f"{row.id}\t{row.given_label}\n" for row in table().itertuples())
    assert run.hash == labels_hash(table()["id"], table()["given_label"]) == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert labels_hash(["a", "b"], ["x", "y"]) != labels_hash(["b", "a"], ["y", "x"])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_corrections_make_a_round_trip(tmp_path_factory, data):
    names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
    classes = data.draw(st.lists(names, min_size=2, max_size=4, unique=True))
    ids = data.draw(st.lists(names, min_size=1, max_size=8, unique=True))
    labels = st.sampled_from(classes)
    frame = table(len(ids), 0).assign(id=ids, given_label=[data.draw(labels) for _ in ids], predicted_label=classes[0])
    folder = tmp_path_factory.getbasetemp() / "round"
    run = Labelled.read(saved(folder, frame, classes))
    rows, wanted = [], dict(zip(frame["id"], frame["given_label"], strict=True))
    for row in data.draw(st.lists(st.sampled_from(range(len(ids))), unique=True)):
        id, was, now = ids[row], frame["given_label"][row], data.draw(labels)
        verdict = "kept" if now == was else data.draw(st.sampled_from(["accepted", "other", "skipped"]))
        rows.append((id, was, "" if verdict == "skipped" else now, verdict))
        wanted[id] = now if verdict in ("accepted", "other") else was
    found = read(corrections_file(folder / "corrections.csv", run, rows), run)
    assert [ids[row] for row in found.rows] == [row[0] for row in rows]
    checked, wrong = found.checked()
    assert [ids[row] for row in checked] == [row[0] for row in rows if row[3] != "skipped"]
    assert wrong.tolist() == [row[3] != "kept" for row in rows if row[3] != "skipped"]
    corrected = apply(run, found)
    assert dict(zip(corrected["id"], corrected["label"], strict=True)) == wanted
    write(folder / "corrected.csv", run, corrected)
    note, back = cells.read(folder / "corrected.csv")
    assert {cells.unguard(row.id): cells.unguard(row.label) for row in back.itertuples()} == wanted
    kind, stated = read_note(note)
    assert kind == "labels"
    assert stated["run"] == run_id(folder)
    assert stated["labels"] == labels_hash(ids, wanted.values())
    assert int(stated["corrected"]) == sum(row[3] in ("accepted", "other") for row in rows)


def test_what_was_corrected_is_the_next_run_s_labels(run, tmp_path):
    write(tmp_path / "corrected.csv", run, apply(run, suggested(run, 5)))
    first = (tmp_path / "corrected.csv").read_text().splitlines()[0]
    frame = table()
    frame.loc[run.listed(run.verdict.wrong, budget=5).rows, "given_label"] = frame["predicted_label"]
    again = Labelled.read(saved(tmp_path / "again", frame))
    assert first == f"# sprl labels, run={run_id(run.path)}, labels={again.hash}, corrected=5"


ROW = ("=001", None, "-5", "other")  # None: as given


@pytest.mark.parametrize(
    ("rows", "how", "message"),
    [
        ([ROW], {"labels": "0" * 16}, "corrects other labels .*than .*run was trained on"),
        ([ROW], {"note": ""}, "first line must be # sprl corrections"),
        ([ROW], {"note": "sprl labels, run=1, labels=2"}, "first line must be # sprl corrections"),
        ([ROW], {"note": "sprl corrections, run=1"}, "first line must be # sprl corrections"),
        ([("=999", None, "-5", "other")], {}, "has no row with the id '=999'"),
        ([("1", None, "-5", "other")], {}, "has no row with the id '1'; has a spreadsheet changed it?"),
        ([ROW, ROW], {}, "more than one row with the id '=001'"),
        ([("=001", "dog", "-5", "other")], {}, "the given_label of '=001' is 'dog', but"),
        ([("=001", None, "=cas", "other")], {}, "'=cas'; did you mean '=cat'.*; a new class cannot be brought in here, only with the data"),
        ([("=001", None, "", "other")], {}, "unknown corrected_label"),
        ([("=001", None, "x" * 5000, "other")], {}, "unknown corrected_label .*4,960 characters more"),
        ([("=001", None, "-5", "acepted")], {}, "unknown verdict on '=001' .*did you mean 'accepted'"),
        ([("=001", None, "", "")], {}, "unknown verdict"),
        ([("=001", None, None, "accepted")], {}, "is accepted, but its corrected_label is the given one"),
        ([("=001", None, None, "other")], {}, "is other, but its corrected_label is the given one"),
        ([("=001", None, "-5", "kept")], {}, "is kept, but its corrected_label '-5' is not the given one"),
        ([("=001", None, "-5", "skipped")], {}, "is skipped, but has the corrected_label"),
    ],
)
def test_corrections_that_do_not_fit_are_refused(run, tmp_path, rows, how, message):
    given = run.table.set_index("id")["given_label"]
    assert given["=001"] not in ("-5", "dog")
    rows = [tuple(given.get(row[0], "-5") if cell is None else cell for cell in row) for row in rows]
    with pytest.raises(InputError, match=message):
        read(corrections_file(tmp_path / "corrections.csv", run, rows, **how), run)


def test_columns_that_lack_are_named(run, tmp_path):
    (tmp_path / "c.csv").write_text(f"# sprl corrections, run=1, labels={run.hash}\nid,verdict\n003,kept\n")
    with pytest.raises(InputError, match="lacks the columns given_label, corrected_label"):
        read(tmp_path / "c.csv", run)


def test_no_corrections_change_nothing(run, tmp_path):
    found = read(corrections_file(tmp_path / "corrections.csv", run, []), run)
    assert apply(run, found)["label"].tolist() == run.table["given_label"].tolist()


def test_suggestions_are_those_of_the_most_suspicious(run):
    found = suggested(run, 10)
    assert set(found.rows[:8]) == set(range(8))
    assert (np.diff(run.verdict.wrong[found.rows]) <= 0).all()
    assert (found.count("accepted"), found.count("kept")) == (8, 2)
    corrected = apply(run, found)["label"]
    assert corrected[:8].tolist() == run.table["predicted_label"][:8].tolist()
    assert corrected[8:].tolist() == run.table["given_label"][8:].tolist()
    assert apply(run, Corrections(found.rows, found.labels, np.full(10, "skipped")))["label"].tolist() == run.table["given_label"].tolist()


def test_a_class_of_very_few_is_never_listed(tmp_path):
    frame = table()
    frame["given_label"] = ["-5"] * 3 + ["=cat"] * 37
    run = Labelled.read(saved(tmp_path / "run", frame))
    assert set(run.listed(run.verdict.wrong).rows) == {3, 4, 5, 6, 7}
    assert len(run.listed(run.verdict.wrong, budget=1000).rows) == 37
    assert run.listed(run.verdict.wrong).expected == pytest.approx(run.verdict.wrong[3:8].sum())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns=["label_quality", "id"]), "lacks id, label_quality: it is not as this version"),
        (lambda f: f[:0], "holds no rows"),
        (lambda f: f.assign(id="a"), "more than one row with the id 'a'"),
        (lambda f: f.assign(label_quality=1.5), "label_quality in row 0 .* is '1.5', but must be a number from 0 to 1"),
        (lambda f: f.assign(confidence="nan"), "confidence in row 0 .* is 'nan'"),
        (lambda f: f.assign(wrong_probability=-0.1), "wrong_probability in row 0 .* is '-0.1'"),
        (lambda f: f.assign(label_quality=""), "must be a number"),
        (lambda f: f.assign(label_quality="\u0661"), "must be a number"),
        (lambda f: f.assign(is_label_issue="perhaps"), "is_label_issue must be True or False, not 'perhaps'"),
        (lambda f: f.assign(given_label="=cut"), "unknown given_label in .*'=cut'; did you mean '=cat'"),
        (lambda f: f.assign(predicted_label=""), "unknown predicted_label"),
        (lambda f: f.assign(true_label="x" * 9999), "unknown true_label .* characters more"),
    ],
)
def test_labels_of_strangers_are_checked(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        Labelled.read(saved(tmp_path / "run", change(table())))


def test_a_run_without_labels_or_classes(tmp_path):
    folder = saved(tmp_path / "my run", table())
    (folder / "labels.csv").unlink()
    with pytest.raises(InputError, match=r"holds no labels.csv: .*sprl train --resume '.*my run'"):
        Labelled.read(folder)
    (folder / "config.json").write_text('{"model": {"classes": "abc"}}')
    with pytest.raises(InputError, match="not a run's config"):
        Labelled.read(folder)
    with pytest.raises(InputError, match="is no run"):
        Labelled.read(tmp_path)


def test_shouted_flags_of_a_spreadsheet_are_read(tmp_path):
    folder = saved(tmp_path / "run", table())
    (folder / "labels.csv").write_text((folder / "labels.csv").read_text().replace("True", "TRUE").replace("False", "FALSE"))
    assert Labelled.read(folder).table["is_label_issue"].sum() == 8


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("id,label\n=a,+x\n'=a,'+x\n''b,-1\n", [0, 1, 2]),  # as they are, where they are so
        ("# sprl labels, run=1\nid,label\n'=a,'+x\n''=a,''+x\n'''b,-1\n", [0, 1, 2]),  # ours: guarded throughout
        ("\"# sprl labels, run=1\",\nid,label\n\"'=a\",\"'+x\"\n''=a,''+x\n'''b,-1\n", [0, 1, 2]),  # through a spreadsheet
        ("# mine\nid,label\n=a,+x\n''=a,-1\n'''b,''+x\n", [0, 2, 1]),  # guarded by other hands
    ],
)
def test_guarded_ids_and_labels_are_matched_in_training(tmp_path, content, labels):
    (tmp_path / "labels.csv").write_text(content)
    data = SimpleNamespace(name="d", ids=("=a", "'=a", "''b"), classes=("+x", "'+x", "-1"), skipped=(), y=np.zeros(3), part=None)
    assert relabel(data, str(tmp_path / "labels.csv")).tolist() == labels
