"""A table with more than the paper has: methods, data sets and noises of one's own, beside its cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sprl.errors import InputError, ensure, pick
from sprl.methods import METHODS
from sprl.noise import parse, requested
from sprl.paper.cell import Cell, at
from sprl.paper.recipe import Recipe
from sprl.paper.runs import told

UNTUNED = {"T1": "auto", "gamma_d": "auto"}  # the paper has no settings for what is not in it


def extended(recipe: Recipe, methods: Sequence[str] = (), data: Sequence[str] = (), noises: Sequence[str] = ()) -> Recipe:
    """The recipe with these beside its own, in its short form too: every method on all of its data and noises, and so on."""
    if not (methods or data or noises):
        return recipe
    if recipe.make_cells is None:
        raise InputError(f"{recipe.name} is a figure: methods, data and noises can be added to tables")
    for method in methods:
        pick("method", method, METHODS)
    for noise in noises:
        parse(noise)

    def more(cells: list[Cell]) -> list[Cell]:
        for name in data:
            check_new(recipe, Path(name).stem, {word for cell in cells for word in (cell.dataset, cell.config.data)})
            cells = cells + once(cells, ("network", "noise", "rate", "method"), partial(on, name=name))
        for noise in noises:
            check_new(recipe, noise, {noise for cell in cells if (cell.noise, cell.rate) == named(noise)})
            cells = cells + once(cells, ("dataset", "network", "method"), partial(under, noise=noise))
        for method in methods:
            check_new(recipe, method, {cell.method for cell in cells})
            cells = cells + once(cells, ("dataset", "network", "noise", "rate"), partial(by, method=method))
        return cells

    return replace(recipe, more=more)


def check_new(recipe: Recipe, name: str, there: set[str]) -> None:
    """Rows of one name could not be told apart."""
    ensure(name not in there, f"{recipe.name} has {name} already: leave it out")


def once(cells: Sequence[Cell], place: Sequence[str], change: Callable[[Cell], Cell]) -> list[Cell]:
    """One changed cell for each place, which some of a cell's fields make up, of the first cell there."""
    first = {tuple(getattr(cell, name) for name in place): cell for cell in reversed(cells) if not cell.optional}
    return [change(cell) for cell in reversed(first.values())]


def on(cell: Cell, name: str) -> Cell:
    return untuned(replace(at(cell, data=name, batch_size=None, lr=None), dataset=Path(name).stem))


def under(cell: Cell, noise: str) -> Cell:
    kind, rate = named(noise)
    return untuned(replace(at(cell, corrupt=noise, labels=None), noise=kind, rate=rate))


def named(noise: str) -> tuple[str, float | None]:
    """Its kind and rate; what has no rate is known by all that was asked for, such as matrix:Q.csv."""
    rate = requested(noise)
    return noise if rate is None else parse(noise)[0], rate


def by(cell: Cell, method: str) -> Cell:
    new = at(cell, method=method, fields=told(cell.dataset, cell.noise, method))
    return replace(new, method=method, paper=None, paper_std=None)


def untuned(cell: Cell) -> Cell:
    """Without what the paper found by trying: its number, and its settings of SPRL."""
    fields = {name: UNTUNED.get(name, value) for name, value in cell.config.fields.items() if name != "noise_rate"}
    fields |= told(cell.dataset, cell.noise, cell.config.method)
    return replace(at(cell, fields=fields), paper=None, paper_std=None)
