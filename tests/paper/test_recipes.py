"""The paper's tables and figures as runs: every number has its cell, every cell the setting that the paper states."""

import csv
from collections import Counter
from dataclasses import asdict, fields
from importlib.resources import files

import pytest

from sprl.config import default_cutout, make_method, needs_rate
from sprl.errors import InputError
from sprl.methods import METHODS, SPRL
from sprl.noise import parse
from sprl.paper import numbers, runs
from sprl.paper.cell import RULES, meaning, only, unique
from sprl.paper.recipes import RECIPES

TABLES = {"1": "table1", "2": "table2", "3": "table3", "4": "table4", "5": "table5", "A5": "tableA5"}
METRICS = {"best": "best", "last10": "last10", "last10-noaug": "last10"}  # by the name of a rule
LABELLERS = {"partially-labelled-train": "labeller-training", "partially-labelled-test": "labeller-test"}
FOUR = {("symmetric", 0.2), ("symmetric", 0.5), ("symmetric", 0.8), ("pair", 0.45)}


def lines(name):
    with (files("sprl.paper") / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def place(line):
    return line["dataset"], line["network"], line["noise"], float(line["rate"]) if line["rate"] else None


def place_of(cell):
    return cell.dataset, cell.network, cell.noise, cell.rate


def is_sprl(cell):
    return issubclass(METHODS[cell.config.method], SPRL)


def needed(name):
    return [cell for cell in RECIPES[name].cells() if not cell.optional]


EVERY = [pytest.param(recipe, id=name) for name, recipe in RECIPES.items()]


# The tables.


def test_every_number_of_the_paper_stands_in_one_cell_with_its_rule():
    expected = Counter()
    for line in lines("tables.csv"):
        rule = LABELLERS[line["noise"]] if line["table"] == "3" else METRICS[line["metric"]]
        std = float(line["std"]) if line["std"] else None
        expected[TABLES[line["table"]], place(line), line["method"], rule, float(line["accuracy"]), std] += 1
    assert expected.total() == 400
    found = Counter(
        (name, place_of(cell), cell.method, cell.rule, cell.paper, cell.paper_std) for name in TABLES.values() for cell in needed(name)
    )
    assert found == expected
    assert max(found.values()) == 1
    assert {cell.rule for name in TABLES.values() for cell in needed(name)} == set(RULES)


def test_table_ii_is_256_runs_and_sprl_as_published_where_it_is_asked_for():
    cells = RECIPES["table2"].cells()
    assert len(needed("table2")) == len(unique(needed("table2"))) == 256
    optional = [cell for cell in cells if cell.optional]
    assert {(cell.method, cell.config.method) for cell in optional} == {("sprl-published", "sprl")}
    assert len(unique(cells)) == 256 + len(optional) == 288
    assert {cell.config.network for cell in optional} == {"resnet18", "convnet"}  # the ResNet18 of the paper's table A1
    assert {cell.config.network for cell in needed("table2")} == {"resnet18:stem=released", "convnet"}


def test_the_settings_are_those_of_tables_a3_and_a4():
    settings = {place(line): (int(line["T1"]), float(line["gamma_d"])) for line in lines("params.csv")}
    cells = [cell for name in ("table2", "table4") for cell in RECIPES[name].cells() if is_sprl(cell)]
    assert len(cells) == len(settings) + 32  # those as published
    for cell in cells:
        assert (cell.config.fields["T1"], cell.config.fields["gamma_d"]) == settings[place_of(cell)]
    without = [cell for cell in needed("tableA5") if is_sprl(cell)]
    assert all((cell.config.fields["T1"], cell.config.fields["gamma_d"]) == settings[place_of(cell)] for cell in without)
    clean = [cell for cell in needed("table1") if is_sprl(cell)]
    assert len(clean) == 8
    for cell in clean:
        assert (cell.config.fields["T1"], cell.config.fields["gamma_d"]) == settings[cell.dataset, cell.network, "symmetric", 0.2]


def test_the_readings_are_those_of_the_method():
    for name in TABLES.values():
        for cell in RECIPES[name].cells():
            if is_sprl(cell):
                tuned = {key: cell.config.fields[key] for key in ("T1", "gamma_d")}
                made = SPRL.as_published(**tuned) if cell.optional else SPRL.as_released(**tuned)
                assert make_method("sprl", cell.config.fields) == made


def test_the_schedule_is_the_codes_where_the_reading_is():
    for name, recipe in RECIPES.items():
        for cell in [*recipe.cells(), *recipe.cells(short=True)]:
            released = cell.config.fields.get("growth") == "released"
            assert cell.config.schedule == ("released" if released else "published"), name
            assert released <= is_sprl(cell)


def test_resnet18_on_mnist_alone_learns_slowly():
    for name, recipe in RECIPES.items():
        for cell in recipe.cells():
            slow = (cell.dataset, cell.network) == ("MNIST", "resnet18")
            assert cell.config.lr == (1e-4 if slow else 1e-3), name
            assert (cell.config.batch_size, cell.config.epochs) == (128, 300 if name == "fig4" else 200)


def test_what_is_told_where_nobody_damages_labels():
    for name in ("table1", "table5"):
        cells = needed(name)
        asking = [cell for cell in cells if needs_rate(METHODS[cell.method])]
        assert asking
        for cell in cells:
            assert cell.config.corrupt is None
            told = 0.0 if name == "table1" else {"Food101": 0.2, "Clothing1M": 0.38}[cell.dataset]
            assert cell.config.fields.get("noise_rate") == (told if cell in asking else None)
    for name in ("table2", "table4", "tableA5"):
        assert {cell.config.fields.get("noise_rate") for cell in RECIPES[name].cells()} == {None}  # whoever damages them tells


def test_no_augmentation_in_table_a5_alone():
    assert {cell.config.augment for cell in RECIPES["tableA5"].cells()} == {False}
    assert {cell.config.augment for name, recipe in RECIPES.items() if name != "tableA5" for cell in recipe.cells()} == {None}


def test_labels_of_a_network_in_tables_iii_and_iv():
    for name in ("table3", "table4"):
        assert {(c.dataset, c.config.corrupt) for c in needed(name)} == {("CIFAR-10", "generated:400"), ("CIFAR-100", "generated:100")}
    assert len(unique(needed("table3") + needed("table4"))) == 32  # table III is told by runs of table IV


def test_the_defaults_are_told_nothing():
    for cell in RECIPES["defaults"].cells():
        assert (cell.config.fields, cell.config.noise_rate, cell.config.network) == ({}, None, "resnet18")
        assert (cell.paper is not None) == (cell.config.labels is None)
        assert (cell.config.labels is None) != (cell.config.corrupt is None)
        assert cell.config.cutout == default_cutout("resnet18", (3, 32, 32))


def test_nothing_is_hidden_in_the_papers_runs():
    assert {cell.config.cutout for name, recipe in RECIPES.items() if name != "defaults" for cell in recipe.cells()} == {0}


# The figures.

GAMMAS = {"fig6": (0, 1, 5, 10, 50, 100, 300, 500, 1000), "fig7": (0, 1, 3, 5, 10, 30, 50, 100, 300)}
SWEEPS = {  # data set, field and its values, noises, the other settings
    "fig6": [("MNIST", "gamma_d", GAMMAS["fig6"], FOUR, {"T1": 15, "K": 10})],
    "fig7": [("CIFAR-100", "gamma_d", GAMMAS["fig7"], FOUR, {"T1": 40, "K": 10})],
    "fig8": [
        ("MNIST", "K", (100, 50, 20, 10, 5, 2), {("symmetric", 0.5)}, {"T1": 15, "gamma_d": 300}),
        ("CIFAR-100", "K", (100, 50, 20, 10, 5, 2), {("symmetric", 0.5)}, {"T1": 40, "gamma_d": 5}),
    ],
    "fig9": [
        ("MNIST", "T1", (5, 10, 15, 20, 30, 40, 60, 80, 100), {("symmetric", 0.5)}, {"gamma_d": 300, "K": 10}),
        ("CIFAR-100", "T1", (5, 10, 15, 20, 30, 40, 60, 80, 100), {("symmetric", 0.5)}, {"gamma_d": 5, "K": 10}),
    ],
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_has_the_values_of_its_figure(name):
    panels = RECIPES[name].panels()
    assert len(panels) == sum(len(noises) for *_, noises, _ in SWEEPS[name])
    for dataset, field, values, noises, others in SWEEPS[name]:
        its = [panel for panel in panels if panel.lines[0].cells[0].dataset == dataset]
        assert {(panel.lines[0].cells[0].noise, panel.lines[0].cells[0].rate) for panel in its} == noises
        for panel in its:
            assert panel.x == field
            rules = {"Average": "last10", "Max": "best"} if field == "gamma_d" else {"Average": "last10"}  # as the paper draws them
            assert [line.label for line in panel.lines] == list(rules)
            for line, rule in zip(panel.lines, rules.values(), strict=True):
                assert line.xs == values
                assert {(c.dataset, c.network, c.config.network, c.rule) for c in line.cells} == {(dataset, "convnet", "convnet", rule)}
                assert len({(c.noise, c.rate, c.config.corrupt) for c in line.cells}) == 1
                made = [asdict(make_method("sprl", c.config.fields)) for c in line.cells]
                assert tuple(method[field] for method in made) == values
                assert all(method[key] == value for method in made for key, value in others.items())
    assert {cell.paper for cell in RECIPES[name].cells()} == {None}


@pytest.mark.parametrize("short", [False, True])
def test_every_run_has_a_name_of_its_own(short):
    for name, recipe in RECIPES.items():
        runs = unique(recipe.cells(short))
        assert len({cell.name for cell in runs}) == len(runs), name


def test_a_run_of_a_sweep_is_asked_for_by_its_value():
    found = only(RECIPES["fig6"].cells(), "gamma_d=300 symmetric:0.5")
    assert {cell.config.fields["gamma_d"] for cell in found} == {300}
    assert {cell.name for cell in found} == {"MNIST convnet symmetric 0.5 sprl gamma_d=300"}
    assert len(unique(found)) == 1
    assert {cell.config.fields["T1"] for cell in only(RECIPES["fig9"].cells(), "T1=5,t1=100")} == {5, 100}


def test_sweeps_share_the_runs_of_table_ii():
    runs = [meaning(cell.config) for cell in RECIPES["table2"].cells()]
    for name, shared in (("fig6", 4), ("fig7", 4), ("fig8", 2), ("fig9", 2), ("fig10", 6)):
        both = [cell for cell in unique(RECIPES[name].cells()) if meaning(cell.config) in runs]
        assert len(both) == shared, name


def test_figure_4_is_a_thousand_rows_and_then_resistance():
    cells = RECIPES["fig4"].cells()
    assert [cell.config.data for cell in cells] == ["mnist", "cifar10"]
    for cell in cells:
        assert (cell.config.method, cell.config.rows, cell.config.corrupt) == ("resistance", 1000, None)
        assert (cell.config.fields, cell.config.epochs) == ({"T1": 100}, 300)  # 100, then 200


def test_figure_11_compares_three_losses_within_sprl():
    cells = RECIPES["fig11"].cells()
    assert [cell.method for cell in cells] == ["sprl", "distillation", "label-smoothing"] * 2
    assert {(c.network, c.config.corrupt, c.config.fields["T1"], c.config.fields["gamma_d"]) for c in cells} == {
        ("resnet18", "symmetric:0.5", 20, 10)
    }


def test_each_curve_of_the_authors_is_used_once():
    panels = RECIPES["authors"].panels()
    curves = numbers.authors()
    assert len(panels) == len(curves) == 16
    used = []
    for panel in panels:
        [line] = panel.lines
        [cell] = line.cells
        used.append(f"{cell.config.data}/{cell.network}/{cell.noise}-{cell.rate:g}")
        assert panel.reference == curves[used[-1]]
        assert len(panel.reference) == cell.config.epochs == 200
        last10 = sum(panel.reference[-10:]) / 10
        assert abs(last10 - cell.paper) < 0.02, used[-1]  # table II is made of them
    assert sorted(used) == sorted(curves)


def test_figures_a1_to_a4_are_the_runs_of_table_ii():
    runs = [cell for name in ("figA1", "figA2", "figA3", "figA4") for cell in RECIPES[name].cells()]
    assert sorted(map(repr, map(place_of, runs))) == sorted(map(repr, map(place_of, needed("table2"))))
    assert len(unique([*needed("table2"), *runs])) == 256


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("CIFAR10", "resnet18", "pair", 0.45, "sprl"), "unknown data set of the paper 'CIFAR10'; did you mean 'CIFAR-10'?"),
        (("CIFAR-10", "resnet", "pair", 0.45, "sprl"), "unknown network of the paper 'resnet'; did you mean 'resnet18'?"),
        (("CIFAR-10", "resnet18", "pair", 0.45, "sprll"), "unknown method 'sprll'; did you mean 'sprl'?"),
        (
            ("CIFAR-10", "resnet18", "pair", 0.3, "sprl"),
            "tables A3 and A4 have no T1 and gamma_d for CIFAR-10 resnet18 pair 0.3: give setting=Setting(T1, gamma_d)",
        ),
    ],
)
def test_a_cell_that_the_paper_does_not_have_is_refused(words, message):
    with pytest.raises(InputError) as refused:
        runs.cell(*words)
    assert str(refused.value) == message
    if "setting" in message:
        assert runs.cell(*words, setting=numbers.Setting(20, 10.0)).config.fields["T1"] == 20


# All of them.


@pytest.mark.parametrize("recipe", EVERY)
def test_every_cell_can_be_run_and_is_told_of(recipe):
    assert recipe.about.endswith(".")
    assert recipe.title
    cells = recipe.cells()
    assert cells
    for cell in cells:
        make_method(cell.config.method, cell.config.fields, cell.config.noise_rate, known=lambda: 0.3)
        if cell.config.corrupt is not None:
            parse(cell.config.corrupt)
    if recipe.is_figure:
        known = {"test_accuracy", "loss", "precision", "p_true_right", "p_true_wrong", "half_precision"}
        assert all(line.fact in known and len(line.cells) == max(1, len(line.xs)) for panel in recipe.panels() for line in panel.lines)


@pytest.mark.parametrize("recipe", EVERY)
def test_the_short_form_is_a_few_runs_on_built_in_data(recipe):
    cells = recipe.cells(short=True)
    assert 1 <= len(unique(cells)) <= 8
    for cell in cells:
        config = cell.config
        assert (config.data, config.network, cell.dataset, cell.network) == ("digits", "mlp", "digits", "mlp")
        assert 1 <= config.epochs <= 6
        assert (cell.paper, cell.paper_std, config.rows, config.labels) == (None, None, None, None)
        method = make_method(config.method, config.fields, known=lambda: 0.3)
        assert getattr(method, "T1", 1) == "auto" or 1 <= getattr(method, "T1", 1) < config.epochs
        assert {f.name for f in fields(method)} >= set(config.fields)
    if recipe.is_figure:
        assert {panel.reference for panel in recipe.panels(short=True)} == {()}
        assert {cell.config.method for cell in cells} == {cell.config.method for cell in recipe.cells()}  # nothing is left untried
