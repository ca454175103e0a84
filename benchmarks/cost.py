"""What each method costs: seconds an epoch, test evaluation included, as a multiple of Standard's, all in one process.

    python benchmarks/cost.py [--network cnn] [--rounds 5] [--rows 2560] [--out results/cost-cpu.json]

Random pictures of 32 x 32: the time is that of real ones. The methods take turns, an epoch each, so that all see the same machine; the
ratio is the median over the rounds after warm-up. Searches (T1, the first network of f-correction) are left out: they are further epochs
of the same cost, and `sprl compare` counts them. The learned mentor's own training comes before and is not counted.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from measure import Record, save

from sprl.config import Config
from sprl.data import Data, Preprocess
from sprl.methods import DEMONSTRATIONS, METHODS
from sprl.run import Run, prepare

# the phase that most epochs are in, from the second or third epoch on
FIELDS: dict[str, dict[str, Any]] = {
    "f-correction": {"matrix": "identity"},
    "co-teaching+": {"init_epoch": 1},
    **{name: {"T1": 1} for name in ("sprl", "curriculum", "distillation", "label-smoothing")},
}
WARM = 2


def pictures(n: int) -> Data:
    rng = np.random.default_rng(0)
    x, x_test = (torch.from_numpy(rng.integers(0, 256, (size, 3, 32, 32), dtype=np.uint8)) for size in (n, n // 5))
    y, y_test = rng.integers(0, 10, n), rng.integers(0, 10, n // 5)
    ids = tuple(map(str, range(n)))
    classes = tuple(map(str, range(10)))
    return Data("random", x, y, classes, np.arange(n), ids, Preprocess((3, 32, 32)), x_test=x_test, y_test=y_test)


def prepared(name: str, fields: dict[str, Any], data: Data, network: str) -> Run:
    config = Config(method=name, fields=fields, corrupt="symmetric:0.2", network=network, epochs=60, batch_size=128, compile=False)
    return prepare(config, data)


def seconds(rows: Any) -> float:
    began = time.perf_counter()
    next(rows)
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="cnn")
    parser.add_argument("--rows", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/cost-cpu.json"))
    args = parser.parse_args()
    data = pictures(args.rows)
    variants = {name: (name, FIELDS.get(name, {})) for name in METHODS if name not in DEMONSTRATIONS} | {
        "mentornet, learned": ("mentornet", {"mentor": "learned", "mentor_steps": 300})
    }
    runs = {label: prepared(name, fields, data, args.network) for label, (name, fields) in variants.items()}
    epochs = {label: iter(run) for label, run in runs.items()}
    times: dict[str, list[float]] = {label: [] for label in runs}
    for _ in range(WARM + args.rounds):
        for label, rows in epochs.items():
            times[label].append(seconds(rows))
    records: list[Record] = []
    for label, run in runs.items():
        ratios = [own / standard for own, standard in zip(times[label][WARM:], times["standard"][WARM:], strict=True)]
        records.append(
            {
                "method": label,
                "networks": METHODS[variants[label][0]].networks,
                "ratio": round(median(ratios), 3),
                "seconds": round(median(times[label][WARM:]), 4),
                "step": run.state.stepper.name,
                "fields": run.config.fields,
            }
        )
    for record in sorted(records, key=lambda record: (record["networks"], record["ratio"])):
        print(f"{record['method']:20} networks {record['networks']}  {record['seconds']:8.3f} s  {record['ratio']:.2f}")
    save(args.out, records, network=args.network, rows=args.rows, batch_size=128, rounds=args.rounds)
