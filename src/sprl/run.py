"""One run: data and config in; epochs, labels and a summary out. Nothing here prints or writes files."""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sprl.config import Config, find_device, make_method, settle
from sprl.core import Batch
from sprl.data import Data, check_learnable
from sprl.data.augment import suited_to
from sprl.data.catalogue import load, relabel
from sprl.engine import State, Task, pixels_to_float, predict, start, visit_unseen
from sprl.errors import InputError
from sprl.functional import masked_mean
from sprl.labels import label_issues
from sprl.noise import corrupt
from sprl.training import train

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass
class Run:
    """A prepared run. `for row in run: ...` trains it; stopping early leaves what was learned so far."""

    config: Config  # with every default filled in
    data: Data
    task: Task
    state: State
    why: str  # this network
    rows: list[Row] = field(default_factory=list)  # of the epochs that count
    seconds: float = 0.0

    def __iter__(self) -> Iterator[Row]:
        """Train, yielding the row of each epoch. While T1 is searched for, the count may step back (see training.train)."""
        x_test = None if self.data.x_test is None else self.data.x_test.to(self.task.device)
        right = None if self.data.clean is None else torch.from_numpy(self.data.y == self.data.clean).to(self.task.device).double()
        began = time.perf_counter()
        for epoch in train(self.task, self.state):
            row = epoch.row()
            if right is not None:
                row["precision"] = 100 * masked_mean(right, epoch.chosen).item()
            if x_test is not None:
                hit = predict(self.state.networks, x_test).argmax(1).cpu().numpy() == self.data.y_test
                row["test_accuracy"] = 100 * float(hit.mean())
            self.rows = [*self.rows[: epoch.t - 1], row]
            self.seconds = time.perf_counter() - began
            yield row

    def seconds_expected(self) -> float:
        """Time one step on copies of the networks, times the steps to come."""
        networks, task = copy.deepcopy(self.state.networks), self.task
        size = min(task.batch_size, len(task.y))
        index = torch.arange(size, device=task.device)
        seconds = 0.0
        for _ in range(3):  # the first ones warm up
            began = time.perf_counter()
            logits = torch.stack([network(task.augment(pixels_to_float(task.x[index]))) for network in networks])
            self.state.method.step(logits, Batch(index, task.y[index]), self.state.memory).loss.backward()
            if task.device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - began
        steps = task.epochs * -(-len(task.y) // task.batch_size)
        return 1.4 * seconds * steps  # the optimizer, the test rows

    def labels(self) -> pd.DataFrame:
        """labels.csv: a row for every training row."""
        visit_unseen(self.task, self.state)  # rows that were held out when it was stopped
        table = label_issues(self.state.memory, self.task.y, self.data.classes)
        table = table[["given_label", "predicted_label", "label_quality", "is_label_issue"]]
        table.insert(0, "id", self.data.ids)
        table.insert(1, "index", self.data.index)
        if self.data.clean is not None:
            table["true_label"] = np.array(self.data.classes)[self.data.clean]
        return table

    def summary(self, labels: pd.DataFrame) -> Row:
        """summary.json. Accuracies in percent; `last10` is the mean over the last ten epochs, `best_oracle` needs the test labels."""
        T1 = getattr(self.state.method, "T1", None)
        accuracy = [row["test_accuracy"] for row in self.rows if "test_accuracy" in row]
        agree = predict(self.state.networks, self.task.x).argmax(1) == self.task.y
        return {
            "epochs": len(self.rows),
            "interrupted": len(self.rows) < self.task.epochs,
            "T1": T1 if isinstance(T1, int) else None,  # none yet where the run was stopped in the search
            "last10": float(np.mean(accuracy[-10:])) if accuracy else None,
            "best_oracle": max(accuracy) if accuracy else None,
            "agreement": 100 * agree.float().mean().item(),
            "label_issues": int(labels["is_label_issue"].sum()),
            "noise_rate_estimated": float(labels["is_label_issue"].mean()),
            "noise_rate_realised": None if self.data.clean is None else float((self.data.y != self.data.clean).mean()),
            "seconds": round(self.seconds, 3),
            "device": str(self.task.device) if self.task.device.type == "cpu" else torch.cuda.get_device_name(self.task.device),
            "threads": torch.get_num_threads(),
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    from sprl import __version__

    return {"sprl": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


def prepare(config: Config, data: Data | None = None) -> Run:
    """Read the data, if none is given, and check everything that can be checked before training."""
    device = find_device(config.device)
    data = with_labels(load(config.data, config.data_dir) if data is None else data, config)
    num_classes = len(data.classes)
    check_learnable(data.y, num_classes)
    network, why, epochs, batch_size, lr = settle(
        config.network, config.epochs, config.batch_size, config.lr, n=len(data.y), shape=data.shape, device=device
    )
    method = make_method(config.method, config.fields, config.noise_rate)
    config = replace(config, fields=asdict(method), network=network, epochs=epochs, batch_size=batch_size, lr=lr)  # type: ignore[call-overload]
    task = Task(
        x=data.x.to(device),
        y=torch.from_numpy(data.y).to(device),
        num_classes=num_classes,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=config.seed,
        augment=suited_to(data.shape),
    )
    return Run(config, data, task, start(task, method, network), why)


def with_labels(data: Data, config: Config) -> Data:
    """The data with the labels to train on: its own, others, or damaged ones."""
    if config.labels is not None and config.corrupt is not None:
        raise InputError("--labels gives the labels to train on, --corrupt makes others: use one of them")
    if config.labels is not None:
        return replace(data, y=relabel(data, Path(config.labels)))
    if config.corrupt is not None:
        clean = data.y if data.clean is None else data.clean
        return replace(data, y=corrupt(clean, config.corrupt, len(data.classes), config.seed), clean=clean)
    return data
