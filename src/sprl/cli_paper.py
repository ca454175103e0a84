"""`sprl bench` and `sprl show` on the command line."""

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sprl import options
from sprl.errors import InputError

if TYPE_CHECKING:
    from sprl.paper.recipe import Recipe

BENCH_EXAMPLES = """Examples:

sprl bench table2 --only "cifar10 resnet18 sprl,standard" --together 4

sprl bench table2 --only "cifar10 0.5" --plan

sprl bench table2 --short

sprl bench table2 --method mine --only "cifar10 mine"

Stopped? The same command goes on."""

SHOW_EXAMPLES = """Examples:

sprl show

sprl show table2 --only "cifar10 resnet18"

sprl show table2 --ran --format markdown --store results/records

sprl show table2 --out table2.tex --overwrite

sprl show figA2 --out figures"""

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="A table or figure: table2, fig5, figA2, ... None: list them.")]
Only = Annotated[
    str,
    typer.Option(
        metavar="WORDS",
        help='Only the cells that all of these words fit: "cifar10 resnet18 sprl"; "a,b" is one or the other; pair:0.45 or 0.5 are words.',
    ),
]
Short = Annotated[
    bool,
    typer.Option("--short", help="The short form: a few runs of a few epochs on built-in data, to try the path; not the paper's setting."),
]
Method = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Another method beside the table's own, such as yours; repeatable.")]
OtherData = Annotated[
    list[str] | None, typer.Option(metavar="DATA", help="Other data beside the table's own, as `sprl train` takes it; repeatable.")
]
OtherNoise = Annotated[
    list[str] | None, typer.Option(metavar="KIND:VALUE", help="Another noise beside the table's own, as `sprl train` takes it; repeatable.")
]
Store = Annotated[str, typer.Option(metavar="DIR", help="Where records of finished runs are kept.")]


def bench(
    context: typer.Context,
    name: Name = None,
    only: Only = "",
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Runs of each cell, with seeds S, S + 1, ... The paper has one.")
    ] = 1,
    seed: options.Seed = 0,
    short: Short = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be run.")] = False,
    method: Method = None,
    data: OtherData = None,
    corrupt: OtherNoise = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    jobs: options.Jobs = None,
    together: options.Together = 1,
    engine: options.Engine = "local",
    gpu: options.Gpu = None,
    shard: options.Shard = None,
    store: Store = "records",
) -> None:
    """Make the runs of one of the paper's tables or figures that have no records yet, and show it.

    Says first what is there, what is missing, and how long that takes.

    Finished runs are kept as records, a stopped one is gone on with: the same command carries on.
    """
    from sprl.paper import present
    from sprl.paper.bench import How, carry
    from sprl.paper.cell import only as fitting
    from sprl.spread import asked

    spread = asked(jobs, together, engine, gpu, shard)
    recipe = asked_for(context, name, store, method, data, corrupt)
    if recipe is None:
        return
    cells = fitting(recipe.cells(short), only, optional=False)
    how = How(data_dir, device, precision, Path(store), spread)
    code, done = carry(recipe.name, cells, range(seed, seed + seeds), how, plan)
    if done and not plan and code in (0, 2):
        present.present(recipe, only, short, Path(store), ran=True, known=done)
    raise typer.Exit(code)


def show(
    context: typer.Context,
    name: Name = None,
    only: Only = "",
    ran: Annotated[bool, typer.Option("--ran", help="Of a table: leave out what was not run.")] = False,
    format: Annotated[
        Literal["terminal", "markdown", "latex", "csv"] | None,
        typer.Option(help="Of a table. Default: as --out ends, .md, .tex or .csv; else for the terminal. Figures are PNG and SVG."),
    ] = None,
    short: Short = False,
    method: Method = None,
    data: OtherData = None,
    corrupt: OtherNoise = None,
    store: Store = "records",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Write a table to this file; figures into this folder (figures, if none is named), over earlier ones."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Of a table: replace the file that is there.")] = False,
) -> None:
    """Show one of the paper's tables or figures from records alone: ours beside the paper's.

    Nothing is trained, and nothing is shown that was not run; `sprl bench NAME` runs it.
    """
    from sprl.paper import present

    if out == "":
        raise InputError("--out needs the name of a file, or for figures of a folder")
    if store not in ("", "records") and not os.path.isdir(store):  # the default one is made by the first run
        raise InputError(f"there is no folder {store}: --store names where `sprl bench` keeps records")
    recipe = asked_for(context, name, store, method, data, corrupt)
    if recipe is not None:
        shown = present.present(recipe, only, short, Path(store), ran, format, None if out is None else Path(out), overwrite)
        present.note_versions(shown)


def asked_for(
    context: typer.Context, name: str | None, store: str, methods: list[str] | None, data: list[str] | None, noises: list[str] | None
) -> "Recipe | None":
    """The recipe; None where the list of all was asked for, and shown."""
    from sprl.errors import ensure, pick
    from sprl.paper import present
    from sprl.paper.extend import extended
    from sprl.paper.recipes import RECIPES

    ensure(store != "", "--store needs the name of a folder")
    if name is None:
        given = [option for option in context.params if getattr(context.get_parameter_source(option), "name", "DEFAULT") != "DEFAULT"]
        beside = ", ".join(f"--{option.replace('_', '-')}" for option in given if option != "store")
        ensure(not beside, f"of which table or figure? Give its NAME beside {beside}; sprl show lists all")
        present.list_recipes(Path(store))
        return None
    return extended(RECIPES[pick("table or figure", name, RECIPES)], methods or (), data or (), noises or ())
