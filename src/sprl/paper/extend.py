"""A table with more than the paper has: methods, data sets and noises of one's own, beside its cells."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sprl.errors import InputError, ensure, pick
from sprl.methods import METHODS, SPRL
from sprl.noise import canonical, parse, requested, transition
from sprl.paper.cell import Cell, at
from sprl.paper.recipe import Recipe
from sprl.paper.runs import told

Place = tuple[object, ...]
PLACE = ("dataset", "network", "noise", "rate")
SETTINGS = ("T1", "gamma_d", "choice", "predictions", "growth", "start", "limit")  # of SPRL: what the paper found, and its reading
MANY = 1000  # classes, of data that is not read yet
UNTUNED = {"T1": "auto", "gamma_d": "auto"}  # the paper has no settings for what is not in it


def extended(recipe: Recipe, methods: Sequence[str] = (), data: Sequence[str] = (), noises: Sequence[str] = ()) -> Recipe:
    """The recipe with these beside its own, in its short form too: every method on all of its data and noises, and so on."""
    if not (methods or data or noises):
        return recipe
    if recipe.make_cells is None:
        raise InputError(f"{recipe.name} is a figure: methods, data and noises can be added to tables")
    ensure("" not in data, "--data needs a file, a folder or the name of a set")
    for method in methods:
        pick("method", method, METHODS)
    for noise in noises:
        check_noise(noise)
    noises = [canonical(noise) for noise in noises]

    def more(cells: list[Cell]) -> list[Cell]:
        for name in data:
            check_new(recipe, called(name), {word for cell in cells for word in (cell.dataset, cell.config.data)})
            cells = cells + once(cells, ("network", "noise", "rate", "method"), partial(on, name=name))
        labellers = all(cell.rule.startswith("labeller") for cell in cells)
        ensure(not (noises and labellers), f"{recipe.name} is about networks that give labels: --corrupt has nothing to add to it")
        for noise in noises:
            check_new(recipe, noise, {noise for cell in cells if (cell.noise, cell.rate) == named(noise)})
            cells = cells + once(cells, ("dataset", "network", "method"), partial(under, noise=noise))
        for method in methods:
            check_new(recipe, method, {cell.method for cell in cells})
            ours = {place(cell, PLACE): cell for cell in cells if cell.method == "sprl"}
            cells = cells + once(cells, PLACE, partial(by, method=method, ours=ours))
        return cells

    options = [(f"--{name}", value) for name, values in (("method", methods), ("data", data), ("corrupt", noises)) for value in values]
    return replace(recipe, more=more, added=tuple(word for option in options for word in option))


def check_noise(noise: str) -> None:
    """What no data could have is better refused now than by every run."""
    rate = requested(noise)
    if rate is not None:
        ensure(0 <= rate < 1, f"noise {noise!r} is out of bounds: a share of labels is at least 0 and below 1")
        transition(noise, MANY)


def check_new(recipe: Recipe, name: str, there: set[str]) -> None:
    """Rows of one name could not be told apart."""
    ensure(name not in there, f"{recipe.name} has {name} already: leave it out")


def place(cell: Cell, names: Sequence[str]) -> Place:
    """What some of its fields make up."""
    return tuple(getattr(cell, name) for name in names)


def once(cells: Sequence[Cell], names: Sequence[str], change: Callable[[Cell], Cell]) -> list[Cell]:
    """One changed cell for each place, of the first cell there."""
    first = {place(cell, names): cell for cell in reversed(cells) if not cell.optional}
    return [change(cell) for cell in reversed(first.values())]


def on(cell: Cell, name: str) -> Cell:
    cutout = None if cell.config.cutout else cell.config.cutout  # what suits CIFAR-10 need not suit this; none stays none
    return untuned(replace(at(cell, data=name, batch_size=None, lr=None, cutout=cutout), dataset=called(name)))


def called(data: str) -> str:
    """As a row of the table: a file without its ending and its folder, a folder by its own name however it was given."""
    return Path(os.path.abspath(data)).stem or data


def under(cell: Cell, noise: str) -> Cell:
    kind, rate = named(noise)
    return untuned(replace(at(cell, corrupt=noise, labels=None), noise=kind, rate=rate))


def named(noise: str) -> tuple[str, float | None]:
    """Its kind and rate; what has no rate is known by all that was asked for, such as matrix:Q.csv."""
    rate = requested(noise)
    return noise if rate is None else parse(noise)[0], rate


def by(cell: Cell, method: str, ours: Mapping[Place, Cell]) -> Cell:
    """`ours`: SPRL by place, whose reading and settings methods made of it take."""
    fields, schedule = told(cell.dataset, cell.noise, method), "published"
    if issubclass(METHODS[method], SPRL) and place(cell, PLACE) in ours:
        like = ours[place(cell, PLACE)].config
        fields |= {name: value for name, value in like.fields.items() if name in SETTINGS}
        schedule = like.schedule
    return replace(at(cell, method=method, fields=fields, schedule=schedule), method=method, paper=None, paper_std=None)


def untuned(cell: Cell) -> Cell:
    """Without what the paper found by trying: its number, and its settings of SPRL."""
    fields = {name: UNTUNED.get(name, value) for name, value in cell.config.fields.items() if name != "noise_rate"}
    fields |= told(cell.dataset, cell.noise, cell.config.method)
    return replace(at(cell, fields=fields), paper=None, paper_std=None)
