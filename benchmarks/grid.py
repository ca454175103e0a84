"""T1="auto" and the default gamma_d against every pair of a grid, and against `sprl tune`, on digits, seeds 0-4.

python benchmarks/grid.py [OUT.json]
"""

import sys
from pathlib import Path

from measure import Record, mean, measure, over_cores, save

from sprl.config import Config
from sprl.run import prepare
from sprl.tune import search

SEEDS = range(5)
NOISES = ("symmetric:0.5", "pair:0.4", "symmetric:0.2")
T1S = (3, 5, 8, 10, 15, 20)
GAMMAS = (1, 5, 10, 50, 100, 300)
LIMITS = ("auto",)


def one(what: str, noise: str, seed: int, fields: dict[str, object]) -> Record:
    if what == "tuned":
        best = max(search(prepare(Config(corrupt=noise, seed=seed, device="cpu"))), key=lambda trial: trial.agreement)
        fields = {"T1": best.T1, "gamma_d": best.gamma_d}
    return {
        "what": what,
        "noise": noise,
        "seed": seed,
        "fields": fields,
        **measure(Config(corrupt=noise, seed=seed, fields=fields, device="cpu")),
    }


def main() -> None:
    cases = [(noise, seed) for noise in NOISES for seed in SEEDS]
    jobs = [("tuned", *case, {}) for case in cases] + [("auto", *case, {}) for case in cases]
    pairs = [{"T1": T1, "gamma_d": g, "limit": limit} for limit in LIMITS for T1 in T1S for g in GAMMAS]
    jobs += [("grid", *case, pair) for pair in pairs for case in cases]
    records = over_cores(one, jobs)
    for noise in NOISES:
        here = [r for r in records if r["noise"] == noise]
        means = {tuple(pair.values()): mean([r for r in here if r["what"] == "grid" and r["fields"] == pair], "last10") for pair in pairs}
        best = max(means, key=lambda pair: means[pair])
        auto, tuned = (mean([r for r in here if r["what"] == what], "last10") for what in ("auto", "tuned"))
        print(f"\n{noise}: auto {auto:.2f}, tuned {tuned:.2f}, best of the grid {means[best]:.2f} (T1, gamma_d, limit = {best})")
        for limit in LIMITS:
            print(f"limit {limit:<6}" + "".join(f"{f'gamma_d {g}':>13}" for g in GAMMAS))
            for T1 in T1S:
                print(f"  T1 {T1:>3}    " + "".join(f"{means[T1, g, limit]:>13.2f}" for g in GAMMAS))
    save(Path(sys.argv[1] if len(sys.argv) > 1 else "results/digits-grid.json"), records)


if __name__ == "__main__":
    main()
