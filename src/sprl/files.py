"""The folder of a run, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sprl.config import Config
from sprl.data import PLAIN, Array, How, Preprocess, channels_first
from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, Streamed
from sprl.engine import predict
from sprl.errors import InputError, pick
from sprl.methods import METHODS
from sprl.networks import build
from sprl.photos import HEAD, embed, network

if TYPE_CHECKING:
    import pandas as pd

    from sprl.run import Row, Run

CONFIG, METRICS, SUMMARY, MODEL, BACKBONE, LABELS, CURVES = FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "backbone.safetensors",
    "labels.csv",
    "curves.png",
)


def make_folder(out: str | None, data: str, overwrite: bool) -> Path:
    """A folder for a new run: `out`, or runs/<data>-<n> with a fresh number. An older run in it goes only with `overwrite`."""
    if out is None:
        number = 1
        while True:
            path = Path("runs") / f"{data}-{number}"
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                number += 1
            except OSError as error:
                raise InputError(f"cannot write to {path}: {error.strerror}") from error
    path = Path(out)
    check_folder(out, overwrite)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        (path / CONFIG).write_text("{}\n")  # shows that the folder can be written to before time is spent on training
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error
    return path


def check_folder(out: str | None, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is to stay."""
    path = Path(out) if out is not None else None
    try:
        if path is None or not path.exists() or not any(path.iterdir()):
            return
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} holds other files and no run: choose another --out")
    if not overwrite:
        raise InputError(f"{path} holds a run already: choose another --out, or --overwrite it")


def write_config(path: Path, run: Run) -> None:
    """What repeats the run, and what `load` needs to build its network again."""
    data = run.data
    model = {
        "classes": list(data.classes),
        "preprocess": vars(data.preprocess),
        "resize": None if data.resize is None else data.resize._asdict(),
        "columns": None if data.columns is None else data.columns.to_json(),
    }
    write_json(path / CONFIG, {**run.config.to_json(), "model": model})


def write_metrics(path: Path, rows: list[Row]) -> None:
    (path / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_results(path: Path, run: Run) -> tuple[pd.DataFrame, Row]:
    """Summary, model, labels and curves of a run that has ended. Returns labels and summary."""
    from safetensors.torch import save_file

    from sprl.curves import draw

    labels = run.labels()
    summary = run.summary(labels)
    write_metrics(path, run.rows)
    labels.to_csv(path / LABELS, index=False)
    for module, name in ((run.state.networks, MODEL), (run.backbone, BACKBONE)):
        if module is not None:
            save_file({k: v.contiguous().cpu() for k, v in module.state_dict().items()}, path / name)
    write_json(path / SUMMARY, summary)
    draw(run, path / CURVES)
    return labels, summary


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


@dataclass(frozen=True)
class Model:
    """A trained model: its module (a ModuleList where a method trains several), the classes' names, and how rows become its input."""

    module: nn.Module
    classes: tuple[str, ...]
    preprocess: Preprocess
    resize: Resize | None = None  # of picture files
    columns: Columns | None = None  # of a table
    backbone: nn.Module | None = None  # from pictures to the features that `module` takes

    def predict_proba(self, x: Array) -> Array:
        """Probabilities [N, C] of rows as a user has them."""
        return self.probabilities(self.rows(x))

    def predict(self, x: Array) -> Array:
        """Class names [N]."""
        return np.array(self.classes)[self.predict_proba(x).argmax(1)]

    def predict_file(self, path: str | Path, how: How = PLAIN) -> tuple[Sequence[str], Array]:
        """Names and probabilities [N, C] of the rows of a file (.npz, .npy, .csv, .parquet, a picture) or a folder of pictures."""
        from sprl.data.unseen import read

        channels = self.preprocess.shape[0] if self.backbone is None else 3
        ids, rows = read(Path(path), self.rows, channels, self.resize, self.columns, how)
        return ids, self.probabilities(rows)

    def rows(self, x: Array) -> Tensor:
        """An array as the first module takes it."""
        return self.preprocess(x) if self.backbone is None else Preprocess(channels_first(x).shape[1:])(x)

    def probabilities(self, rows: Tensor | FileRows) -> Array:
        device = next(self.module.parameters()).device
        if self.backbone is not None:
            rows = self.preprocess(embed(self.backbone, rows, device).numpy())
        networks = self.module if isinstance(self.module, nn.ModuleList) else nn.ModuleList([self.module])
        return predict(networks, Streamed(rows, device)).cpu().numpy()


def load(path: str | Path) -> Model:
    """The model of a finished run, read without running any code from the folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    config, model = read_config(path)
    backbone = None
    try:
        preprocess = Preprocess.from_json(model["preprocess"])
        classes = tuple(str(c) for c in list(model["classes"]))
        resize = Resize.from_json(model["resize"]) if model.get("resize") else None
        columns = Columns.from_json(model["columns"]) if model.get("columns") else None
        count = METHODS[pick("method", config.method, METHODS)].networks
        networks = build(HEAD if config.frozen else config.network, preprocess.shape, len(classes), count)
        networks.load_state_dict(load_file(path / MODEL))
        if config.frozen:
            backbone = network((3, 1, 1), 0, config.network.removeprefix("timm:"))
            backbone.load_state_dict(load_file(path / BACKBONE))
    except FileNotFoundError as error:
        raise InputError(f"{path} holds no {Path(error.filename or MODEL).name}: has the run ended?") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, SafetensorError) as error:
        raise InputError(f"{path}: {CONFIG} and {MODEL} do not fit together: {str(error).splitlines()[-1].strip()}") from error
    networks.eval()
    return Model(networks[0] if len(networks) == 1 else networks, classes, preprocess, resize, columns, backbone)


def read_config(path: Path) -> tuple[Config, dict[str, Any]]:
    """The config of a run, and its part on the model."""
    try:
        stored = json.loads((path / CONFIG).read_text())
        known = {f.name for f in fields(Config)}
        return Config(**{k: v for k, v in stored.items() if k in known}), stored["model"]
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} is no run: it holds no {CONFIG}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path / CONFIG} is not a run's config: {error}") from error
