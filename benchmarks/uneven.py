"""Whether the interval of the rate holds the truth where classes are very uneven, with and without its term for small classes; digits.

    python benchmarks/uneven.py [--seeds 100-109] [--out results/uneven.json]

The term was chosen on seeds 0 to 4, which therefore tell nothing here.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from measure import Record, over_cores, save
from sklearn.datasets import load_digits

from sprl import NoisyLabelClassifier
from sprl.audit import in_small_classes, judge
from sprl.noise import corrupt

SIZES = {  # rows of each class
    "five of 170, five of 9": [170] * 5 + [9] * 5,
    "seven of 170, three of 20": [170] * 7 + [20] * 3,
    "two classes, 180 and 9": [180, 9],
}


def one(sizes: str, rate: float, seed: int) -> Record:
    torch.set_num_threads(1)
    x, y = load_digits(return_X_y=True)
    rows = np.concatenate([np.flatnonzero(y == k)[:size] for k, size in enumerate(SIZES[sizes])])
    clean = y[rows]
    given = corrupt(clean, f"symmetric:{rate}", len(SIZES[sizes]), seed)
    quality = NoisyLabelClassifier(random_state=seed).fit(x[rows], given).label_issues()["label_quality"].to_numpy()
    verdict, truth = judge(quality, given), float((given != clean).mean())
    without = verdict.high - in_small_classes(verdict.wrong, given)  # exact where the end was not cut at 1
    return {
        "sizes": sizes,
        "rate": round(truth, 4),
        "seed": seed,
        "rate_estimated": round(verdict.rate, 4),
        "interval": [round(verdict.low, 4), round(verdict.high, 4)],
        "high_without": round(without, 4),
        "clear": verdict.clear,
        "covered": bool(verdict.low <= truth <= verdict.high),
        "covered_without": bool(verdict.low <= truth <= without),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="100-109")
    parser.add_argument("--out", type=Path, default=Path("results/uneven.json"))
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split("-"))
    records = over_cores(one, [(sizes, rate, seed) for sizes in SIZES for rate in (0.1, 0.3) for seed in range(first, last + 1)])
    for sizes in SIZES:
        mine = [r for r in records if r["sizes"] == sizes]
        counts = {name: sum(r[name] for r in mine) for name in ("covered", "covered_without", "clear")}
        shares = sorted(r["rate_estimated"] / r["rate"] for r in mine)
        print(f"{sizes}: {len(mine)} runs, {counts}, estimated over real {shares[0]:.2f} to {shares[-1]:.2f}")
    save(asked.out, records)
