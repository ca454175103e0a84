"""From the verdict to corrected labels and the next run, as a user types it."""

import json
import re
import shlex
import shutil
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.cells import cell_len

from sprl import cells, corrections, reviews
from sprl.audit import confusions, recalibrate
from sprl.cli import main
from sprl.config import Config
from sprl.corrections import Labelled, run_id
from sprl.files import held, write_config, write_results
from sprl.run import prepare
from sprl.views import write_page

LABELS = ["id", "index", "given_label", "predicted_label", "confidence", "label_quality", "wrong_probability", "is_label_issue"]


@pytest.fixture
def sprl(monkeypatch, capsys, tmp_path):
    """Types a command into a folder of its own, and gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))

    def typed(*words):
        monkeypatch.setattr(sys, "argv", ["sprl", *map(str, words)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return typed


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Digits, a third of whose labels were made wrong."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    folder.mkdir()
    run = prepare(Config(corrupt="symmetric:0.33", epochs=10, fields={"T1": 4}))
    list(run)
    write_config(folder, run)
    write_results(folder, run, write_page)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def two_heaps(n=600, wrong=120, classes=("ant", "bee", "cat"), seed=0):
    """A labels.csv with wrong and right labels far apart."""
    rng = np.random.default_rng(seed)
    given = rng.integers(0, len(classes), n)
    bad = np.arange(n) < wrong
    quality = 1 / (1 + np.exp(-rng.normal(np.where(bad, -3, 3), 0.8)))
    names = np.array(classes, dtype=object)
    return pd.DataFrame(
        {
            "id": [f"{i:04}" for i in range(n)],
            "index": np.arange(n),
            "given_label": names[given],
            "predicted_label": names[np.where(bad, (given + 1) % len(classes), given)],
            "confidence": 0.9,
            "label_quality": quality,
            "wrong_probability": np.where(bad, 0.9, 0.1),
            "is_label_issue": bad,
        }
    )


def saved(folder, frame, classes=("ant", "bee", "cat"), **config):
    folder.mkdir()
    model = {"classes": list(classes), "preprocess": {"shape": [4], "mean": None}}
    (folder / "config.json").write_text(json.dumps({**Config(**config).to_json(), "model": model}))
    cells.write(folder / "labels.csv", cells.guarded(frame))
    return folder


def reviewed(folder, count, mistakes=0, skip=0):
    """What a person makes of the most suspicious: all taken, but the last few kept, and some more skipped."""
    run = Labelled.read(folder)
    rows = run.listed(run.verdict.wrong, budget=count + skip).rows
    chosen = run.table.iloc[rows].reset_index(drop=True)
    verdict = np.array(["accepted"] * (count - mistakes) + ["kept"] * mistakes + ["skipped"] * skip)
    label = np.where(verdict == "skipped", "", np.where(verdict == "kept", chosen["given_label"], chosen["predicted_label"]))
    frame = pd.DataFrame({"id": chosen["id"], "given_label": chosen["given_label"], "corrected_label": label, "verdict": verdict})
    cells.write(folder.parent / "corrections.csv", cells.guarded(frame), f"sprl corrections, run={run_id(folder)}, labels={run.hash}")
    return folder.parent / "corrections.csv"


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != ".lock"}


def test_an_audit_tells_all_and_writes_nothing(sprl, run):
    before = contents(run)
    code, said, err = sprl("audit", "run")
    assert (code, err) == (0, "")
    frame = pd.read_csv(run / "labels.csv", dtype={"id": str})
    assert list(frame) == [*LABELS, "true_label"]
    wrong = (frame["given_label"] != frame["true_label"]).mean()
    listed = Labelled.read(run).listed(Labelled.read(run).verdict.wrong).rows
    assert "1,347 labels, 10 classes, method sprl" in said
    assert f"known in this experiment: {100 * wrong:.1f} % of all labels are really wrong" in said
    assert f"List      {len(listed):,} labels, those more likely wrong than right; " in said
    assert "another list" not in said
    assert len(re.findall(r"given as \d  \d+ expected  \d+\.\d % of all \d", said.replace("   ", "  "))) == 5
    assert said.count("█") > 10
    assert len(re.findall(r"digits/\d+ +given as \d +rather \d \(\d+ %\) +\d+\.\d % wrong", said)) == 10
    assert said.splitlines()[-1].endswith("then: sprl apply run corrections.csv")
    assert contents(run) == before


@pytest.mark.parametrize("option", [("--precision", "0.9"), ("--budget", "37")])
def test_another_list_changes_the_flags_and_no_other_byte(sprl, run, option):
    before = contents(run)
    code, said, err = sprl("audit", "run", *option)
    assert (code, err) == (0, "")
    assert "is_label_issue marks this list" in said
    after = contents(run)
    assert {name for name in before if before[name] != after[name]} == {"labels.csv"}
    old, new = (content["labels.csv"].decode().splitlines() for content in (before, after))
    place = LABELS.index("is_label_issue")
    assert [line.split(",")[:place] for line in old] == [line.split(",")[:place] for line in new]
    assert [line.split(",")[place + 1 :] for line in old] == [line.split(",")[place + 1 :] for line in new]
    labelled = Labelled.read(run)
    flagged = labelled.table["is_label_issue"].to_numpy()
    assert flagged.sum() == (37 if option[0] == "--budget" else len(labelled.listed(labelled.verdict.wrong, precision=0.9).rows))
    assert labelled.verdict.wrong[flagged].min() >= labelled.verdict.wrong[~flagged].max()
    page = re.search(r'id="suspects">(.*?)</script>', after["report.html"].decode(), re.DOTALL)[1]
    at = int(re.search(r"Next      review run/report.html with its threshold at (\d+) %", said)[1])
    shown, fewer = ({row[0] for row in json.loads(page) if row[4] >= percent / 100} for percent in (at, at + 1))
    assert set(np.flatnonzero(flagged)) <= shown
    assert not set(np.flatnonzero(flagged)) <= fewer
    told = f"Note      run/labels.csv marks another list, of {flagged.sum()} labels; to mark this one: sprl audit run --reset\n"
    assert told in sprl("audit", "run")[1]
    assert (sprl("audit", "run", "--reset")[0], contents(run)) == (0, before)


def test_the_list_goes_elsewhere_if_asked(sprl, run):
    before = contents(run)
    assert sprl("audit", "run", "--budget", 25, "--out", "list.csv")[0] == 0
    assert contents(run) == before
    listed = pd.read_csv(run.parent / "list.csv")
    assert list(listed) == [*LABELS, "true_label"]
    assert listed["is_label_issue"].tolist() == [True] * 25
    assert listed["wrong_probability"].is_monotonic_decreasing
    assert set(listed["id"]) == set(pd.read_csv(run / "labels.csv").nlargest(25, "wrong_probability")["id"])
    code, _, err = sprl("audit", "run", "--out", "list.csv")
    assert (code, err) == (2, "sprl: list.csv is there already: choose another --out\n")


def test_a_method_that_is_no_longer_installed_is_named_all_the_same(sprl, tmp_path):
    saved(tmp_path / "run", two_heaps(), method="gce", fields={"q": 0.5, "noise_rate": 0.2})
    code, said, error = sprl("apply", "run", "--suggestions", 3)
    assert (code, error) == (0, "")
    assert next_command(said)[:4] == ["train", "digits", "--method", "gce"]


def straddling(n=600, seed=0):
    """A labels.csv where all labels make one heap, about the tie: most of its top are wrong, and nothing says where that ends."""
    quality = 1 / (1 + np.exp(-np.random.default_rng(seed).normal(0.7, 1.3, n)))
    return two_heaps(n, wrong=300).assign(label_quality=np.sort(quality))


def test_where_the_verdict_is_not_clear_nothing_is_promised(sprl, tmp_path):
    folder = saved(tmp_path / "run", straddling())
    labelled = Labelled.read(folder)
    assert not labelled.verdict.clear
    assert (labelled.verdict.wrong > 0.5).sum() > 5
    for words in (("audit", "run"), ("audit", "run", "--budget", 40)):
        code, said, err = sprl(*words)
        assert (code, err) == (0, "")
        assert re.search(r"^List +\d+ labels, .*; how many of them are wrong cannot be told$", said, re.MULTILINE)
        suspects = said.partition("Pairs ")[2]
        assert re.search(r"^Suspects  0000 +given as \w+  rather \w+$", suspects, re.MULTILINE)
        assert "%" not in re.sub(r"Classes.*?Suspects|with its threshold at \d+ %", "", suspects, flags=re.DOTALL)
        assert "expected" not in said
        assert "train longer" not in said


@pytest.mark.parametrize("checked", [0, 60])
def test_no_precision_is_promised_where_the_verdict_is_not_clear(sprl, tmp_path, checked):
    """Nor after checks: they are of the top, and say nothing of how soon it gets worse below."""
    folder = saved(tmp_path / "run", straddling())
    words = ["audit", "run", "--precision", 0.9]
    if checked:
        words += ["--corrections", reviewed(folder, checked)]
        said = sprl(*words[:2], *words[4:])[1]
        assert re.search(r"^Checked   of 60 checked, 60 were wrong: 100 % \(96 to 100\)$", said, re.MULTILINE)
    before = contents(folder)
    code, said, err = sprl(*words, "--budget", 5)
    assert "use one of them" in err
    code, said, err = sprl(*words)
    assert (code, said, contents(folder)) == (2, "", before)
    assert err.startswith("sprl: no precision can be promised in run: wrong and right labels do not stand apart")
    assert err.endswith("review by rank, such as with --budget 100\n")
    assert sprl("audit", "run", "--precision", 7)[2].startswith("sprl: a precision of 7 is out of bounds")


def test_a_list_that_an_earlier_run_could_not_promise_is_compared_with_none(sprl, tmp_path):
    saved(tmp_path / "old", straddling())
    saved(tmp_path / "new", two_heaps())
    assert "on the list then" not in sprl("audit", "new", "--before", "old", "--precision", 0.9)[1]
    assert "on the list then" in sprl("audit", "new", "--before", "old")[1]


def test_one_heap_is_no_verdict(sprl, tmp_path):
    saved(tmp_path / "run", two_heaps(wrong=0), method="standard")
    code, said, _ = sprl("audit", "run")
    assert code == 0
    told = r"Rate      cannot tell \(estimates: 0\.0 to \d+\.\d %, none of them sure\)\n +wrong and right labels do not stand apart"
    assert re.search(told, said)
    assert "review by rank: the most suspicious first, as far as it pays; --method sprl may tell them apart\n" in said
    assert "of the labels are wrong, by estimate" not in said
    assert "List      empty: no label stands out" in said
    saved(tmp_path / "small", two_heaps(wrong=0), method="standard", network="cnn")
    assert "as far as it pays\n" in sprl("audit", "small")[1]  # SPRL may keep that network from learning


def test_a_person_s_checks_set_the_probabilities(sprl, tmp_path):
    folder = saved(tmp_path / "run", two_heaps())
    file = reviewed(folder, 49, mistakes=5, skip=30)
    code, said, _ = sprl("audit", "run", "--corrections", file)
    assert (code, "Checked   49 labels: 1 more are needed" in said) == (0, True)
    file = reviewed(folder, 60, mistakes=9, skip=3)
    labelled = Labelled.read(folder)
    rows, found = corrections.read(file, labelled).checked()
    moved = recalibrate(labelled.verdict.wrong, rows, found)
    code, said, _ = sprl("audit", "run", "--corrections", file)
    assert f"of 60 checked, 51 were wrong: 85 % (76 to 91); expected were {labelled.verdict.wrong[rows].sum():.0f}" in said
    assert re.findall(r"[\d.]+ % .*of (?:the|all) labels are wrong", said) == [f"{reviews.rate(labelled.verdict)} of the labels are wrong"]
    assert f"List      {(np.delete(moved, rows) > 0.5).sum()} labels" in said
    suspects = re.findall(r"(\d{4})  given as", said)
    assert len(set(suspects) - set(labelled.table["id"].iloc[corrections.read(file, labelled).rows])) == 10
    assert "to mark this one: sprl audit run --reset --corrections" in said
    shutil.move(file, folder / "corrections.csv")
    assert sprl("audit", "run")[1] == said.replace(f" --corrections {file}", "")  # found beside the labels


def test_pairs_are_the_matrix_of_confusions(run):
    labelled = Labelled.read(run)
    wrong = labelled.verdict.wrong
    matrix = confusions(labelled.table, list(labelled.classes))
    place = {name: i for i, name in enumerate(labelled.classes)}
    found = reviews.pairs(labelled, wrong)
    counted = np.zeros_like(matrix)
    for pair in found:
        row, column = place[pair.true], place[pair.given]
        counted[row, column] = pair.expected
        assert pair.share == pytest.approx(pair.expected / matrix[row].sum())
    np.testing.assert_allclose(counted, matrix - np.diag(np.diag(matrix)))
    assert [pair.expected for pair in found] == sorted((pair.expected for pair in found), reverse=True)


def test_many_classes_show_the_worst(sprl, tmp_path):
    classes = [f"class {i}" for i in range(30)]
    saved(tmp_path / "run", two_heaps(3000, 600, classes), classes)
    said = sprl("audit", "run")[1]
    assert "the share of each that is on the list, the highest 10" in said
    shares = [float(share) for share in re.findall(r"([\d.]+) % of \d+$", said, re.MULTILINE)]
    assert len(shares) == 10
    assert shares == sorted(shares, reverse=True)


def test_names_of_strangers_do_no_harm_on_the_terminal(sprl, tmp_path):
    classes = ("[bold red]x[/]", "\x1b[31mred\n\u202e", "=" + "w" * 300)
    frame = two_heaps(classes=classes)
    frame["id"] = [f"\x1b]0;{i}\x07\r\n[link=http://x]日本語{'é' * 100}" for i in range(len(frame))]
    saved(tmp_path / "run", frame, classes)
    code, said, err = sprl("audit", "run")
    assert (code, err) == (0, "")
    assert "[bold red]x[/]" in said
    assert all(c.isprintable() or c == "\n" for c in said)
    assert max(map(cell_len, said.splitlines())) < 200
    assert sprl("apply", "run", "--suggestions", 3)[0] == 0
    saved(tmp_path / "strange", frame.assign(given_label="\x1b[31m"), classes)
    code, said, err = sprl("audit", "strange")
    assert (code, said, len(err.splitlines())) == (2, "", 1)
    assert "\x1b" not in err


def test_what_is_different_since_an_earlier_run(sprl, tmp_path):
    frame = two_heaps()
    old = saved(tmp_path / "old", frame)
    sprl("apply", "old", "--suggestions", 100)
    rows = Labelled.read(old).listed(Labelled.read(old).verdict.wrong, budget=100).rows
    now = frame.copy()
    now.loc[rows, "given_label"] = now["predicted_label"]
    now.loc[rows[:90], "label_quality"] = 0.97
    saved(tmp_path / "new", now[::-1].assign(index=0), labels="old/corrected.csv")
    code, said, _ = sprl("audit", "new", "--before", "old")
    assert code == 0
    assert f"trained on old/corrected.csv, the labels of run {run_id(old)} as they were corrected" in said
    assert "Before    old, whose corrected labels these are: 600 of 600 rows were there too" in said
    assert re.search(r"wrong then: (19|20)\.\d % .*; now: (cannot tell|\d\.\d %)", said)
    assert "labels changed since then: 100, of which on the list now: 10" in said
    then, left = map(int, re.search(r"on the list then: (\d+), of which no longer: (\d+)", said).groups())
    assert (then, left) == (len(Labelled.read(old).listed(Labelled.read(old).verdict.wrong).rows), 90)
    saved(tmp_path / "else", frame.assign(id=[f"x{i}" for i in range(600)]))
    code, said, err = sprl("audit", "new", "--before", "else")
    assert (code, said) == (2, "")
    assert "have no row in common" in err


def test_an_interrupted_run_says_so(sprl, run):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "interrupted": True}))
    assert "not at its end, so all below is early: unless it is training, go on with sprl train --resume run" in sprl("audit", "run")[1]
    (run / "summary.json").write_text("[" * 100000)
    assert sprl("audit", "run")[0] == 0


def test_the_flags_stay_while_the_run_trains(sprl, run):
    with held(run):
        code, said, err = sprl("audit", "run", "--budget", 5)
        assert (code, said) == (2, "")
        assert "another process is training in run" in err
        assert sprl("audit", "run")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit"], "Missing argument 'RUN'"),
        (["audit", "nowhere"], "nowhere is no run: it holds no config.json"),
        (["audit", "bare"], "bare holds no labels.csv"),
        (["audit", "run", "--precision", "0.9", "--budget", "5"], "use one of them"),
        (["audit", "run", "--budget", "5", "--reset"], "use one of them"),
        (["audit", "run", "--reset", "--out", "list.csv"], "--reset marks the list in run/labels.csv, --out leaves that as it is"),
        (["audit", "run", "--precision", "1.5"], "a precision of 1.5 is out of bounds"),
        (["audit", "run", "--budget", "0"], "a budget of 0 labels is too small"),
        (["audit", "run", "--budget", "many"], "--budget"),
        (["audit", "run", "--corrections", "none.csv"], "no such file: none.csv"),
        (["audit", "run", "--corrections", "else.csv"], "does not say what it corrects"),
        (["audit", "run", "--before", "nowhere"], "nowhere is no run"),
        (["audit", "run", "--out", "nowhere/list.csv"], "cannot write to nowhere/list.csv"),
        (["apply", "run"], "give either corrections.csv, which the review made, or --suggestions N"),
        (["apply", "run", "else.csv", "--suggestions", "5"], "give either"),
        (["apply", "run", "--suggestions", "0"], "--suggestions"),
        (["apply", "run", "none.csv"], "no such file: none.csv"),
        (["apply", "run", "else.csv"], "labels of all rows, as id,label, are for sprl train ... --labels else.csv"),
        (["apply", "run", "other.csv"], "other.csv corrects other labels (those of run 123) than run was trained on"),
        (["apply", "nowhere", "else.csv"], "nowhere is no run"),
        (["apply", "run", "--suggestions", "5", "--out", "run/labels.csv", "--overwrite"], "run/labels.csv is needed as it is"),
        (["apply", "run", "else.csv", "--out", "./else.csv", "--overwrite"], "else.csv is needed as it is"),
        (["apply", "run", "--suggestions", "5", "--out", "else.csv"], "else.csv is there already: choose another --out, or --overwrite it"),
        (["apply", "run", "--suggestions", "5", "--out", "nowhere/c.csv"], "cannot write to nowhere/c.csv"),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(sprl, run, tmp_path, words, message):
    (tmp_path / "else.csv").write_text("id,label\n1,2\n")
    (tmp_path / "other.csv").write_text("# sprl corrections, run=123, labels=456\nid,given_label,corrected_label,verdict\n")
    (tmp_path / "bare").mkdir()
    shutil.copy(run / "config.json", tmp_path / "bare")
    before = contents(run), contents(tmp_path)
    code, said, err = sprl(*words)
    assert (code, said) == (2, "")
    assert message in err
    assert err.startswith("sprl: ")
    assert len(err.splitlines()) == 1
    assert (contents(run), contents(tmp_path)) == before


def next_command(said):
    """The words of the last line, to be typed."""
    title, program, *words = shlex.split(said.splitlines()[-1])
    assert (title, program) == ("Next", "sprl")
    return words


def test_a_review_becomes_the_next_run_s_labels(sprl, run, tmp_path):
    file = reviewed(run, 60, mistakes=3, skip=2)
    code, said, err = sprl("apply", "run", file.name)
    assert (code, err) == (0, "")
    assert "Applied   57 labels changed (57 as suggested, 0 otherwise), 3 kept, 2 skipped" in said
    was, now = map(float, re.search(r"([\d.]+) % of the labels were really wrong, ([\d.]+) % are now", said).groups())
    assert now < was - 3
    first = (run / "corrected.csv").read_text().splitlines()[0]
    assert re.fullmatch(rf"# sprl labels, run={run_id(run)}, labels=[0-9a-f]{{16}}, corrected=57", first)
    words = next_command(said)
    assert words == shlex.split("train digits --epochs 10 --set T1=4 --labels run/corrected.csv")
    code, _, err = sprl(*words, "--out", "again")
    assert code == 0, err
    again = Labelled.read(tmp_path / "again")
    assert f"labels={again.hash}," in first
    assert f"the labels of run {run_id(run)}" in sprl("audit", "again")[1]
    assert [sprl("apply", "run", file.name, *more)[0] for more in ([], ["--overwrite"])] == [2, 0]


def test_suggestions_without_a_review(sprl, run):
    code, said, _ = sprl("apply", "run", "--suggestions", 100, "--out", "taken.csv")
    assert code == 0
    assert re.search(r"of the 100 most suspicious labels \d+ changed to what is suggested", said)
    assert "nobody has looked at them" in said
    given = pd.read_csv(run / "labels.csv")["given_label"]
    taken = pd.read_csv(run.parent / "taken.csv", skiprows=1)["label"]
    assert 90 <= (given != taken).sum() <= 100


def test_the_next_command_finds_its_files_from_another_folder(sprl, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("id,f,kind\n" + "".join(f"{i:03},{i % 2},{'=a' if i % 2 else 'b c'}\n" for i in range(20)))
    assert sprl("train", "rows.csv", "--label-column", "kind", "--epochs", 2, "--seed", 3, "--set", "T1=1", "--out", "run")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = sprl("apply", "../run", "--suggestions", 1)[1]
    wanted = ["train", str(tmp_path / "rows.csv"), "--label-column", "kind", "--epochs", "2", "--seed", "3", "--set", "T1=1"]
    assert next_command(said) == [*wanted, "--labels", "../run/corrected.csv"]
    lines = (tmp_path / "run" / "corrected.csv").read_text().splitlines()
    assert lines[1] == "id,label"
    assert {line.split(",")[1] for line in lines[2:]} == {"'=a", "b c"}
    code, _, err = sprl(*next_command(said), "--out", "again")
    assert code == 0, err
    assert Labelled.read(tmp_path / "elsewhere" / "again").table["id"].tolist() == [f"{i:03}" for i in range(20)]


ODD = ("--method", "standard", "--network", "mlp:width=8", "--epochs", 2, "--batch-size", 64, "--lr", 0.01, "--seed", 1)


@pytest.mark.parametrize(("asked", "repeated"), [(ODD[4:6], ODD[4:6]), (ODD, ODD), (("--epochs", 60, "--network", "mlp"), ())])
def test_the_next_command_repeats_what_is_not_the_default(sprl, tmp_path, asked, repeated):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=rng.normal(size=(80, 3)), y=np.arange(80) % 2)
    assert sprl("train", "rows.npz", *asked, "--out", "run")[0] == 0
    words = next_command(sprl("apply", "run", "--suggestions", 1)[1])
    assert words == ["train", "rows.npz", *map(str, repeated), "--labels", "run/corrected.csv"]
    assert sprl(*words, "--out", "again")[0] == 0
    first, second = (Labelled.read(tmp_path / name).config.to_json() for name in ("run", "again"))
    assert {name for name in first if first[name] != second[name]} == {"labels"}


def test_the_next_command_of_small_colour_pictures(sprl, tmp_path):
    """Plain training is their default with the small CNN, as is a hidden square with ResNet18."""
    x = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "shots.npz", x=x, y=np.arange(60) % 2)
    for asked in ((), ("--method", "sprl"), ("--network", "resnet18"), ("--network", "resnet18", "--cutout", "0"), ("--no-augment",)):
        assert sprl("train", "shots.npz", "--device", "cpu", "--epochs", 1, *asked, "--out", "run", "--overwrite")[0] == 0
        words = next_command(sprl("apply", "run", "--suggestions", 1, "--overwrite")[1])
        assert sorted(words) == sorted(["train", "shots.npz", "--epochs", "1", *asked, "--labels", "run/corrected.csv"])


def test_a_folder_of_pictures_goes_round(sprl, tmp_path):
    rng = np.random.default_rng(0)
    for i in range(24):
        folder = tmp_path / "shots" / ("=1+1" if i % 2 else "'day, [b]")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(folder / f"-{i}.png")
    assert sprl("train", "shots", "--epochs", 1, "--method", "standard", "--network", "mlp", "--out", "run")[0] == 0
    run = Labelled.read(tmp_path / "run")
    assert set(run.table["given_label"]) == {"=1+1", "'day, [b]"}
    assert set(run.cells["given_label"]) == {"'=1+1", "''day, [b]"}
    chosen = run.table.iloc[[0, 23]]
    frame = chosen[["id", "given_label"]].assign(corrected_label=chosen["given_label"].tolist()[::-1], verdict="other")
    note = f"sprl corrections, run={run_id(run.path)}, labels={run.hash}"
    cells.write(tmp_path / "corrections.csv", cells.guarded(frame), note)
    code, said, err = sprl("apply", "run", "corrections.csv")
    assert code == 0, err
    assert "2 labels changed (0 as suggested, 2 otherwise)" in said
    code, _, err = sprl(*next_command(said), "--out", "again")
    assert code == 0, err
    again = Labelled.read(tmp_path / "again").table.set_index("id")["given_label"]
    was = run.table.set_index("id")["given_label"]
    assert set(was.index[was != again]) == set(chosen["id"])


def test_help_teaches(sprl):
    for command, words in (("audit", ("--precision", "--budget", "--before", "labels.csv")), ("apply", ("--suggestions", "--overwrite"))):
        said = sprl(command, "--help")[1]
        assert all(word in said for word in words)
