"""A paper's table beside what records say: on the terminal, in Markdown, LaTeX and CSV. Nothing here trains or reads files.

Names of data sets, methods and devices may be other people's text: each format escapes them in its own way.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sprl.cells import guard
from sprl.compare import score
from sprl.config import Config
from sprl.data.catalogue import SETS
from sprl.errors import printable
from sprl.paper.cell import RULES, Cell, Rule, runs_of
from sprl.show import console
from sprl.store import LAST, Record, is_number

NEAR = 1.0  # points from the paper's number within which it is reproduced
OURS = "sprl"  # the row to look for


class Row(NamedTuple):
    """A cell beside its runs. Accuracies and deviations in percent."""

    cell: Cell
    records: tuple[Record, ...]  # by seed
    ours: float | None  # mean over seeds
    std_epochs: float | None  # of a sample, over the last ten epochs, as in the paper; mean over seeds
    std_seeds: float | None  # of a sample; None of a single one

    @property
    def seeds(self) -> int:
        return len(self.records)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, to nine decimals: 56.54 - 57.54 is -1 in binary numbers too."""
        return None if self.ours is None or self.cell.paper is None else round(self.ours - self.cell.paper, 9) + 0.0  # never -0.0

    @property
    def verdict(self) -> str:
        """By the difference as it is, not as it is shown: -1 is reproduced, -1.004 is off by 1.0. A run may tell nothing by its rule."""
        if not self.records:
            return "not run"
        if self.difference is None:
            return f"no number in the {'paper' if self.cell.paper is None else 'record'}"
        if abs(self.difference) <= NEAR:
            return "reproduced"
        return "better" if self.difference > 0 else f"off by {-self.difference:.1f}"


def rows_of(cells: Sequence[Cell], records: Sequence[Record]) -> list[Row]:
    """A row a cell: by data set and network, in these by noise, each in the place of its first cell. Without records optional cells are
    left out."""
    alike = defaultdict[tuple[str, ...], list[Record]](list)  # so that few pairs of a cell and a record need a close look
    for record in records:
        alike[kind(record.method, record.config.get("data", Config.data), record.config.get("corrupt"))].append(record)
    rows = [row_of(cell, runs_of(cell, alike[kind(cell.config.method, cell.config.data, cell.config.corrupt)])) for cell in ordered(cells)]
    return [row for row in rows if row.records or not row.cell.optional]


def ordered(cells: Sequence[Cell]) -> list[Cell]:
    found = dict[tuple[str, str], dict[tuple[str, float | None], list[Cell]]]()
    for cell in cells:
        found.setdefault((cell.dataset, cell.network), {}).setdefault((cell.noise, cell.rate), []).append(cell)
    return [cell for noises in found.values() for part in noises.values() for cell in part]


def kind(method: str, data: object, corrupt: object) -> tuple[str, ...]:
    """Files of one's own are not known by their path."""
    return method, str(data) if data in SETS else "", str(corrupt)


def row_of(cell: Cell, records: Sequence[Record]) -> Row:
    ours = score(number_of(record, cell.rule) for record in records)
    epochs = score(spread(record.accuracy[-LAST:]) for record in records) if cell.rule == "last10" else None
    return Row(cell, tuple(records), ours and ours.mean, epochs and epochs.mean, ours and ours.deviation)


def spread(accuracy: Sequence[float]) -> float | None:
    """The deviation of a sample, which is the paper's: the authors' curves give 14 of its 16 so. None of fewer than two."""
    return float(np.std(accuracy, ddof=1)) if len(accuracy) > 1 else None


def number_of(record: Record, rule: Rule) -> float | None:
    if rule == "last10":
        return record.last10
    if rule == "best":
        return record.best
    labeller = record.summary["noise"].get("labeller")  # the store does not look into it
    found = labeller.get(f"{rule.removeprefix('labeller-')}_accuracy") if isinstance(labeller, dict) else None
    return found if is_number(found) else None


# What all formats show.
COLUMNS = ("noise", "method", "ours", "seeds", "paper", "difference", "verdict")
WORDS = ("noise", "method", "verdict")  # columns that begin at the left
MARKS = "¹²³⁴"  # of rules, where there are several
NONE = "-"
SHORT = "a short form: a few epochs of a small network on {data}; it is not the paper's setting"

Line = tuple[Row, dict[str, str]]  # by column
Block = tuple[str, list[Line]]  # under its heading


def blocks(rows: Sequence[Row], deviations: bool = True) -> list[Block]:
    """One for each data set and network. `deviations`: over epochs."""
    mark, found = marks(rows), list[Block]()
    for names, block in groupby(rows, lambda row: (row.cell.dataset, row.cell.network)):
        found.append((printable(", ".join(names)), []))
        for _, part in groupby(block, lambda row: (row.cell.noise, row.cell.rate)):
            found[-1][1].extend(line_of(row, number == 0, mark, deviations) for number, row in enumerate(part))
    return found


def line_of(row: Row, first: bool, mark: Mapping[Rule, str], deviations: bool) -> Line:
    """The noise is named in the `first` line that has it."""
    cell = row.cell

    def number(value: float | None, deviation: float | None) -> str:
        spread = f"±{deviation:.2f}" if deviations and deviation is not None else ""
        return NONE if value is None else f"{value:.2f}{spread}{mark[cell.rule]}"

    values = (
        printable(cell.noise_and_rate) if first else "",
        printable(cell.way),
        number(row.ours, row.std_epochs),
        NONE if not row.seeds else str(row.seeds) if row.std_seeds is None else f"{row.seeds} ±{row.std_seeds:.2f}",
        number(cell.paper, cell.paper_std),
        NONE if row.difference is None else f"{row.difference:+.2f}",
        row.verdict,
    )
    return row, dict(zip(COLUMNS, values, strict=True))


def marks(rows: Sequence[Row]) -> dict[Rule, str]:
    rules = list(dict.fromkeys(row.cell.rule for row in rows))
    return {rule: MARKS[number] if len(rules) > 1 else "" for number, rule in enumerate(rules)}


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Without those that have nothing to tell."""
    tells = {
        "seeds": any(row.seeds > 1 for row in rows),
        "paper": any(row.cell.paper is not None for row in rows),
        "difference": any(row.difference is not None for row in rows),
        "verdict": any(row.cell.paper is not None or row.ours is None for row in rows),
    }
    return [name for name in COLUMNS if tells.get(name, True)]


def notes(rows: Sequence[Row], columns: Sequence[str], table: Sequence[Block], about: str, short: bool, total: int | None) -> list[str]:
    """What became of the table, which rule made its numbers, and what they come from."""
    rules = [f"{mark}{RULES[rule]}{all_of(rows) if rule == 'last10' else ''}" for rule, mark in marks(rows).items()]
    if any("±" in cells["ours"] + cells["paper"] for _, block in table for _, cells in block):
        rules.append("± deviation over the last ten epochs")
    if "seeds" in columns:
        rules.append("seeds: how many ours is the mean of, ± their deviation")
    brief = SHORT.format(data=", ".join(dict.fromkeys(printable(row.cell.dataset) for row in rows))) if short else ""
    found = [brief, counts(rows, total), f"in %: {'; '.join(rules)}" if rules else "", made(rows), printable(about)]
    return [note for note in found if note]


def all_of(rows: Sequence[Row]) -> str:
    """Where runs have no more epochs than the last ten."""
    epochs = {record.epochs for row in rows for record in row.records}
    return f" (of {' or '.join(map(str, sorted(epochs)))}: all)" if epochs and max(epochs) <= LAST else ""


def counts(rows: Sequence[Row], total: int | None) -> str:
    run = [row for row in rows if row.records]
    away = [row.difference for row in run if row.difference is not None]
    every = len(rows) if total is None else total
    parts = [f"{len(run)} of {every} run"] if len(run) < every else [] if rows else ["none of it was run"]
    if away:
        near, above = sum(abs(points) <= NEAR for points in away), sum(points > NEAR for points in away)
        text = f"{near} reproduced (at most {NEAR:g} point away), {above} better, {len(away) - near - above} off"
        parts.append(text + (f", {len(run) - len(away)} with nothing to compare" if len(run) > len(away) else ""))
    return ": ".join(parts)


def made(rows: Sequence[Row]) -> str:
    """How long and on what the runs were trained."""
    records = {record.key: record for row in rows for record in row.records}.values()
    if not records:
        return ""
    epochs = sorted({record.epochs for record in records})
    devices = sorted({printable(record.device)[:60] for record in records})
    precisions = sorted({printable(record.precision)[:60] for record in records})
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    span = f"{epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"{epochs[0]}"
    return f"{runs}: {span} epochs on {' and '.join(devices)}, {' and '.join(precisions)}"


# On the terminal.
DROPPED = ("difference", "seeds", "verdict", "paper")  # where room is short: first the deviations over epochs, then these
LONGEST = 30  # columns of a cell
WIDEST = 100  # columns of a sentence


def terminal(
    rows: Sequence[Row], title: str, about: str, short: bool = False, total: int | None = None, width: int | None = None
) -> list[Text]:
    """Lines for the console, of at most `width` columns if that can be; None: as wide as the table is. `total`: rows that there are, if
    some were left out."""
    columns, table = fitting(rows, width)
    wide, room = widths(columns, table), max(20, min(width or WIDEST, WIDEST))

    def line(cells: Mapping[str, str], style: str = "", styles: Mapping[str, str] | None = None) -> Text:
        text = Text(style=style)
        for name in columns:
            space = " " * (wide[name] - cell_len(cells[name]))
            text.append("  " if text else "")
            text.append(cells[name] + space if name in WORDS else space + cells[name], (styles or {}).get(name))
        text.rstrip()
        return text

    lines = [Text(cut(printable(title), room), style="bold"), Text(), line({name: name for name in columns}, "dim")]
    for heading, block in table:
        lines.append(Text(cut(heading, room), style="bold"))
        lines += [line(cells, "" if row.records else "dim", styles_of(row)) for row, cells in block]
        lines.append(Text())
    told = [part for note in notes(rows, columns, table, about, short, total) for part in Text(note).wrap(console, room)]
    return lines + [Text(part.plain.rstrip()) for part in told]


def styles_of(row: Row) -> dict[str, str]:
    """By column. The noise is that of the rows below, too."""
    colour = "" if row.difference is None else "red" if row.difference < -NEAR else "green"
    method = "bold" if row.cell.method == OURS else ""
    return {"noise": "not dim", "method": method, "ours": colour, "difference": colour, "verdict": colour}


def fitting(rows: Sequence[Row], width: int | None) -> tuple[list[str], list[Block]]:
    """The columns and lines that there is room for."""

    def fits() -> bool:
        return width is None or sum(widths(columns, table).values()) + 2 * (len(columns) - 1) <= width

    def lines(deviations: bool) -> list[Block]:
        found = blocks(rows, deviations)
        return [(top, [(row, {name: cut(text, LONGEST) for name, text in cells.items()}) for row, cells in block]) for top, block in found]

    columns, table = columns_of(rows), lines(deviations=True)
    if not fits():
        table = lines(deviations=False)
    for name in DROPPED:
        if not fits():
            columns = [other for other in columns if other != name]
    return columns, table


def widths(columns: Sequence[str], table: Sequence[Block]) -> dict[str, int]:
    return {name: max([cell_len(name), *(cell_len(cells[name]) for _, block in table for _, cells in block)]) for name in columns}


def cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


# In files.
PAGE = 40  # rows of a LaTeX table that has room on one
CSV = ("dataset", "network", "noise", "rate", "method", "ours", "std_epochs", "std_seeds", "seeds", "paper", "difference", "verdict")
TEX = (
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"{{{sign}}}" for sign in "[]*"}  # at the beginning of a row they would be options of the one above
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"}
    | {"|": r"\textbar{}", '"': "''", "±": r"$\pm$", "\u2212": "$-$", "\u00d7": r"$\times$", "\u2013": "--", "\u2019": "'"}
    | {sign: f"$^{number}$" for number, sign in enumerate(MARKS, 1)}
)
LATIN = set(map(chr, range(0xC0, 0x100))) - set("ÐÞðþ\u00d7\u00f7")  # letters that every LaTeX knows in every font


def markdown(rows: Sequence[Row], title: str, about: str, short: bool = False, total: int | None = None) -> str:
    columns, table = columns_of(rows), blocks(rows)
    rule = ["---" if name in WORDS else "---:" for name in columns]
    parts = [f"# {plain(title)}"]
    for heading, block in table:
        lines = [columns, rule, *([strong(row, name, plain(cells[name]), "**", "**") for name in columns] for row, cells in block)]
        parts += [f"## {plain(heading)}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(parts + [plain(note) for note in notes(rows, columns, table, about, short, total)]) + "\n"


def latex(rows: Sequence[Row], title: str, about: str, short: bool = False, total: int | None = None) -> str:
    """One table, over pages where it is long. Its notes are in the caption, which goes wherever it goes."""
    columns, table, body = columns_of(rows), blocks(rows), list[str]()
    for heading, block in table:
        body += [r"\midrule", rf"\multicolumn{{{len(columns)}}}{{l}}{{\textit{{{tex(heading)}}}}} \\"]
        for row, cells in block:
            signed = {name: text if name in WORDS else text.replace("-", "\u2212") for name, text in cells.items()}
            body.append(" & ".join(strong(row, name, tex(signed[name]), r"\textbf{", "}") for name in columns) + r" \\")
    head = [r"\toprule", " & ".join(columns) + r" \\"]
    layout = "".join("l" if name in WORDS else "r" for name in columns)
    told = (title, *notes(rows, columns, table, about, short, total))
    sentences = [tex(note[:1].upper() + note[1:].rstrip(".")) + "." for note in told]
    caption = rf"\caption[{{{tex(title)}}}]{{{' '.join(sentences)}}}"
    if len(rows) > PAGE:
        first = [r"% \usepackage{booktabs,longtable}", rf"\begin{{longtable}}{{{layout}}}", rf"{caption} \\", *head, r"\endfirsthead"]
        lines = [*first, *head, r"\midrule", r"\endhead", *body, r"\bottomrule", r"\end{longtable}"]
    else:
        first = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering", caption, rf"\begin{{tabular}}{{{layout}}}"]
        lines = [*first, *head, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """A line a row, for other programs: it has no room for the rules, nor for what is noted below a table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV)
    for row in rows:
        cell = row.cell
        names = [guard(printable(name)) for name in (cell.dataset, cell.network, cell.noise)]
        numbers = [decimal(value) for value in (row.ours, row.std_epochs, row.std_seeds, row.seeds, cell.paper, row.difference)]
        writer.writerow([*names, decimal(cell.rate), guard(printable(cell.way)), *numbers, row.verdict])
    return file.getvalue()


def plain(text: str) -> str:
    """As Markdown that shows the text and nothing else."""
    return re.sub(r"([\\`*_\[\]<>|~&$#])", r"\\\1", printable(text))


def tex(text: str) -> str:
    """As LaTeX that shows the text; what it may have no letter for is a question mark."""
    return "".join(TEX.get(sign, sign if sign.isascii() or sign in LATIN else "?") for sign in printable(text))


def strong(row: Row, column: str, text: str, begin: str, end: str) -> str:
    return f"{begin}{text}{end}" if column == "method" and row.cell.method == OURS else text


def decimal(value: float | None) -> str:
    """Four decimals at most."""
    return "" if value is None else f"{round(value, 4) + 0.0:.4f}".rstrip("0").rstrip(".")
