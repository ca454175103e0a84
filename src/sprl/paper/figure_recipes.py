"""The paper's figures 4 to 11 and A1 to A8 (as their captions count them) as panels, and one of our own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from sprl.paper import numbers
from sprl.paper.cell import Cell, Rule, at
from sprl.paper.numbers import Setting
from sprl.paper.recipe import Line, Panel
from sprl.paper.runs import NETWORKS, NOISES, SETS, Reading, cell
from sprl.paper.table_recipes import table2, table4, table5


def by_epoch(cells: Iterable[Cell], fact: str = "test_accuracy", y: str = "test accuracy, %") -> list[Panel]:
    """A panel for each data set, network and noise, a line for each method."""
    found = list[Panel]()
    for (dataset, network, noise, rate), some in groupby(
        sorted(cells, key=place), key=lambda run: (run.dataset, run.network, run.noise, run.rate)
    ):
        title = f"{dataset}, {network}, {noise}" + ("" if rate is None else f" {rate:g}")
        found.append(Panel(title, tuple(Line(run.method, (run,), fact) for run in some), y=y))
    return found


def place(cell: Cell) -> tuple[int, int, bool, float]:
    """As the paper orders them, pair noise last; methods as they come."""
    return list(SETS).index(cell.dataset), list(NETWORKS).index(cell.network), cell.noise == "pair", cell.rate or 0.0


def curves_of(dataset: str) -> list[Panel]:
    return by_epoch(run for run in table2() if run.dataset == dataset and not run.optional)


def curves_of_table4() -> list[Panel]:
    return by_epoch(table4())


def curves_of_table5() -> list[Panel]:
    return by_epoch(table5())


def figure4() -> list[Panel]:
    found = list[Panel]()
    for dataset in ("MNIST", "CIFAR-10"):
        run = at(cell(dataset, "resnet18", "clean", 0.0, "standard"), method="resistance", fields={"T1": 100}, epochs=300, rows=1000)
        found.append(Panel(f"{dataset}, ResNet18", (Line("resistance", (replace(run, method="resistance"),), "loss"),), y="loss"))
    return found


def figure5() -> list[Panel]:
    named = {"standard": "Standard", "curriculum": "CL", "sprl": "SPRL"}
    setting = numbers.settings()["CIFAR-10", "resnet18", "pair", 0.45]
    return [
        Panel(
            name,
            tuple(Line(f"{kind} labels", (run,), f"p_true_{kind}") for kind in ("right", "wrong")),
            y="probability of the true class",
        )
        for method, name in named.items()
        for run in [cell("CIFAR-10", "resnet18", "pair", 0.45, method, setting=setting)]
    ]


def sweep(
    dataset: str, noise: tuple[str, float], field: str, values: Sequence[float], setting: Setting, reading: Reading, rules: Sequence[Rule]
) -> Panel:
    """Accuracy over the values of one field of SPRL, ConvNet, a line a rule."""
    run = cell(dataset, "convnet", *noise, "sprl", reading, setting)
    runs = [replace(at(run, fields=run.config.fields | {field: value}), swept=f"{field}={value:g}") for value in values]
    lines = tuple(Line(LABELS[rule], tuple(replace(each, rule=rule) for each in runs), xs=tuple(map(float, values))) for rule in rules)
    return Panel(f"{dataset}, {noise[0]} {noise[1]:g}", lines, x=field)


LABELS: dict[Rule, str] = {"last10": "Average", "best": "Max"}
AVERAGE: tuple[Rule, ...] = ("last10",)  # of figures 8 and 9
AVERAGE_AND_MAX: tuple[Rule, ...] = ("last10", "best")  # of figures 6 and 7
SWEPT = {"MNIST": Setting(15, 300), "CIFAR-100": Setting(40, 5)}
GAMMAS = {"MNIST": (0, 1, 5, 10, 50, 100, 300, 500, 1000), "CIFAR-100": (0, 1, 3, 5, 10, 30, 50, 100, 300)}


def gammas(dataset: str) -> list[Panel]:
    return [sweep(dataset, noise, "gamma_d", GAMMAS[dataset], SWEPT[dataset], "released", AVERAGE_AND_MAX) for noise in NOISES]


def figure8() -> list[Panel]:
    return [sweep(d, ("symmetric", 0.5), "K", (100, 50, 20, 10, 5, 2), setting, "published", AVERAGE) for d, setting in SWEPT.items()]


def figure9() -> list[Panel]:
    values = (5, 10, 15, 20, 30, 40, 60, 80, 100)
    return [sweep(d, ("symmetric", 0.5), "T1", values, setting, "released", AVERAGE) for d, setting in SWEPT.items()]


def figure10() -> list[Panel]:
    return [
        Panel(
            f"{dataset}, ConvNet",
            tuple(
                Line(f"symmetric {rate:g}", (cell(dataset, "convnet", "symmetric", rate, "sprl", setting=setting),), "loss")
                for rate in (0.2, 0.5, 0.8)
            ),
            y="loss of Eq. 12b",
        )
        for dataset, setting in SWEPT.items()
    ]


def figure11() -> list[Panel]:
    setting = Setting(20, 10)
    return by_epoch(
        cell(dataset, "resnet18", "symmetric", 0.5, method, setting=setting)
        for dataset in ("CIFAR-10", "CIFAR-100")
        for method in ("sprl", "distillation", "label-smoothing")
    )


def figure_a7() -> list[Panel]:
    run = cell("CIFAR-10", "resnet18", "symmetric", 0.5, "standard")
    return by_epoch([run], "half_precision", "right labels among the likelier half, %")


def figure_a8() -> list[Panel]:
    runs = [cell("CIFAR-10", "resnet18", *noise, "co-teaching") for noise in NOISES[:3]]
    lines = tuple(Line(f"symmetric {run.rate:g}", (run,), "precision") for run in runs)
    return [Panel("CIFAR-10, resnet18, Co-teaching", lines, y="right labels among the chosen, %")]


def over_authors() -> list[Panel]:
    """Table II's SPRL on CIFAR beside the curves that its authors published."""
    found = list[Panel]()
    for panel in by_epoch(run for run in table2() if run.method == "sprl" and run.dataset.startswith("CIFAR")):
        run = panel.lines[0].cells[0]
        found.append(replace(panel, reference=numbers.authors()[f"{run.config.data}/{run.network}/{run.noise}-{run.rate:g}"]))
    return found
