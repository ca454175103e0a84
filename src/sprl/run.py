"""One run: data and config in; epochs, labels and a summary out. Nothing here prints or writes files."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sprl import generated, photos, timm_models
from sprl.audit import judge
from sprl.config import Config, default_cutout, default_method, find_device, find_precision, make_method, settle
from sprl.data import Data, How, Progress, check_learnable, quiet
from sprl.data.augment import suited_to
from sprl.data.catalogue import load, relabel
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, Rows, Streamed, place
from sprl.engine import batch_sizes, batches_left, label_issues, never, predict_logits, predicted, start
from sprl.errors import InputError, is_out_of_memory, pick
from sprl.generated import Labeller
from sprl.machine import free_memory
from sprl.networks import weight
from sprl.noise import GENERATED, corrupt, expected, parse, requested
from sprl.ranks import ALONE, Ranks
from sprl.state import State, Task, restore, snapshot
from sprl.stepping import WARM, Shared, find_stepper, tuned
from sprl.training import train_pausing
from sprl.truth import told

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass(eq=False)
class Run:
    """A prepared run. `for row in run: ...` trains it; stopping early leaves what was learned so far."""

    config: Config  # with every default filled in
    data: Data
    task: Task
    state: State
    why: str  # this network
    x_test: Rows | None = None
    backbone: nn.Module | None = None  # what made the rows of pictures, where only a head is trained
    pictures: Data | None = None  # and the pictures it made them of
    labeller: Labeller | None = None  # what gave the labels, where a network did
    rows: list[Row] = field(default_factory=list)  # of the epochs that count
    seconds: float = 0.0
    processes: int = 1  # that trained it

    def __iter__(self) -> Iterator[Row]:
        """Train, yielding the row of each epoch. While T1 is searched for, the count may step back (see training.train)."""
        return (row for row in self.train(never) if row is not None)

    def train(self, pause: Callable[[], bool]) -> Iterator[Row | None]:
        """The same; and wherever `pause` says so, between two batches, a None."""
        clean = None if self.data.clean is None else torch.from_numpy(self.data.clean).to(self.task.device)
        accuracy: Tensor | None = None
        began = time.perf_counter() - self.seconds
        for epoch in train_pausing(self.task, self.state, pause):
            self.seconds = time.perf_counter() - began
            if epoch is None:
                self.rows = self.rows[: self.state.t]  # without those that a search for T1 trained beyond it
                yield None
                if self.task.device.type == "cuda" and batches_left(self.task, self.state) == 0:
                    accuracy = self.test_accuracy()
                    yield None  # others may have their turn before we wait for it
                continue
            row = epoch.row()
            if clean is not None:
                memory = self.state.memory
                row |= told(epoch.chosen, memory["previous"], self.task.y, clean, memory["visits"] > 0)
            accuracy = self.test_accuracy() if accuracy is None else accuracy
            if accuracy is not None:
                row["test_accuracy"] = 100 * accuracy.item()
            accuracy = None
            self.rows = [*self.rows[: epoch.t - 1], row]
            self.seconds = time.perf_counter() - began
            yield row

    def test_accuracy(self) -> Tensor | None:
        """As a 0-d tensor on the device, which may not have come to it yet. Of several networks, the mean of what each reaches."""
        if self.x_test is None or self.y_test is None:
            return None
        logits = predict_logits(self.state.networks, self.x_test, precision=self.task.precision, ranks=self.task.ranks)
        return (logits.argmax(-1) == self.y_test).double().mean()

    def leave(self) -> None:
        """Its training is over: from here on this process needs no other."""
        self.task = replace(self.task, ranks=ALONE)

    @cached_property
    def fingerprint(self) -> str:
        """Of all the data: rows, labels, names. Rows streamed from the cache are known by their file, which is named by its content."""
        data = self.data
        found = hashlib.sha256(json.dumps([data.shape, data.classes, data.ids]).encode())
        for rows in (data.x, data.x_test):
            if isinstance(rows, FileRows):
                found.update(rows.path.name.encode() + rows.places.tobytes())
            elif rows is not None:
                found.update(photos.digest(rows))
        for labels in (data.y, data.y_test, data.clean):
            found.update(b"none" if labels is None else np.ascontiguousarray(labels).tobytes())
        return found.hexdigest()

    @cached_property
    def y_test(self) -> Tensor | None:
        """On the device once: a copy from the host would wait for all that is under way there."""
        return None if self.data.y_test is None else torch.from_numpy(self.data.y_test).to(self.task.device)

    def seconds_expected(self) -> float:
        """Time a few steps, undo them, and count the steps to come."""
        task, state = self.task, self.state
        saved = snapshot(state)
        index = torch.arange(min(task.batch_size, len(task.y)), device=task.device)
        raw = task.x[task.ranks.mine(index)] if isinstance(task.x, Streamed) else None
        state.progress.begin(index)
        seconds = 0.0
        with state.draws.lent(), tuned(task.device):
            for _ in range(WARM + 3):  # the first ones warm up
                began = time.perf_counter()
                state.progress.at.zero_()
                state.stepper(task, state, index, raw)
                if task.device.type == "cuda":
                    torch.cuda.synchronize()
                seconds = time.perf_counter() - began
        restore(state, saved)
        return 1.1 * seconds * (task.epochs - state.t) * len(batch_sizes(len(task.y), task.batch_size))  # a little for the test rows

    def labels(self) -> pd.DataFrame:
        """labels.csv: a row for every training row."""
        table = label_issues(self.task, self.state, self.data.classes)
        table = table[["given_label", "predicted_label", "confidence", "label_quality", "wrong_probability", "is_label_issue"]]
        table.insert(0, "id", self.data.ids)
        table.insert(1, "index", self.data.index)
        if self.data.clean is not None:
            table["true_label"] = np.array(self.data.classes)[self.data.clean]
        return table

    def noise(self) -> Row:
        """Of the given labels: the kind of noise and the rate that was asked for, if any; the rate as it is, if known; their hash."""
        config, data = self.config, self.data
        kind = None if config.labels is None else config.labels if config.labels.startswith("human:") else "file"
        return {
            "kind": kind if config.corrupt is None else parse(config.corrupt)[0],
            "requested": None if config.corrupt is None else requested(config.corrupt),
            "realised": None if data.clean is None else float((data.y != data.clean).mean()),
            "labels_sha256": hashlib.sha256(np.ascontiguousarray(data.y, np.int64).tobytes()).hexdigest(),
            "labeller": None if self.labeller is None else self.labeller._asdict(),
        }

    def summary(self, labels: pd.DataFrame) -> Row:
        """summary.json. Accuracies in percent; `last10` is the mean over the last ten epochs, `best_oracle` needs the test labels."""
        T1 = getattr(self.state.method, "T1", None)
        verdict = judge(labels["label_quality"].to_numpy(), self.data.y)
        accuracy = [row["test_accuracy"] for row in self.rows if "test_accuracy" in row]
        noise = self.noise()
        classes = predict_logits(self.state.networks, self.task.x, precision=self.task.precision, keep=predicted).flatten()
        return {
            "epochs": len(self.rows),
            "interrupted": len(self.rows) < self.task.epochs,
            "T1": T1 if isinstance(T1, int) else None,  # none yet where the run was stopped in the search
            "last10": float(np.mean(accuracy[-10:])) if accuracy else None,
            "best_oracle": max(accuracy) if accuracy else None,
            "agreement": 100 * (classes == self.task.y).float().mean().item(),
            "skipped": len(self.data.skipped),
            "label_issues": int(labels["is_label_issue"].sum()),
            "noise_rate_estimated": verdict.rate,
            "noise_rate_interval": [verdict.low, verdict.high],
            "noise_rate_clear": verdict.clear,
            "noise_rate_realised": noise["realised"],
            "noise": noise,
            "seconds": round(self.seconds, 3),
            "device": str(self.task.device) if self.task.device.type == "cpu" else torch.cuda.get_device_name(self.task.device),
            "threads": torch.get_num_threads(),
            "precision": self.task.precision,
            "step": self.state.stepper.name,
            "processes": self.processes,
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    from sprl import __version__

    return {"sprl": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


def prepare(
    config: Config,
    data: Data | None = None,
    say: Callable[[str], None] = quiet,
    progress: Progress = quiet,
    beside: Run | None = None,
    ranks: Ranks = ALONE,
) -> Run:
    """Read the data, if none is given, and check everything that can be checked before training. Data that is given may be whole, or what
    `read` made of it for this config. Rows that a run `beside` this one holds on the device already are shared."""
    device = find_device(config.device)
    timm_name = check_network(config)
    data = read(config, say, progress) if data is None else data.draw(config.rows)
    data, labeller = labelled(data, config, say, progress)
    num_classes = len(data.classes)
    check_learnable(data.y, num_classes)
    if config.method == "auto":  # whoever sets fields means SPRL's
        config = replace(config, method="sprl" if config.fields else default_method(config.network, data.shape, device))
    method = make_method(config.method, config.fields, config.noise_rate, partial(known_rate, data, config))
    backbone, pictures, wanted = None, None, config.network
    if timm_name and len(data.shape) == 3 and data.x.dtype != torch.uint8:
        raise InputError(f"networks of timm take pictures as pixels from 0 to 255 (uint8), those of {data.name} are other numbers")
    if timm_name and config.frozen:
        pictures = data
        data, backbone = photos.freeze(data, timm_name, config.weights, device, progress, say)
        wanted = photos.HEAD
    network, why, epochs, batch_size, lr = settle(
        wanted,
        config.epochs,
        config.batch_size,
        config.lr,
        n=len(data.y),
        shape=data.shape,
        device=device,
        tuned=config.weights is not None and not config.frozen,
    )
    precision = find_precision(config.precision, device)
    config = replace(
        config,
        fields=asdict(method),  # type: ignore[call-overload]
        network=config.network if timm_name else network,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        cutout=default_cutout(network, data.shape) if config.cutout is None and config.augment is not False else config.cutout,
        precision=precision,
    )
    ours = not timm_name or config.frozen
    stepper = find_stepper(device, config.graph, config.compile, ours) if ranks.count == 1 else Shared(ranks)
    least = min(9 * len(data.y) // 10, batch_size // 2)  # the smallest batch of an epoch, or of the search for T1
    if ranks.count > 1 and least < 2 * ranks.count:
        told = f"batches of {batch_size}, of which the last may have {least} rows, are too small for {ranks.count} processes"
        raise InputError(f"{told}: each needs 2 rows for batch norm; raise --batch-size or start fewer")
    task = Task(
        x=beside.task.x if beside is not None and beside.data.x is data.x else place(data.x, device, config.stream),
        y=torch.from_numpy(data.y).to(device),
        num_classes=num_classes,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=config.seed,
        schedule=config.schedule,
        augment=suited_to(data.shape, config.augment, config.cutout),
        precision=precision,
        channels_last=True,
        half_memory=pick("memory", config.memory, ("full", "half")) == "half",
        ranks=ranks,
    )
    check_room(network, data.shape, num_classes, method.networks, device)
    make = partial(timm_models.network, name=timm_name, weights=config.weights) if timm_name and not config.frozen else network
    if beside is not None and beside.data.x_test is data.x_test:
        x_test = beside.x_test
    else:
        x_test = None if data.x_test is None else place(data.x_test, device, config.stream)
    state = start(task, method, make, stepper)
    return Run(config, data, task, state, why, x_test, backbone, pictures, labeller, processes=ranks.count)


def check_room(network: str, shape: tuple[int, ...], num_classes: int, count: int, device: torch.device) -> None:
    """InputError where there is no memory to train so many of the network: the config may be a stranger's."""
    need, free = 4 * count * weight(network, shape, num_classes), free_memory(device)  # with gradients, and Adam's two moments
    if need > free:
        told = f"to train {network} takes {need / 1e9:,.1f} GB for its weights alone, but {free / 1e9:,.1f} GB of memory are free"
        raise InputError(f"{told}: take a smaller --network")


def known_rate(data: Data, config: Config) -> float | None:
    """The share of wrong labels as whoever made them knows it: where a rate was asked for, what it comes to on average, as in the paper;
    else as it came out."""
    if data.clean is None:
        return None
    asked = None if config.corrupt is None else expected(config.corrupt, data.clean, len(data.classes))
    return float((data.y != data.clean).mean()) if asked is None else asked


def read(config: Config, say: Callable[[str], None] = quiet, progress: Progress = quiet) -> Data:
    """The data with its own labels, of which as many rows as are asked for."""
    how = How(find_resize(config, check_network(config)), config.skip_bad, config.label_column, say, progress)
    return load(config.data, config.data_dir, how).draw(config.rows)


def one_thread_does(run: Run) -> bool:
    """On a CPU without convolutions a second thread gains nothing (docs/speed.md), and changes the last bits."""
    return run.task.device.type == "cpu" and all(p.ndim <= 2 for p in run.state.networks.parameters())


@contextmanager
def within_memory(batch_size: int | None) -> Iterator[None]:
    """Out of memory as one line that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        now = f" (now {batch_size})" if batch_size else ""
        advice = f"lower --batch-size{now} or, for pictures, --size; take a smaller --network; or use --stream or --memory half"
        raise InputError(f"there is not enough memory: {advice}") from error


def check_network(config: Config) -> str:
    """The name after timm:, else ""."""
    kind, _, name = config.network.partition(":")
    if kind == "timm" and not name:
        raise InputError("which network of timm? Name one: --network timm:resnet50")
    name = name if kind == "timm" else ""
    for option, given in (("--weights", config.weights is not None), ("--frozen", config.frozen)):
        if given and not name:
            raise InputError(f"{option} goes with a network of timm, such as --network timm:resnet50")
    if config.frozen and config.weights is None:
        raise InputError("--frozen needs weights that have learned to see: --weights FILE, or --weights pretrained, which downloads them")
    for option, given in (("--augment", config.augment is True), ("--cutout", bool(config.cutout))):
        if config.frozen and given:
            raise InputError(f"--frozen embeds every picture once, as it is, so none can be augmented: leave out {option} or --frozen")
    if config.size is not None and not 8 <= config.size <= 2048:
        raise InputError(f"--size {config.size} is out of range: give 8 to 2048 pixels")
    return name


def find_resize(config: Config, timm_name: str) -> Resize | None:
    if config.size is not None:
        return Resize(config.size, config.size)
    return photos.resize_of(timm_name) if timm_name else None


def labelled(data: Data, config: Config, say: Callable[[str], None] = quiet, progress: Progress = quiet) -> tuple[Data, Labeller | None]:
    """The data with the labels to train on: its own, others, damaged ones, or those of a network, which is then told of."""
    if config.labels is not None and config.corrupt is not None:
        raise InputError("--labels gives the labels to train on, --corrupt makes others: use one of them")
    if config.labels is not None:
        return replace(data, y=relabel(data, config.labels, config.data_dir)), None
    if config.corrupt is None:
        return data, None
    if parse(config.corrupt)[0] == GENERATED:
        return generated.labelled(data, config, say, progress)
    clean = data.y if data.clean is None else data.clean
    return replace(data, y=corrupt(clean, config.corrupt, len(data.classes), config.seed), clean=clean), None
