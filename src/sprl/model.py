"""A trained model, read back from the folder of its run. Whatever the folder holds, nothing in it is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from sprl.config import Config
from sprl.data import PLAIN, Array, How, Preprocess, channels_first
from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, Streamed
from sprl.engine import predict
from sprl.errors import InputError, pick
from sprl.files import BACKBONE, CONFIG, MODEL
from sprl.methods import METHODS
from sprl.networks import build
from sprl.photos import HEAD, embed, network


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
