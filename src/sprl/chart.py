"""compare.png: test accuracy by epoch, a line a method, as in the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sprl.methods import METHODS

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
        colour, dashes, width = style(name)
        t, mean = np.arange(1, values.shape[1] + 1), values.mean(0)
        axes.plot(
            t,
            mean,
            color=colour,
            dashes=dashes,
            linewidth=width,
            label=name,
            zorder=2.5 if name == "sprl" else 3,
            marker="o" if T == 1 else "",
        )
        if len(values) > 1:
            deviation = values.std(0, ddof=1)
            axes.fill_between(
                t, mean - deviation, mean + deviation, color=colour, alpha=0.16 if len(curves) < 5 else 0.08, linewidth=0, zorder=2
            )
    axes.set_title(title.replace("$", r"\$"), fontsize=11, loc="left")  # else matplotlib reads formulae in it
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, %")
    axes.set_xlim(1 - 0.01 * T, T)
    low, high = view([values.mean(0) for values in curves.values()])
    axes.set_ylim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    last = {name: float(values.mean(0)[-10:].mean()) for name, values in curves.items()}
    for name, height in apart({name: (value - low) / (high - low) for name, value in last.items()}).items():
        colour, dashes, width = style(name)
        at = float(np.clip((curves[name].mean(0)[-1] - low) / (high - low), 0, 1))
        axes.plot([1.0, 1.02, 1.035], [at, height, height], transform=axes.transAxes, color=GREY, linewidth=0.7, clip_on=False, zorder=1)
        axes.plot([1.035, 1.085], [height] * 2, transform=axes.transAxes, color=colour, dashes=dashes, linewidth=width, clip_on=False)
        weight = "bold" if name == "sprl" else "normal"
        axes.text(
            1.095, height, f"{name}  {last[name]:.1f}", transform=axes.transAxes, va="center", fontsize=9, color=colour, weight=weight
        )
    figure.savefig(path, dpi=130, format="png")


def style(name: str) -> tuple[str, tuple[float, ...], float]:
    place = list(METHODS).index(name)
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], 2.4 if name == "sprl" else 1.5


def view(means: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """From the least accuracy that counts to the largest: a first epoch or two far below all others would press them flat."""
    late = np.concatenate([mean[min(2, len(mean) - 1) :] for mean in means])
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
