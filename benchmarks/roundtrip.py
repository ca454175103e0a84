"""Train, take the suggestions for the 100 most suspicious labels, train again: accuracy and rate before and after; digits, seeds 0-2.

python benchmarks/roundtrip.py [--out results/roundtrip.json]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measure import Record, mean, over_cores, save

from sprl.config import Config
from sprl.run import Run, prepare

SEEDS = range(3)
NOISES = ("symmetric:0.2", "symmetric:0.5", "pair:0.4")
TAKEN = 100


def one(noise: str, seed: int) -> Record:
    torch.set_num_threads(1)
    run = trained(prepare(Config(corrupt=noise, seed=seed, device="cpu")))
    table = run.labels()
    number = {name: i for i, name in enumerate(run.data.classes)}
    suggested = table["predicted_label"].map(number).to_numpy()
    order = np.argsort(-table["wrong_probability"].to_numpy(), kind="stable")
    rows = order[(suggested != run.data.y)[order]][:TAKEN]
    y = run.data.y.copy()
    y[rows] = suggested[rows]
    again = trained(prepare(Config(seed=seed, device="cpu"), replace(run.data, y=y)))
    return {
        "noise": noise,
        "seed": seed,
        "taken": len(rows),
        "were_wrong": int((run.data.y != run.data.clean)[rows].sum()),
        "became_right": int((y == run.data.clean)[rows].sum()),
        "before": outcome(run),
        "after": outcome(again),
    }


def trained(run: Run) -> Run:
    for _ in run:
        pass
    return run


def outcome(run: Run) -> Record:
    summary = run.summary(run.labels())
    return {
        "last10": round(summary["last10"], 3),
        "rate": round(summary["noise_rate_realised"], 4),
        "rate_estimated": round(summary["noise_rate_estimated"], 4),
        "T1": summary["T1"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="results/roundtrip.json")
    asked = parser.parse_args()
    records = over_cores(one, [(noise, seed) for noise in NOISES for seed in SEEDS])
    print("labels         taken (now right)  accuracy         estimated rate    real rate")
    for noise in NOISES:
        here = [r for r in records if r["noise"] == noise]
        before, after = [r["before"] for r in here], [r["after"] for r in here]
        now_right = f"({mean(here, 'became_right'):.1f})"
        moved = "   ".join(f"{mean(before, key):.{d}f} -> {mean(after, key):.{d}f}" for key, d in RESULTS)
        print(f"{noise:<14} {mean(here, 'taken'):5.0f} {now_right:>11}  {moved}")
    fell = sum(r["after"]["rate_estimated"] < r["before"]["rate_estimated"] for r in records)
    gains = np.array([r["after"]["last10"] - r["before"]["last10"] for r in records])
    error = gains.std(ddof=1) / len(gains) ** 0.5
    print(f"accuracy changed by {gains.mean():+.2f} points in the mean (standard error {error:.2f}); the worst run by {gains.min():+.2f}")
    print(f"the estimated rate fell in {fell} of {len(records)} runs")
    save(Path(asked.out), records)


RESULTS = (("last10", 2), ("rate_estimated", 3), ("rate", 3))


if __name__ == "__main__":
    main()
