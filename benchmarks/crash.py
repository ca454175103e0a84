"""Runs that are killed (kill -9) at random moments and resumed: each must end with the files of the unbroken run, to the last bit.

python benchmarks/crash.py [--kills 100] [--seed 0] [KIND ...]    writes results/crash.json
"""

import argparse
import csv
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from measure import Record, save
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from sprl.checkpoint import opened
from sprl.cli import main as sprl

HERE = Path(__file__).parent
RESULTS = ("metrics.jsonl", "model.safetensors", "labels.csv", "curves.png", "config.json")
AGAIN = 0.7  # of the runs that are resumed are killed once more
FORK = multiprocessing.get_context("fork")  # so that no process has to import torch first
NOISE = ("--corrupt", "symmetric:0.4")


@dataclass(frozen=True)
class Kind:
    """What is trained; `rows` stand in labels.csv."""

    options: tuple[str, ...]
    rows: int
    interval: float = 0.05  # seconds between checkpoints
    gpu: bool = False


KINDS = {
    "a search for T1": Kind(("digits", *NOISE, "--epochs", "20"), 1347),
    "two networks": Kind(("digits", *NOISE, "--method", "co-teaching", "--epochs", "15"), 1347),
    "a CNN in channels_last": Kind(("pictures.npz", *NOISE, "--network", "cnn", "--set", "T1=2", "--epochs", "8"), 400),
    "streamed": Kind(("pictures", *NOISE, "--network", "cnn", "--stream", "--set", "T1=2", "--epochs", "8"), 400),
    "a captured ResNet18": Kind(
        ("colours.npz", *NOISE, "--network", "resnet18", "--graph", "--no-compile", "--set", "T1=2", "--epochs", "12"), 4000, 0.5, gpu=True
    ),
}


def make_data(folder: Path) -> None:
    """Digits as pictures: arrays, a folder a class, and in colour, as large as CIFAR-10's."""
    digits = load_digits()
    x, y = (np.kron(digits.images[:400], np.ones((2, 2))) * 15).astype(np.uint8), digits.target[:400]
    np.savez(folder / "pictures.npz", x=x, y=y)
    for number, (picture, label) in enumerate(zip(x, y, strict=True)):
        (folder / "pictures" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "pictures" / str(label) / f"{number}.png")
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (10, 32, 32, 3))
    y = np.arange(4000) % 10
    np.savez(folder / "colours.npz", x=np.clip(colours[y] + rng.normal(0, 60, (4000, 32, 32, 3)), 0, 255).astype(np.uint8), y=y)


def start(kind: Kind, run: Path, interval: float | None = None) -> BaseProcess:
    """The run from its beginning or, where it has begun, from its last checkpoint."""
    how = ("--resume", str(run)) if (run / "config.json").exists() else (*kind.options, "--out", str(run))
    process = FORK.Process(target=command, args=(("train", *how), run.parent, kind.interval if interval is None else interval))
    process.start()
    return process


def command(words: tuple[str, ...], folder: Path, interval: float) -> None:
    """`sprl`, in a process of its own."""
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic = True
    os.environ["SPRL_CHECKPOINT_SECONDS"] = str(interval)
    os.environ["SPRL_CACHE"] = str(folder / "cache")
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["sprl", *words]
    sprl()


def finish(process: BaseProcess, run: Path) -> None:
    process.join()
    if process.exitcode:
        raise SystemExit(f"{run.name} ended with {process.exitcode}: {(run.parent / 'log').read_text()}")


def results(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in RESULTS}


def check(run: Path, rows: int) -> str:
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
                assert len(list(csv.DictReader(file, strict=True))) == rows
        elif name.startswith("checkpoint"):
            _, facts = opened(path)  # which compares its checksum
            searching |= name == "checkpoint.safetensors" and facts["method"].get("T1") == "auto"
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        else:
            raise AssertionError(f"{name} in the folder of a run")
    if "config.json" not in files:
        return "before the run"
    if "summary.json" in files:
        return "after the end"
    if files.keys() & {"labels.csv", "model.safetensors", "curves.png"}:
        return "while writing the results"
    if not any(name.startswith("checkpoint") for name in files):
        return "before the first checkpoint"
    return "in the search for T1" if searching else "after the search, or without one"


def trial(kind: Kind, run: Path, rng: random.Random, most: int, seconds: float) -> Record:
    """One run, killed up to `most` times, each time at a moment drawn from the seconds that an unbroken run takes."""
    moments: list[tuple[float, str]] = []
    while True:
        process = start(kind, run)
        if len(moments) < most and (not moments or rng.random() < AGAIN):
            moment = rng.uniform(0, seconds)
            process.join(moment)
            if process.is_alive():
                process.kill()
                process.join()
                moments.append((round(moment, 3), check(run, kind.rows)))
                continue
        finish(process, run)
        check(run, kind.rows)
        return {"kills": len(moments), "killed": moments}


def trials(name: str, kills: int, seed: int, folder: Path) -> list[Record]:
    """Runs of one kind until so many were killed, each compared with the unbroken one."""
    kind, rng, records = KINDS[name], random.Random(f"{seed} {name}"), list[Record]()
    whole = folder / "whole"
    began = time.perf_counter()
    finish(start(kind, whole, interval=1e9), whole)  # one checkpoint, at the end
    seconds = time.perf_counter() - began
    while (done := sum(record["kills"] for record in records)) < kills:
        run = folder / f"run-{len(records)}"
        record = trial(kind, run, rng, kills - done, seconds)
        differ = [file for file, content in results(run).items() if content != results(whole)[file]]
        records.append({"kind": name, **record, "equal": not differ, "differ": differ, "seconds_unbroken": round(seconds, 2)})
        equal = sum(record["equal"] for record in records)
        print(f"\r{name}: {done + record['kills']} kills, {equal} of {len(records)} runs equal", end="", flush=True)
    print()
    return records


def main() -> None:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other check would keep forked processes from the GPU
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name, kind in KINDS.items() if kind.gpu == torch.cuda.is_available()]
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"default here: {', '.join(usual)}", choices=[[], *KINDS], default=[])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=HERE.parent / "results" / "crash.json")
    asked = parser.parse_args()
    began = time.perf_counter()
    records = list[Record]()
    for name in asked.kinds or usual:
        with tempfile.TemporaryDirectory() as folder:
            make_data(Path(folder))
            records += trials(name, asked.kills, asked.seed, Path(folder))
    phases = Counter(phase for record in records for _, phase in record["killed"])
    for phase, count in phases.most_common():
        print(f"{count:4}  {phase}")
    equal = sum(record["equal"] for record in records)
    print(f"{equal} of {len(records)} runs ended with the unbroken run's {', '.join(RESULTS)}")
    save(
        asked.to,
        records,
        kills=sum(phases.values()),
        runs=len(records),
        equal=equal,
        killed=dict(phases.most_common()),
        seconds=round(time.perf_counter() - began),
    )
    if equal < len(records):
        sys.exit(1)


if __name__ == "__main__":
    main()
