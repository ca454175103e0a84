"""What `sprl show` prints and draws, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sprl import files, store
from sprl.errors import InputError, printable
from sprl.paper import figures, tables
from sprl.paper.cell import only, runs_of
from sprl.paper.recipe import Panel, Recipe
from sprl.paper.recipes import RECIPES
from sprl.show import console, say

Format = Literal["terminal", "markdown", "latex", "csv"]


def chosen_panels(recipe: Recipe, words: str, short: bool) -> list[Panel]:
    """With the cells that the words fit."""
    panels = recipe.panels(short)
    kept = {id(cell) for cell in only([cell for panel in panels for line in panel.lines for cell in line.cells], words)}
    return [new for panel in panels if (new := panel.mapped(lambda cell: cell if id(cell) in kept else None)) is not None]


def present(
    recipe: Recipe, words: str, short: bool, folder: Path, ran: bool = False, format: Format = "terminal", out: Path | None = None
) -> None:
    """Print or write a table, or draw a figure."""
    records = store.all(folder)
    if recipe.is_figure:
        if format != "terminal":
            raise InputError(f"{recipe.name} is a figure, drawn as PNG and SVG: leave out --format")
        draw(recipe, chosen_panels(recipe, words, short), records, short, Path("figures") if out is None else out)
        return
    about = "" if short else recipe.about
    rows = tables.rows_of(only(recipe.cells(short), words), records, ran)
    if not rows:
        raise nothing_of(recipe, short)
    if format == "terminal" and out is None:
        for line in tables.terminal(rows, recipe.title, about, short, console.width if console.is_terminal else None):
            console.print(line, soft_wrap=True)
        return
    if format == "terminal":
        raise InputError(f"in which format is {out} to be? --format markdown, latex or csv")
    text = tables.csv_text(rows) if format == "csv" else getattr(tables, format)(rows, recipe.title, about, short)
    if out is None:
        print(text, end="")
        return
    files.make_place(out.parent)
    with files.aside(out, shared=True) as part:
        part.write_text(text)
    say("Files", f"{out}: {sum(bool(row.records) for row in rows)} of {len(rows)} cells run")


def nothing_of(recipe: Recipe, short: bool) -> InputError:
    return InputError(f"nothing of {recipe.name} was run yet: sprl bench {recipe.name}{' --short' if short else ''}")


def draw(recipe: Recipe, panels: list[Panel], records: list[store.Record], short: bool, folder: Path) -> None:
    missing = figures.missing(panels, records)
    if len(missing) == len(figures.needed(panels)):
        raise nothing_of(recipe, short)
    note = "a short form, not the paper's setting" if short else recipe.about
    files.make_place(folder)
    written = figures.draw(panels, records, recipe.title, note, folder / f"{recipe.name}{'-short' if short else ''}")
    say("Files", ", ".join(map(str, written)))
    for cell in missing:
        say("", f"not run: {cell.name}")


def list_recipes(folder: Path) -> None:
    """All tables and figures, and how much of each was run."""
    records = store.all(folder)
    for recipe in RECIPES.values():
        cells = [cell for cell in recipe.cells() if not cell.optional]
        try:
            state = f"{sum(bool(runs_of(cell, records)) for cell in cells)} of {len(cells)} cells run"
        except InputError as error:  # of other people's recipes
            state = f"it cannot be run: {error}"
        say(recipe.name, printable(f"{recipe.title} ({state})"))
    say("", "sprl show NAME shows one, sprl bench NAME runs what is missing")
