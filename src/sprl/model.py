"""A trained model, read back from the folder of its run.

The folder may be a stranger's: nothing in it is run, and no memory is taken but for weights that its files really hold.
"""

from __future__ import annotations

import json
import math
import os
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sprl.config import Config
from sprl.data import PLAIN, Array, How, Preprocess, channels_first
from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, Streamed
from sprl.engine import predict
from sprl.errors import InputError, pick, printable
from sprl.fields import parts
from sprl.files import BACKBONE, CONFIG, MODEL
from sprl.methods import METHODS
from sprl.networks import factory, pixels_to_float, weight
from sprl.photos import HEAD, embed
from sprl.tensors import kind, start_of
from sprl.tensors import read as read_tensors
from sprl.timm_models import first_line, network

if TYPE_CHECKING:
    import pandas as pd

Module = TypeVar("Module", bound=nn.Module)

# A config of 16 MB describes 70,000 columns of a table. In memory its values are what counts: an empty pair of brackets takes 60 bytes.
CONFIG_BYTES, CONFIG_VALUES = 2**24, 2**20
WHOLE = How(mend="Mend or remove them, or go on without them, each row by its name: sprl predict RUN INPUT --skip-bad")
LARGEST = 4096  # pixels of a side that picture files are scaled to before the centre is cut out


@dataclass(frozen=True)
class Model:
    """A trained model: its module (a ModuleList where a method trains several), the classes' names, and how rows become its input.

    Without us it is `module(inputs(x)).softmax(1)`; of several, the mean of that.
    """

    module: nn.Module
    classes: tuple[str, ...]
    preprocess: Preprocess
    resize: Resize | None = None  # of picture files
    columns: Columns | None = None  # of a table
    backbone: nn.Module | None = None  # from pictures to the features that `module` takes

    def predict_proba(self, x: Array | pd.DataFrame | str | Path) -> Array:
        """Probabilities [N, C] of rows as a user has them: an array, a DataFrame, or a path that `predict_file` takes.

        Of a model of a table, the columns of a DataFrame are found by name, in any order.
        """
        return self.predict_file(x, WHOLE)[1] if isinstance(x, str | Path) else self.probabilities(self.rows(x))

    def predict(self, x: Array | pd.DataFrame | str | Path) -> Array:
        """Class names [N] of the same."""
        return np.array(self.classes, dtype=object)[self.predict_proba(x).argmax(1)]

    def predict_file(self, path: str | Path, how: How = PLAIN) -> tuple[Sequence[str], Array]:
        """Names and probabilities [N, C] of the rows of a file (.npz, .npy, .csv, .parquet, a picture) or a folder of pictures."""
        from sprl.data.unseen import read

        channels = self.preprocess.shape[0] if self.backbone is None else 3
        ids, rows = read(Path(path), self.rows, channels, self.resize, self.columns, how)
        return ids, self.probabilities(rows)

    def inputs(self, x: Array | pd.DataFrame) -> Tensor:
        """An array, or the columns of a DataFrame, as `module` takes it: features scaled, pixels in [0, 1], pictures embedded."""
        rows = self.rows(x)
        return pixels_to_float(rows if self.backbone is None else self.embedded(rows))

    def rows(self, x: Array | pd.DataFrame) -> Tensor:
        """The same before that: pixels as they are stored, pictures for the backbone where there is one."""
        import pandas as pd

        if self.columns is not None and isinstance(x, pd.DataFrame):
            x = self.columns(x)
        return self.preprocess(x) if self.backbone is None else Preprocess(channels_first(x).shape[1:])(x)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def embedded(self, rows: Tensor | FileRows) -> Tensor:
        """What the backbone makes of pictures, as `module` takes it."""
        assert self.backbone is not None
        return self.preprocess(embed(self.backbone, rows, self.device).numpy())

    def probabilities(self, rows: Tensor | FileRows) -> Array:
        rows = rows if self.backbone is None else self.embedded(rows)
        return predict(self.module, Streamed(rows, self.device)).cpu().numpy()


def load(path: str | Path) -> Model:
    """The model of a finished run, read without running any code from the folder."""
    path = Path(path)
    config, model = read_config(path / CONFIG)
    backbone = None
    with blaming(path, f"{CONFIG} and {MODEL} do not fit together"):
        classes = names(model["classes"])
        preprocess = Preprocess.from_json(model["preprocess"])
        resize = Resize.from_json(model["resize"]) if model.get("resize") else None
        columns = Columns.from_json(model["columns"]) if model.get("columns") else None
        check_input(preprocess, resize, columns, config.frozen)
        count = METHODS[pick("method", config.method, METHODS)].networks
        make = factory(HEAD if config.frozen else config.network)
        networks = filled(lambda: nn.ModuleList(make(preprocess.shape, len(classes)) for _ in range(count)), path / MODEL)
    if config.frozen:
        with blaming(path, f"{CONFIG} and {BACKBONE} do not fit together"):
            backbone = filled(lambda: network((3, 1, 1), 0, config.network.removeprefix("timm:")), path / BACKBONE)
    networks.eval()
    return Model(networks[0] if count == 1 else networks, classes, preprocess, resize, columns, backbone)


def check_size(path: Path, config: Config, model: dict[str, Any], most: int) -> None:
    """InputError where the networks of the run in `path` are larger than its checkpoint, of `most` bytes, which is to hold them."""
    with blaming(path, f"{CONFIG} and the checkpoint do not fit together"):
        shape, classes = Preprocess.from_json(model["preprocess"]).shape, names(model["classes"])
        count = METHODS[pick("method", config.method, METHODS)].networks
        need = count * weight(HEAD if config.frozen else config.network, shape, len(classes))
        if need > most:
            raise ValueError(f"the network {config.network} takes {need:,} bytes, the whole checkpoint {most:,}")


@contextmanager
def blaming(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong as one line about the path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # of what a stranger's files can hold there is no end
        reason = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise InputError(f"{path}: {what}: {reason}; get the whole folder again, or train anew") from error


def read_config(file: Path) -> tuple[Config, dict[str, Any]]:
    """The config of a run, each field of its type, and its part on the model."""
    if not os.path.isfile(file):
        several = sorted(found.parent for found in file.parent.glob(f"seed-*/{file.name}"))
        if several:
            raise InputError(f"{file.parent} holds {len(several)} runs: name one of them, such as {several[0]}")
        raise InputError(f"{file.parent} is no run: it holds no {file.name}")
    with blaming(file, "this is not a run's config"):
        content = start_of(file, CONFIG_BYTES + 1)
        if len(content) > CONFIG_BYTES or sum(map(content.count, (b",", b"[", b"{"))) > CONFIG_VALUES:
            raise ValueError("it is too large for one")
        stored = json.loads(content.decode(), object_pairs_hook=once, parse_float=finite, parse_constant=finite)
        if not isinstance(stored, dict) or not isinstance(stored.get("model"), dict):
            raise ValueError("it has no part on the model")
        hints = typing.get_type_hints(Config)
        wrong = [name for name in hints if name in stored and not is_a(stored[name], hints[name])]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} is of the wrong type, or too long")
        return Config(**{name: stored[name] for name in hints if name in stored}), stored["model"]


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, where each key stands once."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return dict(pairs)


def finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:20]} is no number here")
    return float(text)


def is_a(value: Any, hint: Any) -> bool:
    """Whether the value is of a field's type; a text also no longer than the longest path."""
    types = tuple(typing.get_origin(option) or option for option in parts(hint)[0])
    return isinstance(value, (*types, int) if float in types else types) and not (isinstance(value, str) and len(value) > 4096)


def names(stored: Any) -> tuple[str, ...]:
    """Of the classes."""
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise ValueError("the classes are no list of names")
    "".join(stored).encode()  # half a character could not be printed later
    return tuple(stored)


def check_input(preprocess: Preprocess, resize: Resize | None, columns: Columns | None, frozen: bool) -> None:
    """ValueError where what is made of a user's rows is not what the network takes. A frozen one takes pictures of any size."""
    shape = preprocess.shape
    if not all(map(math.isfinite, preprocess.mean or ())):
        raise ValueError("the mean is not finite")
    if columns is not None and (len(columns.names),) != shape:
        raise ValueError(f"the columns give {len(columns.names)} features, but rows have the shape {shape}")
    if resize is not None and not frozen and shape not in ((1, resize.height, resize.width), (3, resize.height, resize.width)):
        raise ValueError(f"pictures become {resize.height} x {resize.width} pixels, but rows have the shape {shape}")
    if resize is not None and max(resize.height, resize.width) > LARGEST * resize.crop:
        raise ValueError(f"pictures would be scaled to more than {LARGEST} pixels a side")


def filled(make: Callable[[], Module], file: Path) -> Module:
    """What `make` makes, with the weights of the file. On the meta device first, where it takes no memory, to see whether they fit."""
    given = read_weights(file)
    with torch.device("meta"):
        wanted = make().state_dict()
    for name in (*wanted, *given):
        there, needed = (kind(tensors[name]) if name in tensors else "nothing" for tensors in (given, wanted))
        if there != needed:
            raise ValueError(f"{printable(name)} is {there}, but should be {needed}")
    weights = [tensor for tensor in given.values() if tensor.is_floating_point() and tensor.numel()]
    if not all(math.isfinite(end) for tensor in weights for end in tensor.aminmax()):
        raise ValueError("some weights are not finite")
    module = make()
    module.load_state_dict(given)
    return module


def read_weights(file: Path) -> dict[str, Tensor]:
    if not os.path.isfile(file):
        raise InputError(f"it holds no {file.name}: has the run ended?")
    return read_tensors(file)
