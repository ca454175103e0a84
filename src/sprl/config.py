"""All that is needed to repeat a run, and the defaults that fit the data."""

from __future__ import annotations

import types
import typing
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from sprl.core import Method
from sprl.errors import InputError, pick
from sprl.methods import METHODS


@dataclass(frozen=True)
class Config:
    """A run. None: the default that suits the data, which `run.prepare` fills in."""

    data: str = "digits"
    data_dir: str | None = None
    labels: str | None = None
    corrupt: str | None = None
    noise_rate: float | None = None
    method: str = "sprl"
    fields: dict[str, Any] = field(default_factory=dict)
    network: str = "auto"
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    seed: int = 0
    device: str = "auto"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_method(name: str, values: dict[str, Any], noise_rate: float | None = None) -> Method:
    """The method `name` with its fields checked; text is read as the field's type. `noise_rate` goes to the methods that know it."""
    cls = METHODS[pick("method", name, METHODS)]
    hints = typing.get_type_hints(cls)
    known = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    read = {pick(f"field of {name}", key, known): read_value(key, value, known[key]) for key, value in values.items()}
    if noise_rate is not None and "noise_rate" in known:
        read["noise_rate"] = noise_rate
    return cls(**read)


def read_value(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type that `hint` names, e.g. "5" as 5 for int | Literal["auto"]."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    words = [word for option in options if typing.get_origin(option) is typing.Literal for word in typing.get_args(option)]
    if value in words or (value is None and type(None) in options):
        return value
    for option in options:
        if option is bool and str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        if option in (int, float) and not isinstance(value, bool):
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if option is float or number.is_integer():
                return option(number)
    kinds = [repr(word) for word in words]
    kinds += [{int: "a whole number", float: "a number", bool: "true or false"}[o] for o in options if o in (int, float, bool)]
    raise InputError(f"{name} cannot be {value!r}: it must be {' or '.join(kinds)}")


def parse_assignments(texts: list[str]) -> dict[str, str]:
    """["T1=5", "limit=none"] -> {"T1": "5", "limit": "none"}."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--set {text!r} must be FIELD=VALUE, for example --set gamma_d=50")
        pairs[name.strip()] = value.strip()
    return pairs


def find_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pick("device", name.partition(":")[0], ("auto", "cpu", "cuda"))
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("no CUDA device is to be seen: use --device cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; choose from: auto, cpu, cuda, cuda:0") from None


def default_epochs(shape: tuple[int, ...], device: torch.device) -> int:
    """The paper's 200 for pictures on a GPU; 60 for tables, very small pictures and CPUs."""
    return 200 if len(shape) == 3 and min(shape[1:]) >= 16 and device.type == "cuda" else 60


def default_batch_size(n: int) -> int:
    """The paper's 128; 32 where that would leave fewer than 40 steps an epoch."""
    return 128 if n >= 40 * 128 else 32


def default_lr(network: str, shape: tuple[int, ...]) -> float:
    """1e-3; 1e-4 for ResNet18 on pictures like MNIST's, whose gradients explode otherwise (paper, section V.A)."""
    return 1e-4 if network.startswith("resnet18") and shape == (1, 28, 28) else 1e-3


def check_training(epochs: int, batch_size: int, lr: float) -> None:
    if epochs < 1:
        raise InputError(f"{epochs} epochs is too few: give at least 1")
    if batch_size < 2:
        raise InputError(f"a batch of {batch_size} is too small: batch norm needs at least 2 rows")
    if not 0 < lr < float("inf"):
        raise InputError(f"the learning rate is {lr:g} but must be above 0")
