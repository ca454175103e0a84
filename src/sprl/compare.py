"""Methods compared on the same wrong labels: which runs that takes, and what their records say. Nothing here trains or prints."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from sprl import store
from sprl.config import Config, make_method, needs_rate, parse_assignments
from sprl.data import Data, Progress, quiet
from sprl.errors import InputError, pick, printable
from sprl.methods import DEMONSTRATIONS, METHODS
from sprl.run import Run, known_rate, prepare, versions
from sprl.search import longest_search
from sprl.state import Task
from sprl.store import Record

ALL = "all"


@dataclass(frozen=True)
class Job:
    """A run to be made, known by its key."""

    config: Config = field(compare=False)  # every default filled in
    key: str
    weights: str | None = field(default=None, compare=False)  # their content (store.content_of)
    what: str = field(default="", compare=False)  # it is called, if not by its method

    @property
    def name(self) -> str:
        return f"{self.what or self.config.method}, seed {self.config.seed}"

    @property
    def networks(self) -> int:
        return METHODS[self.config.method].networks


class Effort(NamedTuple):
    """What runs take, in runs of one network, and what they may take more for what their methods find out first."""

    sure: float
    search: float


def effort(configs: Iterable[Config], task: Task) -> Effort:
    """Of runs of this task."""
    methods = [make_method(config.method, config.fields, config.noise_rate, known=lambda: 0.0) for config in configs]
    longest = {text: longest_search(task, m) for text, m in {repr(m): m for m in methods}.items()}  # once for all seeds: it draws rows
    return Effort(sum(m.networks for m in methods), sum(m.networks * longest[repr(m)] / task.epochs for m in methods))


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]  # by method, then by seed
    left_out: list[str]  # methods that need a noise rate, which nobody knows
    example: Run  # Standard with the first seed, prepared
    data: Data  # with its own labels


def choose(names: Iterable[str]) -> tuple[list[str], set[str]]:
    """The methods of ["sprl,standard", "co-teaching"], in the order of METHODS for "all", which demonstrations are no part of; and those
    among them that were named."""
    asked = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in asked:
        pick("method", name, [*METHODS, ALL])
    named = [name for name in dict.fromkeys(asked) if name != ALL]
    if not asked:
        raise InputError(f"which methods? --methods {ALL}, or names from `sprl methods` with commas between them")
    contenders = [name for name in METHODS if name not in DEMONSTRATIONS or name in named]
    return (contenders if ALL in asked else named), set(named)


def assign(texts: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """The fields of each method from ["K=5", "sprl.T1=10"]: those of all that have them, and over these a method's own."""
    has = {method: [f.name for f in fields(METHODS[method])] for method in methods}  # type: ignore[arg-type]
    for_all, own = dict[str, str](), {method: dict[str, str]() for method in methods}
    for name, value in parse_assignments(list(texts)).items():
        method, dot, its = name.partition(".")
        if dot:
            own[pick("method in --set", method, methods)][pick(f"field of {method}", its, has[method])] = value
        else:
            for_all[pick("field of the methods compared", name, dict.fromkeys(f for known in has.values() for f in known))] = value
    return {method: {name: value for name, value in for_all.items() if name in has[method]} | own[method] for method in methods}


def plan(
    config: Config,
    methods: Sequence[str],
    named: set[str],
    values: Mapping[str, dict[str, str]],
    seeds: Sequence[int],
    data: Data,
    say: Callable[[str], None] = quiet,
    progress: Progress = quiet,
) -> Plan:
    """All runs, each config filled in and checked before any of them is trained. `values`: of fields, by method (see `assign`)."""
    if data.x_test is None:
        raise InputError(
            f"{data.name} has no test rows to compare methods on: give trusted ones, as x_test and y_test of an .npz, a folder test/ "
            "beside train/, or rows of a table with test in a column split"
        )
    prints, rates = dict[int, str](), dict[int, float | None]()
    example: Run | None = None
    for seed in seeds:  # what is wrong whatever the method is told here
        run = prepare(replace(config, method="standard", fields={}, seed=seed), data, say, progress, beside=example)
        prints[seed] = run.fingerprint
        rates[seed] = known_rate(run.data, config) if config.noise_rate is None else config.noise_rate
        example = example or run
    assert example is not None
    to_tell = {m for m in methods if needs_rate(METHODS[m]) and "noise_rate" not in values[m]}
    left_out = [method for method in methods if method in to_tell - named and rates[seeds[0]] is None]
    jobs, weights = [], store.content_of(config.weights)
    for method in methods:
        if method in left_out:
            continue
        try:
            filled = prepare(replace(config, method=method, fields=values[method], seed=seeds[0]), data, say, progress, example).config
        except InputError as error:
            raise InputError(str(error) if str(error).startswith(f"{method} ") else f"{method}: {error}") from error
        own = {seed: {"noise_rate": rates[seed]} if method in to_tell else {} for seed in seeds}  # it may be another with each
        # the rate that was given is in the fields of those that use it: to the others it is no change
        configs = [replace(filled, seed=seed, fields=filled.fields | own[seed], noise_rate=None) for seed in seeds]
        jobs += [Job(each, store.key_of(each.to_json(), prints[each.seed], weights), weights) for each in configs]
    return Plan(jobs, left_out, example, data)


class Score(NamedTuple):
    """Over seeds. The deviation is that of a sample; None of a single one."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        return self.shown(1)

    def shown(self, decimals: int) -> str:
        return f"{self.mean:.{decimals}f}" + ("" if self.deviation is None else f"±{self.deviation:.{decimals}f}")


def score(values: Iterable[float | None]) -> Score | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Score(statistics.mean(known), statistics.stdev(known) if len(known) > 1 else None)


@dataclass(frozen=True)
class Standing:
    """A method's place: its records by seed, and the seeds whose runs failed."""

    method: str
    records: tuple[Record, ...]
    failed: tuple[int, ...] = ()

    @property
    def last10(self) -> Score | None:
        return score(record.last10 for record in self.records)

    @property
    def best(self) -> Score | None:
        return score(record.best for record in self.records)

    @property
    def precision(self) -> Score | None:
        return score(record.chosen_precision for record in self.records)

    @property
    def recall(self) -> Score | None:
        return score(record.chosen_recall for record in self.records)

    @property
    def seconds(self) -> Score | None:
        return score(record.seconds_an_epoch for record in self.records)

    @property
    def result(self) -> float:
        return -1.0 if self.last10 is None else self.last10.mean


def standings(jobs: Sequence[Job], records: Mapping[str, Record]) -> list[Standing]:
    """Best first. `records` by key; a run that has none failed."""
    of = defaultdict[str, list[Job]](list)
    for job in jobs:
        of[job.config.method].append(job)
    found = [
        Standing(
            method,
            tuple(records[job.key] for job in runs if job.key in records),
            tuple(job.config.seed for job in runs if job.key not in records),
        )
        for method, runs in of.items()
    ]
    return sorted(found, key=lambda standing: -standing.result)


HEAD = ("method", "last ten", "best", "precision", "recall", "s/epoch")


def told(jobs: Sequence[Job]) -> str:
    """Which methods know more than the others."""
    rates = defaultdict[str, list[float]](list)
    for job in jobs:
        if (rate := job.config.fields.get("noise_rate", job.config.fields.get("rate"))) is not None:  # mentornet calls it rate
            rates[job.config.method].append(rate)
    each = [f"{m} ({' to '.join(f'{rate:.4g}' for rate in dict.fromkeys((min(found), max(found))))})" for m, found in rates.items()]
    return f"told the share of wrong labels: {', '.join(each)}" if rates else ""


def without(left_out: Sequence[str]) -> str:
    """Which methods were not compared, and why."""
    why = "left out, as nobody knows the share of wrong labels that they need (--noise-rate)"
    return f"{why}: {', '.join(left_out)}" if left_out else ""


def table(places: Sequence[Standing]) -> list[list[str]]:
    """The head, and a row a method; * marks one of which a run failed. What is known of none is left out."""
    rows = [list(HEAD)]
    for place in places:
        seconds = place.seconds
        decimals = 3 if seconds is None or seconds.mean < 1 else 2 if seconds.mean < 10 else 1
        cells = [place.last10, place.best, place.precision, place.recall]
        shown = ["-" if cell is None else str(cell) for cell in cells] + ["-" if seconds is None else seconds.shown(decimals)]
        rows.append([place.method + (" *" if place.failed else ""), *shown])
    kept = [column for column in range(len(HEAD)) if column == 0 or any(row[column] != "-" for row in rows[1:])]
    return [[row[column] for column in kept] for row in rows]


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of the columns."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def fitting(rows: list[list[str]], width: int) -> list[list[str]]:
    """The table in lines of at most `width`: if need be without deviations, then with fewer columns. Method and result always stay."""

    def fits(found: list[list[str]]) -> bool:
        return sum(widths(found)) + 2 * (len(found[0]) - 1) <= width

    if not fits(rows):
        rows = [[re.sub("±.*", "", cell) for cell in row] for row in rows]
    while not fits(rows) and len(rows[0]) > 2:
        rows = [row[:-1] for row in rows]
    return rows


def legend(places: Sequence[Standing]) -> str:
    """What the columns of the table mean."""
    records = [record for place in places for record in place.records]
    counts = {len(place.records) for place in places if place.records}
    count = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts, default=0))
    over = "one seed" if counts == {1} else f"mean ± deviation over {count} seeds"
    fewest = min((len(record.curves["epoch"]) for record in records), default=10)
    last = "last ten epochs" if fewest >= 10 else f"last {fewest} epochs" if fewest > 1 else "last epoch"
    truth = f"; precision and recall of the labels it trained on, {last}" if any(p.precision for p in places) else ""
    sides, devices = {record.together for record in records}, sorted({printable(record.device)[:60] for record in records})
    beside = [f"{'up to ' if len(sides) > 1 else ''}{max(sides)} runs side by side"] if sides - {1} else []
    mixed = [f"on {' and '.join(devices)}, which differ"] if len(devices) > 1 else []
    how = f" ({', '.join([*beside, *mixed])})" if beside or mixed else ""
    return f"test accuracy in %: mean of the {last}, and the best one{truth}; seconds an epoch{how}; {over}"


def verdict(places: Sequence[Standing]) -> str:
    """Who won, by how much over whom, and whether that is more than the deviations. Level: no tenth of a point apart."""
    ranked = [(place, place.last10) for place in places if place.last10 is not None]
    if not ranked:
        return "no run came to its end"
    first, one = ranked[0]
    level = [place.method for place, other in ranked if round(one.mean - other.mean, 1) == 0]
    who = f"{first.method} won" if len(level) == 1 else f"{', '.join(level[:-1])} and {level[-1]} are level"
    lead = f"{who if len(ranked) > 1 else first.method}: {one.mean:.1f} %"
    if len(ranked) == 1:
        spread = "one seed" if one.deviation is None else f"deviation over {len(first.records)} seeds {one.deviation:.1f}"
        return f"{lead}; {spread}; there is nothing to compare it with"
    second, two = ranked[min(len(level), len(ranked) - 1)]  # the first that is behind, if any is
    ahead, behind = one.mean - two.mean, len(level) < len(ranked)
    lead += f", {ahead:.1f} points ahead of {second.method}" if behind else ""
    if one.deviation is None or two.deviation is None:
        return f"{lead}; one seed does not tell how much of that is chance"
    counts = " and ".join(map(str, dict.fromkeys([len(first.records), len(second.records)])))
    than = "" if not behind else "more than the " if ahead > max(one.deviation, two.deviation) else "no more than the "
    return f"{lead}; {than}deviations over {counts} seeds, {one.deviation:.1f} and {two.deviation:.1f}"


def markdown(title: str, places: Sequence[Standing], jobs: Sequence[Job], failures: Mapping[str, str], left_out: Sequence[str] = ()) -> str:
    """compare.md."""
    head, *rows = table(places)
    lines = ["| " + " | ".join(cells).replace("*", "\\*") + " |" for cells in (head, ["---", *["---:"] * (len(head) - 1)], *rows)]
    failed = [f"\\* {name} failed: {why}" for name, why in failures.items()]
    notes = [f"**{verdict(places)}**", f"({legend(places)})", told(jobs), without(left_out), *failed]
    parts = [f"# {title}", "\n".join(lines), *filter(None, notes), "![test accuracy by epoch](compare.png)"]
    return "\n\n".join(parts) + "\n"


def contents(
    places: Sequence[Standing], jobs: Sequence[Job], failures: Mapping[str, str], example: Run, left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """compare.json: the table in full precision, and the keys of the records that it was made of."""
    scores = ("last10", "best", "precision", "recall", "seconds")

    def cell(found: Score | None) -> dict[str, float | None] | None:
        return None if found is None else found._asdict()

    common = {name: value for name, value in example.config.to_json().items() if name not in ("method", "fields", "seed")}
    return {
        "verdict": verdict(places),
        "methods": [
            {
                "method": place.method,
                **{("seconds_an_epoch" if name == "seconds" else name): cell(getattr(place, name)) for name in scores},
                "records": {str(record.seed): record.key for record in place.records},
                "failed": list(place.failed),
                "fields": next(job.config.fields for job in jobs if job.config.method == place.method),
            }
            for place in places
        ],
        "left_out": list(left_out),
        "failures": dict(failures),
        "seeds": list(dict.fromkeys(job.config.seed for job in jobs)),
        "data": example.data.name,
        "config": common,
        "versions": versions(),
    }
