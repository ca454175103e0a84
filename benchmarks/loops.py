"""SPRLLoss with nothing told in somebody's loop, at a constant learning rate, against cross-entropy: five optimizers, two MLPs.

python benchmarks/loops.py [--data FILE.npz] [--batch-size 32 128] [--out OUT.json]

FILE.npz: x, y, x_test, y_test, with right labels, x scaled as a network should get it. Without it: digits, in the demonstration's split.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Record, mean, over_cores, save
from torch import Tensor, nn

from sprl import SPRLLoss, corrupt
from sprl.data.catalogue import load

SEEDS, EPOCHS = range(3), 60
NOISES = ("symmetric:0.4", None)
NETWORKS = ("mlp", "mlp, batch norm")
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD 0.1": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "SGD 0.1, clipped": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "SGD 0.01": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-3),
}
LOSSES: dict[str, dict[str, Any] | None] = {
    "cross-entropy": None,
    "SPRLLoss": {},
    "SPRLLoss as it was": {"normalised": False, "T1": EPOCHS // 10},  # its default before, on digits alone
}


def read(path: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, y, x_test, y_test."""
    if path is None:
        data = load("digits")
        parts = [torch.as_tensor(part) for part in (data.x / 255, data.y, data.x_test / 255, data.y_test)]
    else:
        with np.load(path) as arrays:
            parts = [torch.as_tensor(arrays[name]) for name in ("x", "y", "x_test", "y_test")]
    x, y, x_test, y_test = parts
    return x.flatten(1).float(), y.long(), x_test.flatten(1).float(), y_test.long()


def mlp(inputs: int, num_classes: int, norm: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for width in (inputs, 256):
        layers += [nn.Linear(width, 256), *([nn.BatchNorm1d(256)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, num_classes))


def one(path: Path | None, network: str, optimizer: str, noise: str | None, batch_size: int, loss: str, seed: int) -> Record:
    torch.set_num_threads(1)
    start = time.perf_counter()
    x, clean, x_test, y_test = read(path)
    num_classes = int(clean.max()) + 1
    y = torch.as_tensor(corrupt(clean, noise, num_classes, seed)) if noise else clean
    torch.manual_seed(seed)
    model = mlp(x.shape[1], num_classes, network == "mlp, batch norm")
    steps = OPTIMIZERS[optimizer](model.parameters())
    fields = LOSSES[loss]
    ours = None if fields is None else SPRLLoss(y, num_classes, EPOCHS, **fields)
    curve = []
    for _ in range(EPOCHS):
        model.train()
        for index in torch.randperm(len(y)).split(batch_size):
            steps.zero_grad()
            logits = model(x[index])
            value = nn.functional.cross_entropy(logits, y[index]) if ours is None else ours(logits, index)
            value.backward()
            if optimizer.endswith("clipped"):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
        if ours is not None:
            ours.end_epoch()
        model.eval()
        with torch.no_grad():
            curve.append(100 * (model(x_test).argmax(1) == y_test).float().mean().item())
    return {
        "network": network,
        "optimizer": optimizer,
        "noise": noise,
        "batch_size": batch_size,
        "loss": loss,
        "seed": seed,
        "last10": float(np.mean(curve[-10:])),
        "best": max(curve),
        "T1": None if ours is None else ours.method.T1,
        "noise_rate": float((y != clean).float().mean()),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FILE.npz")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--out", type=Path, default=Path("results/loops.json"))
    options = parser.parse_args()
    cells = list(product(NETWORKS, OPTIMIZERS, NOISES, options.batch_size))
    losses = list(LOSSES)[: 3 if options.data is None else 2]
    records = over_cores(one, [(options.data, *cell, loss, seed) for cell in cells for loss in losses for seed in SEEDS])
    torch.set_num_threads(1)  # as each run has, for the record
    save(options.out, records, data="digits" if options.data is None else options.data.stem, device="cpu", epochs=EPOCHS)
    show(cells, losses, records)


def show(cells: Iterable[tuple[str, str, str | None, int]], losses: list[str], records: list[Record]) -> None:
    """Test accuracy, mean of the last ten epochs and of the seeds."""
    print("network          optimizer         labels         batch  " + "  ".join(losses) + "  T1")
    for cell in cells:
        network, optimizer, noise, batch_size = cell
        here = [r for r in records if (r["network"], r["optimizer"], r["noise"], r["batch_size"]) == cell]
        ours = {loss: [r for r in here if r["loss"] == loss] for loss in losses}
        numbers = "  ".join(f"{mean(ours[loss], 'last10'):{len(loss)}.1f}" for loss in losses)
        found = ", ".join(str(r["T1"]) for r in ours["SPRLLoss"])
        print(f"{network:<16} {optimizer:<17} {noise or 'as they are':<14} {batch_size:>5}  {numbers}  {found}")


if __name__ == "__main__":
    main()
