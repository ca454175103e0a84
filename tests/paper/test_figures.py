"""Figures from records: what the lines show, what is told where there is nothing, and files that stay the same."""

import html
import itertools
import json
import random
import statistics
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace

import numpy as np
import pytest
from matplotlib.cbook import is_math_text
from matplotlib.colors import to_hex
from matplotlib.text import Text

from sprl import chart, store
from sprl.config import Config, edition, make_method
from sprl.errors import InputError, printable
from sprl.paper.cell import Cell
from sprl.paper.figures import AUTHORS, columns_for, draw, figure_of, looks_of, missing, over_seeds
from sprl.paper.recipe import Line, Panel


def cell(method="sprl", rule="last10", epochs=6, optional=False, **fields):
    config = Config(corrupt="symmetric:0.5", method=method, fields=fields, epochs=epochs, network="mlp", batch_size=32, lr=1e-3)
    return Cell("Digits", "mlp", "symmetric", 0.5, method, config, rule, optional=optional)


def record(cell, seed=0, **curves):
    """A run of the cell as the store reads it."""
    curves = curves or {"test_accuracy": [50.0 + seed + t for t in range(cell.config.epochs)]}
    curves = {"epoch": [*range(1, cell.config.epochs + 1)]} | {"test_accuracy": [50.0] * cell.config.epochs} | curves
    config = asdict(replace(cell.config, seed=seed))
    config["fields"] = asdict(make_method(cell.config.method, cell.config.fields, known=lambda: 0.5))
    words = {"data": "d", "fingerprint": "f", "labels": "l", "device": "cpu", "precision": "fp32", "step": "eager", "finished": ""}
    numbers = {"n": 9, "classes": 2, "test": 3, "seconds": 1.0, "seconds_an_epoch": 0.1, "together": 1, "threads": 1}
    last10 = store.mean(curves["test_accuracy"][-store.LAST :])
    rest = {
        "summary": dict.fromkeys(store.SUMMARY) | {"noise": {"labels_sha256": "l"}, "last10": last10},
        "versions": {},
        "weights": None,
        "revision": None,
    }
    of = edition(cell.config.method, config["fields"])
    value = {
        "format": 1,
        "key": store.key_of(config, "f", None),
        "config": config,
        "edition": of,
        "curves": curves,
        **words,
        **numbers,
        **rest,
    }
    return store.parse(json.dumps(value).encode())


def by_epoch(title="a panel", methods=("sprl", "standard"), **more):
    return Panel(title, tuple(Line(method, (cell(method),)) for method in methods), **more)


def sweep(values, title="a sweep"):
    lines = [
        Line(name, tuple(cell(rule=rule, gamma_d=v) for v in values), xs=values) for name, rule in (("Average", "last10"), ("Max", "best"))
    ]
    return Panel(title, tuple(lines), x="gamma_d")


def records_of(*panels, seeds=1):
    cells = {str(cell.config): cell for panel in panels for line in panel.lines for cell in line.cells}
    return [record(cell, seed) for cell in cells.values() for seed in range(seeds)]


def lines_of(axes):
    return {line.get_label(): line for line in axes.lines}


def words_of(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def legend_of(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_picture_for_the_eye_and_one_for_the_web(tmp_path):
    panels = [by_epoch("first & foremost"), by_epoch("<second>")]
    made = draw(panels, records_of(*panels, seeds=2), "the title", "a note", tmp_path / "new" / "fig1.short")
    assert [path.name for path in made] == ["fig1.short.png", "fig1.short.svg"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["fig1.short.png", "fig1.short.svg"]
    assert made[0].read_bytes().startswith(b"\x89PNG")
    root = ET.parse(
        made[1], ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    ).getroot()  # letters are drawn, and named in comments
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    told = {html.unescape(node.text.strip()) for node in root.iter() if node.text}
    assert {"the title", "first & foremost", "<second>", "sprl", "standard", "epoch"} <= told
    assert not [name for name in ("date", "creator") if f"<dc:{name}>" in made[1].read_text()]


def test_the_same_records_give_the_same_bytes(tmp_path):
    panels = [by_epoch(reference=(40.0, 60.0)), sweep((0, 1, 10))]
    records = records_of(*panels, seeds=2)
    one = [path.read_bytes() for path in draw(panels, records, "t", "n", tmp_path / "one")]
    random.Random(0).shuffle(records)
    assert [path.read_bytes() for path in draw(panels, records, "t", "n", tmp_path / "two")] == one
    assert draw(panels, records[1:], "t", "n", tmp_path / "one")[1].read_bytes() != one[1]  # and what was there is replaced


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write to"):
        draw([by_epoch()], [], "t", "n", tmp_path / "file" / "fig1")


def slow(rows, t):
    """Mean and deviation of the values at `t` that there are."""
    values = [row[t] for row in rows if t < len(row) and row[t] is not None]
    return statistics.mean(values) if values else None, statistics.stdev(values) if len(values) > 1 else None


def test_lines_are_the_means_over_seeds_with_their_gaps():
    rng, run = np.random.default_rng(0), cell()
    rows = [[None if rng.random() < 0.3 else float(rng.random()) for _ in range(6)] for _ in range(3)]
    for row in rows:
        row[1] = row[4] = None
    panel = Panel("p", (Line("right labels", (run,), "p_true_right"), Line("wrong labels", (run,), "p_true_wrong")), y="probability")
    records = [record(run, seed, p_true_right=row, p_true_wrong=rows[0]) for seed, row in enumerate(rows)]
    axes = figure_of([panel], records, "t", "n").axes[0]
    lines = lines_of(axes)
    assert list(lines) == ["right labels", "wrong labels"]
    expected = [slow(rows, t) for t in range(6)]
    assert lines["right labels"].get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(lines["right labels"].get_ydata(), [np.nan if mean is None else mean for mean, _ in expected])
    np.testing.assert_array_equal(lines["wrong labels"].get_ydata(), np.array(rows[0], float))
    assert axes.get_ylim() == (-0.02, 1.02)
    edges = np.concatenate([path.vertices for path in axes.collections[0].get_paths()])  # of the band
    for t, (mean, deviation) in enumerate(expected, 1):
        at = sorted(set(edges[edges[:, 0] == t, 1]))
        assert at == pytest.approx([] if deviation is None else [mean - deviation, mean + deviation]), t


def test_means_of_seeds_against_the_slow_way():
    rng = np.random.default_rng(1)
    for S, T in itertools.product((1, 2, 5), (1, 7)):
        values = np.where(rng.random((S, T)) < 0.4, np.nan, 100 * rng.random((S, T)))
        rows = [[None if np.isnan(value) else value for value in row] for row in values]
        expected = np.array([slow(rows, t) for t in range(T)], float)
        np.testing.assert_allclose(np.stack(over_seeds(values), 1), expected, rtol=1e-12)


def test_one_seed_has_no_band_and_runs_may_differ_in_length():
    run = cell(epochs=None)
    panel = Panel("p", (Line("sprl", (run,)),))
    short, long = (
        record(replace(run, config=replace(run.config, epochs=T)), seed, test_accuracy=[50.0 + T] * T) for seed, T in ((0, 2), (1, 4))
    )
    one = figure_of([panel], [long], "t", "n")
    assert not one.axes[0].collections
    assert "n; one seed" in words_of(one)
    both = figure_of([panel], [short, long], "t", "n")
    assert lines_of(both.axes[0])["sprl"].get_ydata().tolist() == [53, 53, 54, 54]
    assert "n; mean and deviation over 2 seeds" in words_of(both)


def test_a_point_between_gaps_is_seen():
    run = cell()
    panel = Panel("p", (Line("sprl", (run,), "precision"),))
    line = lines_of(figure_of([panel], [record(run, precision=[None, 70.0, None, 80.0, 81.0, None])], "t", "n").axes[0])["sprl"]
    assert line.get_marker() == "o"
    assert line.get_markevery() == [1]


def test_a_sweep_shows_the_number_of_each_rule_at_equal_distances():
    panel = sweep((0.0, 1.0, 5.0, 1000.0))
    curves = {value: [60.0 + i, *[50.0 + i] * 10] for i, value in enumerate((0.0, 1.0, 1000.0))}  # 5 was not run
    panel = panel.mapped(lambda run: replace(run, config=replace(run.config, epochs=11)))
    records = [record(run, test_accuracy=curves[v]) for run, v in zip(panel.lines[0].cells, panel.lines[0].xs, strict=True) if v in curves]
    figure = figure_of([panel], records, "t", "n")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "5", "1000"]
    for name, least in (("Average", 50), ("Max", 60)):
        line = lines_of(axes)[name]
        assert line.get_xdata().tolist() == axes.get_xticks().tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(line.get_ydata(), [least, least + 1, np.nan, least + 2])
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 2
    assert "n; one seed; 3 of 4 run" in words_of(figure)
    low, high = axes.get_ylim()
    assert low < 50
    assert high > 62


def test_a_sweep_may_descend_and_has_deviations():
    panel = sweep((100.0, 50.0, 2.0))
    records = [record(run, seed, test_accuracy=[80.0 + 4 * seed] * 6) for run in panel.lines[0].cells[1:] for seed in (0, 1)]
    axes = figure_of([panel], records, "t", "n").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "50", "2"]
    average, largest = axes.lines
    np.testing.assert_array_equal(average.get_ydata(), [np.nan, 82, 82])
    assert all(average.get_xdata() < largest.get_xdata())  # side by side, else one bar hides the other
    bars = [segment for segment in axes.collections[0].get_segments() if len(segment) and np.isfinite(segment).all()]
    np.testing.assert_allclose([bar[:, 1] for bar in bars], [[82 - 8**0.5, 82 + 8**0.5]] * 2)


def test_what_no_record_is_of():
    values = (0.0, 1.0, 5.0)
    panels = [by_epoch(), sweep(values), Panel("more", (Line("decoupling", (cell("decoupling", optional=True),)),))]
    records = [record(cell("standard")), record(cell(gamma_d=1.0))]
    assert [run.config for run in missing(panels, records)] == [cell().config, cell(gamma_d=0.0).config, cell(gamma_d=5.0).config]
    assert missing(panels, records_of(*panels)) == []


def test_a_panel_that_was_not_run_says_so():
    panels = [by_epoch("here"), by_epoch("nowhere", ("decoupling",), reference=(1.0, 2.0)), by_epoch("unknown", y="%")]
    panels[2] = replace(panels[2], lines=(replace(panels[2].lines[0], fact="half_precision"),))
    figure = figure_of(panels, records_of(panels[0]), "t", "")
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [[], ["not run"], ["not recorded"]]
    assert [axes.get_title("left") for axes in figure.axes] == ["here", "nowhere", "unknown"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 0, 0]
    assert legend_of(figure) == ["sprl", "standard"]
    assert "one seed; 2 of 3 run" in words_of(figure)
    assert legend_of(figure_of(panels, [], "t", "")) == []


def test_the_authors_curve_lies_beneath_ours():
    panel = by_epoch(reference=tuple(10.0 * t for t in range(1, 9)))
    figure = figure_of([panel], records_of(panel), "t", "n")
    axes = figure.axes[0]
    authors, *ours = axes.lines
    assert authors.get_label() == AUTHORS
    assert authors.get_ydata().tolist() == list(panel.reference)
    assert to_hex(authors.get_color()) == chart.GREY
    assert all(authors.get_zorder() < line.get_zorder() and authors.get_linewidth() < line.get_linewidth() for line in ours)
    assert axes.get_xlim() == (1, 8)
    assert legend_of(figure) == ["sprl", "standard", AUTHORS]


def test_a_method_looks_the_same_everywhere_and_no_other_label_looks_like_it():
    looks = looks_of(["wrong labels", "SPRL", "co-teaching", "right labels", "SPRL"])
    assert list(looks) == ["wrong labels", "SPRL", "co-teaching", "right labels"]
    assert looks["SPRL"] == chart.style("sprl")
    assert looks["co-teaching"] == chart.style("co-teaching")
    many = looks_of([*chart.METHODS, *map(str, range(24 - len(chart.METHODS)))]).values()
    assert len({(look.colour, look.dashes) for look in many}) == 24
    assert len({look.dashes for look in looks_of(map(str, range(8))).values()}) == len({look.marker for look in list(many)[:8]}) == 8


@pytest.mark.parametrize("epochs", [1, 2, 6])
def test_few_epochs(epochs):
    panel = by_epoch().mapped(lambda run: replace(run, config=replace(run.config, epochs=epochs)))
    figure = figure_of([panel], records_of(panel), "t", "n")
    figure.draw_without_rendering()
    markers = [line.get_marker() for line in figure.axes[0].lines]
    assert len(set(markers)) == (2 if epochs == 1 else 1)
    assert [line.get_marker() for line in figure.legends[0].get_lines()] == markers
    low, high = figure.axes[0].get_ylim()
    assert all(low < y < high for line in figure.axes[0].lines for y in line.get_ydata())


def overlap(one, other):
    return min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_whatever_the_number_of_panels_all_can_be_read(count):
    """Letters are large enough, stay on the page and off each other."""
    methods = ("sprl", *list(chart.METHODS)[1:8])
    panels = [by_epoch(f"CIFAR-100, resnet18, symmetric {i:04d}", methods, reference=(50.0, 51.0)) for i in range(count)]
    figure = figure_of(panels, records_of(panels[0]), "A title of a figure " * (2 + 4 * (count < 3)), "a note that is long " * 12)
    figure.draw_without_rendering()
    assert len(figure.axes) == count
    assert legend_of(figure) == [*methods, AUTHORS]
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text) if text.get_text())
    things = [*figure.texts, *(child for axes in figure.axes for child in (*axes.get_children(), axes.xaxis.label, axes.yaxis.label))]
    words = [thing for thing in things if isinstance(thing, Text) and thing.get_text() not in ("", "not run")]
    boxes = [thing.get_window_extent() for thing in (*words, *figure.legends, *figure.axes)]
    assert len(boxes) > 2 * count + 3
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    page = figure.bbox
    assert all(box.x0 >= -1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1 for box in boxes)
    places = {tuple(np.round(axes.get_position().bounds[:2], 3)) for axes in figure.axes}
    assert len({x for x, _ in places}) == columns_for(count)


def test_labels_that_panels_do_not_share_stand_in_each():
    panels = [by_epoch("one", ("sprl",)), by_epoch("two", ("standard",)), by_epoch("three", ("decoupling",))]
    figure = figure_of(panels, records_of(*panels[:2]), "t", "n")
    assert not figure.legends
    told = [axes.get_legend() for axes in figure.axes]
    assert [legend and [text.get_text() for text in legend.get_texts()] for legend in told] == [["sprl"], ["standard"], None]


@pytest.mark.parametrize("name", ["$x_{", r"\$a$ \frac{$", "<script>&amp;--></svg>", "%s\x00\x1b[31m\nb\u202e\ud800", ""])
def test_names_are_text_and_nothing_else(name, tmp_path):
    run = cell()
    panels = [Panel(name, (Line(name + "1", (run,)), Line("2" + name, (run,))), x=name, y=name)]
    _, vectors = draw(panels, [record(run)], name, name, tmp_path / "fig")
    assert {node.tag.rpartition("}")[2] for node in ET.parse(vectors).getroot().iter()}.isdisjoint({"script", "text", "b"})
    figure = figure_of(panels, [record(run)], name, name)
    found = [text for text in words_of(figure) if text]
    assert not [text for text in found if is_math_text(text) or not text.replace("\n", "").isprintable()]
    assert legend_of(figure) == [printable(label).replace("$", r"\$") for label in (name + "1", "2" + name)]
    assert figure.axes[0].get_title("left") == printable(name).replace("$", r"\$")
