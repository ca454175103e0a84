"""Methods, data and noises of one's own beside the paper's."""

from dataclasses import asdict

import pytest

from sprl.config import make_method
from sprl.errors import InputError
from sprl.methods import METHODS, SPRL
from sprl.paper.cell import unique
from sprl.paper.extend import extended
from sprl.paper.recipes import RECIPES

TABLES = [name for name, recipe in RECIPES.items() if not recipe.is_figure]
EIGHT = ["standard", "bootstrap", "f-correction", "decoupling", "mentornet", "co-teaching", "co-teaching+", "sprl"]
FOUR = [("symmetric", 0.2), ("symmetric", 0.5), ("symmetric", 0.8), ("pair", 0.45)]


def added(name, short=False, **more):
    """The cells that come after the recipe's own, which stay as they were."""
    recipe = RECIPES[name]
    own, all_of_them = recipe.cells(short), extended(recipe, **more).cells(short)
    assert [vars(cell) for cell in all_of_them[: len(own)]] == [vars(cell) for cell in own]
    return all_of_them[len(own) :]


def test_nothing_added_is_the_recipe_itself():
    assert extended(RECIPES["table2"]) is RECIPES["table2"]


def test_another_method_is_run_on_all_that_the_table_has():
    cells = added("table2", methods=["self-paced", "curriculum"])
    places = {(cell.dataset, cell.network, cell.noise, cell.rate): cell for cell in RECIPES["table2"].cells() if not cell.optional}
    for method in ("self-paced", "curriculum"):
        mine = [cell for cell in cells if cell.method == method]
        assert {(cell.dataset, cell.network, cell.noise, cell.rate) for cell in mine} == set(places)
        assert len(mine) == len(places) == 32
        for cell in mine:
            beside = places[cell.dataset, cell.network, cell.noise, cell.rate].config
            assert cell.config.method == method
            if method == "self-paced":
                assert (cell.config.fields, cell.config.schedule) == ({}, "published")
            names = ("data", "corrupt", "network", "epochs", "batch_size", "lr")
            assert [getattr(cell.config, name) for name in names] == [getattr(beside, name) for name in names]
    assert not [cell for cell in cells if cell.optional or cell.paper or cell.paper_std]


@pytest.mark.parametrize("method", ["curriculum", "distillation", "label-smoothing"])
@pytest.mark.parametrize("name", ["table1", "table2", "table4", "table5", "tableA5", "defaults"])
def test_what_is_made_of_sprl_takes_its_reading_and_settings_at_that_place(method, name):
    def place(cell):
        return cell.dataset, cell.network, cell.noise, cell.rate

    ours = {place(cell): cell for cell in RECIPES[name].cells() if cell.method == "sprl"}
    cells = added(name, methods=[method])
    assert {place(cell) for cell in cells} == set(ours)
    for cell in cells:
        like = make_method("sprl", ours[place(cell)].config.fields)
        made = make_method(method, cell.config.fields)
        assert asdict(made) == asdict(like) | {"against": made.against}
        assert made.against != like.against
        assert cell.config.schedule == ours[place(cell)].config.schedule


def test_a_method_is_told_what_those_of_the_table_are(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["co-teaching"])
    assert {(cell.noise, cell.config.fields["noise_rate"]) for cell in added("table1", methods=["mine"])} == {("clean", 0.0)}
    found = {(cell.dataset, cell.config.fields["noise_rate"]) for cell in added("table5", methods=["mine"])}
    assert found == {("Food101", 0.2), ("Clothing1M", 0.38)}
    assert {cell.config.augment for cell in added("tableA5", methods=["standard"])} == {False}


def test_other_data_has_every_network_noise_and_method_untuned():
    cells = added("table2", data=["there/mine.npz"])
    found = {(cell.network, cell.noise, cell.rate, cell.method) for cell in cells}
    assert found == {(network, *noise, method) for network in ("resnet18", "convnet") for noise in FOUR for method in EIGHT}
    assert len(cells) == len(found)
    for cell in cells:
        config = cell.config
        assert (cell.dataset, config.data, config.epochs, config.batch_size, config.lr) == ("mine", "there/mine.npz", 200, None, None)
        assert (cell.paper, cell.paper_std) == (None, None)
        assert {"mine", "there/mine.npz"} <= cell.words
        if cell.method == "sprl":
            assert make_method("sprl", config.fields) == SPRL.as_released(T1="auto", gamma_d="auto")
        else:
            assert config.fields == {}


def test_clean_labels_of_other_data_are_told_to_be_so():
    cells = added("table1", data=["mine.npz"])
    assert {cell.method for cell in cells if cell.config.fields.get("noise_rate") == 0.0} == {"co-teaching", "co-teaching+"}
    assert not [cell for cell in added("table5", data=["mine.npz"]) if "noise_rate" in cell.config.fields]  # nobody knows


def test_another_noise_is_on_all_data_untuned():
    cells = added("table2", noises=["symmetric-all:0.4"])
    sets = {(cell.dataset, cell.network) for cell in RECIPES["table2"].cells()}
    assert len(cells) == 8 * len(sets) == 64
    assert {(cell.dataset, cell.network, cell.method) for cell in cells} == {(*each, method) for each in sets for method in EIGHT}
    assert {(cell.noise, cell.rate, cell.config.corrupt) for cell in cells} == {("symmetric-all", 0.4, "symmetric-all:0.4")}
    for cell in cells:
        assert (cell.paper, "noise_rate" in cell.config.fields) == (None, False)
        if cell.method == "sprl":
            assert make_method("sprl", cell.config.fields) == SPRL.as_released(T1="auto", gamma_d="auto")
    assert ({cell.config.cutout for cell in cells}, {cell.config.cutout for cell in added("defaults", data=["mine.npz"])}) == ({0}, {None})
    slow = {(cell.dataset, cell.network) for cell in cells if cell.config.lr == 1e-4}
    assert slow == {("MNIST", "resnet18")}  # as in the rest of the table


def test_a_noise_is_the_same_however_it_is_written():
    for text, written in (("symmetric-all:.40", "symmetric-all:0.4"), ("generated:4e2", "generated:400"), ("matrix:a.csv", "matrix:a.csv")):
        assert {cell.config.corrupt for cell in added("table2", noises=[text])} == {written}


def test_a_folder_is_called_by_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "photos" / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos")
    for data in (".", "in/..", str(tmp_path / "photos")):
        assert {(cell.dataset, cell.config.data) for cell in added("table2", data=[data])} == {("photos", data)}


def test_noise_in_place_of_clean_or_real_labels_is_told_by_its_maker():
    for name in ("table1", "table5"):
        assert not [cell for cell in added(name, noises=["pair:0.3"]) if "noise_rate" in cell.config.fields]
    human = added("defaults", noises=["pair:0.3"])
    assert {(cell.method, cell.config.labels, cell.config.corrupt) for cell in human} == {
        ("sprl", None, "pair:0.3"),
        ("standard", None, "pair:0.3"),
    }


def test_noises_without_a_rate_are_told_apart():
    cells = added("table2", noises=["matrix:a.csv", "matrix:b.csv"], methods=["self-paced"])
    assert {(cell.noise, cell.rate) for cell in cells if cell.method == "sprl"} == {("matrix:a.csv", None), ("matrix:b.csv", None)}
    assert len([cell for cell in cells if cell.method == "self-paced"]) == 8 * (4 + 2)
    assert len(unique(cells)) == len(cells)


def test_all_at_once_are_crossed():
    cells = added("table2", methods=["self-paced"], data=["mine.npz"], noises=["symmetric-all:0.4"])
    assert len(unique(cells)) == len(cells) == (4 + 1) * (4 + 1) * 2 * (8 + 1) - 256
    corner = [cell for cell in cells if (cell.dataset, cell.noise, cell.method) == ("mine", "symmetric-all", "self-paced")]
    assert [cell.network for cell in corner] == ["resnet18", "convnet"]


@pytest.mark.parametrize("name", TABLES)
def test_the_short_form_has_them_too(name):
    noises = [] if name == "table3" else ["symmetric-all:0.4"]  # which is about networks that give labels
    cells = added(name, short=True, methods=["self-paced"], data=["mine.npz"], noises=noises)
    assert {"self-paced", *{cell.method for cell in RECIPES[name].cells(short=True)}} == {cell.method for cell in cells}
    assert {cell.config.data for cell in cells} == {"digits", "mine.npz"}
    assert {cell.config.corrupt for cell in cells if cell.dataset == "mine"} >= {*noises}
    for cell in cells:
        assert (cell.network, cell.config.epochs, cell.paper) == ("mlp", 6, None)
        make_method(cell.config.method, cell.config.fields, known=lambda: 0.3)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.is_figure])
def test_figures_are_refused(name):
    for more in ({"methods": ["self-paced"]}, {"data": ["mine.npz"]}, {"noises": ["pair:0.1"]}):
        with pytest.raises(InputError, match=f"{name} is a figure: methods, data and noises can be added to tables"):
            extended(RECIPES[name], **more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"methods": ["self-pased"]}, "unknown method 'self-pased'; did you mean 'self-paced'?"),
        ({"noises": ["0.4"]}, "--corrupt symmetric:0.4"),
        ({"noises": ["symmetric:2"]}, "noise 'symmetric:2' is out of bounds: a share of labels is at least 0 and below 1"),
        ({"noises": ["symmetric:-0.1"]}, "out of bounds"),
        ({"noises": ["symmetric:nan"]}, "out of bounds"),
        ({"noises": ["pair:0.5"]}, "pair noise of 0.5 is out of bounds"),
        ({"noises": ["symetric:0.4"]}, "did you mean 'symmetric'?"),
        ({"methods": ["sprl"]}, "table2 has sprl already: leave it out"),
        ({"methods": ["self-paced", "self-paced"]}, "table2 has self-paced already"),
        ({"data": ["cifar10"]}, "table2 has cifar10 already"),
        ({"data": [""]}, "--data needs a file, a folder or the name of a set"),
        ({"data": ["a/mine.npz", "b/mine.npz"]}, "table2 has mine already"),
        ({"noises": ["pair:0.450"]}, "table2 has pair:0.45 already"),
    ],
)
def test_what_cannot_be_added_is_refused(more, message):
    with pytest.raises(InputError) as refused:
        extended(RECIPES["table2"], **more).cells()
    assert message in str(refused.value)


def test_any_method_can_be_added_to_any_table():
    for name in TABLES:
        there = {cell.method for cell in RECIPES[name].cells()}
        others = [method for method in METHODS if method not in there]
        made = {cell.method: make_method(cell.config.method, cell.config.fields, known=lambda: 0.3) for cell in added(name, methods=others)}
        assert {name: type(method) for name, method in made.items()} == {name: METHODS[name] for name in others}


def test_noise_has_no_place_among_networks_that_give_labels():
    with pytest.raises(InputError, match="table3 is about networks that give labels: --corrupt has nothing to add to it"):
        extended(RECIPES["table3"], noises=["pair:0.1"]).cells()
