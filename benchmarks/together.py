"""Runs per hour of `sprl bench --together 4` on one GPU, against the same runs as commands of their own, one after the other.

    python benchmarks/together.py [--data-dir DIR] [--recipe defaults] [--only "human:worse sprl"] [--together 4] [--store STORE]

Times whole commands, from the shell to the table: one of four seeds together, and one of one seed, four of which are what they take one
after the other. Two short runs come first, which fill the compiler's cache for both. Writes results/together.json; the records of the
runs together stay in the store.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Record, save

from sprl import store
from sprl.paper.cell import only
from sprl.paper.recipes import RECIPES


def timed(*words: object) -> float:
    """Seconds of a command of ours."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "sprl", *map(str, words)], check=True)
    return time.perf_counter() - began


def told(folder: Path) -> list[Record]:
    """What the records say."""
    return [
        {"seed": record.seed, "together": record.together, "T1": record.summary["T1"], "last10": record.last10}
        | {"seconds": record.seconds, "step": record.step}
        for record in store.each(folder)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--recipe", default="defaults")
    parser.add_argument("--only", default="human:worse sprl", help="words that fit one cell")
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--store", type=Path, default=Path("records"))
    parser.add_argument("--out", type=Path, default=Path("results/together.json"))
    args = parser.parse_args()
    (cell,) = only(RECIPES[args.recipe].cells(), args.only, optional=False)
    config, runs = cell.config, args.together
    short = ("train", config.data, "--network", config.network, "--method", config.method, "--epochs", 2, "--compile")
    whole = ("bench", args.recipe, "--only", args.only)
    with tempfile.TemporaryDirectory() as name:
        folder, where = Path(name), ("--data-dir", args.data_dir)
        for number in (1, runs):
            timed(*short, *where, "--together", number, "--out", folder / f"short-{number}")
        alone = timed(*whole, *where, "--store", folder / "records")
        one = told(folder / "records")
    seconds = timed(*whole, *where, "--seeds", runs, "--together", runs, "--store", args.store)
    gain = runs * alone / seconds
    print(f"{runs} together {seconds:.0f} s, one alone {alone:.0f} s: {gain:.3f} times the runs per hour")
    save(args.out, told(args.store) + one, cell=args.only, together=runs, seconds=seconds, seconds_alone=alone, gain=gain)
