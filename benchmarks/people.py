"""How much resistance where people's mistakes are kept out: digits, each class taken for four others unevenly, seeds 0-7.

python benchmarks/people.py [OUT.json]
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from measure import Record, mean, measure, over_cores, save

from sprl.config import Config

RATES, STRENGTHS, SEEDS = (0.3, 0.4), (3.0, 4.0, 6.0, 10.0, 20.0), range(8)
SHARES = (0.4, 0.3, 0.2, 0.1)  # of a class's wrong labels, by the class that they name


def matrix(folder: Path, rate: float, seed: int) -> Path:
    """A file with the chances of each class to be taken for others, drawn by the seed."""
    rng, Q = np.random.default_rng(seed), np.eye(10) * (1 - rate)
    for given in range(10):
        others = rng.permutation([c for c in range(10) if c != given])[: len(SHARES)]
        Q[given, others] = rate * np.array(SHARES)
    path = folder / f"{rate}-{seed}.csv"
    np.savetxt(path, Q, delimiter=",")
    return path


def one(folder: Path, rate: float, gamma_d: float, seed: int) -> Record:
    noise = f"matrix:{folder / f'{rate}-{seed}.csv'}"
    found = measure(Config(corrupt=noise, epochs=60, seed=seed, device="cpu", fields={"gamma_d": gamma_d}))
    return {"rate": rate, "gamma_d": gamma_d, "seed": seed, **{key: found[key] for key in ("last10", "auroc", "f1", "T1", "spread")}}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for rate in RATES:
            for seed in SEEDS:
                matrix(Path(name), rate, seed)
        jobs = [(rate, gamma_d, seed) for rate in RATES for gamma_d in STRENGTHS for seed in SEEDS]
        records = over_cores(partial(one, Path(name)), jobs)
    for rate in RATES:
        for gamma_d in STRENGTHS:
            some = [record for record in records if (record["rate"], record["gamma_d"]) == (rate, gamma_d)]
            print(rate, f"{gamma_d:4g}", *(f"{key} {mean(some, key):.3f}" for key in ("last10", "auroc", "f1")))
    save(Path(sys.argv[1] if len(sys.argv) > 1 else "results/people.json"), records)
