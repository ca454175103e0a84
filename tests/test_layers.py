"""Imports go down only, those inside functions too: a module may use its own room and the rooms below."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "sprl"
ROOMS = {  # from the ground up; methods and networks share a floor, and so do review and bench
    "errors": {"errors", "registry", "atomic", "machine", "tensors", "torchfile"},
    "core": {"core", "functional", "schedules", "fields", "seeds"},
    "methods": {"methods", "curriculum", "transition", "mentor"},
    "networks": {"networks", "convolution", "timm_models"},
    "data": {"data", "cells", "noise", "photos"},
    "labels": {"labels", "audit", "truth", "validation"},
    "train": {"state", "draws", "tables", "stepping", "joint", "ranks", "engine", "training", "search"},
    "runs": {
        "config",
        "run",
        "generated",
        "files",
        "curves",
        "checkpoint",
        "schema",
        "model",
        "together",
        "torchrun",
        "tune",
        "stopping",
        "launch",
    },
    "review": {"report", "views", "corrections"},
    "bench": {"store", "crew", "on_ray", "ray_task", "spread", "watch", "compare", "chart"},
    "paper": {"paper"},
    "cli": {"cli", "cli_compare", "cli_paper", "options", "commands", "show", "contest", "reviews"},
    "top": {"estimator", "loss", "__init__", "__main__"},
}
FLOOR = {room: floor for floor, room in enumerate(ROOMS)} | {"networks": list(ROOMS).index("methods"), "bench": list(ROOMS).index("review")}
ROOM_OF = {module: room for room, modules in ROOMS.items() for module in modules}


def imported(tree):
    """The names that a module imports of ours, as `store` or `paper.cell`, but for those that only type checkers see."""
    seen_by_checkers = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in seen_by_checkers:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.removeprefix("sprl.") for name in node.names if name.name.startswith("sprl."))
        elif isinstance(node, ast.ImportFrom) and node.module == "sprl":
            yield from (name.name for name in node.names if name.name in ROOM_OF)  # the version is everybody's
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sprl."):
            yield node.module.removeprefix("sprl.")


def upward():
    """Each import that goes up, as "photos -> stepping"."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        room = ROOM_OF[name.split(".")[0]]
        for other in imported(ast.parse(path.read_text())):
            theirs = ROOM_OF[other.split(".")[0]]
            if theirs != room and FLOOR[theirs] >= FLOOR[room]:
                yield f"{name} -> {other}"


# What is left to turn round: who speaks to the terminal from below.
STILL_UP = {
    "paper.bench -> show",
    "paper.present -> show",
    "paper.tables -> show",
    "torchrun -> show",
    "watch -> show",
}


def test_every_module_has_a_room():
    modules = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert modules == ROOM_OF.keys()


def test_imports_go_down_but_for_those_that_are_listed():
    assert set(upward()) == STILL_UP
