"""Runs that are killed (kill -9) at random moments and gone on with: each must end with the files of the unbroken run, to the last bit.

python benchmarks/crash.py [--kills 100] [--seed 0]    writes results/crash.json
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from measure import Record, save
from PIL import Image
from safetensors.torch import load_file

from sprl.schema import read

HERE = Path(__file__).parent
RESULTS = ("metrics.jsonl", "model.safetensors", "labels.csv")
OPTIONS = ("--epochs", "20")  # of the demonstration: T1 is searched for
AGAIN = 0.7  # of the runs that are gone on with are killed once more
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "SPRL_CHECKPOINT_SECONDS": "0.05"}


def start(run: Path, environment: dict[str, str] = ENVIRONMENT) -> subprocess.Popen[str]:
    """The run from its beginning or, where it has begun, from its last checkpoint."""
    how = ("--resume", str(run)) if (run / "config.json").exists() else (*OPTIONS, "--out", str(run))
    command = (sys.executable, "-m", "sprl", "train", *how)
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    _, error = process.communicate()
    if process.returncode:
        raise SystemExit(f"a run ended with {process.returncode}: {error}")


def results(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in RESULTS}


def check(run: Path) -> str:
    """Read every file of the folder, whatever was interrupted. Returns how far the run had come."""
    files = {path.name: path for path in run.iterdir() if not path.name.startswith(".")} if run.exists() else {}
    searching = False
    for name, path in files.items():
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            [json.loads(line) for line in path.read_text().splitlines()]
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                assert len(list(csv.DictReader(file, strict=True))) == 1347
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".pt":
            content = read(path)
            searching |= name == "checkpoint.pt" and content["method"]["T1"] == "auto"
        else:
            raise AssertionError(f"{name} in the folder of a run")
    if "config.json" not in files:
        return "before the run"
    if "summary.json" in files:
        return "after the end"
    if files.keys() & {"labels.csv", "model.safetensors", "curves.png"}:
        return "while writing the results"
    if not files.keys() & {"checkpoint.pt", "checkpoint-previous.pt"}:
        return "before the first checkpoint"
    return "in the search for T1" if searching else "after the search"


def trial(run: Path, rng: random.Random, most: int, seconds: float) -> Record:
    """One run, killed up to `most` times, each time at a moment drawn from the seconds that an unbroken run takes."""
    moments: list[tuple[float, str]] = []
    while True:
        process = start(run)
        if len(moments) < most and (not moments or rng.random() < AGAIN):
            moment = rng.uniform(0, seconds)
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                moments.append((round(moment, 3), check(run)))
                continue
        finish(process)
        check(run)
        return {"kills": len(moments), "killed": moments}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    records: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        whole = Path(folder) / "whole"
        finish(start(whole, {**ENVIRONMENT, "SPRL_CHECKPOINT_SECONDS": ""}))  # as usual: one checkpoint, at the end
        seconds = time.perf_counter() - began
        while (done := sum(record["kills"] for record in records)) < asked.kills:
            run = Path(folder) / f"run-{len(records)}"
            record = trial(run, rng, asked.kills - done, seconds)
            record["equal"] = results(run) == results(whole)
            records.append(record)
            print(f"\r{sum(r['kills'] for r in records)} kills, {len(records)} runs, all equal: {all(r['equal'] for r in records)}", end="")
        print()
        total = time.perf_counter() - began
    phases = Counter(phase for record in records for _, phase in record["killed"])
    for phase, count in phases.most_common():
        print(f"{count:4}  {phase}")
    equal = sum(record["equal"] for record in records)
    print(f"{equal} of {len(records)} runs ended with the unbroken run's {', '.join(RESULTS)}; {total:.0f} s")
    save(
        HERE.parent / "results" / "crash.json",
        records,
        kills=sum(phases.values()),
        runs=len(records),
        equal=equal,
        killed=dict(phases.most_common()),
        seconds_unbroken=round(seconds, 2),
        seconds=round(total),
    )
    if equal < len(records):
        sys.exit(1)


if __name__ == "__main__":
    main()
