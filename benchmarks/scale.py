"""How time and memory of a run grow with rows, classes and batch, and what half a table of previous predictions costs: docs/scale.md.

    python benchmarks/scale.py [--out results/scale.json] [--beside TEXT]     forty minutes, at most 5 GB
    python benchmarks/scale.py --draw                                         docs/scale.png of what is recorded

Every case is a process of its own, so that its peak is its own, counted from what the process takes once all is imported. Rows are
synthetic: class means plus noise, three tenths of the labels wrong. One thread; seconds are those of the processor, the least of several,
so that what others do beside disturbs them little.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from measure import Record, mean, measure, save

from sprl.config import Config
from sprl.core import Clock
from sprl.data import Data, Preprocess
from sprl.files import write_config, write_results
from sprl.labels import record, see
from sprl.run import Run, prepare

FEATURES = 32
LONGEST = 300  # seconds of a case
BYTES = {"full": 4, "half": 2}  # of an entry of the table
PHASES = ("plan", "epochs", "end")  # each with a peak of its own
LEARNED_FROM = 300_000  # rows at most of the cases that the constants are taken from; larger ones check them
COUNTS_FROM = 30_000  # rows from which on growth is told: below, what is fixed counts
NOISES, SEEDS = ("symmetric:0.5", "pair:0.4"), range(5)


class Case(NamedTuple):
    rows: int
    classes: int = 100
    batch: int = 128
    memory: str = "full"
    T1: str = "1"
    epochs: int = 4
    ends: bool = True  # with all that is written at the end


def cases() -> list[Case]:
    sizes = [Case(n, memory=kind, epochs=4 if n < 10**6 else 3) for n in (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6) for kind in BYTES]
    classes = [Case(10**5, C, memory=kind) for C in (10, 30, 300, 1000) for kind in BYTES]
    batches = [Case(10**5, batch=B, memory=kind) for B in (32, 64, 256, 512, 1024, 2048, 4096) for kind in BYTES]
    searches = [Case(n, T1="auto", epochs=12) for n in (10**4, 10**5)]
    return [*sizes, *classes, *batches, *searches, Case(10**6, 1000, memory="half", epochs=2, ends=False)]


def synthetic(n: int, classes: int) -> Data:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (n,), generator=draw)
    means = torch.randn(classes, FEATURES, generator=draw)
    x = torch.empty(n, FEATURES)
    for rows, labels in zip(x.split(2**14), y.split(2**14), strict=True):
        torch.add(means[labels], torch.randn(rows.shape, generator=draw), out=rows)
    wrong = torch.rand(n, generator=draw) < 0.3
    y = torch.where(wrong, torch.randint(classes, (n,), generator=draw), y)
    names, ids = tuple(map(str, range(classes))), tuple(map(str, range(n)))
    return Data("synthetic", x, y.numpy(), names, np.arange(n), ids, Preprocess((FEATURES,)))


def resident(which: str) -> int:
    """VmRSS, what the process takes now, or VmHWM, the most that it took since `forget_peak`."""
    found = re.search(rf"{which}:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def seconds(job: Callable[[], object], times: int = 1) -> float:
    """The least of so many times."""
    took = []
    for _ in range(times):
        began = time.process_time()
        job()
        took.append(time.process_time() - began)
    return min(took)


def prepared(case: Case, data: Data) -> Run:
    config = Config(fields={"T1": case.T1}, epochs=case.epochs, batch_size=case.batch, memory=case.memory, device="cpu")
    return prepare(config, data)


def ended(run: Run) -> float:
    """Seconds of what is written once a run has ended."""
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), run)
        return seconds(lambda: write_results(Path(folder), run))


def choosing(run: Run, t: int) -> float:
    """Seconds of what comes before epoch t."""
    memory, clock = run.state.memory, Clock(t, run.task.epochs)
    return seconds(lambda: run.state.method.refresh(memory, run.task.y, clock, lambda: memory["previous"]), 3)


def recording(run: Run, count: int = 100) -> float:
    """Seconds to note what a batch's predictions say."""
    n, y = len(run.task.y), run.task.y
    logits = torch.randn(1, run.task.batch_size, run.task.num_classes)
    batches = [torch.randint(n, logits.shape[1:2]) for _ in range(count)]
    return seconds(lambda: [record(run.state.memory, see(logits, y[index]), index) for index in batches], 3) / count


def one(case: Case) -> Record:
    """The case, in a process that has done nothing else."""
    torch.set_num_threads(1)  # as `sprl train` does where there are no convolutions
    load = os.getloadavg()[0]
    tiny = prepared(Case(200, 2, 32, epochs=2), synthetic(200, 2))
    list(tiny)
    ended(tiny)  # by now all is imported
    base, peaks = resident("VmRSS"), {}

    def peak(of: str) -> None:
        peaks[of] = resident("VmHWM") - base
        forget_peak()

    data = synthetic(case.rows, case.classes)
    forget_peak()
    run = prepared(case, data)
    run.seconds_expected()
    peak("plan")
    times = [time.process_time()]
    for _ in run:
        times.append(time.process_time())
    peak("epochs")
    choices = [choosing(run, t) for t in (case.epochs - 1, case.epochs)]
    epochs = [after - before for before, after in pairwise(times)]
    forget_peak()
    if case.ends:
        files = ended(run)
        peak("end")
    steps = min(epoch - choice for epoch, choice in zip(epochs[-2:], choices, strict=True))
    count = -(-case.rows // case.batch)
    parts = {"choice": choices[-1], "first_choice": choosing(run, run.state.method.T1 + 1), "recording": count * recording(run)}
    return {
        **case._asdict(),
        "load": load,
        "base": base,
        "peaks": peaks,
        "epochs_seconds": epochs,
        "seconds": {"epoch": steps + choices[-1], **parts, **({"files": files} if case.ends else {})},
        "ms_a_step": 1000 * steps / count,
        "T1_found": run.state.method.T1,
        "limited": bool(run.state.memory["limited"]),
    }


def elsewhere(case: Case, times: int) -> Record:
    """The best of so many processes; of memory the most."""
    command = [sys.executable, __file__, "--one", json.dumps(case)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = []
    for _ in range(times):
        out = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
        if out.returncode:
            sys.exit(f"{case} failed:\n{out.stderr}")
        found.append(json.loads(out.stdout))
    best = min(found, key=lambda record: record["seconds"]["epoch"])
    return best | {
        "processes": times,
        "peaks": {name: max(record["peaks"][name] for record in found) for name in best["peaks"]},
        "seconds": {name: min(record["seconds"][name] for record in found) for name in best["seconds"]},
    }


def accuracies() -> Iterator[Record]:
    """digits with the table full and half, nothing told."""
    for noise in NOISES:
        for seed in SEEDS:
            for kind in BYTES:
                found = measure(Config(corrupt=noise, seed=seed, epochs=60, memory=kind, device="cpu"))
                print(f"{noise} seed {seed} {kind}: {found['last10']:.2f} %, AUROC {found['auroc']:.4f}", flush=True)
                yield {"noise": noise, "seed": seed, "memory": kind, **{key: found[key] for key in ("last10", "auroc", "f1", "T1")}}


def terms(r: Record) -> dict[str, float]:
    """What memory and time may be made of."""
    n, entries = r["rows"], r["rows"] * r["classes"]
    limited = entries if r["limited"] else 0  # then the choice looks at all classes
    return {"fixed": 1, "class": r["classes"], "row": n, "table": entries * BYTES[r["memory"]], "entry": entries, "limited": limited}


def fitted(records: list[Record], names: tuple[str, ...], value: Callable[[Record], float]) -> dict[str, float]:
    """How much of each term, by least squares of what is off in relation to the value."""
    values = np.array([value(r) for r in records])
    sides = np.array([[terms(r)[name] for name in names] for r in records]) / values[:, None]
    return dict(zip(names, map(float, np.linalg.lstsq(sides, np.ones(len(values)), rcond=None)[0]), strict=True))


def computed(fit: dict[str, float], r: Record) -> float:
    return sum(amount * terms(r)[name] for name, amount in fit.items())


def constants(records: list[Record]) -> dict[str, Any]:
    """What memory, above that of the rows themselves, and time consist of, from the cases of at most LEARNED_FROM rows."""
    plain = [r for r in records if r["T1"] == "1" and r["batch"] == 128]
    some = [r for r in plain if r["rows"] <= LEARNED_FROM]
    fit: dict[str, Any] = {}
    for phase in PHASES:
        fit[phase] = fitted(some, ("fixed", "class", "row", "table"), lambda r, phase=phase: r["peaks"][phase] - own(r))
    fit["ms_a_step"] = fitted(some, ("fixed", "class"), lambda r: r["ms_a_step"])
    fit["choice"] = fitted(some, ("row", "limited"), lambda r: r["seconds"]["choice"])
    fit["first_choice"] = fitted(some, ("row", "entry"), lambda r: r["seconds"]["first_choice"])
    fit["files"] = fitted(some, ("fixed", "row"), lambda r: r["seconds"]["files"])
    batches = [r for r in records if (r["rows"], r["classes"], r["memory"], r["T1"]) == (10**5, 100, "full", "1")]
    fit["bytes_a_row_of_a_batch"] = float(np.polyfit([r["batch"] for r in batches], [r["peaks"]["epochs"] for r in batches], 1)[0])
    fit["bytes_a_row_and_class"] = {kind: BYTES[kind] * fit["epochs"]["table"] for kind in BYTES}
    sizes = [r for r in plain if r["classes"] == 100 and r["rows"] >= COUNTS_FROM]
    for name, value in (
        ("epoch", lambda r: r["seconds"]["epoch"]),
        ("choice", lambda r: r["seconds"]["choice"]),
        ("memory", lambda r: r["peaks"]["epochs"]),
    ):
        x, y = np.log([[r["rows"], value(r)] for r in sizes]).T
        fit[f"{name}_exponent"] = float(np.polyfit(x, y, 1)[0])
    fit["recording_share"] = float(np.median([r["seconds"]["recording"] / r["seconds"]["epoch"] for r in some]))
    return fit


def own(r: Record) -> float:
    """Bytes of the rows themselves."""
    return 4 * FEATURES * r["rows"]


def imagined(rows: float, classes: float, memory: str = "full") -> Record:
    return {"rows": rows, "classes": classes, "memory": memory, "limited": False}


def bytes_of(fit: dict[str, Any], phase: str, r: Record) -> float:
    """The formula of docs/scale.md."""
    return own(r) + computed(fit[phase], r)


def seconds_of(fit: dict[str, Any], r: Record) -> float:
    """Of an epoch in batches of 128."""
    return r["rows"] / 128 * computed(fit["ms_a_step"], r) / 1000 + computed(fit["choice"], r)


def check(records: list[Record], fit: dict[str, Any]) -> list[Record]:
    """The cases that are larger than those that the constants come from: what was found over what was to be expected."""
    found = []
    for r in records:
        if r["rows"] > LEARNED_FROM:
            ratios = {phase: r["peaks"][phase] / bytes_of(fit, phase, r) for phase in PHASES if phase in r["peaks"]}
            ratios["ms_a_step"] = r["ms_a_step"] / computed(fit["ms_a_step"], r)
            found.append({key: r[key] for key in ("rows", "classes", "memory")} | {key: round(v, 3) for key, v in ratios.items()})
    return found


def tell(records: list[Record], digits: list[Record], fit: dict[str, Any]) -> None:
    print("    rows classes batch memory T1    MB: plan  epochs     end   s: epoch  choice  first  recording   files   ms a step")
    for r in records:
        peaks, s = r["peaks"], r["seconds"]
        sizes = "".join(f"{peaks[name] / 1e6:8.0f}" if name in peaks else f"{'-':>8}" for name in PHASES)
        times = f"{s['epoch']:10.2f} {s['choice']:7.3f} {s['first_choice']:6.3f} {s['recording']:10.2f} {s.get('files', 0):7.1f}"
        print(f"{r['rows']:8} {r['classes']:7} {r['batch']:5} {r['memory']:6} {r['T1']:6}{sizes} {times} {r['ms_a_step']:11.3f}")
    print(json.dumps(fit, indent=1))
    for row in check(records, fit):
        print("measured over expected:", row)
    for noise in NOISES:
        for kind in BYTES:
            mine = [r for r in digits if (r["noise"], r["memory"]) == (noise, kind)]
            print(f"digits, {noise}, {kind}: {mean(mine, 'last10'):.2f} %, AUROC {mean(mine, 'auroc'):.4f}")
        both = [[r for r in digits if (r["noise"], r["memory"]) == (noise, kind)] for kind in BYTES]
        for key in ("last10", "auroc"):
            less = [half[key] - full[key] for full, half in zip(*both, strict=True)]
            print(f"  half less full, {key}: {np.mean(less):+.4f}, standard error {stdev(less) / len(less) ** 0.5:.4f}")


BLUE, ORANGE, GREEN, GREY = "#1f6feb", "#d9730d", "#2a9d5c", "#8b949e"


def draw(records: list[Record], fit: dict[str, Any], out: str) -> None:
    """Points are measured, lines the formula."""
    figure = Figure(figsize=(9.6, 7), layout="constrained")
    (memory, by_classes), (times, by_batch) = figure.subplots(2, 2)
    plain = [r for r in records if r["T1"] == "1" and r["batch"] == 128]
    for axes, key, fixed, most in ((memory, "rows", 100, 10**9), (by_classes, "classes", 10**5, 10**4)):
        mine = [r for r in plain if (r["classes"] if key == "rows" else r["rows"]) == fixed]
        line = np.geomspace(min(r[key] for r in mine), most, 100)
        for kind, colour in (("full", BLUE), ("half", ORANGE)):
            for phase, style, marker in (("epochs", "-", "o"), ("end", "--", "^")):
                drawn = [imagined(value, fixed, kind) if key == "rows" else imagined(fixed, value, kind) for value in line]
                label = f"{kind}, {'training' if phase == 'epochs' else 'at the end'}"
                axes.plot(line, [bytes_of(fit, phase, r) / 1e9 for r in drawn], style, color=colour, linewidth=1, label=label)
                points = [(r[key], r["peaks"][phase] / 1e9) for r in mine if r["memory"] == kind]
                axes.plot(*zip(*sorted(points), strict=True), marker, color=colour, markersize=4, linestyle="none")
        axes.set_ylabel("peak memory, GB")
        axes.legend(frameon=False, fontsize=8)
    memory.set_title("memory by rows, 100 classes", fontsize=10)
    by_classes.set_title("memory by classes, 100,000 rows", fontsize=10)
    mine = sorted((r for r in plain if r["classes"] == 100 and r["memory"] == "full"), key=lambda r: r["rows"])
    n = [r["rows"] for r in mine]
    line = np.geomspace(n[0], 10**9, 100)
    times.plot(line, [seconds_of(fit, imagined(value, 100)) for value in line], color=BLUE, linewidth=1)
    for name, colour, label in (
        ("epoch", BLUE, "an epoch"),
        ("recording", GREEN, "... recording of predictions"),
        ("choice", ORANGE, "... choice of the curriculum"),
    ):
        times.plot(n, [r["seconds"][name] for r in mine], "o", color=colour, markersize=4, label=label)
    times.set_title("seconds an epoch by rows, 100 classes, batch 128", fontsize=10)
    times.set_ylabel("seconds")
    times.legend(frameon=False, fontsize=8)
    for axes in (memory, times):
        axes.set_xlabel("rows")
        axes.axvspan(10**6, 10**9, color=GREY, alpha=0.12, linewidth=0)
        axes.text(3e7, 0.03, "computed", transform=axes.get_xaxis_transform(), ha="center", fontsize=8, color="#57606a")
    by_classes.set_xlabel("classes")
    mine = sorted((r for r in records if (r["rows"], r["classes"], r["T1"]) == (10**5, 100, "1")), key=lambda r: r["batch"])
    for kind, colour in (("full", BLUE), ("half", ORANGE)):
        points = [(r["batch"], 1e3 * r["ms_a_step"] / r["batch"]) for r in mine if r["memory"] == kind]
        by_batch.plot(*zip(*points, strict=True), "o-", color=colour, markersize=4, linewidth=1, label=kind)
    by_batch.set_title("microseconds a row by batch, 100,000 rows, 100 classes", fontsize=10)
    by_batch.set_xlabel("rows of a batch")
    by_batch.set_ylabel("microseconds a row")
    by_batch.set_ylim(bottom=0)
    by_batch.legend(frameon=False, fontsize=8)
    for axes in (memory, by_classes, times, by_batch):
        axes.set_xscale("log")
        axes.set_yscale("linear" if axes is by_batch else "log")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    sizes = sorted({r["batch"] for r in mine})
    by_batch.set_xticks(sizes, labels=map(str, sizes))
    by_batch.minorticks_off()
    figure.savefig(out, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--chart", default="docs/scale.png")
    parser.add_argument("--beside", default="nothing", help="what else the machine was doing")
    parser.add_argument("--draw", action="store_true", help="the chart alone")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(Case(*asked.one))))
        return
    if asked.draw:
        found = json.loads(asked.out.read_text())
        draw([r for r in found["records"] if "rows" in r], found["fit"], asked.chart)
        return
    records = []
    for case in cases():
        records.append(elsewhere(case, 1 if case.rows > 10**5 else 3))
        print(case, f"{records[-1]['seconds']['epoch']:.2f} s, {records[-1]['peaks']['epochs'] / 1e6:.0f} MB", flush=True)
    fit, digits = constants(records), list(accuracies())
    tell(records, digits, fit)
    save(asked.out, records + digits, beside=asked.beside, features=FEATURES, fit=fit, check=check(records, fit))
    draw(records, fit, asked.chart)


if __name__ == "__main__":
    main()
