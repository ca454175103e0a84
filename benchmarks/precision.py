"""bf16 against fp32 on a GPU: the same short runs in both, side by side.

    python benchmarks/precision.py [--data-dir DIR] [--epochs 40] [--seeds 2]

CIFAR-10, half of the labels wrong, ResNet18, SPRL. Writes results/precision.json, with the curves.
"""

import argparse
import time
from pathlib import Path

from measure import mean, save

from sprl.config import Config
from sprl.data.catalogue import load
from sprl.run import prepare
from sprl.together import together

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/precision.json"))
    args = parser.parse_args()
    data = load("cifar10", args.data_dir)
    fields = {"T1": args.epochs // 10}
    runs = [
        prepare(
            Config("cifar10", corrupt="symmetric:0.5", fields=fields, network="resnet18", epochs=args.epochs, seed=s, precision=p), data
        )
        for s in range(args.seeds)
        for p in ("bf16", "fp32")
    ]
    began = time.perf_counter()
    for run, row in together(runs):
        if row is not None and row["epoch"] % 5 == 0:
            print(f"{run.config.precision} seed {run.config.seed} epoch {row['epoch']}: {row['test_accuracy']:.2f} %", flush=True)
    seconds = time.perf_counter() - began
    records = []
    for run in runs:
        summary = run.summary(run.labels())
        curve = [round(row["test_accuracy"], 2) for row in run.rows]
        records.append({"config": run.config.to_json(), "last10": summary["last10"], "step": summary["step"], "curve": curve})
    for precision in ("bf16", "fp32"):
        mine = [record for record in records if record["config"]["precision"] == precision]
        print(f"{precision}: {mean(mine, 'last10'):.2f} % over the last ten epochs, mean of {len(mine)} seeds")
    save(args.out, records, seconds_together=seconds)
