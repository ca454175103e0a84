"""All that is needed to repeat a run, and the defaults that fit the data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch

from sprl.core import Method
from sprl.errors import InputError, check_rate, ensure, pick
from sprl.fields import read_fields, read_value
from sprl.methods import METHODS
from sprl.networks import Shape, choose
from sprl.state import Precision


@dataclass(frozen=True)
class Config:
    """A run. None: the default that suits the data, which `run.prepare` fills in."""

    data: str = "digits"
    data_dir: str | None = None
    label_column: str = "label"
    labels: str | None = None
    skip_bad: bool = False
    size: int | None = None
    stream: bool = False
    rows: int | None = None
    corrupt: str | None = None
    noise_rate: float | None = None
    method: str = "sprl"  # "auto": what suits the network, which is what a command takes if none is asked for
    fields: dict[str, Any] = field(default_factory=dict)
    network: str = "auto"
    weights: str | None = None
    frozen: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    schedule: str = "published"  # of lr and beta1; released: one epoch late
    augment: bool | None = None
    cutout: int | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    memory: str = "full"
    graph: bool | None = None
    compile: bool | None = None
    sync_norm: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def asked_of(config: Config, options: Iterable[str], usual: Config) -> list[str]:
    """The words of the command line that ask for these of a config's options again; what is `usual` needs none."""
    words = list[str]()
    for option in options:
        value = getattr(config, option)
        if value is not None and value != getattr(usual, option):
            words += [f"--{'no-' if value is False else ''}{option.replace('_', '-')}", *([] if isinstance(value, bool) else [str(value)])]
    return words


def counts_from_here(config: Config) -> bool:
    """Whether anything that the config names is found from the current folder only."""
    from sprl.data.sets import BENCHMARKS, data_folder

    published = config.data in BENCHMARKS or (config.labels or "").startswith("human:")
    folder = data_folder(config.data_dir) if published else config.data_dir
    matrix = (config.corrupt or "").removeprefix("matrix:")
    places = (config.data, folder, config.labels, config.weights, matrix)
    return any(place and not os.path.isabs(place) and os.path.exists(place) for place in places)


def make_method(
    method: str | Method, values: dict[str, Any], noise_rate: float | None = None, known: Callable[[], float | None] = lambda: None
) -> Method:
    """A method, by name with fields that may be text, or as it is. `noise_rate` goes to those that can use it; to those that cannot do
    without one, failing that, what is `known` to whoever made the labels."""
    check_rate(noise_rate or 0.0)
    if isinstance(method, type):
        raise InputError(f"give the method as an instance: {method.__name__}(...)")
    if isinstance(method, str):
        cls = METHODS[pick("method", method, METHODS)]
        values = read_fields(cls, method, values)
        if needs_rate(cls) and "noise_rate" not in values:
            noise_rate = known() if noise_rate is None else noise_rate
            ensure(
                noise_rate is not None,
                f"{method} needs to know the share of wrong labels: give it, such as --noise-rate 0.2 (in Python noise_rate=0.2)",
            )
            values["noise_rate"] = noise_rate
        method = cls(**values)
    lacks = getattr(method, "noise_rate", 0.0) is None  # a field that was set is more than what was said in general
    return replace(method, noise_rate=noise_rate) if noise_rate is not None and lacks else method  # type: ignore[type-var]


def edition(method: str, values: dict[str, Any]) -> int:
    """Of what a method does with these fields: raised where it comes to give other results, so that runs of before are no runs of it."""
    found = getattr(make_method(method, values, known=lambda: 0.0), "edition", 1)
    ensure(type(found) is int and found >= 1, f"the edition of {method} must be a whole number from 1 on, got {found!r}")
    return found


def later(method: str) -> dict[str, Any]:
    """Fields that a method got when there were records of it, and what those were run with; none of a method that is not here."""
    found = getattr(METHODS.get(method), "later", {})
    ensure(isinstance(found, dict), f"the `later` of {method} must be a dict of fields and what was before them, got {found!r}")
    return found


def needs_rate(cls: type[Method]) -> bool:
    """Whether a method cannot do without the share of wrong labels: a field that has no default."""
    return any(f.name == "noise_rate" and f.default is MISSING for f in fields(cls))  # type: ignore[arg-type]


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
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; choose from: auto, cpu, cuda, cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"there is no device {name}: {torch.cuda.device_count()} CUDA devices are to be seen; use --device cpu")
    return device


def find_precision(name: str, device: torch.device) -> Precision:
    """ "auto" is bf16 on a GPU that has it in hardware, else fp32."""
    pick("precision", name, ("auto", "bf16", "fp32"))
    if name == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"
    return "bf16" if name == "bf16" else "fp32"


def default_epochs(shape: Shape, device: torch.device, tuned: bool = False) -> int:
    """The paper's 200 for pictures on a GPU; 60 for tables, very small pictures and CPUs; 20 to tune weights that have learned to see."""
    if tuned:
        return 20
    return 200 if len(shape) == 3 and min(shape[1:]) >= 16 and device.type == "cuda" else 60


def default_batch_size(n: int) -> int:
    """The paper's 128; 32 where that would leave fewer than 40 steps an epoch."""
    return 128 if n >= 40 * 128 else 32


def default_lr(network: str, shape: Shape, tuned: bool = False) -> float:
    """1e-3; 1e-4 to tune given weights, and for ResNet18 on pictures like MNIST's, whose gradients explode otherwise (paper, V.A)."""
    return 1e-4 if tuned or (network.startswith("resnet18") and shape == (1, 28, 28)) else 1e-3


def default_cutout(network: Any, shape: Shape) -> int | None:
    """A quarter of the side for ResNet18 on colour pictures: with the worst human labels of CIFAR-10 it gains two points (docs/log.md).
    The small CNN, which hardly memorises, loses by it; elsewhere it was not measured."""
    picture = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 16
    return min(shape[1:]) // 4 if picture and isinstance(network, str) and network.startswith("resnet18") else None


def default_method(network: Any, shape: Shape, device: torch.device) -> str:
    """SPRL, which is for networks that memorise. The small CNN hardly does on colour pictures, and SPRL then keeps it from learning: plain
    training was better with all labels tried (docs/log.md)."""
    name = choose(shape, device)[0] if isinstance(network, str) and network == "auto" else network
    small = isinstance(name, str) and name.partition(":")[0] == "cnn"
    return "standard" if small and shape[0] == 3 else "sprl"


def usual_of(config: Config, n: int, shape: Shape, device: torch.device) -> Config:
    """What a run on n such rows has where nothing is asked for but the network and the weights of `config`."""
    tuned = config.weights is not None and not config.frozen
    settings = settle(config.network, None, None, None, n, shape, device, tuned)
    return Config(
        method=default_method(config.network, shape, device),
        network=choose(shape, device)[0],
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        cutout=default_cutout(config.network, shape),
    )


class Settings(NamedTuple):
    """How to train, with every default filled in."""

    network: Any  # a name, a module or a factory
    why: str  # this network
    epochs: int
    batch_size: int
    lr: float


def settle(
    network: Any,
    epochs: int | None,
    batch_size: int | None,
    lr: float | None,
    n: int,
    shape: Shape,
    device: torch.device,
    tuned: bool = False,
) -> Settings:
    """Fill in what was not asked for by what suits n rows of this shape, and check the rest. `tuned`: it starts from given weights."""
    why = "as asked"
    if isinstance(network, str) and network == "auto":
        network, why = choose(shape, device)
    epochs = read_value("epochs", default_epochs(shape, device, tuned) if epochs is None else epochs, int)
    batch_size = read_value("batch_size", default_batch_size(n) if batch_size is None else batch_size, int)
    lr = read_value("lr", default_lr(network if isinstance(network, str) else "", shape, tuned) if lr is None else lr, float)
    if epochs < 1:
        raise InputError(f"{epochs} epochs is too few: give at least 1")
    if batch_size < 2:
        raise InputError(f"a batch of {batch_size} is too small: batch norm needs at least 2 rows")
    if not lr > 0:
        raise InputError(f"the learning rate is {lr:g} but must be above 0")
    return Settings(network, why, epochs, batch_size, lr)
