"""What `sprl show` prints and draws, from records alone."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from sprl import files, store
from sprl.atomic import written
from sprl.errors import InputError, SprlWarning, printable
from sprl.paper import figures, tables
from sprl.paper.cell import only, runs_of, summed, unique
from sprl.paper.recipe import BUILT_IN, Panel, Recipe
from sprl.paper.recipes import RECIPES
from sprl.show import console, say
from sprl.store import Record

Format = Literal["terminal", "markdown", "latex", "csv"]
ENDINGS: dict[str, Format] = {".md": "markdown", ".tex": "latex", ".csv": "csv"}  # of files


def chosen_panels(recipe: Recipe, words: str, short: bool) -> list[Panel]:
    """With the cells that the words fit."""
    panels = recipe.panels(short)
    kept = {id(cell) for cell in only([cell for panel in panels for line in panel.lines for cell in line.cells], words)}
    return [new for panel in panels if (new := panel.mapped(lambda cell: cell if id(cell) in kept else None)) is not None]


def present(
    recipe: Recipe,
    words: str,
    short: bool,
    folder: Path,
    ran: bool = False,
    format: Format | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    known: Mapping[str, Record] | None = None,
) -> list[Record]:
    """Print or write a table, or draw a figure; returns the records shown. No `format`: what the ending of `out` says, or the terminal's.
    `known`, by key: the records that count; None: all in the store."""
    records = store.all(folder) if known is None else list(known.values())
    proposed = Proposed(recipe, words, short, folder)
    if recipe.is_figure:
        if format not in (None, "terminal"):
            raise InputError(f"{recipe.name} is a figure, drawn as PNG and SVG: leave out --format")
        if out is not None and out.suffix.lower() in (".png", ".svg", ".pdf", *ENDINGS):
            raise InputError(f"--out {out}: for a figure give the folder that its PNG and SVG go to")
        return draw(recipe, chosen_panels(recipe, words, short), records, proposed, Path("figures") if out is None else out)
    if out is not None:
        check_file(out, overwrite)
    format = format or ENDINGS.get("" if out is None else out.suffix.lower(), "terminal")
    about = "" if short else recipe.about
    every = tables.rows_of(only(recipe.cells(short), words), records)
    rows = [row for row in every if row.records or not ran]
    if not rows:
        raise proposed.nothing()
    shown = [record for row in rows for record in row.records]
    if format == "terminal" and out is None:
        width = console.width if console.is_terminal else None
        for line in tables.terminal(rows, recipe.title, about, short, len(every), width):
            console.print(line, soft_wrap=True)
        return shown
    if format == "terminal":
        raise InputError(f"in which format is {out} to be? --format markdown, latex or csv")
    text = tables.csv_text(rows) if format == "csv" else getattr(tables, format)(rows, recipe.title, about, short, len(every))
    if out is None:
        print(text, end="")
        return shown
    files.make_place(out.parent)
    with written(out) as file:
        file.write(text.encode())
    say("Files", f"{out}: {sum(bool(row.records) for row in rows)} of {len(every)} cells run")
    return shown


def check_file(out: Path, overwrite: bool) -> None:
    """Refuse a folder, or a file that is to stay."""
    if out.is_dir():
        raise InputError(f"{out} is a folder: --out names the file that a table is written to")
    if os.path.lexists(out) and not overwrite:
        raise InputError(f"{out} is there already: choose another --out, or --overwrite it")


def note_versions(shown: Iterable[Record]) -> None:
    """Beside a table, not in it, which is the same whoever shows it."""
    note = store.other_versions({record.key: record for record in shown}.values(), ("sprl",))
    if note:
        warnings.warn(note, SprlWarning, stacklevel=2)


class Proposed(NamedTuple):
    """What was asked for, to be run."""

    recipe: Recipe
    words: str
    short: bool
    folder: Path  # of records

    def nothing(self) -> InputError:
        """It was not run."""
        store = [] if self.folder == Path("records") else ["--store", str(self.folder)]
        options = [*["--short"] * self.short, *self.recipe.added, *(["--only", self.words] if self.words else []), *store]
        what = f" that is {self.words!r}" if self.words else ""
        return InputError(f"nothing of {self.recipe.name}{what} was run yet: {shlex.join(['sprl', 'bench', self.recipe.name, *options])}")


def draw(recipe: Recipe, panels: list[Panel], records: list[Record], proposed: Proposed, folder: Path) -> list[Record]:
    short = proposed.short
    missing = figures.missing(panels, records)
    if len(missing) == len(figures.needed(panels)):
        raise proposed.nothing()
    note = f"a short form on {BUILT_IN}, not the paper's setting" if short else recipe.about
    files.make_place(folder)
    written = figures.draw(panels, records, recipe.title, note, folder / f"{recipe.name}{'-short' if short else ''}")
    say("Files", ", ".join(map(str, written)))
    for line in summed(missing):
        say("", f"not run: {line}")
    return [record for cell in figures.needed(panels) for record in runs_of(cell, records)]


def list_recipes(folder: Path) -> None:
    """All tables and figures, and how much of each was run."""
    records = store.all(folder)
    for recipe in RECIPES.values():
        try:
            cells = unique(cell for cell in recipe.cells() if not cell.optional)
            state = f"{sum(bool(runs_of(cell, records)) for cell in cells)} of {len(cells)} runs made"
        except Exception as error:  # of other people's recipes: the others are listed all the same
            state = f"it cannot be run: {error}" if isinstance(error, InputError) else f"it cannot be run: {type(error).__name__}: {error}"
        say(recipe.name, printable(f"{recipe.title} ({state})"))
    say("", "sprl show NAME shows one, sprl bench NAME runs what is missing")
