"""A figure of the paper, drawn from records alone, as PNG and as SVG."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sprl.atomic import written
from sprl.chart import GREY, Curves, Look, Values, band, frame, look_of, plain, plot, style, view
from sprl.errors import printable
from sprl.files import make_place
from sprl.methods import METHODS
from sprl.paper.cell import Cell, runs_of, unique
from sprl.paper.recipe import Line, Panel
from sprl.paper.tables import number_of
from sprl.store import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

AUTHORS = "authors"
AUTHORS_LOOK = Look(GREY, (), 1.0, zorder=1)
SIZES = {1: (7.2, 4.4), 2: (4.6, 3.3), 3: (3.7, 2.8), 4: (2.9, 2.4)}  # of a panel in inches, by how many stand side by side
SMALL = 8  # points; nothing is smaller
AN_INCH = 125  # letters of size 1 that fill it: 15 of size 8


def draw(panels: Sequence[Panel], records: Sequence[Record], title: str, note: str, stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.svg, the same bytes for the same records; returns where they are."""
    from matplotlib import rc_context

    make_place(stem.parent)
    made = list[Path]()
    with rc_context({"svg.hashsalt": "sprl", "svg.fonttype": "path"}):  # looks the same whatever fonts there are
        figure = figure_of(panels, records, title, note)
        kinds: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Title": printable(title), "Date": None, "Creator": None}}
        for kind, metadata in kinds.items():
            made.append(stem.with_name(f"{stem.name}.{kind}"))
            with written(made[-1]) as file:
                figure.savefig(file, dpi=130, format=kind, metadata=metadata)
            figure.set_layout_engine("none")  # everything has its place by now
    return made


def missing(panels: Sequence[Panel], records: Sequence[Record]) -> list[Cell]:
    """The runs that the panels show and no record is of, a cell each; without those that are optional."""
    return [cell for cell in needed(panels) if not runs_of(cell, records)]


def needed(panels: Sequence[Panel]) -> list[Cell]:
    return unique(cell for panel in panels for line in panel.lines for cell in line.cells if not cell.optional)


class Series(NamedTuple):
    """What records tell of a line."""

    label: str
    x: Values  # epochs, or the values swept
    mean: Values  # over the seeds; NaN where no record tells it
    deviation: Values  # NaN where fewer than two do
    seeds: tuple[int, ...]  # how many each cell has

    @property
    def known(self) -> Values:
        return self.mean[np.isfinite(self.mean)]


def series(line: Line, records: Sequence[Record]) -> Series:
    runs = [runs_of(cell, records) for cell in line.cells]
    if line.xs:
        scores = [[number_of(run, cell.rule) for run in found] for cell, found in zip(line.cells, runs, strict=True)]
        values, x = padded(scores).T, np.array(line.xs, float)
    else:
        values = padded([run.curves.get(line.fact, []) for run in runs[0]])
        x = np.arange(1.0, values.shape[1] + 1)
    return Series(line.label, x, *over_seeds(values), tuple(map(len, runs)))


def padded(rows: Sequence[Sequence[float | None]]) -> Curves:
    """As a table, NaN where there is nothing."""
    table = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = np.array(values, float)
    return table


def over_seeds(values: Curves) -> tuple[Values, Values]:
    """Mean and deviation of those [S, T] that are known. NaN: a mean of none, a deviation of one."""
    known = np.isfinite(values)
    count = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0).sum(0) / count
        squares = np.where(known, (values - mean) ** 2, 0).sum(0) / (count - 1)
    return mean, np.sqrt(np.where(count > 1, squares, np.nan))


def figure_of(panels: Sequence[Panel], records: Sequence[Record], title: str, note: str) -> Figure:
    """The panels in their order, row by row, one legend for all where they share labels. A panel of which there is no record keeps its
    place, an empty frame that says so: panels are of one size however many there are, and their grid is the paper's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = [[series(line, records) for line in panel.lines] for panel in panels]
    looks = looks_of(line.label for panel in panels for line in panel.lines)
    count = Counter(label for panel in panels for label in {line.label for line in panel.lines})
    shared = len(panels) == 1 or max(count.values()) > 1
    marked = any(map(is_sweep, panels)) or all(len(line.x) == 1 for lines in found for line in lines if len(line.known))

    columns = columns_for(len(panels))
    rows, (width, height) = math.ceil(len(panels) / columns), SIZES[columns]
    if columns == 4:
        looks = {label: look._replace(width=0.8 * look.width) for label, look in looks.items()}
    figure = Figure(figsize=(columns * width, rows * height))
    FigureCanvasAgg(figure)
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[len(panels) :]:
        axes.remove()
    drawn = list[list[str]]()
    for number, (panel, lines, axes) in enumerate(zip(panels, found, every, strict=False)):
        axes.set_title(wrapped(panel.title, 9, width - 0.4), fontsize=9 if columns == 4 else 10, loc="left")
        drawn.append(draw_panel(axes, panel, [line for line in lines if len(line.known)], looks))
        if not drawn[-1]:
            words = "not recorded" if any(any(line.seeds) for line in lines) else "not run"
            axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=11, color=GREY)
        if number + columns < len(panels) and panels[number + columns].x == panel.x:
            axes.set_xlabel("")  # stands below
        if number % columns and panels[number - 1].y == panel.y:
            axes.set_ylabel("")  # stands at the left
        if not shared and drawn[-1]:
            axes.legend(*entries(drawn[-1], looks, marked), fontsize=SMALL, framealpha=0.85, handlelength=2.6)
    labels = sorted(dict.fromkeys(label for labels in drawn for label in labels), key=lambda label: label == AUTHORS)
    samples = entries(labels if shared else [], looks, marked)
    surround(figure, title, "; ".join(filter(None, [note.rstrip(". "), *told(panels, records, found)])), *samples)
    return figure


def surround(figure: Figure, title: str, note: str, samples: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Title above; legend and note below, for which the figure grows. All in inches, so that nothing overlaps."""
    width, height = figure.get_size_inches()
    above, below = wrapped(title, 12, width), wrapped(note, SMALL, width)
    wide = [0.6 + len(label) * 9 / AN_INCH for label in labels]
    lines = 1 if sum(wide) < width else math.ceil(len(wide) / max(1, width // max(wide)))
    foot = (1 + below.count("\n")) * 0.15 + 0.08 if below else 0.0
    legend = lines * 0.2 + 0.12 if labels else 0.0
    head = 0.25 * (1 + above.count("\n"))
    height += head + legend + foot
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained", rect=(0, (legend + foot) / height, 1, 1 - (legend + foot) / height))
    figure.suptitle(above, fontsize=12, x=0.06 / width, ha="left")
    figure.text(0.06 / width, 0.05 / height, below, fontsize=SMALL, color="#555555", va="bottom")
    if labels:
        figure.legend(
            samples,
            labels,
            fontsize=9,
            ncols=math.ceil(len(labels) / lines),
            frameon=False,
            loc="lower center",
            bbox_to_anchor=(0.5, foot / height),
            borderaxespad=0,
            handlelength=2.6,
            columnspacing=1.5,
        )


def columns_for(panels: int) -> int:
    """Four at most: the paper's four kinds of noise side by side."""
    return panels if panels < 4 else 2 if panels == 4 else 3 if panels in (5, 6, 9) else 4


def looks_of(labels: Iterable[str]) -> dict[str, Look]:
    """One look a label in all panels: a method's own, for other labels the next that no method here has."""
    names = list(dict.fromkeys(labels))
    places = {name: list(METHODS).index(name.lower()) for name in names if name.lower() in METHODS}
    free = (place for place in itertools.count() if place not in places.values())
    return {name: style(name.lower()) if name in places else look_of(next(free)) for name in names}


def is_sweep(panel: Panel) -> bool:
    return any(line.xs for line in panel.lines)


def draw_panel(axes: Axes, panel: Panel, lines: Sequence[Series], looks: dict[str, Look]) -> list[str]:
    """Returns the labels of what was drawn: nothing where no line has a value."""
    axes.set_xlabel(plain(printable(panel.x)), fontsize=9)
    axes.set_ylabel(plain(printable(panel.y)), fontsize=9)
    axes.tick_params(labelsize=SMALL)
    frame(axes)
    if not lines:
        axes.set(xticks=[], yticks=[])
        return []
    if is_sweep(panel):
        draw_sweep(axes, panel, lines, looks)
        return [line.label for line in lines]
    draw_epochs(axes, panel, lines, looks)
    return [line.label for line in lines] + [AUTHORS] * bool(panel.reference)


def draw_epochs(axes: Axes, panel: Panel, lines: Sequence[Series], looks: dict[str, Look]) -> None:
    from matplotlib.ticker import MaxNLocator

    means = [line.known for line in lines]
    if panel.reference:
        reference = np.array(panel.reference)
        plot(axes, np.arange(1.0, len(reference) + 1), reference, AUTHORS_LOOK, AUTHORS)
        means.append(reference)
    for line in lines:
        plot(axes, line.x, line.mean, looks[line.label], line.label, marked=len(line.x) == 1)
        if np.isfinite(line.deviation).any():
            band(axes, line.x, line.mean, line.deviation, looks[line.label], crowded=len(lines) > 4)
    T = max(len(panel.reference), *(len(line.x) for line in lines))
    if T > 1:
        axes.set_xlim(1, T)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    else:
        axes.set_xticks([1])
    if "%" in panel.y:
        axes.set_ylim(*view(means, early=2 if T > 20 else 0))  # of few epochs each counts
    elif "probability" in panel.y:
        axes.set_ylim(-0.02, 1.02)


def draw_sweep(axes: Axes, panel: Panel, lines: Sequence[Series], looks: dict[str, Look]) -> None:
    """The values, which may be 0 and 1000, stand at equal distances, from the largest where the recipe begins with it."""
    values = sorted({x for line in panel.lines for x in line.xs}, reverse=panel.lines[0].xs[0] > panel.lines[0].xs[-1])
    beside = 0.12 if any(np.isfinite(line.deviation).any() for line in lines) else 0.0  # else one deviation hides the other
    for number, line in enumerate(lines):
        x, look = np.array([float(values.index(value)) for value in line.x]), looks[line.label]
        x += beside * (number - (len(lines) - 1) / 2)
        plot(axes, x, line.mean, look, line.label, marked=True)
        axes.vlines(x, line.mean - line.deviation, line.mean + line.deviation, color=look.colour, alpha=0.6, linewidth=1)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.4, len(values) - 0.6)
    if "%" in panel.y:
        reach = [value for line in lines for value in (line.mean, line.mean - line.deviation, line.mean + line.deviation)]
        axes.set_ylim(*view([value[np.isfinite(value)] for value in reach if np.isfinite(value).any()], early=0))


def entries(labels: Sequence[str], looks: dict[str, Look], marked: bool) -> tuple[list[Line2D], list[str]]:
    """Of a legend: what the lines look like, and their names."""
    from matplotlib.lines import Line2D

    samples = [
        Line2D([], [], color=look.colour, dashes=look.dashes, linewidth=look.width, marker=look.marker if marked else "")
        for look in ({**looks, AUTHORS: AUTHORS_LOOK}[label] for label in labels)
    ]
    return samples, [plain(printable(label)) for label in labels]


def told(panels: Sequence[Panel], records: Sequence[Record], found: Sequence[Sequence[Series]]) -> list[str]:
    """How many seeds there are, and how many of the runs."""
    seeds = sorted({seeds for lines in found for line in lines for seeds in line.seeds} - {0})
    over = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(*seeds)
    every, lacking = len(needed(panels)), len(missing(panels, records))
    return [
        *([] if not seeds else ["one seed"] if seeds == [1] else [f"mean and deviation over {over} seeds"]),
        *([f"{every - lacking} of {every} run"] if lacking else []),
    ]


def wrapped(text: str, size: float, width: float) -> str:
    """In lines of so many inches, in letters of that size."""
    return plain("\n".join(textwrap.wrap(printable(text), int(width * AN_INCH / size))))
