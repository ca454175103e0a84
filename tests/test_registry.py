"""What other packages add: imported when it is first looked for, refused where it is none."""

import subprocess
import sys
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from typed import documented, install

from sprl import methods, noise, registry
from sprl.errors import SprlWarning
from sprl.paper import recipes
from sprl.registry import Registry


def point(name, load):
    return SimpleNamespace(name=name, value=f"theirs:{name}", load=load)


def of(monkeypatch, *points):
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_others_are_loaded_once_at_the_first_look_and_take_no_name_of_ours(monkeypatch):
    loaded = []
    of(monkeypatch, point("theirs", lambda: loaded.append("theirs") or 7), point("one", lambda: 8))
    found = Registry("number", "numbers", {"one": 1}, lambda name, value: value)
    assert loaded == []
    with pytest.warns(SprlWarning, match="the number one of .* cannot be loaded: there is one of that name already"):
        assert dict(found) == {"one": 1, "theirs": 7}
    assert ("theirs" in found, len(found), repr(found)) == (True, 2, "{'one': 1, 'theirs': 7}")
    found["two"] = 2
    del found["one"]
    assert list(found) == ["theirs", "two"]
    assert loaded == ["theirs"]


def test_what_is_loaded_may_look_into_it(monkeypatch):
    seen = []
    of(monkeypatch, point("first", lambda: seen.append(list(found)) or 1), point("second", lambda: seen.append(list(found)) or 2))
    found = Registry("number", "numbers", {"zero": 0}, lambda name, value: value)
    assert dict(found) == {"zero": 0, "first": 1, "second": 2}
    assert seen == [["zero"], ["zero", "first"]]


class Half:
    """No dataclass, and it cannot step."""

    networks = 1


@pytest.mark.parametrize(
    ("module", "kind", "wrong", "why"),
    [
        (methods, "method", Half, "it is no dataclass with networks, init, refresh, step"),
        (methods, "method", methods.Standard(), "it is no dataclass with networks, init, refresh, step"),
        (noise, "noise", np.eye(3), "it is no function (rate, num_classes) -> Q"),
        (recipes, "recipe", methods.Standard, "it is no Recipe"),
    ],
)
def test_what_is_none_is_refused_once_in_one_line(monkeypatch, module, kind, wrong, why):
    of(monkeypatch, point("odd", lambda: wrong), point("gone", lambda: 1 / 0))
    found = Registry(kind, "theirs", dict(module.OURS), module.adopted)
    with pytest.warns(SprlWarning) as noted:
        assert dict(found) == module.OURS
    assert [str(each.message) for each in noted] == [
        f"the {kind} odd of theirs:odd cannot be loaded: {why}",
        f"the {kind} gone of theirs:gone cannot be loaded: division by zero",
    ]
    assert "odd" not in found  # without another note


def test_a_proper_one_is_taken():
    assert methods.adopted("mine", methods.SPRL) is methods.SPRL
    assert noise.adopted("mine", noise.pair) is noise.pair
    assert recipes.adopted("mine", recipes.OURS["table2"]).name == "mine"


RECIPE = """
from sprl.noise import NOISES
from sprl.paper.recipe import Recipe
from sprl.paper.runs import cell

SEEN = "ordinal" in NOISES

MINE = Recipe("mine", "One", "One.", lambda: [cell("CIFAR-10", "convnet", "pair", 0.45, "gce")])
"""
ORDERS = """
import importlib, sys, warnings
import torch

warnings.simplefilter("error")
for order in {orders}:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("sprl", "mine")]:
        del sys.modules[name]
    for name in order:
        importlib.import_module(name)
    mine, methods, noise, recipes = (importlib.import_module(name) for name in {modules})
    assert methods.METHODS["gce"] is mine.GCE and noise.NOISES["ordinal"] is mine.ordinal, order
    assert [cell.method for cell in recipes.RECIPES["mine"].cells()] == ["gce"] and mine.SEEN, order
"""


def test_a_method_a_noise_and_a_recipe_in_one_file_whatever_is_imported_first(tmp_path):
    (method, points), (kind, more) = documented("Add a method"), documented("Add a kind of noise")
    install(tmp_path, f"{method}\n{kind}\n{RECIPE}", f"{points}\n{more}\n[sprl.recipes]\nmine = mine:MINE\n")
    modules = ("mine", "sprl.methods", "sprl.noise", "sprl.paper.recipes")
    script = ORDERS.format(orders=list(permutations(modules, 2)), modules=modules)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
