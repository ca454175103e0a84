"""SPRL with nothing told against Standard, on digits, seeds 0-4: the numbers in the README.

python benchmarks/defaults.py [OUT.json]
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from measure import Record, mean, measure, over_cores, save, tail

from sprl.config import Config
from sprl.engine import start
from sprl.run import Run

SEEDS = range(5)
NOISES = ("symmetric:0.5", "pair:0.4", "symmetric:0.2", None)


def sgd(run: Run) -> Run:
    """The same run under plain SGD, learning rate 0.1, with the normalised loss."""
    task = replace(run.task, optimizer=torch.optim.SGD, lr=0.1)
    return replace(run, task=task, state=start(task, replace(run.state.method, normalised=True), run.config.network))


def one(part: str, method: str, noise: str | None, epochs: int, seed: int) -> Record:
    config = Config(method=method, corrupt=noise, epochs=epochs, seed=seed, device="cpu")
    if part == "tail":
        record = measure(config, tail())
    elif part == "sgd":
        record = measure(config, change=sgd)
    else:
        record = measure(config)
    return {"part": part, "method": method, "noise": noise, "epochs": epochs, "seed": seed, **record}


def main() -> None:
    both = ("standard", "sprl")
    jobs = [("full", method, noise, 60, seed) for noise in NOISES for method in both for seed in SEEDS]
    jobs += [("short", method, noise, T, seed) for T in (3, 5, 10) for noise in NOISES for method in both for seed in SEEDS]
    jobs += [("tail", method, "symmetric:0.2", 60, seed) for method in both for seed in SEEDS]
    jobs += [("sgd", "sprl", noise, 60, seed) for noise in NOISES for seed in SEEDS]
    records = over_cores(one, jobs)

    def pick(part: str, method: str, noise: str | None, epochs: int = 60) -> list[Record]:
        key = (part, method, noise, epochs)
        return [r for r in records if (r["part"], r["method"], r["noise"], r["epochs"]) == key]

    print("labels          Standard   SPRL  (best epoch)   AUROC     F1  T1          seconds")
    for noise in NOISES:
        standard, sprl = pick("full", "standard", noise), pick("full", "sprl", noise)
        found = f"{mean(sprl, 'auroc'):.4f}  {mean(sprl, 'f1'):.3f}" if noise else "     -      -"
        T1 = sorted(r["T1"] for r in sprl)
        print(
            f"{noise or 'as they are':<15} {mean(standard, 'last10'):8.2f} {mean(sprl, 'last10'):6.2f}"
            f"  ({mean(standard, 'best'):.2f} {mean(sprl, 'best'):.2f})  {found}  {T1}  {mean(sprl, 'seconds'):.1f}"
        )
    print("\nshort schedules: Standard / SPRL, mean of the last ten epochs")
    for T in (3, 5, 10):
        cells = [
            f"{mean(pick('short', 'standard', n, T), 'last10'):.2f} / {mean(pick('short', 'sprl', n, T), 'last10'):.2f}" for n in NOISES
        ]
        print(f"{T:>3} epochs  " + "   ".join(f"{n or 'as they are'} {c}" for n, c in zip(NOISES, cells, strict=True)))
    standard, sprl = pick("tail", "standard", "symmetric:0.2"), pick("tail", "sprl", "symmetric:0.2")
    rare, overall = mean(sprl, "flagged_right_rare"), mean(sprl, "flagged_right")
    print(f"\n10:1 tail, symmetric:0.2: balanced accuracy {mean(standard, 'balanced'):.2f} / {mean(sprl, 'balanced'):.2f}")
    print(
        f"right labels flagged: {100 * overall:.2f} % of all, {100 * rare:.2f} % of the rarest three classes ({rare / overall:.2f} times)"
    )
    for noise in NOISES:
        print(f"SGD, normalised loss, {noise or 'as they are'}: {mean(pick('sgd', 'sprl', noise), 'last10'):.2f}")
    save(Path(sys.argv[1] if len(sys.argv) > 1 else "results/digits-defaults.json"), records)


if __name__ == "__main__":
    main()
