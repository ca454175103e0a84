"""Seconds an epoch on CIFAR-10 against the loop that a competent user would write, both in one run.

    python benchmarks/epoch.py [--data-dir DIR] [--networks resnet18,convnet] [--together 4] [--workers 8]

Ours: choice, training with the last batch, test evaluation; the median of the epochs after warm-up. Theirs: a DataLoader with workers,
pinned memory and per-picture transforms, eager fp32 with TF32, the same method through SPRLLoss or plain cross-entropy, the same
evaluation. Without CIFAR-10 the pictures are random: the time is the same. Runs side by side are compared with runs one after the other,
as epochs and as whole runs: `start` is what a run takes beyond its epochs (compilation most of it). Writes results/epoch.json.
"""

import argparse
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import Record, save
from torch import nn
from torch.utils.data import DataLoader, Dataset

from sprl import SPRLLoss
from sprl.config import Config
from sprl.data import Data, Preprocess
from sprl.data.catalogue import load
from sprl.errors import InputError
from sprl.networks import build
from sprl.run import Run, prepare
from sprl.together import together

EPOCHS = 200  # of the schedule; only the first few are run
METHODS = {"sprl": {"T1": 2, "gamma_d": 10.0}, "standard": {}}


def pictures(data_dir: str | None) -> tuple[Data, str]:
    try:
        return load("cifar10", data_dir), "cifar10"
    except InputError:
        rng = np.random.default_rng(0)
        x, x_test = (torch.from_numpy(rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)) for n in (50_000, 10_000))
        y, y_test = rng.integers(0, 10, 50_000), rng.integers(0, 10, 10_000)
        classes = tuple(map(str, range(10)))
        ids = tuple(map(str, range(len(y))))
        random_data = Data("random", x, y, classes, np.arange(len(y)), ids, Preprocess((3, 32, 32)), x_test=x_test, y_test=y_test)
        return random_data, "random pictures"


def make(data: Data, method: str, network: str, seed: int = 0, **more: Any) -> Run:
    config = Config(
        corrupt="symmetric:0.5", method=method, fields=METHODS[method], network=network, epochs=EPOCHS, batch_size=128, seed=seed, **more
    )
    return prepare(config, data)


def ours(runs: list[Run], epochs: int, warm: int = 5) -> tuple[float, float]:
    """Median seconds from the end of one epoch to the end of the next, evaluation included; and those before, beyond such epochs.

    Of several runs side by side: of all of them.
    """
    began, ends = time.perf_counter(), []
    for run, row in together(runs) if len(runs) > 1 else ((runs[0], row) for row in runs[0]):
        if row is not None and run is runs[-1]:
            ends.append(time.perf_counter())
            if row["epoch"] == epochs:
                break
    epoch = float(median(np.diff(ends)[warm - 1 :]))
    return epoch, ends[warm - 1] - began - warm * epoch


class Pictures(Dataset[tuple[torch.Tensor, int, int]]):
    """One picture at a time, as a worker makes it ready: to [0, 1], padded, cut out, mirrored."""

    def __init__(self, x: torch.Tensor, y: Any, training: bool) -> None:
        self.x, self.y, self.training = x, y, training

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int, int]:
        x = self.x[i].float() / 255
        if self.training:
            top, left = random.randint(0, 8), random.randint(0, 8)
            x = F.pad(x, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
            if random.random() < 0.5:
                x = x.flip(2)
        return x, int(self.y[i]), i


def theirs(data: Data, y: Any, method: str, network: str, workers: int, epochs: int = 3) -> float:
    """Median seconds an epoch after the first."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    options = {"num_workers": workers, "pin_memory": device.type == "cuda", "persistent_workers": workers > 0}
    assert isinstance(data.x, torch.Tensor)
    assert isinstance(data.x_test, torch.Tensor)
    loader = DataLoader(Pictures(data.x, y, True), batch_size=128, shuffle=True, **options)
    tests = DataLoader(Pictures(data.x_test, data.y_test, False), batch_size=128, **options)
    net = build(network, (3, 32, 32), 10).to(device)[0]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss = SPRLLoss(y, 10, EPOCHS, **{**METHODS["sprl"], "T1": 1}) if method == "sprl" else None
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        net.train()
        for x, label, index in loader:
            x, label, index = (tensor.to(device, non_blocking=True) for tensor in (x, label, index))
            logits = net(x)
            value = loss(logits, index) if loss is not None else nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        if loss is not None:
            loss.end_epoch()
        net.eval()
        right = torch.zeros((), device=device)
        with torch.no_grad():
            for x, label, _ in tests:
                right += (net(x.to(device, non_blocking=True)).argmax(1) == label.to(device, non_blocking=True)).sum()
        right.item()
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


COMPILED = ("resnet18", "convnet") if torch.cuda.is_available() else ()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--networks", default="resnet18,convnet")
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--no-theirs", action="store_true")
    parser.add_argument("--captured", action="store_true", help="also without compilation")
    parser.add_argument("--out", type=Path, default=Path("results/epoch.json"))
    args = parser.parse_args()
    data, name = pictures(args.data_dir)
    records: list[Record] = []
    for network in args.networks.split(","):
        for method in METHODS:
            run = make(data, method, network, compile=network in COMPILED or None)
            record: Record = {"data": name, "network": network, "method": method, "seed": 0}
            record["ours"], record["start"] = ours([run], args.epochs)
            record |= {"step": run.state.stepper.name, "precision": run.task.precision}
            if args.captured and network in COMPILED:
                record["ours_captured_only"] = ours([make(data, method, network, compile=False)], args.epochs)[0]
            if not args.no_theirs:
                record["theirs"] = theirs(data, run.data.y, method, network, args.workers)
                record["ratio"] = record["theirs"] / record["ours"]
            records.append(record)
            print(record, flush=True)
        if args.together > 1 and network == args.networks.split(",")[0]:
            one = next(r for r in records if r["network"] == network and r["method"] == "sprl")
            runs = [make(data, "sprl", network, seed=seed, compile=network in COMPILED or None) for seed in range(args.together)]
            all_of_them, start = ours(runs, args.epochs)
            record = {"network": network, "together": args.together, "each": all_of_them / args.together, "start": start}
            record["gain"] = one["ours"] / record["each"]
            alone, beside = one["start"] + EPOCHS * one["ours"], (start + EPOCHS * all_of_them) / args.together
            record |= {"gain_of_whole_runs": alone / beside, "seconds_a_run": beside, "seconds_a_run_alone": alone}  # computed
            records.append(record)
            print(record, flush=True)
    save(args.out, records, batch_size=128, workers=args.workers)
