"""Whether the verdict on labels keeps its word: precision asked for, interval of the rate, confidence of suggestions; digits, 20 runs.

python benchmarks/calibration.py [--noises symmetric:0.2,pair:0.4,none,...] [--out results/calibration.json]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from measure import Record, over_cores, save

from sprl.audit import judge, select
from sprl.config import Config
from sprl.run import prepare

SEEDS = range(4)
NOISES = "symmetric:0.2,symmetric:0.5,pair:0.4,pair:0.2,none"
ASKED, KEPT = 0.95, 0.92  # the precision asked for, and the real one that still counts as kept
COVERED = 0.8  # the share of runs whose interval of 90 % must hold the real rate: 20 runs tell no more
FLAGGED = 0.02  # of right labels, where all are right
BINS = 10


def one(noise: str, seed: int) -> Record:
    torch.set_num_threads(1)
    run = prepare(Config(corrupt=None if noise == "none" else noise, seed=seed, device="cpu"))
    for _ in run:
        pass
    table = run.labels()
    wrong = table["given_label"].to_numpy() != table["true_label"].to_numpy()
    verdict = judge(table["label_quality"].to_numpy(), table["given_label"].to_numpy())
    rows, expected = select(verdict.wrong, precision=ASKED)
    flagged = table[table["is_label_issue"]]
    suggested = (flagged["predicted_label"] == flagged["true_label"]).to_numpy()
    rate = float(wrong.mean())
    return {
        "noise": noise,
        "seed": seed,
        "rate": round(rate, 4),
        "rate_estimated": round(verdict.rate, 4),
        "interval": [round(verdict.low, 4), round(verdict.high, 4)],
        "covered": bool(verdict.low <= rate <= verdict.high),
        "clear": verdict.clear,
        "listed": len(rows),
        "listed_expected": round(expected, 1),
        "listed_wrong": int(wrong[rows].sum()),
        "precision": round(float(wrong[rows].mean()), 4) if len(rows) else None,
        "recall": round(float(wrong[rows].sum() / wrong.sum()), 4) if wrong.any() else None,
        "flagged": len(flagged),
        "flagged_share": round(len(flagged) / len(table), 4),
        "flagged_wrong": int((flagged["given_label"] != flagged["true_label"]).sum()),
        "suggestion_confidence": round(float(flagged["confidence"].mean()), 4) if len(flagged) else None,
        "suggestion_accuracy": round(float(suggested.mean()), 4) if len(flagged) else None,
        "bins": bins(verdict.wrong, wrong),
        "seconds": round(run.seconds, 2),
    }


def bins(probability: np.ndarray, wrong: np.ndarray) -> list[list[float]]:
    """For each tenth of the probability of being wrong: labels, how many of them are expected to be wrong, and how many are."""
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    return [[int((here := place == b).sum()), round(float(probability[here].sum()), 2), int(wrong[here].sum())] for b in range(BINS)]


def reliability(records: list[Record]) -> list[list[float]]:
    counts, expected, wrong = np.sum([record["bins"] for record in records], axis=0).T
    return [[int(n), round(p, 1), int(w)] for n, p, w in zip(counts, expected, wrong, strict=True)]


def keeps_precision(record: Record) -> bool:
    """An empty list breaks no promise."""
    return record["precision"] is None or record["precision"] >= KEPT


def show(records: list[Record]) -> None:
    print("labels         seed   rate  estimated  90 % interval    clear   listed  precision  recall   flagged  suggestion: sure  right")
    for r in records:
        interval = f"{r['interval'][0]:.3f} to {r['interval'][1]:.3f}{' ' if r['covered'] else '!'}"
        listed = f"{r['listed']:6}  {text(r['precision'])}{' ' if keeps_precision(r) else '!'}  {text(r['recall'])}"
        sure = f"{text(r['suggestion_confidence'])}  {text(r['suggestion_accuracy'])}"
        print(
            f"{r['noise']:<14} {r['seed']:>4}  {r['rate']:.3f}  {r['rate_estimated']:9.3f}  {interval}  {r['clear']!s:>5}   {listed}"
            f"   {r['flagged_share']:7.3f}         {sure}"
        )
    print("\nprobability of being wrong, all runs: labels, mean probability, share really wrong")
    for b, (count, expected, wrong) in enumerate(reliability(records)):
        found = f"{expected / count:8.3f} {wrong / count:8.3f}" if count else "       -        -"
        print(f"{b / BINS:.1f} to {(b + 1) / BINS:.1f}  {count:6} {found}")


def text(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.3f}"


def checks(records: list[Record]) -> dict[str, Record]:
    """What is asked of the runs as a whole, and whether it holds."""
    kept = sum(keeps_precision(r) for r in records)
    empty = sum(r["precision"] is None for r in records)
    covered = sum(r["covered"] for r in records)
    clean = [r["flagged_share"] for r in records if r["noise"] == "none"]
    return {
        "precision": {"kept": kept, "of_which_empty": empty, "of": len(records), "passed": kept >= 0.9 * len(records)},
        "interval": {"covered": covered, "of": len(records), "passed": covered >= COVERED * len(records)},
        "clean": {"most_flagged": max(clean, default=None), "passed": all(share <= FLAGGED for share in clean)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noises", default=NOISES)
    parser.add_argument("--out", default="results/calibration.json")
    asked = parser.parse_args()
    records = over_cores(one, [(noise, seed) for noise in asked.noises.split(",") for seed in SEEDS])
    show(records)
    found = checks(records)
    verdict = {name: "passed" if check["passed"] else "FAILED" for name, check in found.items()}
    precision, interval, clean = found["precision"], found["interval"], found["clean"]
    print(f"\nprecision {ASKED} asked, at least {KEPT} got: {precision['kept']} of {precision['of']} runs", end=" ")
    print(f"({precision['of_which_empty']} empty lists): {verdict['precision']}")
    print(f"interval of 90 % holds the real rate: {interval['covered']} of {interval['of']} runs: {verdict['interval']}")
    if clean["most_flagged"] is not None:
        print(f"right labels flagged where all are right, at most: {100 * clean['most_flagged']:.2f} %: {verdict['clean']}")
    save(Path(asked.out), records, checks=found, reliability=reliability(records))


if __name__ == "__main__":
    main()
