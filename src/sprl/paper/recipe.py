"""A recipe: the cells of a table or the panels of a figure, each with the run that makes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sprl.config import Config
from sprl.errors import blamed, ensure
from sprl.noise import GENERATED, parse
from sprl.paper.cell import Cell

BUILT_IN, SHORT_EPOCHS = "digits", 6  # of a short form, which has at most 8 runs


@dataclass(frozen=True)
class Line:
    """A line of a panel: by epoch, a fact of one cell's runs; or over `xs`, the numbers of as many cells."""

    label: str
    cells: tuple[Cell, ...]
    fact: str = "test_accuracy"  # a column of a record's curves
    xs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Line, ...]
    x: str = "epoch"
    y: str = "test accuracy, %"
    reference: tuple[float, ...] = ()  # the authors' own curve, by epoch

    def mapped(self, change: Callable[[Cell], Cell | None]) -> Panel | None:
        """The panel with its cells changed; those that become None are left out, and lines and panels without any."""
        lines = list[Line]()
        for line in self.lines:
            kept = [(number, new) for number, cell in enumerate(line.cells) if (new := change(cell)) is not None]
            if kept:
                xs = tuple(line.xs[number] for number, _ in kept) if line.xs else ()
                lines.append(replace(line, cells=tuple(new for _, new in kept), xs=xs))
        return replace(self, lines=tuple(lines)) if lines else None


@dataclass(frozen=True)
class Recipe:
    """A table if it has no panels, else a figure."""

    name: str  # table2, fig5
    title: str
    about: str  # which reading of the method, and what the paper leaves open
    make_cells: Callable[[], list[Cell]] | None = None
    make_panels: Callable[[], list[Panel]] | None = None
    few: Callable[[Cell], bool] = lambda cell: True  # those of the short form
    more: Callable[[list[Cell]], list[Cell]] = lambda cells: cells  # a table's cells with others beside them
    added: tuple[str, ...] = ()  # the options that asked for these

    def __post_init__(self) -> None:
        one = (self.make_cells is None) != (self.make_panels is None)
        ensure(one, f"the recipe {self.name} must have make_cells, for a table, or make_panels, for a figure")

    @property
    def is_figure(self) -> bool:
        return self.make_panels is not None

    def panels(self, short: bool = False) -> list[Panel]:
        assert self.make_panels is not None
        with blamed(f"the recipe {self.name}"):
            found = self.make_panels()
            ensure(
                all(isinstance(panel, Panel) for panel in found),
                f"make_panels of the recipe {self.name} must return a list of Panels (sprl.paper.recipe)",
            )
        if not short:
            return found
        brief = dict[str, Panel]()  # by their runs: on the built-in data, panels of several data sets are one
        for panel in found:
            new = panel.mapped(self.shorten)
            if new is not None:
                runs = repr([[cell.config for cell in line.cells] for line in new.lines])
                brief.setdefault(runs, replace(new, title=f"{panel.title} (short: {BUILT_IN}, mlp)", reference=()))
        return list(brief.values())

    def cells(self, short: bool = False) -> list[Cell]:
        if self.make_cells is None:
            return [cell for panel in self.panels(short) for line in panel.lines for cell in line.cells]
        with blamed(f"the recipe {self.name}"):
            found = self.make_cells()
            ensure(
                all(isinstance(cell, Cell) for cell in found),
                f"make_cells of the recipe {self.name} must return a list of Cells (sprl.paper.cell)",
            )
        return self.more(list(dict.fromkeys(new for cell in found if (new := self.shorten(cell)) is not None)) if short else found)

    def shorten(self, cell: Cell) -> Cell | None:
        """The cell on the built-in data, a few epochs of a small network: it exercises the path and is not the paper's setting. None: it
        is not among the few."""
        if not self.few(cell) or cell.optional:
            return None
        config, fields = cell.config, dict(cell.config.fields)
        if isinstance(fields.get("T1"), int):
            fields["T1"] = math.ceil(fields["T1"] * SHORT_EPOCHS / (config.epochs or 200))
        noise, rate, corrupt = cell.noise, cell.rate, config.corrupt
        if noise == "real":
            noise, rate, corrupt = "symmetric", 0.2, "symmetric:0.2"
            fields.pop("noise_rate", None)  # whoever damages the labels tells it
        elif corrupt is not None and parse(corrupt)[0] == GENERATED:
            corrupt = f"{GENERATED}:20"
        brief = Config(
            data=BUILT_IN,
            corrupt=corrupt,
            method=config.method,
            fields=fields,
            network="mlp",
            epochs=SHORT_EPOCHS,
            batch_size=32,
            lr=1e-3,
            schedule=config.schedule,
        )
        return replace(cell, dataset=BUILT_IN, network="mlp", noise=noise, rate=rate, config=brief, paper=None, paper_std=None)
