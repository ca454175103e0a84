"""The command line as a user types it."""

import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typed import in_its_own_process, run
from typed import sprl as command

import sprl
from sprl.cli import main, tune
from sprl.config import Config, asked_of
from sprl.errors import InputError
from sprl.files import make_folder, write_config, write_results
from sprl.noise import corrupt
from sprl.run import prepare
from sprl.show import TUNED
from sprl.tune import held_out_accuracy
from sprl.views import write_page

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "140"}
TABLES = {"config.json", "metrics.jsonl", "summary.json", "labels.csv"}
FILES = TABLES | {"model.safetensors", "report.html", "curves.png", "checkpoint.safetensors", ".lock"}


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.fixture
def pets(tmp_path, points):
    """Three hundred rows without test labels, in a folder of their own."""
    x, clean = points
    y = corrupt(clean, "symmetric:0.3", 4, seed=0)
    np.savez(tmp_path / "pets.npz", x=x[:300], y=np.array(["ant", "bee", "cat", "dog"])[y[:300]])
    return tmp_path


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demonstration")
    return folder, in_its_own_process("train", cwd=folder)


def test_the_demonstration_says_what_it_does_and_what_came_out(demonstration):
    folder, done = demonstration
    assert done.returncode == 0, done.stderr
    for words in ("made wrong for this demonstration (symmetric:0.5)", "mlp (very small pictures", "Time", "epoch   60/60", "Next"):
        assert words in done.stdout
    assert re.search(r"^Time      about \d+ s on cpu, and up to \d+ s more for what it finds out first$", done.stdout, re.MULTILINE)
    found = re.search(r"^found T1 = (\d+), going on with epoch (\d+)$", done.stdout, re.MULTILINE)
    assert int(found[2]) == int(found[1]) + 1
    assert {p.name for p in (folder / "runs" / "digits-1").iterdir()} == FILES


def test_a_run_that_begins_anew_says_so(pets):
    done = run("train", "pets.npz", "--method", "f-correction", "--epochs", "8", cwd=pets)
    assert done.returncode == 0, done.stderr
    assert "\nfound matrix, beginning anew\nepoch    1/8 " in done.stdout


def test_the_demonstration_is_as_good_as_the_readme_says(demonstration):
    path = demonstration[0] / "runs" / "digits-1"
    summary = json.loads((path / "summary.json").read_text())
    assert summary["last10"] > 94
    assert summary["best_oracle"] >= summary["last10"]
    assert {"sprl", "torch", "numpy", "python"} == summary["versions"].keys()
    labels = pd.read_csv(path / "labels.csv")
    assert len(labels) == 1347
    wrong = labels["given_label"] != labels["true_label"]
    assert summary["noise_rate_realised"] == pytest.approx(wrong.mean())
    assert (labels["is_label_issue"] == wrong).mean() > 0.95
    assert labels["label_quality"].between(0, 1).all()


def test_metrics_have_a_row_an_epoch_and_no_times(demonstration):
    rows = [json.loads(line) for line in (demonstration[0] / "runs" / "digits-1" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, 61))
    assert {"loss", "test_accuracy", "chosen", "gamma", "precision"} <= rows[0].keys()
    assert not any("second" in key or "time" in key for row in rows for key in row)


def test_the_same_seed_repeats_the_run_bit_for_bit(pets):
    for out in ("a", "b", "c"):
        words = ("train", "pets.npz", "--epochs", 12, "--seed", 5 if out == "c" else 4, "--out", out)
        assert (in_its_own_process if out == "b" else run)(*words, cwd=pets).returncode == 0
    metrics = [(pets / out / "metrics.jsonl").read_bytes() for out in "abc"]
    assert metrics[0] == metrics[1] != metrics[2]
    assert (pets / "a" / "labels.csv").read_bytes() == (pets / "b" / "labels.csv").read_bytes()


def test_labels_as_they_are_and_no_accuracy_without_test_labels(pets):
    done = run("train", "pets.npz", "--epochs", 10, cwd=pets)
    assert done.returncode == 0, done.stderr
    assert "as they are" in done.stdout
    assert "Agreement" in done.stdout
    assert re.search(r"^epoch +10/10  agrees +\d+ %  trained on +\d+ %$", done.stdout, re.MULTILINE)
    assert "Accuracy" not in done.stdout
    path = pets / "runs" / "pets-1"
    assert json.loads((path / "summary.json").read_text())["last10"] is None
    labels = pd.read_csv(path / "labels.csv", dtype={"id": str})
    columns = "id index given_label predicted_label confidence label_quality wrong_probability is_label_issue"
    assert list(labels) == columns.split()
    assert labels["index"].tolist() == list(range(300))
    assert set(labels["given_label"]) == {"ant", "bee", "cat", "dog"}


def test_a_run_names_no_folder_that_it_does_not_need(pets):
    for data, needed in ((pets / "pets.npz", False), ("pets.npz", True)):
        done = run("train", data, "--epochs", 2, "--out", "run", "--overwrite", cwd=pets)
        assert done.returncode == 0, done.stderr
        assert json.loads((pets / "run" / "config.json").read_text()).get("started_in") == (str(pets) if needed else None)


def test_what_nobody_can_tell_is_not_told(pets, points):
    """The end of a run on labels that are all right: few of a kind to be found, and no number to count on."""
    x, clean = points
    np.savez(pets / "right.npz", x=x, y=clean)
    done = run("train", "right.npz", "--epochs", 6, "--method", "standard", cwd=pets)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Labels    cannot tell how many are wrong \(estimates: .*, none of them sure\)$", done.stdout, re.MULTILINE)
    assert "more likely wrong than right" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Next      open runs/right-1/report.html to review the suspects by rank, the most suspicious first; sprl audit")


def test_the_end_of_a_run_speaks_plainly(demonstration):
    said = demonstration[1].stdout
    assert re.search(r"^Found     T1 = \d+, the epochs of warm-up; gamma_d = [\d.]+, the strength of resistance$", said, re.MULTILINE)
    assert re.search(r"^epoch   60/60  accuracy +[\d.]+ %  trained on +\d+ %$", said, re.MULTILINE)
    assert "more likely wrong than right" in said
    assert "by rank" not in said


def test_thirty_rows_are_no_data_for_it(pets):
    (pets / "few.csv").write_text("f,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(30)))
    done = run("train", "few.csv", "--epochs", 2, "--method", "standard", cwd=pets)
    assert done.returncode == 0
    assert "sprl: note: 30 rows, of which 30 are in classes of more than 3, are too few to learn from or to judge" in done.stderr


def test_a_trained_model_predicts_new_rows_and_loads_in_python(pets, points):
    x, clean = points
    assert run("train", "pets.npz", "--epochs", 12, "--lr", 0.01, "--out", "model", cwd=pets).returncode == 0
    np.savez(pets / "new.npz", x=x[300:])
    np.save(pets / "new.npy", x[300:])
    done = run("predict", "model", "new.npz", cwd=pets)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(pd.io.common.StringIO(done.stdout))
    assert (table["predicted_label"] == np.array(["ant", "bee", "cat", "dog"])[clean[300:]]).mean() > 0.95
    assert run("predict", "model", "new.npy", cwd=pets).stdout == done.stdout
    model = sprl.load(pets / "model")
    for rows in (x[300:], pets / "new.npz", str(pets / "new.npy")):
        assert model.predict(rows).tolist() == table["predicted_label"].tolist()
        assert model.predict_proba(rows).max(1) == pytest.approx(table["confidence"], abs=1e-5)
    assert model.classes == ("ant", "bee", "cat", "dog")
    assert isinstance(model.module, torch.nn.Module)
    assert all(len(line.rpartition(",")[2]) <= len("0.123456") for line in done.stdout.splitlines()[1:])
    assert run("predict", "model", "new.npy", "--out", "p.csv", cwd=pets).returncode == 0
    assert (pets / "p.csv").read_text() == done.stdout
    assert run("predict", "model", "new.npy", "--out", "p.csv", cwd=pets).returncode == 2


def test_other_labels_and_fields(pets):
    (pets / "labels.csv").write_text("id,label\n" + "".join(f"{i},{'ant' if i % 2 else 'bee'}\n" for i in range(300)))
    done = run("train", "pets.npz", "--labels", "labels.csv", "--epochs", 6, "--set", "T1=2", "--set", "limit=none", "--out", "x", cwd=pets)
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(pets / "x" / "labels.csv")["given_label"]) == {"ant", "bee"}
    config = json.loads((pets / "x" / "config.json").read_text())
    assert config["fields"].items() >= {"T1": 2, "limit": "none", "K": 10}.items()
    assert json.loads((pets / "x" / "summary.json").read_text())["T1"] == 2


def test_a_fresh_number_for_each_run_and_no_run_lost(pets):
    words = ("train", "pets.npz", "--epochs", 2, "--method", "standard")
    for number in (1, 2):
        run(*words, cwd=pets)
        assert (pets / "runs" / f"pets-{number}" / "summary.json").exists()
    before = (pets / "runs" / "pets-1" / "summary.json").read_bytes()
    refused = run(*words, "--out", "runs/pets-1", cwd=pets)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert (pets / "runs" / "pets-1" / "summary.json").read_bytes() == before
    assert run(*words, "--seed", 3, "--out", "runs/pets-1", "--overwrite", cwd=pets).returncode == 0
    assert json.loads((pets / "runs" / "pets-1" / "config.json").read_text())["seed"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "digit"], "unknown file, folder or set 'digit'; did you mean 'digits'?"),
        (["train", "none.npz"], "no such file or folder: none.npz"),
        (["train", "--method", "spl"], "unknown method 'spl'; did you mean 'sprl'?"),
        (["train", "--set", "gama_d=5"], "unknown field of sprl 'gama_d'; did you mean 'gamma_d'?"),
        (["train", "--set", "T1"], "must be FIELD=VALUE"),
        (["train", "--network", "mlp:widht=4"], "unknown field of mlp 'widht'; did you mean 'width'?"),
        (["train", "--network", "resnet:stem=x"], "unknown network 'resnet'; did you mean 'resnet18'?"),
        (["train", "--corrupt", "0.5"], "--corrupt symmetric:0.5 damages labels for an experiment, --noise-rate 0.5 tells"),
        (["train", "--corrupt", "symmetric:0.95"], "out of bounds"),
        (["train", "--corrupt", "pair:0.5"], "below 0.5"),
        (["train", "--corrupt", "par:0.5"], "did you mean 'pair'?"),
        (["train", "--noise-rate", "1.2"], "the noise rate is 1.2"),
        (["train", "--epochs", "5", "--set", "T1=5"], "T1 is 5 but must be at least 1 and less than the 5 epochs"),
        (["train", "--epochs", "0"], "0 epochs is too few"),
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--batch-size", "1"], "batch norm"),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["train", "--device", "tpu"], "unknown device 'tpu'"),
        (["train", "--out", "pets.npz"], "cannot write to pets.npz"),
        (["train", "--out", "/proc/nowhere"], "cannot write to /proc/nowhere"),
        (["train", "--out", "."], "holds other files and no run"),
        (["train", "one.npz"], "1 sample is too few"),
        (["train", "same.npz"], "one class"),
        (["train", "nan.npz"], "column 2 holds NaN in row 1"),
        (["train", "floats.npz"], "must be one whole number or string a row"),
        (["train", "pets.npz", "--network", "resnet18"], "resnet18 takes pictures"),
        (["predict", "nowhere", "pets.npz"], "nowhere is no run"),
        (["predict", "."], "Missing argument 'INPUT'"),
        (["trian"], "trian"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(pets, monkeypatch, capsys, words, message):
    row = np.eye(3)
    row[1, 2] = np.nan
    np.savez(pets / "one.npz", x=np.ones((1, 2)), y=[1])
    np.savez(pets / "same.npz", x=np.eye(3), y=[1, 1, 1])
    np.savez(pets / "nan.npz", x=row, y=[0, 1, 0])
    np.savez(pets / "floats.npz", x=np.eye(3), y=[0.5, 1, 0])
    before = files(pets)
    monkeypatch.chdir(pets)
    monkeypatch.setattr(sys, "argv", ["sprl", *words])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert error.startswith("sprl: ")
    assert len(error.splitlines()) == 1
    assert files(pets) == before


def test_bad_input_ends_the_process_with_two(pets):
    done = in_its_own_process("train", "digit", cwd=pets)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "sprl: unknown file, folder or set 'digit'; did you mean 'digits'?\n")


def test_ctrl_c_ends_the_run_and_keeps_what_was_learned(pets):
    words = [sys.executable, "-m", "sprl", "train", "pets.npz", "--epochs", "5000", "--set", "T1=1", "--out", "long"]
    process = subprocess.Popen(words, cwd=pets, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = pets / "long" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.read_text().count("\n") > 5:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "what was learned so far is kept" in out
    summary = json.loads((pets / "long" / "summary.json").read_text())
    assert summary["interrupted"]
    assert summary["epochs"] == len(metrics.read_text().splitlines()) > 5
    assert load_file(pets / "long" / "model.safetensors")


def test_stopped_in_the_search_every_row_has_its_verdict(points, tmp_path, monkeypatch):
    x, clean = points
    np.savez(tmp_path / "pets.npz", x=x, y=corrupt(clean, "symmetric:0.3", 4, seed=0))
    monkeypatch.chdir(tmp_path)
    run = prepare(Config(data="pets.npz", epochs=40))
    next(iter(run))
    labels = run.labels()
    assert labels["label_quality"].max() < 1
    assert run.summary(labels)["T1"] is None
    json.dumps(run.summary(labels), allow_nan=False)


def test_a_reader_that_stops_reading_is_no_error(pets, points):
    assert run("train", "pets.npz", "--epochs", 2, "--method", "standard", "--out", "a$b_{$c", cwd=pets).returncode == 0
    np.save(pets / "many.npy", np.concatenate([points[0]] * 100))
    command = f"'{sys.executable}' -m sprl predict 'a$b_{{$c' many.npy | head -1"
    done = subprocess.run(command, shell=True, cwd=pets, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("id,predicted_label,confidence\n", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("model"), "is not a run's config"),
        (lambda c: c["model"].update(classes=["a", "b"]), "do not fit together"),
        (lambda c: c["model"]["preprocess"].update(deviation=None), "do not fit together"),
        (lambda c: c["model"]["preprocess"].update(deviation=[0.0] * 6), "mean and deviation do not fit"),
        (lambda c: c["model"]["preprocess"].update(mean="abc"), "do not fit together"),
        (lambda c: c["model"]["preprocess"].update(shape=[-3]), "is none of a row"),
        (lambda c: c.update(network="os.system"), "unknown network"),
        (lambda c: c.update(method="none"), "unknown method"),
    ],
)
def test_a_run_that_was_tampered_with_is_refused(pets, monkeypatch, change, message):
    monkeypatch.chdir(pets)
    run = prepare(Config(data="pets.npz", epochs=1, method="standard"))
    list(run)
    path = make_folder("r", "pets", False)
    write_config(path, run)
    write_results(path, run, write_page)
    assert sprl.load(path).classes == ("ant", "bee", "cat", "dog")
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        sprl.load(path)
    (path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(InputError):
        sprl.load(path)


def test_help_teaches_and_is_quick():
    done = in_its_own_process("train", "--help", cwd=".")
    for word in ("--corrupt", "--noise-rate", "--set", "--overwrite", "demonstration"):
        assert word in done.stdout
    heavy = "import sys, sprl.cli; print([m for m in ('torch', 'sklearn', 'pandas', 'numpy', 'matplotlib') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_methods_are_a_line_each_and_one_is_shown_with_its_fields(capsys):
    code, listed, _ = command(capsys, "methods")
    assert code == 0
    for name, cls in sprl.METHODS.items():
        assert re.search(rf"^{re.escape(name)} +{re.escape(cls.__doc__.splitlines()[0])}$", listed, re.MULTILINE)
    assert len(listed.splitlines()) == len(sprl.METHODS) + 2
    assert listed.splitlines()[-1].endswith("sprl methods NAME, such as sprl methods sprl")
    _, shown, _ = command(capsys, "methods", "sprl")
    for word in ("gamma_d=auto", "limit=auto", "never choose", "--set T1=..."):
        assert word in shown
    assert "It has no fields" in command(capsys, "methods", "standard")[1]
    code, out, told = command(capsys, "methods", "standart")
    assert (code, out, told.strip()) == (2, "", "sprl: unknown method 'standart'; did you mean 'standard'?")


def test_tune_names_the_command_to_train_with(pets):
    done = run("tune", "pets.npz", "--epochs", 4, "--folds", 2, cwd=pets)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out labels predicted") >= 6
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Next      sprl train pets.npz")
    assert "--set T1=1 --set gamma_d=" in last
    assert run(*last.split()[2:], cwd=pets).returncode == 0
    assert run("tune", "pets.npz", "--epochs", 1, cwd=pets).returncode == 2


def test_tune_names_all_that_it_was_asked(pets, capsys, monkeypatch):
    monkeypatch.chdir(pets)
    config = Config(
        data="my pets.csv", label_column="kind", skip_bad=True, size=12, network="mlp", epochs=4, seed=3, device="cpu", data_dir="sets"
    )
    assert shlex.join(asked_of(config, TUNED, Config(method="auto"))) == (
        "--data-dir sets --label-column kind --skip-bad --size 12 --network mlp --epochs 4 --seed 3 --device cpu"
    )
    options = {name for name in inspect.signature(tune).parameters if name not in ("data", "folds")}
    assert set(TUNED) == options  # none is forgotten
    with np.load("pets.npz") as saved:
        frame = pd.DataFrame(saved["x"]).add_prefix("f").assign(kind=saved["y"])
    frame.to_csv("my pets.csv", index=False)
    code, out, told = command(capsys, "tune", "my pets.csv", "--label-column", "kind", "--epochs", 2, "--folds", 2)
    assert code == 0, told
    last = out.splitlines()[-1]
    assert last.startswith("Next      sprl train 'my pets.csv' --label-column kind ")
    assert command(capsys, *shlex.split(last)[2:])[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_search_names_the_best_so_far(pets, capsys, monkeypatch, number, code):
    monkeypatch.chdir(pets)
    words = ("tune", "pets.npz", "--epochs", 4, "--folds", 2)
    whole = command(capsys, *words)[1]
    trials = [line for line in whole.splitlines() if line.startswith("T1")]
    left, score = None, held_out_accuracy

    def interrupted(*args):
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(number)
        return score(*args)

    monkeypatch.setattr("sprl.tune.held_out_accuracy", interrupted)
    left = 2 + 3 * 2 + 1  # two folds of warm-ups and of three trials, and one more
    ended, out, told = command(capsys, *words)
    *_, last, stopped, following = out.splitlines()
    assert (ended, told, last) == (code, "", trials[2])
    assert stopped.startswith("Stopped   after 3 of at most 9 trials")
    best = max(trials[:3], key=lambda line: float(line.split()[-2])).split()
    assert following.startswith("Next      sprl train pets.npz")
    assert following.endswith(f"--set T1={best[1]} --set gamma_d={best[3]}")
    left = 2
    ended, out, told = command(capsys, *words)
    assert (ended, told) == (code, "")
    assert out.splitlines()[-1].startswith("Stopped   before the first trial ended")


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_predictions_are_whole_or_not_there(pets, points, capsys, monkeypatch, failure):
    monkeypatch.chdir(pets)
    assert command(capsys, "train", "pets.npz", "--epochs", 1, "--out", "model")[0] == 0
    np.save("new.npy", points[0][300:])

    def cut(_):
        yield "id,pre"
        raise failure

    before = files(pets)
    with monkeypatch.context() as broken:
        broken.setattr("sprl.cells.lines", cut)
        code, _, told = command(capsys, "predict", "model", "new.npy", "--out", "p.csv")
    assert code == (130 if isinstance(failure, KeyboardInterrupt) else 2)
    assert code == 130 or told.strip() == "sprl: cannot write to p.csv: No space left on device"
    assert files(pets) == before
    assert command(capsys, "predict", "model", "new.npy", "--out", "p.csv")[0] == 0
    assert len((pets / "p.csv").read_text().splitlines()) == 1 + len(points[0][300:])
