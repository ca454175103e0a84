"""Networks of timm, behind their own preparation of pixels, with weights from a file.

Nothing here reaches for the internet unless the weights are asked for as "pretrained".
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import logging
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, library, nn

from sprl import tensors
from sprl.errors import InputError, pick, printable
from sprl.networks import Shape, picture_channels
from sprl.torchfile import Foreign, read_torch

PRETRAINED = "pretrained"
DECLARED: dict[str, library.Library] = {}  # torchvision's operators that only have a name here


def import_timm() -> Any:
    """timm, also beside a torchvision that was built for another torch.

    PyPI's torchvision is built for torch with CUDA; beside torch for CPUs its operators do not load, and describing them then ends its
    import. timm calls none of them: to have them declared is enough.
    """
    while True:
        try:
            return importlib.import_module("timm")
        except ModuleNotFoundError as error:
            if error.name == "timm":
                raise InputError("networks of timm need timm: pip install timm") from None
            raise cannot_import(error) from error
        except (ImportError, OSError) as error:
            raise cannot_import(error) from error
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None or missing[1] in DECLARED:
                raise cannot_import(error) from error
            for module in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
                del sys.modules[module]  # imported by half
            DECLARED[missing[1]] = library.Library("torchvision", "FRAGMENT")
            DECLARED[missing[1]].define(f"{missing[1]}(Tensor x) -> Tensor")


def cannot_import(error: Exception) -> InputError:
    return InputError(f"timm cannot be imported: {first_line(error)}: mend it with pip install --upgrade timm")


def first_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [""])[0])[:200] or type(error).__name__


class Prepared(nn.Module):
    """A timm model that takes pixels [B, 1 or 3, H, W] in [0, 1]: it brings them to its own size and standardises them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: nn.Module, settings: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.size = tuple(settings["input_size"][1:])
        self.filter = settings["interpolation"]
        self.register_buffer("mean", torch.tensor(settings["mean"]).view(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(settings["std"]).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != self.size:
            x = F.interpolate(x, self.size, mode=self.filter, antialias=True).clamp(0, 1)  # bicubic overshoots
        return self.model((x - self.mean) / self.deviation)  # of one grey channel this makes three


def network(shape: Shape, num_classes: int, name: str, weights: str | None = None) -> nn.Module:
    """The timm model `name` with a fresh head for `num_classes`; with none at all for 0, when it gives an embedding [B, D].

    weights: None for random ones, a file of them (.safetensors, .pth, .pt, .bin), or "pretrained" for timm's own, which it downloads.
    """
    if picture_channels(f"timm:{name}", shape) not in (1, 3):
        raise InputError(f"timm:{name} takes pictures of 1 or 3 channels, these have {shape[0]}")
    model = create(name, num_classes or 1, pretrained=weights == PRETRAINED)
    if weights not in (None, PRETRAINED):
        fit(model, Path(weights))
    if num_classes == 0 or weights == PRETRAINED:  # timm keeps its own head where it has as many classes
        model.reset_classifier(num_classes)
    return Prepared(model, import_timm().data.resolve_data_config(model=model))


def check_name(timm: Any, name: str) -> None:
    """Refuse all but timm's own models: others it would read from a folder or from the internet."""
    known = [*timm.list_models(), *timm.list_models(pretrained=True)]
    if name not in known:
        pick("timm model", name, difflib.get_close_matches(name, known, n=8, cutoff=0))  # of more than 3,000


def create(name: str, num_classes: int, pretrained: bool) -> Any:
    timm = import_timm()
    check_name(timm, name)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its many words on every failed try
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=num_classes)
    except Exception as error:  # whatever timm and the network underneath raise
        if not pretrained:
            raise InputError(f"timm cannot build {name}: {first_line(error)}") from error
        advice = "check the connection, or give a file of weights: --weights FILE"
        raise InputError(f"timm cannot get the weights of {name}: {first_line(error)}: {advice}") from error
    if not hasattr(model, "reset_classifier"):
        raise InputError(f"{name} is part of a larger model and no classifier: choose another of timm's")
    return model


def fit(model: Any, path: Path) -> None:
    """Load the weights of the file but for those of its classifier. All others must be there, and of the right shape."""
    state = read_weights(path)
    wrong = misfits(model, state)
    if wrong:  # perhaps named as the model's authors do, which timm can translate
        with contextlib.suppress(Exception):  # of weights that are another model's
            translated = sys.modules[type(model).__module__].checkpoint_filter_fn(state, model)
            if not misfits(model, translated):
                state, wrong = translated, ""
    if wrong:
        name = model.pretrained_cfg.get("architecture", type(model).__name__)
        raise InputError(f"{path} does not fit {name}: {wrong}: give the weights of this model")
    model.load_state_dict({key: value for key, value in state.items() if not in_head(model, key)}, strict=False)


def misfits(model: Any, state: dict[str, Tensor]) -> str:
    """What is wrong with weights for the model, its head aside; "" for nothing."""
    wanted = {key: value.shape for key, value in model.state_dict().items() if not in_head(model, key)}
    given = {key: value.shape for key, value in state.items() if not in_head(model, key)}
    kinds = {
        "lacks": [key for key in wanted if key not in given],
        "has besides": [printable(key) for key in given if key not in wanted],
        "has in another shape": [
            f"{key} {tuple(given[key])} for {tuple(shape)}" for key, shape in wanted.items() if given.get(key, shape) != shape
        ],
    }
    return "; ".join(
        f"it {kind} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}" for kind, keys in kinds.items() if keys
    )


def in_head(model: Any, key: str) -> bool:
    classifier = model.pretrained_cfg.get("classifier") or ()  # one name or several
    return key.startswith(tuple(f"{part}." for part in ((classifier,) if isinstance(classifier, str) else classifier)))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint. Nothing of it is run, and no memory is taken but for what it really holds."""
    if path.suffix.lower() not in (".safetensors", ".pth", ".pt", ".bin"):
        raise InputError(f"weights must be {PRETRAINED!r} or a file .safetensors, .pth, .pt or .bin, not {path}")
    if not path.is_file():
        raise InputError(f"no such file of weights: {path}")
    advice = "save the weights again with safetensors.torch.save_file(model.state_dict(), PATH)"
    try:
        state: Any = tensors.read(path) if path.suffix.lower() == ".safetensors" else read_torch(path)
    except InputError:
        raise
    except Foreign as error:
        raise InputError(f"{path} holds {error}; it may hold code, so it was not read: {advice}") from error
    except Exception as error:  # of damaged files there are many kinds
        raise InputError(f"{path} is not a readable file of weights: {first_line(error)}") from error
    for name in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]
    if not isinstance(state, dict) or not state or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise InputError(f"{path} holds no state dict (tensors by name): {advice}")
    return {key.removeprefix("module."): value for key, value in state.items()}
