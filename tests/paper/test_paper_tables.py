"""A paper's table of records: which runs count, the numbers and verdicts, and the four formats."""

import csv
import io
import re
import time
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from sprl import store
from sprl.cells import guard, unguard
from sprl.config import Config, edition, make_method
from sprl.errors import printable
from sprl.paper.cell import RULES, Cell, runs_of
from sprl.paper.recipes import RECIPES
from sprl.paper.tables import COLUMNS, CSV, Row, csv_text, latex, markdown, rows_of, spread, terminal, tex
from sprl.run import prepare

SPRL = Config(data="cifar10", corrupt="symmetric:0.5", method="sprl", fields={"T1": 20}, network="resnet18", epochs=12, lr=1e-3)
PLAIN = replace(SPRL, method="standard", fields={})


def cell_of(config=SPRL, paper=88.25, **changes):
    noise, _, rate = (config.corrupt or "clean").partition(":")
    words = {"dataset": "CIFAR-10", "network": "resnet18", "noise": noise, "rate": float(rate) if rate else None, "method": config.method}
    return Cell(**{**words, "config": config, "paper": paper, "paper_std": None if paper is None else 0.32, **changes})


def record_of(config=SPRL, accuracy=(80.0,), labeller=None, device="cpu", finished="2026-01-01T00:00:00+00:00", **changes):
    """Of a run that had these accuracies at last: as the store takes it."""
    config = replace(config, batch_size=128, precision="fp32", **changes)
    config = replace(config, fields=asdict(make_method(config.method, config.fields, known=lambda: 0.5))).to_json()
    T = config["epochs"]
    curves = {"epoch": [*range(1, T + 1)], "test_accuracy": ([10.0] * T + [*accuracy])[-T:] if accuracy else [None] * T}
    noise = {"kind": "symmetric", "labels_sha256": "l", "labeller": labeller}
    return store.Record(
        key=store.key_of(config, "f", config["weights"]),
        config=config,
        edition=edition(config["method"], config["fields"]),
        weights=config["weights"],
        data="d",
        fingerprint="f",
        labels="l",
        n=100,
        classes=10,
        test=50 if accuracy else 0,
        curves=curves,
        summary=dict.fromkeys(store.SUMMARY) | {"noise": noise, "last10": store.mean(store.known(curves["test_accuracy"][-store.LAST :]))},
        seconds=1.0,
        seconds_an_epoch=1 / T,
        together=1,
        device=device,
        threads=1,
        precision="fp32",
        step="eager",
        versions={},
        revision=None,
        finished=finished,
    )


def row_of(ours, paper, records=(None,)):
    return Row(cell_of(paper=paper), records, ours, None, None)


def spoken(lines):
    """As a terminal that nobody watches gets them."""
    console = Console(file=io.StringIO(), width=500, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)
    return console.file.getvalue()


def cells_in(markdown_line):
    return [part.strip() for part in re.split(r"(?<!\\)(?:\\\\)*\|", markdown_line)[1:-1]]


# Which runs count.


def test_the_records_here_are_such_as_the_store_takes(tmp_path):
    for record in (record_of(), record_of(accuracy=()), record_of(PLAIN, labeller={"rows": 4})):
        store.write(tmp_path, record)
        assert store.read(tmp_path, record.key) == record


def test_a_cell_takes_its_own_runs_and_no_others():
    mine = [record_of(accuracy=[80.0 + seed] * 10, seed=seed) for seed in (2, 0)]
    others = [{"lr": 0.1}, {"network": "convnet"}, {"corrupt": "pair:0.5"}, {"fields": {"T1": 21}}, {"epochs": 13}, {"data": "mnist"}]
    strangers = [record_of(PLAIN), *(record_of(**other) for other in others)]
    [row] = rows_of([cell_of()], [*strangers, *mine])
    assert row.records == (mine[1], mine[0])
    assert (row.ours, row.seeds, row.verdict) == (81.0, 2, "off by 7.2")
    [row] = rows_of([cell_of()], strangers)
    assert row == (cell_of(), (), None, None, None)
    assert (row.verdict, row.difference, row.seeds) == ("not run", None, 0)


def test_of_two_records_with_one_seed_the_latest_counts():
    early, late = (record_of(accuracy=[value] * 10, finished=f"2026-01-0{day}T00:00:00+00:00") for value, day in ((70.0, 1), (90.0, 2)))
    for records in ([early, late], [late, early]):
        [row] = rows_of([cell_of()], records)
        assert (row.records, row.ours, row.std_seeds) == ((late,), 90.0, None)


def test_cells_without_records_are_shown_unless_they_are_optional():
    cells = [
        cell_of(),
        cell_of(method="sprl-published", optional=True),
        cell_of(PLAIN, 45.37),
        cell_of(PLAIN, method="other", optional=True),
    ]
    found = rows_of(cells, [record_of(PLAIN)])
    assert [row.cell.method for row in found] == ["sprl", "standard", "other"]


def test_rows_are_together_by_data_network_and_noise_whatever_ran():
    kinds = [(dataset, corrupt) for dataset in ("A", "B") for corrupt in ("symmetric:0.5", "pair:0.45")]
    cells = [cell_of(replace(config, corrupt=corrupt), dataset=dataset) for config in (PLAIN, SPRL) for dataset, corrupt in kinds]
    expected = [(dataset, corrupt.partition(":")[0], method) for dataset, corrupt in kinds for method in ("standard", "sprl")]
    assert [(row.cell.dataset, row.cell.noise, row.cell.method) for row in rows_of(cells, [])] == expected
    some = [row for row in rows_of(cells, [record_of(PLAIN, corrupt="pair:0.45"), record_of()]) if row.records]
    assert [(row.cell.dataset, row.cell.noise) for row in some] == [("A", "symmetric"), ("A", "pair"), ("B", "symmetric"), ("B", "pair")]


def test_a_whole_table_of_many_records_takes_no_time():
    noises = [f"{kind}:{rate}" for kind in ("symmetric", "pair") for rate in (0.1, 0.2, 0.3, 0.45)]
    configs = [
        replace(SPRL, data=data, network=network, corrupt=corrupt, fields={"T1": T1})
        for data in ("mnist", "cifar10", "cifar100", "mini-imagenet")
        for network in ("resnet18", "convnet")
        for corrupt in noises
        for T1 in (2, 3, 4, 5)
    ]
    records = [record_of(config, [50.0] * 10, seed=seed) for config in configs for seed in (0, 1)]
    began = time.perf_counter()
    rows = rows_of([cell_of(config) for config in configs], records)
    assert time.perf_counter() - began < 1
    assert [row.seeds for row in rows] == [2] * 256


# Numbers.

accuracies = st.lists(st.floats(0, 100), min_size=1, max_size=12)


@given(st.lists(accuracies, min_size=1, max_size=4))
def test_means_and_deviations_are_those_of_numpy(runs):
    records = [record_of(accuracy=run, seed=seed) for seed, run in enumerate(runs)]
    curves = [([10.0] * 12 + run)[-12:] for run in runs]
    [last, best] = rows_of([cell_of(), cell_of(rule="best")], records)
    means = [np.mean(curve[-10:]) for curve in curves]
    assert last.ours == pytest.approx(np.mean(means))
    assert last.std_epochs == pytest.approx(np.mean([np.std(curve[-10:], ddof=1) for curve in curves]), abs=1e-9)
    assert best.ours == pytest.approx(np.mean([max(curve) for curve in curves]))
    assert best.std_epochs is None
    for row, numbers in ((last, means), (best, [max(curve) for curve in curves])):
        assert row.std_seeds == (None if len(runs) == 1 else pytest.approx(np.std(numbers, ddof=1), abs=1e-9))


def test_deviations_are_made_as_the_paper_makes_them():
    """14 of the authors' 16 curves give the deviation that table II states, by that of a sample; by the other one 8 do."""
    near = {0: 0, 1: 0}
    for panel in RECIPES["authors"].panels():
        [cell], last = panel.lines[0].cells, panel.reference[-10:]
        assert spread(last) == pytest.approx(np.std(last, ddof=1))
        for ddof in near:
            near[ddof] += bool(abs(np.std(last, ddof=ddof) - cell.paper_std) <= 0.005)
    assert near == {0: 8, 1: 14}
    assert (spread([80.0]), spread([])) == (None, None)


@pytest.mark.parametrize("labeller", [None, 7, [], {}, {"training_accuracy": None, "test_accuracy": "80"}, {"test_accuracy": float("nan")}])
def test_a_run_that_has_no_number_by_the_rule(labeller):
    record = record_of(accuracy=(), labeller=labeller)
    for rule in RULES:
        [row] = rows_of([cell_of(rule=rule)], [record])
        assert (row.ours, row.std_epochs, row.difference, row.verdict) == (None, None, None, "no number in the record")
        assert "1 run:" in markdown([row], "t", "")


def test_a_real_run_whose_labels_a_network_gave(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    config = Config(corrupt="generated:5", method="standard", network="mlp:width=8", epochs=2, batch_size=256, lr=0.01)
    run = prepare(config)
    list(run)
    store.write(tmp_path, store.record_of(run))
    rows = rows_of([cell_of(config, None, rate=None, rule=rule) for rule in RULES], store.all(tmp_path))
    accuracy = [row["test_accuracy"] for row in run.rows]
    found = [np.mean(accuracy), max(accuracy), run.labeller.training_accuracy, run.labeller.test_accuracy]
    assert [row.ours for row in rows] == pytest.approx(found)
    assert {row.verdict for row in rows} == {"no number in the paper"}
    text = markdown(rows, "t", "", short=True)
    for mark, rule, number in zip("¹²³⁴", RULES, found, strict=True):
        assert f"{mark}{RULES[rule]}" in text
        assert re.search(rf"\| {number:.2f}(±\d+\.\d\d)?{mark} \|", text)
    assert "1 run: 2 epochs on cpu, fp32" in text


# Verdicts.


@given(st.floats(0, 100), st.one_of(st.none(), st.floats(0, 100)))
@example(56.54, 57.54)
@example(88.25, 88.25)
def test_the_verdict_follows_from_the_difference(ours, paper):
    row = row_of(ours, paper)
    if paper is None:
        assert (row.difference, row.verdict) == (None, "no number in the paper")
        return
    assert row.difference == pytest.approx(ours - paper, abs=1e-9)
    expected = "reproduced" if -1 <= row.difference <= 1 else "better" if row.difference > 1 else f"off by {abs(row.difference):.1f}"
    assert row.verdict == expected
    assert row_of(ours, paper, ()).verdict == "not run"


def test_exactly_a_point_away_is_reproduced_though_binary_numbers_miss_it():
    papers = [hundredths / 100 for hundredths in range(100, 9900)]
    assert any(abs(paper - 1 - paper) > 1 or abs(round(paper - 1, 2) - paper) > 1 for paper in papers)
    for paper in papers:
        assert row_of(round(paper - 1, 2), paper).verdict == row_of(round(paper + 1, 2), paper).verdict == "reproduced"
        assert row_of(round(paper + 1.001, 3), paper).verdict == "better"
        assert row_of(round(paper - 1.001, 3), paper).verdict == "off by 1.0"


# Formats.


def a_table(seeds=1):
    cells = [
        cell_of(PLAIN, 45.37),
        cell_of(),
        cell_of(replace(SPRL, corrupt="pair:0.45"), 91.89),
        cell_of(replace(SPRL, corrupt=None), None),
    ]
    runs = [(PLAIN, 47.3), (SPRL, 88.0), (replace(SPRL, corrupt=None), 94.1)]
    wave = [0.1, -0.1] * 5
    records = [record_of(c, [v + seed / 10 + w for w in wave], seed=seed, device="NVIDIA H200") for c, v in runs for seed in range(seeds)]
    return rows_of(cells, records)


@pytest.mark.parametrize("seeds", [1, 3])
def test_all_formats_have_every_number_the_rule_the_counts_and_what_it_ran_on(seeds):
    counts = "3 of 4 run: 1 reproduced (at most 1 point away), 1 better, 0 off, 1 with nothing to compare"
    rows = a_table(seeds)
    numbers = [f"{row.ours:.2f}±{row.std_epochs:.2f}" for row in rows if row.records] + ["45.37±0.32", "91.89±0.32"]
    numbers += [f"{row.difference:+.2f}" for row in rows if row.difference is not None] + [row.verdict for row in rows]
    numbers += [f"{seeds} ±0.10"] * (seeds > 1)
    said = [counts, RULES["last10"], f"{3 * seeds} runs: 12 epochs on NVIDIA H200, fp32", "What the paper leaves open", "Table Z"]
    for short in (False, True):
        words = ("Table Z", "What the paper leaves open", short)
        texts = [spoken(terminal(rows, *words)), markdown(rows, *words), latex(rows, *words)]
        texts[2] = texts[2].replace(r"$\pm$", "±").replace("$-$", "-")
        for text in (" ".join(text.split()) for text in texts):
            assert [number for number in [*numbers, *said] if number not in text] == []
            assert ("is not the paper's setting" in text) == short
            assert ("seeds: how many" in text) == (seeds > 1)


def test_csv_read_back_is_the_rows():
    rows = a_table(3)
    text = csv_text(rows)
    assert text.splitlines()[0] == "dataset,network,noise,rate,method,ours,std_epochs,std_seeds,seeds,paper,difference,verdict"
    back = list(csv.DictReader(io.StringIO(text)))
    assert len(back) == len(rows)
    for line, row in zip(back, rows, strict=True):
        numbers = [row.cell.rate, row.ours, row.std_epochs, row.std_seeds, row.seeds, row.cell.paper, row.difference]
        for name, number in zip(["rate", *CSV[5:11]], numbers, strict=True):
            assert re.fullmatch(r"(-?\d+(\.\d{1,4})?)?", line[name])
            assert (float(line[name]) if line[name] else None) == (None if number is None else pytest.approx(number, abs=5.1e-5))
        names = [row.cell.dataset, row.cell.network, row.cell.noise, row.cell.method, row.verdict]
        assert [line[name] for name in ("dataset", "network", "noise", "method", "verdict")] == names


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_terminal_has_what_there_is_room_for(seeds):
    rows, kept = a_table(seeds), []
    for width in (None, 120, *range(100, 39, -1)):
        lines = terminal(rows, "Table Z", "About it. " * 30, width=width)
        assert max(cell_len(line.plain) for line in lines) <= (width or 100)
        text = " ".join(line.plain for line in lines)
        assert ("± deviation over the last ten epochs" in text) == bool(re.search(r"\d±", text))
        kept.append((*lines[2].plain.split(), *["±"] * bool(re.search(r"\d±", text))))
        assert ("seeds: how many" in text) == ("seeds" in kept[-1])
    everything = [name for name in COLUMNS if name != "seeds" or seeds > 1]
    assert kept[:2] == [(*everything, "±")] * 2
    assert {names for names in kept if "±" in names} == {(*everything, "±")}  # these go first
    assert all(set(less) <= set(more) for more, less in pairwise(kept))
    assert kept[-1] == ("noise", "method", "ours", "paper")


def test_the_paper_s_largest_table_fits_80_columns_with_its_deviations():
    cell = cell_of(method="sprl-published", noise="symmetric", rate=0.25)
    lines = terminal(rows_of([cell], [record_of(accuracy=[70.0] * 10)]), "t", "", width=80)
    assert [line.plain.split() for line in lines[2:5:2]] == [
        ["noise", "method", "ours", "paper", "difference", "verdict"],
        ["symmetric", "0.25", "sprl-published", "70.00±0.00", "88.25±0.32", "-18.25", "off", "by", "18.2"],
    ]


def test_colours_and_what_is_left_blank():
    rows = a_table()
    lines = {line.plain.split()[0]: line for line in terminal(rows, "t", "") if line.plain}
    styles = {name: {str(span.style) for span in line.spans} for name, line in lines.items()}
    assert {"green", "bold"} <= styles["sprl"]
    assert "red" not in styles["sprl"]
    assert (str(lines["pair"].style), str(lines["sprl"].style)) == ("dim", "")
    assert lines["sprl"].plain.startswith("    ")  # its noise is that of the line above
    [off] = rows_of([cell_of(paper=99.0)], [record_of()])
    assert "red" in {str(span.style) for line in terminal([off], "t", "") for span in line.spans}


def test_a_long_table_goes_over_pages():
    rows = a_table()
    assert r"\begin{table}" in latex(rows, "t", "")
    long = latex(rows * 11, "t", "")
    assert (
        long.count(r"\begin{longtable}") == long.count(r"\end{longtable}") == long.count(r"\endfirsthead") == long.count(r"\endhead") == 1
    )
    assert r"\begin{table}" not in long


def test_nothing_to_show():
    for text in (spoken(terminal([], "t", "")), markdown([], "t", ""), latex([], "t", "")):
        assert "none of it was run" in text.lower()
    assert csv_text([]) == ",".join(CSV) + "\n"


# Other people's text.

HOSTILE = [
    "[red]mine[/red] [link=x]y[/]",
    "a|b\\|c\nd",
    "=HYPERLINK(1)",
    "@x",
    "\x1b[31mred\x07\r\u202e",
    r"\input{x} 5% $a_1^2$ #&~{}",
    "[2cm]*",
    "<script>`*_x_*`</script>",
    "猫" * 40,
    'a,"b"',
    "",
]
SAFE = re.compile(
    r"""(?:[^\\&%$#_{}~^<>|"\[\]*]|\\[&%$#_{}]|\\text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\{[\[\]*]\}|\$(?:\\pm|-|\\times|\^\d)\$)*"""
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_do_nothing(name):
    cell = cell_of(dataset=name, network=name, noise=name, rate=None, method=name)
    rows = rows_of([cell, replace(cell, method="sprl")], [record_of(device=name)])
    shown, words = printable(name), (name, name, True)

    lines = terminal(rows, *words, width=80)
    text = spoken(terminal(rows, *words))
    assert all(sign.isprintable() for sign in text.replace("\n", ""))
    assert shown[:14] in text
    assert max(cell_len(line.plain) for line in lines) <= 80

    made = markdown(rows, *words).splitlines()
    table = [line for line in made if line.startswith("|")]
    assert [len(cells_in(line)) for line in table] == [6] * 4
    assert cells_in(table[2])[1] == re.sub(r"([\\`*_\[\]<>|~&$#])", r"\\\1", shown)
    assert all(sign.isprintable() for line in made for sign in line)

    made = latex(rows, *words).splitlines()
    body = [line for line in made if line.endswith(r"\\")][1:]
    assert len(body) == 3
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body] == [0, 5, 5]
    assert body[1].startswith(tex(name) + " & " + tex(name) + " & ")
    for line in made:
        depth = 0
        for sign in re.sub(r"\\[{}\\]", "", line):
            depth += (sign == "{") - (sign == "}")
            assert depth >= 0
        assert depth == 0

    back = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert [unguard(back[0][column]) for column in ("dataset", "network", "noise", "method")] == [shown] * 4
    assert not [cell for line in back for cell in line.values() if guard(unguard(cell)) != cell]


@given(st.text())
def test_latex_of_any_text_has_nothing_in_it_that_acts(text):
    assert SAFE.fullmatch(tex(text))
    tex(text).encode("latin-1")


def test_runs_of_and_rows_of_agree():
    records = [record_of(config, seed=seed) for config in (SPRL, PLAIN, replace(SPRL, corrupt=None)) for seed in (1, 0)]
    cells = [cell_of(config) for config in (SPRL, PLAIN, replace(SPRL, corrupt=None), replace(PLAIN, corrupt=None))]
    assert [row.records for row in rows_of(cells, records)] == [tuple(runs_of(row.cell, records)) for row in rows_of(cells, [])]
