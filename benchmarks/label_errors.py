"""Finding wrong labels: SPRL and Standard, one run each, against cleanlab on five folds of the same network.

pip install cleanlab; python benchmarks/label_errors.py [--data digits,mnist] [--data-dir DIR] [--seeds 3] [--out results/label-errors.json]

cleanlab is given what no user has: of several numbers of epochs and of two scores, those that find the really wrong labels best.
Seconds are those of one core.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import Record, save
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from sprl.config import Config
from sprl.data import Data
from sprl.data.catalogue import load
from sprl.data.rows import select
from sprl.engine import predict, start
from sprl.errors import InputError, pick
from sprl.methods import Standard
from sprl.run import Run, prepare
from sprl.training import train
from sprl.tune import split

NOISES = ("symmetric:0.2", "symmetric:0.5", "pair:0.4", "none")
SCORES = ("self_confidence", "normalized_margin")
FOLDS = 5


class Task(NamedTuple):
    """What to train on, and how where that is not the default."""

    data: Data
    settings: dict[str, Any]
    epochs: tuple[int, ...]  # to try cleanlab with; the last are ours
    seeds: int


def digits(folder: str | None, seeds: int) -> Task:
    return Task(load("digits"), {}, (1, 2, 3, 4, 6, 8, 16, 30, 60), seeds)


def mnist(folder: str | None, seeds: int, n: int = 4000) -> Task:
    """The first rows, and one seed: a run takes minutes on a core."""
    data = load("mnist", folder)
    assert data.clean is not None
    data = replace(data, x=data.x[:n], y=data.y[:n], clean=data.clean[:n], index=data.index[:n], ids=data.ids[:n])  # type: ignore[index]
    return Task(data, {"network": "cnn", "epochs": 25}, (1, 2, 4, 8, 25), 1)


TASKS = {"digits": digits, "mnist": mnist}


@dataclass(frozen=True)
class Cell:
    """One data set with one kind of noise and one seed."""

    task: Task
    noise: str
    seed: int

    def prepare(self, method: str) -> Run:
        """Without test rows: finding labels needs none, and they would cost time."""
        corrupt = None if self.noise == "none" else self.noise
        config = Config(data=self.task.data.name, method=method, corrupt=corrupt, seed=self.seed, device="cpu", **self.task.settings)
        return prepare(config, replace(self.task.data, x_test=None, y_test=None))

    def records(self) -> Iterator[Record]:
        for rows in (self.ours("sprl"), self.ours("standard"), self.cleanlab()):
            yield from ({"data": self.task.data.name, "noise": self.noise, "seed": self.seed, **row} for row in rows)

    def ours(self, method: str) -> Iterator[Record]:
        run = self.prepare(method)
        began = time.process_time()
        for _ in run:
            pass
        table = run.labels()
        seconds = time.process_time() - began
        rate = run.summary(table)["noise_rate_estimated"]
        score, flagged = -table["label_quality"].to_numpy(), table["is_label_issue"].to_numpy()
        yield {"finder": method, "epochs": run.config.epochs, **measured(run.data, score, flagged, rate), "seconds": round(seconds, 2)}

    def cleanlab(self) -> Iterator[Record]:
        """With its best number of epochs, and with as many as ours."""
        run = self.prepare("standard")
        assert run.task.epochs == self.task.epochs[-1]
        found = [with_cleanlab(run, epochs) for epochs in self.task.epochs]
        best = max(found, key=lambda row: row.get("auroc", -row["flagged"]))  # where all labels are right, the fewest flagged
        yield {"finder": "cleanlab at its best", **best}
        yield {"finder": "cleanlab, our epochs", **found[-1]}


def measured(data: Data, score: np.ndarray, flagged: np.ndarray, rate: float) -> Record:
    """Against the truth; where all labels are right, only how many are flagged."""
    wrong = data.y != data.clean
    ranked = {"auroc": roc_auc_score, "ap": average_precision_score} if wrong.any() else {}
    return {
        **{name: round(float(metric(wrong, score)), 5) for name, metric in ranked.items()},
        **({"f1": round(float(f1_score(wrong, flagged)), 4)} if wrong.any() else {}),
        "flagged": round(float(flagged.mean()), 4),
        "rate_error": round(rate - float(wrong.mean()), 4),
    }


def with_cleanlab(run: Run, epochs: int) -> Record:
    """Its default filter, the better of two scores, and the rate of its estimated joint distribution of given and true labels."""
    from cleanlab.count import estimate_joint
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    y = run.data.y
    began = time.process_time()
    p = out_of_fold(run, epochs)
    flagged = find_label_issues(y, p, n_jobs=1)
    seconds = time.process_time() - began
    rate = 1 - float(np.trace(estimate_joint(y, p)))
    scores = {name: -get_label_quality_scores(y, p, method=name) for name in SCORES}
    rows = [{"epochs": epochs, "score": name, **measured(run.data, score, flagged, rate)} for name, score in scores.items()]
    return {**max(rows, key=lambda row: row.get("auroc", 0.0)), "seconds": round(seconds, 2)}


def out_of_fold(run: Run, epochs: int) -> np.ndarray:
    """Each row's probabilities [N, C] by a network trained without it, otherwise as `run`, and as if it had so many epochs."""
    task = run.task
    probabilities = torch.empty(len(task.y), task.num_classes)
    for held in split(task, FOLDS):
        rest = torch.ones(len(task.y), dtype=torch.bool)
        rest[held] = False
        kept = rest.nonzero().squeeze(1)
        fold = replace(task, x=select(task.x, kept), y=task.y[kept], epochs=epochs)
        state = start(fold, Standard(), run.config.network)
        for _ in train(fold, state):
            pass
        probabilities[held] = predict(state.networks, task.x, held)
    return probabilities.numpy()


METRICS = ("auroc", "ap", "f1", "flagged", "rate_error", "seconds")
HIGHER = ("auroc", "ap", "f1")


def show(records: list[Record]) -> None:
    """Means over seeds; of the rate's error, the mean of its size."""
    print(f"\n{'':<44}" + "".join(f"{name:>11}" for name in ("AUROC", "AP", "F1", "flagged", "rate error", "seconds")) + "  epochs")
    losses = []
    for data, noise in dict.fromkeys((r["data"], r["noise"]) for r in records):
        here = [r for r in records if (r["data"], r["noise"]) == (data, noise)]
        rows = {}
        for finder in dict.fromkeys(r["finder"] for r in here):
            mine = [r for r in here if r["finder"] == finder]
            rows[finder] = {name: float(np.mean([abs(r[name]) for r in mine])) for name in METRICS if name in mine[0]}
            cells = "".join(f"{rows[finder][name]:11.4f}" if name in rows[finder] else f"{'-':>11}" for name in METRICS[:-1])
            epochs = ", ".join(str(r["epochs"]) for r in mine)
            print(f"{data:<8}{noise:<15}{finder:<21}{cells}{rows[finder]['seconds']:11.1f}  {epochs}")
        ours, last = rows["sprl"], rows["cleanlab, our epochs"]
        print(f"{'':<23}at equal epochs cleanlab takes {last['seconds'] / ours['seconds']:.2f} times as long")
        for finder, row in rows.items():
            for name in METRICS:
                worse = name in row and (row[name] > ours[name] if name in HIGHER else row[name] < ours[name])
                places = 1 if name == "seconds" else 4
                if worse and (name != "flagged" or noise == "none"):
                    losses.append(f"{data}, {noise}: {name} {ours[name]:.{places}f} against {row[name]:.{places}f} of {finder}")
    print("\nwhere SPRL loses:" + ("" if losses else " nowhere"))
    for line in losses:
        print(f"  {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits,mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="results/label-errors.json")
    asked = parser.parse_args()
    try:
        import cleanlab
    except ImportError:
        sys.exit("this compares with cleanlab, which is not here: pip install cleanlab")
    torch.set_num_threads(1)
    try:
        tasks = [TASKS[pick("data set", name, TASKS)](asked.data_dir, asked.seeds) for name in asked.data.split(",")]
    except InputError as error:
        sys.exit(str(error))
    records: list[Record] = []
    next(Cell(tasks[0], "none", 0).ours("sprl"))  # what is loaded at first use is nobody's time
    for task in tasks:
        for cell in (Cell(task, noise, seed) for noise in NOISES for seed in range(task.seeds)):
            for record in cell.records():  # one after the other: their times are compared
                records.append(record)
                print(record, flush=True)
        save(Path(asked.out), records, cleanlab=cleanlab.__version__, folds=FOLDS)  # digits are safe before MNIST begins
    show(records)


if __name__ == "__main__":
    main()
