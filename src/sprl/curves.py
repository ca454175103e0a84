"""curves.png: what happened, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sprl.atomic import written

if TYPE_CHECKING:
    from sprl.run import Run

BLUE, ORANGE, GREEN, GREY = "#1f6feb", "#d9730d", "#2a9d5c", "#8b949e"


def draw(run: Run, path: Path) -> None:
    """Above: test accuracy, and precision of the chosen where the truth is known. Below: the chosen share and gamma(t)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows, name = run.rows, run.data.name.replace("$", r"\$")  # else matplotlib reads formulae in it
    t = [row["epoch"] for row in rows]
    figure = Figure(figsize=(8, 6), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for key, label, colour in (("test_accuracy", "test accuracy", BLUE), ("precision", "chosen labels that are right", GREEN)):
        if key in rows[0]:
            upper.plot(t, [row.get(key, float("nan")) for row in rows], color=colour, label=label)
    if "test_accuracy" in rows[0]:
        last = sum(row["test_accuracy"] for row in rows[-10:]) / len(rows[-10:])
        upper.set_title(f"{run.config.method} on {name}: {last:.1f} % (mean of the last ten epochs)", fontsize=11)
    else:
        upper.set_title(f"{run.config.method} on {name}", fontsize=11)
    if upper.lines:
        upper.set_ylabel("%")
        upper.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.01))  # between the panels, over no curve
    else:
        upper.plot(t, [row["loss"] for row in rows], color=BLUE)
        upper.set_ylabel("training loss")
    lower.plot(t, [100 * row["chosen"] for row in rows], color=ORANGE, label="chosen samples")
    lower.set_ylabel("chosen, % of all", color=ORANGE)
    lower.set_ylim(0, 105)
    lower.set_xlabel("epoch")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    if "gamma" in rows[0]:
        right = lower.twinx()
        right.plot(t, [row["gamma"] for row in rows], color=GREY)
        right.set_ylabel("gamma(t)", color=GREY)
        right.set_ylim(bottom=0)
        right.spines["top"].set_visible(False)
    T1 = getattr(run.state.method, "T1", None)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if isinstance(T1, int):
            axes.axvline(T1, color=GREY, linewidth=1, linestyle=":")
    if isinstance(T1, int):
        blank = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        upper.annotate(f"T1 = {T1}", (T1, 0.93), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points", bbox=blank)
    with written(path) as file:
        figure.savefig(file, dpi=120, format="png")
