"""Labels that a network gives: trained on a few right labels of each class, it names a class for every row (paper, section V.D)."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sprl import photos
from sprl.config import Config
from sprl.data import Array, Data, Progress, cache, quiet
from sprl.data.rows import Rows, fetch
from sprl.engine import predict
from sprl.errors import InputError, ensure
from sprl.noise import parse
from sprl.seeds import stream_seed

if TYPE_CHECKING:
    from sprl.run import Run


class Labeller(NamedTuple):
    """The network that gave the labels. Accuracies in percent, after its last epoch (paper, table III)."""

    rows: int  # whose right labels it was trained on
    training_accuracy: float  # on all training rows, so 100 less the percentage of wrong labels
    test_accuracy: float | None


def labelled(data: Data, config: Config, say: Callable[[str], None] = quiet, progress: Progress = quiet) -> tuple[Data, Labeller]:
    """The data with the labels that a network gives to its rows, for `config.corrupt` of the kind generated:COUNT.

    They depend on the data, the network, its schedule and the seed, never on the method; made once, they are kept in the cache.
    """
    run, rows, seed = begun(data, config, say, progress)
    y, accuracy = given(run, rows, seed, say, progress)
    if torch.cuda.is_initialized():
        gc.collect()  # what was needed there to train the network goes now, not when Python gets round to it
    ensure(len(np.unique(y)) > 1, f"the network that learned {len(rows):,} right labels gives all rows the same one: let it learn more")
    x = run.task.x if isinstance(run.task.x, Tensor) and not config.frozen else data.x  # where it is already
    return replace(data, x=x, y=y), Labeller(len(rows), 100 * float((y == data.clean).mean()), accuracy)


def are_made(data: Data, config: Config) -> bool:
    """Whether the labels are in the cache, so that `labelled` has nothing to train."""
    run, rows, seed = begun(data, config)
    path = cache.folder() / f"{name_of(run, beginning(run, rows, seed), rows)}.rows"
    return cache.read(path, path.with_suffix(".json"), 4 * len(run.data.y)) is not None


def begun(data: Data, config: Config, say: Callable[[str], None] = quiet, progress: Progress = quiet) -> tuple[Run, Array, int]:
    """The run as it would be on right labels; the rows whose labels a network is to learn, and its seed."""
    from sprl.run import prepare

    clean, rows, seed = learned(data, config)
    # Whatever else is wrong with the run is told before anything is trained, and its defaults are known.
    return prepare(replace(config, corrupt=None), replace(data, y=clean), say, progress), rows, seed


def learned(data: Data, config: Config) -> tuple[Array, Array, int]:
    """The right labels of all rows; the rows whose labels a network is to learn, and its seed."""
    if data.clean is None:
        raise InputError(f"{config.corrupt} trains a network on right labels, and which of {data.name} are right is not known")
    seed = stream_seed(config.seed, "labeller")
    return data.clean, choose(data.clean, data.classes, int(parse(str(config.corrupt))[1]), seed), seed


def given(run: Run, rows: Array, seed: int, say: Callable[[str], None], progress: Progress) -> tuple[Array, float | None]:
    """The labels of all rows by the network that learned those of `rows`, from the cache where it did so before; its test accuracy."""
    beginner = beginning(run, rows, seed)

    def make(path: Path) -> dict[str, Any]:
        T, which = beginner.task.epochs, f"{len(rows):,} right labels"
        say(f"a network is trained on {which} for {T} epochs, seed {run.config.seed}; the run takes the labels that it gives to all rows")
        for row in beginner:
            progress("training the network that gives the labels", row["epoch"], T)
        y = predict(beginner.state.networks, run.task.x, precision=run.task.precision).argmax(1)
        accuracy = replace(run, state=beginner.state).test_accuracy()
        y.cpu().numpy().astype("<i4").tofile(path)
        return {"test_accuracy": None if accuracy is None else 100 * accuracy.item(), "sha256": digest(path.read_bytes())}

    path, note = cache.entry(name_of(run, beginner, rows), 4 * len(run.data.y), make, say)
    content, accuracy = path.read_bytes(), note.get("test_accuracy")
    whole = digest(content) == note.get("sha256") and isinstance(accuracy, float | None)
    ensure(whole, f"{path} has been damaged: delete it, and the labels are made anew")
    return np.frombuffer(content, "<i4").astype(np.int64), accuracy


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def choose(clean: Array, classes: tuple[str, ...], count: int, seed: int) -> Array:
    """`count` rows of each class, drawn uniformly, in their order."""
    sizes = np.bincount(clean, minlength=len(classes))
    few = int(sizes.argmin())
    ensure(
        sizes[few] >= count,
        f"{count:,} right labels a class are asked for, but {classes[few]} has {sizes[few]:,} rows: give a smaller number",
    )
    shuffled = np.random.default_rng(stream_seed(seed, "noise")).permutation(len(clean))
    return np.sort(np.concatenate([shuffled[clean[shuffled] == c][:count] for c in range(len(classes))]))


def beginning(run: Run, rows: Array, seed: int) -> Run:
    """The run that trains the network: Standard, on the right labels of `rows` alone, with all else as in `run`."""
    from sprl.run import prepare

    data = run.data
    head = {"network": photos.HEAD, "weights": None, "frozen": False} if run.config.frozen else {}  # on the embeddings of `run`
    plain = replace(run.config, method="standard", fields={}, noise_rate=None, schedule="published")  # so all methods get the same labels
    config = replace(plain, rows=None, seed=seed, **head)  # type: ignore[arg-type]
    few = replace(data.take(rows), clean=None, x_test=None, y_test=None)  # test rows would be predicted after every epoch
    return prepare(config, few)


def name_of(run: Run, beginner: Run, rows: Array) -> str:
    """Of the cache's entry: a hash of all that the labels depend on. Which network, and how it begins, its weights tell."""
    task, labels = beginner.task, (rows, run.data.clean, run.data.y_test)
    how = [task.epochs, task.batch_size, task.lr, task.seed, task.precision, task.device.type, *run.task.x.shape]
    how += [] if (run.config.augment, run.config.cutout or None) == (None, None) else [str(task.augment)]
    return cache.key(
        [
            b"generated labels",
            json.dumps([beginner.config.network, how]).encode(),
            *(b"none" if array is None else np.ascontiguousarray(array, np.int64).tobytes() for array in labels),
            *(b"none" if x is None else content_of(x) for x in (run.task.x, run.x_test)),
            photos.digest(*beginner.state.networks.state_dict().values()),
        ]
    )


def content_of(x: Rows) -> bytes:
    """A hash that is the same wherever the rows lie."""
    found = hashlib.sha256()
    for part in fetch(x, torch.arange(len(x), device=x.device).split(4096)):
        found.update(photos.digest(part))
    return found.digest()
