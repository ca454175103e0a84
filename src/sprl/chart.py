"""compare.png: test accuracy by epoch, a line a method, as in the paper's figures; and how lines look in all such pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprl.atomic import written
from sprl.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = NDArray[np.float64]  # [T]; NaN: a gap
Curves = NDArray[np.float64]  # [S, T] of S seeds, T epochs

# Colours that differ in lightness too, and dashes, so that lines can be told apart without colour. By the method's place in METHODS.
COLOURS = (
    "#0b4fc4",
    "#555555",
    "#d95f02",
    "#7b3fa0",
    "#0a8f6a",
    "#c2185b",
    "#8a6d00",
    "#1b9fc6",
    "#a33b20",
    "#4c7a1f",
    "#e0529c",
    "#3f3f8f",
)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (3, 1.5), (8, 2), (1, 1), (4, 1.5, 1, 1.5, 1, 1.5))
MARKERS = "osD^vPX*"
GREY = "#8b949e"
LINE = 0.034  # height of a label, of the axes'


def draw(curves: Mapping[str, Curves], title: str, path: Path) -> None:
    """Mean over seeds, and a band of their deviation. At the end of each line stand its method and the mean of the last ten epochs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    T = max(values.shape[1] for values in curves.values())
    for name, values in curves.items():
        look, mean = style(name), values.mean(0)
        t = np.arange(1.0, len(mean) + 1)
        plot(axes, t, mean, look, name)
        if len(values) > 1:
            band(axes, t, mean, values.std(0, ddof=1), look, crowded=len(curves) > 4)
    axes.set_title(plain(title), fontsize=11, loc="left")
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, %")
    axes.set_xlim(1 - 0.01 * T, T)
    low, high = view([values.mean(0) for values in curves.values()])
    axes.set_ylim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    frame(axes)
    last = {name: float(values.mean(0)[-10:].mean()) for name, values in curves.items()}
    for name, height in apart({name: (value - low) / (high - low) for name, value in last.items()}).items():
        colour, dashes, width, *_ = style(name)
        at = float(np.clip((curves[name].mean(0)[-1] - low) / (high - low), 0, 1))
        axes.plot([1.0, 1.02, 1.035], [at, height, height], transform=axes.transAxes, color=GREY, linewidth=0.7, clip_on=False, zorder=1)
        axes.plot([1.035, 1.085], [height] * 2, transform=axes.transAxes, color=colour, dashes=dashes, linewidth=width, clip_on=False)
        weight = "bold" if name == "sprl" else "normal"
        axes.text(
            1.095, height, f"{name}  {last[name]:.1f}", transform=axes.transAxes, va="center", fontsize=9, color=colour, weight=weight
        )
    with written(path) as file:
        figure.savefig(file, dpi=130, format="png")


class Look(NamedTuple):
    """Of a line."""

    colour: str
    dashes: tuple[float, ...]
    width: float = 1.5
    marker: str = "o"
    zorder: float = 3


def look_of(place: int) -> Look:
    """No two of the first two dozen places look alike."""
    return Look(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], marker=MARKERS[place % len(MARKERS)])


def style(name: str) -> Look:
    """Of a method, the same in every picture. SPRL's line is broad, and lies beneath the others so that it hides none."""
    look = look_of(list(METHODS).index(name))
    return look._replace(width=2.4, zorder=2.5) if name == "sprl" else look


def plot(axes: Axes, x: Values, y: Values, look: Look, label: str, marked: bool = False) -> None:
    """A line, broken where y is NaN. Points without neighbours, which no line shows, are dots; `marked`: all are marked."""
    known = np.pad(np.isfinite(y), 1)
    lonely = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:]).tolist()
    axes.plot(
        x,
        y,
        color=look.colour,
        dashes=look.dashes,
        linewidth=look.width,
        label=label,
        zorder=look.zorder,
        marker=look.marker if marked else "o" if lonely else "",
        markevery=None if marked else lonely,
    )


def band(axes: Axes, x: Values, mean: Values, deviation: Values, look: Look, crowded: bool) -> None:
    """As far as the deviation reaches to either side."""
    axes.fill_between(x, mean - deviation, mean + deviation, color=look.colour, alpha=0.08 if crowded else 0.16, linewidth=0, zorder=2)


def frame(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def plain(text: str) -> str:
    """Else matplotlib reads formulae in it."""
    return text.replace("$", r"\$")


def view(means: Sequence[Values], early: int = 2) -> tuple[float, float]:
    """From the least accuracy that counts to the largest: a first epoch or two far below all others would press them flat."""
    late = np.concatenate([mean[min(early, len(mean) - 1) :] for mean in means])
    low, high = float(late.min()), float(max(mean.max() for mean in means))
    room = max(0.04 * (high - low), 0.5)
    return max(low - room, -1.0), min(high + room, 101.0)


def apart(heights: dict[str, float]) -> dict[str, float]:
    """Heights of labels, the same order (of equal ones the first is uppermost), no two nearer than LINE: those too near share the room
    about their mean."""
    order = sorted(heights, key=lambda name: heights[name], reverse=True)[::-1]
    blocks = list[tuple[float, int]]()  # centre and count, from below
    for name in order:
        blocks.append((heights[name], 1))
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < LINE * (blocks[-1][1] + blocks[-2][1]) / 2:
            (upper, more), (lower, some) = blocks.pop(), blocks.pop()
            blocks.append(((upper * more + lower * some) / (more + some), more + some))
    placed = [centre + LINE * (i - (count - 1) / 2) for centre, count in blocks for i in range(count)]
    return dict(zip(order, placed, strict=True))
