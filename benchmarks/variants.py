"""Variants of a run side by side on one GPU: which is ahead? Whole, or stopped early in their schedule, which often tells.

    python benchmarks/variants.py cifar10 "T1=20" "T1=20 gamma_d=4 seed=1" "network=resnet18:stem=released" --labels human:worse
        --network resnet18 --epochs 200 [--until 80] [--data-dir DIR] [--store STORE] [--out OUT.json]

A variant is words NAME=VALUE: options of the run (seed, network, corrupt, labels, ...) or fields of its method. Whole runs leave records in
STORE; OUT.json has every epoch of all, those of a search among them.
"""

import argparse
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import save

from sprl.compare import Job
from sprl.config import Config, parse_assignments
from sprl.crew import trained
from sprl.paper.bench import key_of
from sprl.run import Row, prepare, read

KEPT = ("epoch", "test_accuracy", "chosen", "precision", "recall", "gamma_d", "contradicted")


def varied(config: Config, words: str) -> Config:
    """The config with what the words ask for."""
    options = {option.name for option in fields(Config)}
    asked = parse_assignments(words.split())
    changes: dict[str, Any] = {name: value for name, value in asked.items() if name in options}
    changes |= {name: int(changes[name]) for name in ("seed", "cutout") if name in changes}
    if "corrupt" in changes:
        changes["labels"] = None
    return replace(config, **changes, fields={name: value for name, value in asked.items() if name not in options})


def told(rows: list[Row]) -> list[Row]:
    return [{name: round(row[name], 4) for name in KEPT if name in row} for row in rows]


def proper(rows: list[Row]) -> list[Row]:
    """Without the epochs of a search that the run went back behind."""
    found = list[Row]()
    for row in rows:
        found[row["epoch"] - 1 :] = [row]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--labels")
    parser.add_argument("--corrupt")
    parser.add_argument("--network", default="auto")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data-dir")
    parser.add_argument("--until", type=int, help="stop when all have come to this epoch, which must be beyond a search")
    parser.add_argument("--store", type=Path, default=Path("records"))
    parser.add_argument("--out", type=Path, default=Path("results/variants.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = Config(
        data=args.data, data_dir=args.data_dir, labels=args.labels, corrupt=args.corrupt, network=args.network, epochs=args.epochs
    )
    data, beside, jobs = read(base), None, list[Job]()
    for words in args.variants:
        run = prepare(varied(base, words), data, beside=beside)
        beside = beside or run
        jobs.append(Job(run.config, key_of(run), what=words))
    rows: dict[str, list[Row]] = {job.key: [] for job in jobs}
    began = time.perf_counter()

    def stop() -> bool:
        return args.until is not None and all(found and found[-1]["epoch"] >= args.until for found in rows.values())

    for event in trained(jobs, data, args.store, stop, beside):
        if event.kind == "row" and event.job is not None:
            row = event.told
            rows[event.job.key].append(row)
            if row["epoch"] % 10 == 0:
                seconds = time.perf_counter() - began
                print(f"{seconds:.0f} s {event.job.what}, epoch {row['epoch']}: {row['test_accuracy']:.2f} %", flush=True)
        elif event.kind != "begun":
            print(event.kind, event.job and event.job.what, event.told if event.kind in ("failed", "note") else "", flush=True)
    found = []
    for job in jobs:
        curve = [row["test_accuracy"] for row in proper(rows[job.key])]
        means = {f"{end - 19}-{end}": round(float(np.mean(curve[end - 20 : end])), 2) for end in range(20, len(curve) + 1, 20)}
        print(job.what, means)
        found.append({"variant": job.what, "config": job.config.to_json() | {"data_dir": None}, "rows": told(rows[job.key])})
    save(args.out, found, until=args.until, seconds=round(time.perf_counter() - began, 1))
