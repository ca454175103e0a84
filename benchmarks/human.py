"""Finding the wrong ones of the labels that people gave to CIFAR-10 (CIFAR-10N): ResNet18, one run each, side by side on one GPU.

    python benchmarks/human.py [--data-dir DIR] [--kinds worse,aggre] [--epochs 200] [--set FIELD=VALUE ...]

Writes results/cifar10n.json: AUROC, average precision and F1 of the flags, the estimated rate, the list at a precision of 0.95.
"""

import argparse
from pathlib import Path

from measure import Record, save
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from sprl.audit import judge, select
from sprl.config import Config, parse_assignments
from sprl.data.catalogue import load
from sprl.run import Run, prepare
from sprl.together import together


def scored(run: Run) -> Record:
    labels = run.labels()
    summary = run.summary(labels)
    wrong = run.data.y != run.data.clean
    verdict = judge(labels["label_quality"].to_numpy(), run.data.y)
    listed = select(verdict.wrong, precision=0.95).rows
    return {
        "labels": run.config.labels,
        "auroc": roc_auc_score(wrong, -labels["label_quality"]),
        "ap": average_precision_score(wrong, -labels["label_quality"]),
        "f1": f1_score(wrong, labels["is_label_issue"]),
        "rate": float(wrong.mean()),
        "rate_estimated": verdict.rate,
        "interval": [verdict.low, verdict.high],
        "clear": verdict.clear,
        "listed_at_0.95": len(listed),
        "real_precision": float(wrong[listed].mean()) if len(listed) else None,
        "suggestions_right": float((labels["predicted_label"] == labels["true_label"])[labels["is_label_issue"]].mean()),
        "last10": summary["last10"],
        "seconds": summary["seconds"],
        "step": summary["step"],
        "limited": bool(run.rows[-1]["limited"]),
        "spread": run.rows[-1]["spread"],
        "config": run.config.to_json() | {"data_dir": None},
        "curve": [round(row["test_accuracy"], 2) for row in run.rows],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--kinds", default="worse,aggre")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--set", action="append", default=["T1=20"])
    parser.add_argument("--out", type=Path, default=Path("results/cifar10n.json"))
    args = parser.parse_args()
    data = load("cifar10", args.data_dir)
    common = {"data": "cifar10", "data_dir": args.data_dir, "network": args.network, "epochs": args.epochs}
    fields = parse_assignments(args.set)
    runs = [prepare(Config(labels=f"human:{kind}", fields=fields, **common), data) for kind in args.kinds.split(",")]
    for run, row in together(runs):
        if row is not None and row["epoch"] % 20 == 0:
            print(f"{run.config.labels} epoch {row['epoch']}: {row['test_accuracy']:.2f} %", flush=True)
    records = [scored(run) for run in runs]
    for record in records:
        print({name: value for name, value in record.items() if name not in ("config", "curve")})
    save(args.out, records)
