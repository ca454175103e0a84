"""The paper's own numbers: its tables, its settings, and the curves that its authors published with their code."""

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Number(NamedTuple):
    """A number of tables I to V or A5; its deviation, where there is one, is over the last ten epochs of one run."""

    table: str
    dataset: str
    network: str
    noise: str
    rate: float | None
    method: str
    metric: str
    accuracy: float
    std: float | None


class Setting(NamedTuple):
    """Of SPRL (tables A3, A4)."""

    T1: int
    gamma_d: float


def lines(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader((files("sprl.paper") / name).read_text("utf-8").splitlines())


def number(text: str) -> float | None:
    return float(text) if text else None


@cache
def table(name: str) -> tuple[Number, ...]:
    return tuple(
        Number(
            line["table"],
            line["dataset"],
            line["network"],
            line["noise"],
            number(line["rate"]),
            line["method"],
            line["metric"],
            float(line["accuracy"]),
            number(line["std"]),
        )
        for line in lines("tables.csv")
        if line["table"] == name
    )


@cache
def settings() -> dict[tuple[str, str, str, float | None], Setting]:
    """By data set, network, noise and rate."""
    return {
        (line["dataset"], line["network"], line["noise"], number(line["rate"])): Setting(int(line["T1"]), float(line["gamma_d"]))
        for line in lines("params.csv")
    }


@cache
def authors() -> dict[str, tuple[float, ...]]:
    """Test accuracy of SPRL by epoch as its authors published it, by data set, network and noise: cifar10/resnet18/symmetric-0.5."""
    found = list(lines("authors.csv"))
    return {name: tuple(float(line[name]) for line in found) for name in found[0] if name != "epoch"}
