"""docs/digits.png: test accuracy by epoch, from the records of defaults.py.

python benchmarks/draw.py [RECORDS.json] [OUT.png]
"""

import json
import sys

import numpy as np
from matplotlib.figure import Figure

COLOURS = {"sprl": "#1f6feb", "standard": "#d9730d"}
NAMES = {"sprl": "SPRL", "standard": "Standard"}


def main(records: str = "results/digits-defaults.json", out: str = "docs/digits.png") -> None:
    with open(records) as file:
        full = [r for r in json.load(file)["records"] if r["part"] == "full"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, noise in zip(panels, ("symmetric:0.5", "pair:0.4", "symmetric:0.2"), strict=True):
        for method, colour in COLOURS.items():
            curves = np.array([r["curve"] for r in full if (r["method"], r["noise"]) == (method, noise)])
            t = np.arange(1, curves.shape[1] + 1)
            axes.fill_between(t, curves.min(0), curves.max(0), color=colour, alpha=0.2, linewidth=0)
            axes.plot(t, curves.mean(0), color=colour)
            low = method == "standard"
            axes.annotate(
                NAMES[method],
                (60, curves[:, -1].mean()),
                xytext=(-2, -14 if low else -16),
                textcoords="offset points",
                ha="right",
                color=colour,
            )
        axes.set_title(noise, fontsize=10)
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("test accuracy, %")
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main(*sys.argv[1:])
