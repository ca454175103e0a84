"""Runs per hour of whole runs side by side on one GPU, against the same one after the other.

    python benchmarks/together.py [--data-dir DIR] [--recipe defaults] [--only "pair,symmetric:0.5,human:worse sprl"] [--store STORE]

Trains the recipe's cells that fit `--only` together, as `sprl bench --together` does, then the first of them alone, each from its first
weights to its record, checkpoints included; the data is read before. The records of those together stay in the store. Writes
results/together.json.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from measure import Record, save

from sprl import crew, store
from sprl.compare import Job
from sprl.data import Data
from sprl.paper.cell import only
from sprl.paper.recipes import RECIPES
from sprl.run import Run, prepare, read


def trained(group: list[Job], data: Data, folder: Path, beside: Run) -> tuple[float, list[Record]]:
    """Seconds until all have their record, and what the records say."""
    began, records = time.perf_counter(), list[Record]()
    for event in crew.one_by_one([group], data, folder, lambda: False, beside):
        if event.kind == "ended":
            record = event.told
            facts = {"T1": record.summary["T1"], "last10": record.last10, "seconds": record.seconds, "step": record.step}
            records.append({"noise": event.job.config.corrupt or event.job.config.labels, "seed": event.job.config.seed, **facts})
        elif event.kind == "row" and event.told["epoch"] % 20 == 0:
            print(f"{time.perf_counter() - began:7.1f} s", event.job.name, event.told["epoch"], event.told["test_accuracy"], flush=True)
        elif event.kind in ("failed", "busy", "note"):
            print(event.kind, event.told, flush=True)
    return time.perf_counter() - began, records


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--recipe", default="defaults")
    parser.add_argument("--only", default="symmetric:0.5,pair,symmetric:0.8,human:worse sprl")
    parser.add_argument("--epochs", type=int, help="fewer than the recipe's, to try it out")
    parser.add_argument("--store", type=Path, default=Path("records"))
    parser.add_argument("--out", type=Path, default=Path("results/together.json"))
    args = parser.parse_args()
    cells = only(RECIPES[args.recipe].cells(), args.only, optional=False)
    configs = [replace(cell.config, data_dir=args.data_dir, **({"epochs": args.epochs} if args.epochs else {})) for cell in cells]
    data = read(configs[0])
    runs = [prepare(configs[0], data)]
    runs += [prepare(config, data, beside=runs[0]) for config in configs[1:]]
    group = [Job(run.config, store.key_of(run.config.to_json(), run.fingerprint, None)) for run in runs]
    beside = runs[0]
    del runs
    seconds, records = trained(group, data, args.store, beside)
    with tempfile.TemporaryDirectory() as folder:
        alone, one = trained(group[:1], data, Path(folder), beside)
    gain = len(group) * alone / seconds
    print(f"{len(group)} together {seconds:.0f} s, the first of them alone {alone:.0f} s: {gain:.3f} times the runs per hour")
    save(args.out, records + one, epochs=beside.task.epochs, together=len(group), seconds=seconds, seconds_alone=alone, gain=gain)
