"""Cells: chosen by words, and which records are their runs."""

import json
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprl.config import Config, edition, make_method
from sprl.errors import InputError
from sprl.methods import Standard
from sprl.paper.cell import ANY, FILLED, Cell, at, is_run_of, meaning, only, runs_of, takes_files, unique
from sprl.paper.recipes import RECIPES
from sprl.store import Record

TABLE = RECIPES["table2"].cells()
FEW = TABLE[::19]


# By words.


def chosen(text, optional=True):
    return only(TABLE, text, optional)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", lambda cell: True),
        ("sprl", lambda cell: cell.method == "sprl"),
        ("cifar10", lambda cell: cell.dataset == "CIFAR-10"),
        ("CIFAR-10", lambda cell: cell.dataset == "CIFAR-10"),
        ("Mini-ImageNet convnet", lambda cell: (cell.dataset, cell.network) == ("Mini-ImageNet", "convnet")),
        ("pair", lambda cell: cell.noise == "pair"),
        ("symmetric:0.5", lambda cell: (cell.noise, cell.rate) == ("symmetric", 0.5)),
        ("0.45", lambda cell: cell.rate == 0.45),
        ("mnist  sprl,standard ", lambda cell: cell.dataset == "MNIST" and cell.method in ("sprl", "standard")),
        ("standard,sprl pair,0.2", lambda cell: cell.method in ("sprl", "standard") and (cell.noise == "pair" or cell.rate == 0.2)),
        ("sprl,", lambda cell: cell.method == "sprl"),
    ],
)
def test_words_choose_the_cells_that_all_of_them_fit(text, fits):
    assert chosen(text) == [cell for cell in TABLE if fits(cell)]


@given(st.lists(st.sampled_from(sorted({word for cell in FEW for word in cell.words})), min_size=1, max_size=3))
def test_several_words_choose_what_each_does_and_alternatives_what_any_does(words):
    each = [only(FEW, word) for word in words]
    assert only(FEW, ",".join(words)) == [cell for cell in FEW if any(cell in found for found in each)]
    every = [cell for cell in FEW if all(cell in found for found in each)]
    if every:
        assert only(FEW, " ".join(words)) == every
    else:
        with pytest.raises(InputError, match="but not the same ones"):
            only(FEW, " ".join(words))


def test_optional_cells_are_run_where_their_method_is_named():
    assert not [cell for cell in chosen("cifar10", optional=False) if cell.optional]
    assert {cell.method for cell in chosen("cifar10 sprl-published", optional=False)} == {"sprl-published"}
    assert {cell.method for cell in chosen("sprl,sprl-published", optional=False)} == {"sprl", "sprl-published"}
    assert len([cell for cell in chosen("cifar10") if cell.optional]) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cifar10 sprll", "unknown word to choose cells by 'sprll'; did you mean 'sprl'?"),
        ("sprl,standart", "did you mean 'standard'?"),
        ("zzz", "choose from: 0.2, 0.45, 0.5"),
        ("pair 0.5", "no cell of it is all of 'pair 0.5': each of these words fits some cells, but not the same ones"),
        ("mnist cifar10", "no cell of it is all of 'mnist cifar10'"),
    ],
)
def test_words_that_choose_nothing_are_refused(text, message):
    with pytest.raises(InputError) as refused:
        chosen(text)
    assert message in str(refused.value)


def test_words_are_found_however_they_are_written():
    cell = Cell("Pets", "mlp", "Ordinal", 0.3, "GCE", Config(data="My/Pets.npz"), optional=True)
    for word in ("pets", "PETS", "my/pets.NPZ", "ordinal:0.3", "gce", "GCE"):
        assert only([cell], word) == [cell]
    assert (only([cell], "gce", optional=False), only([cell], "pets", optional=False)) == ([cell], [])


def test_all_that_people_labelled_is_one_word():
    cells = [Cell("CIFAR-10", "resnet18", noise, None, "sprl", Config()) for noise in ("human:worse", "human:aggre", "clean")]
    assert only(cells, "human") == cells[:2]
    assert only(cells, "human:worse") == cells[:1]


def test_names_with_spaces_stand_in_quotes():
    cells = [replace(cell_of(), dataset=name) for name in ("my cats", "my dogs", "bob's")]
    for text, names in (("'my cats'", ["my cats"]), ("\"my cats\",'My Dogs'", ["my cats", "my dogs"]), ('"bob\'s"', ["bob's"])):
        assert [cell.dataset for cell in only(cells, text)] == names
    with pytest.raises(InputError, match="cannot read the words"):
        only(cells, "bob's")


def test_no_cells_are_not_no_words():
    with pytest.raises(InputError, match="there is nothing to run or show"):
        only([], "")


# Runs.

VALUES = {  # fields of a config that make it another run
    "data": ("digits", "cifar10", "mine.npz"),
    "label_column": ("label", "class"),
    "labels": (None, "human:aggre", "human:worse"),
    "skip_bad": (False, True),
    "size": (None, 32, 64),
    "rows": (None, 100, 1000),
    "corrupt": (None, "symmetric:0.5", "pair:0.45"),
    "network": ("mlp", "convnet", "resnet18", "resnet18:stem=released"),
    "weights": (None, "a.pt", "b.pt"),
    "frozen": (False, True),
    "epochs": (6, 200),
    "batch_size": (32, 128),
    "lr": (1e-3, 1e-4),
    "schedule": ("published", "released"),
    "augment": (None, True, False),
    "cutout": (0, 8, 16),
    "memory": ("full", "half"),
    "sync_norm": (False, True),
}
METHODS = {
    "standard": {},
    "sprl": {"T1": ("auto", 5, 20), "gamma_d": ("auto", 10.0), "K": (10, 2), "choice": ("per-class", "all"), "noise_rate": (None, 0.5)},
    "co-teaching": {"noise_rate": (0.2, 0.4), "T_k": (10, 5)},
    "f-correction": {"matrix": ("auto", ((0.9, 0.1), (0.2, 0.8)))},
}
OTHERS = {
    "seed": st.integers(0, 9),
    "data_dir": st.sampled_from([None, "here", "there"]),
    "device": st.sampled_from(["auto", "cpu", "cuda"]),
    "precision": st.sampled_from(["auto", "fp32", "bf16"]),
    "stream": st.booleans(),
    "graph": st.sampled_from([None, True, False]),
    "compile": st.sampled_from([None, True, False]),
}


def record_of(config, told=0.3, finished="2026-01-01T00:00:00+00:00", wrong=None, n=1000):
    """Of a run with this config, as the store reads it. `wrong`: the share of labels that came out so, where it was not what was told."""
    method = make_method(config.method, config.fields, config.noise_rate, known=lambda: told)
    filled = json.loads(json.dumps(replace(config, fields=asdict(method)).to_json()))
    summary = {"noise_rate_realised": told if wrong is None else wrong}
    return Record(
        **dict.fromkeys(f.name for f in fields(Record))
        | {"config": filled, "finished": finished, "summary": summary, "n": n, "edition": edition(config.method, filled["fields"])}
    )


def cell_of(**changes):
    return Cell("d", "n", "symmetric", 0.5, "m", Config(**changes))


@st.composite
def configs(draw):
    method = draw(st.sampled_from(list(METHODS)))
    values = {name: draw(st.sampled_from(options)) for name, options in METHODS[method].items() if draw(st.booleans())}
    return Config(method=method, fields=values, **{name: draw(st.sampled_from(options)) for name, options in VALUES.items()})


def test_every_field_of_a_config_counts_or_does_not():
    assert {*VALUES, "method", "fields", *ANY} == {f.name for f in fields(Config)}
    assert {*OTHERS, "noise_rate"} == set(ANY)
    assert set(FILLED) <= set(VALUES)


@given(configs(), st.fixed_dictionaries(OTHERS))
def test_what_does_not_count_leaves_it_the_same_run(config, others):
    assert is_run_of(meaning(config), record_of(replace(config, **others)))
    assert len(unique([cell_of(**vars(config)), cell_of(**vars(replace(config, **others)))])) == 1


@given(configs(), st.sampled_from([*VALUES, "method"]), st.data())
def test_another_setting_is_another_run(config, name, data):
    options = METHODS if name == "method" else VALUES[name]
    value = data.draw(st.sampled_from([value for value in options if value != getattr(config, name)]))
    other = replace(config, **{name: value}, **({"fields": {}} if name == "method" else {}))
    assert not is_run_of(meaning(config), record_of(other))
    assert not is_run_of(meaning(other), record_of(config))
    assert len(unique([cell_of(**vars(config)), cell_of(**vars(other))])) == 2


@given(configs().filter(lambda config: METHODS[config.method]), st.data())
def test_another_value_of_a_methods_field_is_another_run(config, data):
    field = data.draw(st.sampled_from(list(METHODS[config.method])))
    one, two = data.draw(st.permutations(METHODS[config.method][field]))[:2]
    first, second = (replace(config, fields=config.fields | {field: value}) for value in (one, two))
    assert is_run_of(meaning(first), record_of(first))
    assert not is_run_of(meaning(first), record_of(second))


def test_a_run_of_what_the_method_did_before_is_none_of_it():
    auto, fixed = Config(), Config(fields={"T1": 2, "gamma_d": 5.0})
    assert record_of(auto).edition > record_of(fixed).edition == 1
    assert not is_run_of(meaning(auto), replace(record_of(auto), edition=1))
    assert is_run_of(meaning(fixed), replace(record_of(fixed), edition=1))


@pytest.mark.parametrize("odd", ["b", 0, 1.5, True])
def test_an_edition_is_a_number(monkeypatch, odd):
    monkeypatch.setattr(Standard, "edition", odd, raising=False)
    with pytest.raises(InputError, match="the edition of standard must be a whole number from 1 on, got"):
        meaning(Config(method="standard"))


def test_files_are_known_by_their_names_and_sets_by_theirs_alone():
    def is_run(asked, path, name):
        return is_run_of(meaning(Config(data=asked)), replace(record_of(Config(data=path)), data=name))

    for asked in ("mine.npz", "./mine.npz", "elsewhere/mine.npz", "/data/mine.npz"):
        assert is_run(asked, "there/mine.npz", "mine")
        assert not is_run(asked, "there/other.npz", "other")
    assert is_run("photos.v2/", "/old/photos.v2", "photos.v2")
    assert is_run("photos/metadata.csv", "/old/photos/metadata.csv", "photos")
    assert is_run("./a/../bits", "bits", "cifar10")  # whatever those who read it call it
    assert not is_run("my/cifar10.npz", "cifar10", "cifar10")
    assert not is_run("cifar10", "my/cifar10.npz", "cifar10")


@pytest.mark.parametrize(
    ("changes", "files"),
    [
        ({}, False),
        ({"data": "cifar10", "labels": "human:worse", "corrupt": "generated:400", "weights": "pretrained"}, False),
        ({"data": "mine.npz"}, True),
        ({"corrupt": "matrix:Q.csv"}, True),
        ({"labels": "labels.csv"}, True),
        ({"weights": "w.pt"}, True),
    ],
)
def test_what_files_decide(changes, files):
    assert takes_files(vars(Config(**changes))) == takes_files(changes) == files


def test_what_a_cell_leaves_open_may_be_anything():
    open_to = meaning(Config(network="auto", epochs=None, batch_size=None, lr=None, cutout=None))
    for changes in ({"network": "mlp", "epochs": 6}, {"network": "convnet", "batch_size": 32, "lr": 0.1}, {"cutout": 8}, {"cutout": 0}):
        assert is_run_of(open_to, record_of(Config(**changes)))
    assert not is_run_of(open_to, record_of(Config(corrupt="pair:0.45")))


def test_a_rate_counts_where_it_was_asked_for():
    told, given_one = Config(method="co-teaching", corrupt="pair:0.4"), {"method": "co-teaching", "corrupt": "pair:0.4"}
    assert is_run_of(meaning(told), record_of(told, told=0.4, wrong=0.41))
    assert not is_run_of(meaning(told), record_of(told, told=0.2, wrong=0.41))  # somebody gave it another
    assert not is_run_of(meaning(told), record_of(told, told=0.4, wrong=0.41, n=10**6))
    assert not is_run_of(meaning(told), record_of(told, told=0.0, wrong=0.01))
    assert not is_run_of(meaning(told), record_of(replace(told, fields={"noise_rate": 0.4}), wrong="much"))
    for asked in (Config(**given_one, fields={"noise_rate": 0.2}), Config(**given_one, noise_rate=0.2)):
        assert is_run_of(meaning(asked), record_of(told, told=0.2))
        assert not is_run_of(meaning(asked), record_of(told, told=0.4))
    assert not is_run_of(meaning(Config()), record_of(Config(noise_rate=0.2)))  # SPRL does without, unless it is told


def test_a_record_from_before_a_field_has_what_was_done_then():
    record = record_of(Config())
    for name in ("rows", "augment", "cutout", "schedule"):
        del record.config[name]
    del record.config["fields"]["start"]
    for same in (Config(), Config(cutout=0)):
        assert is_run_of(meaning(same), record)
        assert is_run_of(meaning(same), record_of(Config(cutout=None)))
    changes = [{"rows": 1000}, {"augment": False}, {"cutout": 8}, {"schedule": "released"}, {"fields": {"start": "last-class"}}]
    for other in (Config(**change) for change in changes):
        assert not is_run_of(meaning(other), record)
    del record.config["fields"]["K"]  # which nothing is said of
    assert not is_run_of(meaning(Config()), record)


def test_fields_may_be_text_and_whole_numbers():
    record = record_of(Config(fields={"T1": 20, "gamma_d": 300.0}))
    assert is_run_of(meaning(Config(fields={"T1": "20", "gamma_d": 300})), record)


def test_one_cell_of_each_run():
    cell = cell_of(fields={"T1": 20, "gamma_d": 300})
    same = [replace(cell, rule="best", paper=1.0), at(cell, fields={"T1": "20", "gamma_d": 300.0}), at(cell, seed=3, device="cpu")]
    others = [at(cell, lr=0.1), at(cell, method="standard", fields={})]
    assert list(map(id, unique([cell, *others, *same, *others]))) == [id(cell), *map(id, others)]


@given(st.permutations([(0, 1), (0, 2), (0, 3), (2, 1), (1, 5), (1, 4)]))
def test_of_one_seed_the_latest_record_counts(order):
    config = Config(epochs=6, network="mlp")
    records = [record_of(replace(config, seed=seed), finished=f"2026-01-0{day}T00:00:00+00:00") for seed, day in order]
    strangers = [record_of(replace(config, seed=seed, rows=10)) for seed in (0, 7)]
    found = runs_of(cell_of(epochs=6, network="mlp"), [*strangers, *records, *strangers])
    assert [(record.seed, record.finished[9]) for record in found] == [(0, "3"), (1, "5"), (2, "1")]
