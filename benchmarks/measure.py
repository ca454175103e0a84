"""What the benchmark scripts share: one run measured, many runs over the cores, one record file."""

import json
import os
import platform
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # many small runs side by side: one thread each

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from sprl.config import Config
from sprl.data import Data
from sprl.data.catalogue import load
from sprl.engine import predict
from sprl.run import Run, prepare, versions

Record = dict[str, Any]
CORES = len(os.sched_getaffinity(0))


def measure(config: Config, data: Data | None = None, change: Callable[[Run], Run] = lambda run: run) -> Record:
    """Train and score one run against the truth that the harness knows."""
    torch.set_num_threads(1)
    run = change(prepare(config, data))
    for _ in run:
        pass
    labels = run.labels()
    summary = run.summary(labels)
    wrong, flagged = (run.data.y != run.data.clean), labels["is_label_issue"].to_numpy()
    predicted = predict(run.state.networks, run.data.x_test).argmax(1).numpy()
    rare = np.isin(run.data.clean, np.argsort(np.bincount(run.data.clean), kind="stable")[:3])
    return {
        "config": run.config.to_json(),
        "T1": summary["T1"],
        "spread": run.rows[-1].get("spread"),
        "last10": summary["last10"],
        "best": summary["best_oracle"],
        "balanced": 100 * balanced_accuracy_score(run.data.y_test, predicted),
        "auroc": roc_auc_score(wrong, -labels["label_quality"]) if wrong.any() else None,
        "f1": f1_score(wrong, flagged) if wrong.any() else None,
        "flagged_right": float(flagged[~wrong].mean()),
        "flagged_right_rare": float(flagged[~wrong & rare].mean()),
        "noise_rate": summary["noise_rate_realised"],
        "noise_rate_estimated": summary["noise_rate_estimated"],
        "seconds": summary["seconds"],
        "curve": [round(row["test_accuracy"], 2) for row in run.rows],
    }


def tail(ratio: float = 10.0) -> Data:
    """digits with ever fewer training samples of each class, the first class `ratio` times the last."""
    data = load("digits")
    keep = []
    for c in range(10):
        rows = np.flatnonzero(data.y == c)
        keep.append(rows[: round(len(rows) * ratio ** (-c / 9))])
    rows = np.sort(np.concatenate(keep))
    ids = tuple(data.ids[i] for i in rows)
    return replace(data, name="digits-tail", x=data.x[rows], y=data.y[rows], clean=data.clean[rows], index=data.index[rows], ids=ids)


def over_cores(function: Callable[..., Record], jobs: Iterable[tuple[Any, ...]]) -> list[Record]:
    """function(*job) for all jobs, one process a core."""
    jobs = list(jobs)
    records = []
    with ProcessPoolExecutor(CORES) as pool:
        for record in pool.map(function, *zip(*jobs, strict=True)):
            records.append(record)
            print(f"\r{len(records)}/{len(jobs)}", end="", flush=True)
    print()
    return records


def save(path: Path, records: list[Record], **parts: Any) -> None:
    """One file with what was measured, where and with what."""
    machine = {"cpu": cpu_name(), "cores": CORES, "threads_per_run": torch.get_num_threads()}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"date": date.today().isoformat(), "machine": machine, "versions": versions(), **parts}
    lines = ",\n".join(json.dumps(record) for record in records)  # a record a line
    path.write_text(json.dumps(head)[:-1] + f', "records": [\n{lines}\n]}}\n')
    print(f"wrote {path}")


def cpu_name() -> str:
    try:
        return next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def mean(records: list[Record], key: str) -> float:
    return float(np.mean([record[key] for record in records]))
