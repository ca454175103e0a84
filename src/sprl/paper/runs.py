"""The paper's runs (section V.A): 200 epochs of a method on a data set with a kind of noise.

Table II's numbers for SPRL on CIFAR came from the authors' released code, whose curves match them; of the rest that is assumed. So its
cells, and whatever shares its runs, take the code's reading of the method (SPRL.as_released), for SPRL alone its schedule of the learning
rate, and its ResNet18 (stem=released). The readings differ in what is sorted, among whom, and how the curriculum grows: docs/method.md.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

from sprl.config import Config, needs_rate
from sprl.errors import ensure, pick
from sprl.methods import METHODS, SPRL
from sprl.noise import GENERATED
from sprl.paper import numbers
from sprl.paper.cell import Cell, Rule
from sprl.paper.numbers import Number, Setting

SETS = {
    "MNIST": "mnist",
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "Mini-ImageNet": "mini-imagenet",
    "Food101": "food101",
    "Clothing1M": "clothing1m",
}
NETWORKS = {"resnet18": "resnet18:stem=released", "convnet": "convnet"}
Reading = Literal["released", "published"]
NOISES = (("symmetric", 0.2), ("symmetric", 0.5), ("symmetric", 0.8), ("pair", 0.45))
LABELLED = {"CIFAR-10": 400, "CIFAR-100": 100}  # right labels a class that the labelling network learns from (section V.D)
REAL_RATES = {"Food101": 0.2, "Clothing1M": 0.38}  # told to Co-teaching and Co-teaching+; the paper does not say what it told them


def cell(
    dataset: str,
    network: str,
    noise: str,
    rate: float | None,
    method: str,
    reading: Reading = "released",
    setting: Setting | None = None,
) -> Cell:
    """A run of 200 epochs as the paper describes it (section V.A), SPRL and what is made of it with the setting of table A3 or A4."""
    cls, schedule = METHODS[pick("method", method, METHODS)], "published"
    data, layers = SETS[pick("data set of the paper", dataset, SETS)], NETWORKS[pick("network of the paper", network, NETWORKS)]
    if issubclass(cls, SPRL):
        place = dataset, network, noise, rate
        lacking = f"tables A3 and A4 have no T1 and gamma_d for {' '.join(map(str, place))}: give setting=Setting(T1, gamma_d)"
        ensure(setting is not None or place in numbers.settings(), lacking)
        T1, gamma_d = setting or numbers.settings()[place]
        read, schedule = (cls.as_released if reading == "released" else cls.as_published), reading
        fields = asdict(read(T1=T1, gamma_d=gamma_d))
    else:
        fields = told(dataset, noise, method)
    corrupt = {"clean": None, "real": None, "cnn": f"{GENERATED}:{LABELLED.get(dataset)}"}.get(noise, f"{noise}:{rate}")
    config = Config(
        data=data,
        corrupt=corrupt,
        method=method,
        fields=fields,
        network=layers,
        epochs=200,
        batch_size=128,
        lr=1e-4 if (dataset, network) == ("MNIST", "resnet18") else 1e-3,  # its gradients explode otherwise (section V.A)
        schedule=schedule,
        cutout=0,
    )
    return Cell(dataset, network, noise, rate, method, config)


def told(dataset: str, noise: str, method: str) -> dict[str, Any]:
    """The share of wrong labels, where a method needs it: where labels are damaged, whoever does it tells."""
    rate = {"clean": 0.0, "real": REAL_RATES.get(dataset)}.get(noise)
    return {} if rate is None or not needs_rate(METHODS[method]) else {"noise_rate": rate}


def beside(found: Cell, number: Number, rule: Rule = "last10") -> Cell:
    """The cell with the paper's number."""
    return replace(found, rule=rule, paper=number.accuracy, paper_std=number.std)
