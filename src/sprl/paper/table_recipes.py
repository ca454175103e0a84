"""The paper's tables I to V and A5, and one of our own, as cells."""

from __future__ import annotations

from dataclasses import replace

from sprl.config import Config
from sprl.paper import numbers
from sprl.paper.cell import Cell, Rule, at
from sprl.paper.numbers import Setting
from sprl.paper.runs import NOISES, beside, cell


def table1() -> list[Cell]:
    found = list[Cell]()
    for number in numbers.table("1"):
        setting = numbers.settings()[number.dataset, number.network, "symmetric", 0.2]
        found.append(beside(cell(*number[1:6], setting=setting), number, "best"))
    return found


def table2() -> list[Cell]:
    found = list[Cell]()
    for number in numbers.table("2"):
        found.append(beside(cell(*number[1:6]), number))
        if number.method == "sprl":
            published = cell(*number[1:6], reading="published")
            if number.network == "resnet18":
                published = at(published, network="resnet18")  # its table A1
            found.append(replace(beside(published, number), method="sprl-published", optional=True))
    return found


def table3() -> list[Cell]:
    """The labelling networks, as a run on their labels tells of them."""
    rules: dict[str, Rule] = {"partially-labelled-train": "labeller-training", "partially-labelled-test": "labeller-test"}
    found = list[Cell]()
    for number in numbers.table("3"):
        run = cell(number.dataset, number.network, "cnn", None, "standard")
        found.append(replace(beside(run, number, rules[number.noise]), noise=number.noise))
    return found


def table4() -> list[Cell]:
    return [beside(cell(*number[1:6]), number) for number in numbers.table("4")]


def table5() -> list[Cell]:
    settings = {"resnet18": Setting(20, 10), "convnet": Setting(40, 5)}
    return [beside(cell(*number[1:6], setting=settings[number.network]), number) for number in numbers.table("5")]


def table_a5() -> list[Cell]:
    return [beside(at(cell(*number[1:6]), augment=False), number) for number in numbers.table("A5")]


def defaults() -> list[Cell]:
    """CIFAR-10 with what `sprl train` does of its own accord: nothing is told about the noise."""
    plain = Config(data="cifar10", network="resnet18", epochs=200, batch_size=128, lr=1e-3, cutout=8)
    tuned = {number[3:5]: number for number in numbers.table("2") if number[1:3] == ("CIFAR-10", "resnet18") and number.method == "sprl"}
    found = [
        beside(Cell("CIFAR-10", "resnet18", *noise, "sprl", replace(plain, corrupt=f"{noise[0]}:{noise[1]}")), tuned[noise])
        for noise in NOISES
    ]
    for kind in ("aggre", "worse"):
        for method in ("sprl", "standard"):
            labelled = replace(plain, labels=f"human:{kind}", method=method)
            found.append(Cell("CIFAR-10", "resnet18", f"human:{kind}", None, method, labelled))
    return found
