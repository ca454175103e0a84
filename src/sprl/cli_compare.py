"""`sprl compare` on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from sprl import options, spread
from sprl.errors import InputError

EXAMPLES = """Examples:

sprl compare

sprl compare mine.npz --methods sprl,standard --corrupt pair:0.4 --seeds 5

sprl compare cifar10 --labels human:worse --set sprl.T1=20 --together 4

sprl compare cifar10 --corrupt symmetric:0.5 --engine ray --gpu 0.5

Stopped? The same command goes on."""


def compare(
    context: typer.Context,
    data: options.Data = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Methods with commas between them, repeatable; `sprl methods` lists them. Default: all but demonstrations.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of each method, with seeds S, S + 1, ...")] = 3,
    seed: options.Seed = 0,
    labels: options.Labels = None,
    corrupt: options.Corrupt = None,
    noise_rate: options.NoiseRate = None,
    network: options.Network = "auto",
    weights: options.Weights = None,
    frozen: options.Frozen = False,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Rate = None,
    augment: options.Augment = None,
    cutout: options.Cutout = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[METHOD.]FIELD=VALUE",
            help="A field of one method, such as sprl.T1=10, or of all that have it: K=5; repeatable.",
        ),
    ] = None,
    rows: options.Rows = None,
    label_column: options.LabelColumn = "label",
    size: options.Size = None,
    skip_bad: options.SkipBad = False,
    stream: options.Stream = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    memory: options.Memory = "full",
    graph: options.Graph = None,
    compile: options.Compile = None,
    jobs: options.Jobs = None,
    together: options.Together = 1,
    engine: options.Engine = "local",
    gpu: options.Gpu = None,
    shard: options.Shard = None,
    store: Annotated[
        str, typer.Option(metavar="DIR", help="Where records of finished runs are kept, and looked for before anything is trained.")
    ] = "records",
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where table and chart go. Default: compare/<data>-<noise>; what is there is replaced."),
    ] = None,
) -> None:
    """Compare methods on the same wrong labels: a table, best first, and a chart of test accuracy by epoch.

    Seed by seed, every method sees the same labels and begins with the same weights.
    Needed are test rows with labels to trust. Finished runs are kept as records:
    nothing is trained twice, so stop when you like, add methods or seeds later.

    No DATA: scikit-learn's digits, half of whose labels are made wrong.
    """
    from sprl.contest import hold

    demonstration = data is None and labels is None and corrupt is None
    if "" in (store, out):
        raise InputError("--store and --out need the name of a folder")
    config = options.asked(context.params, data=data or "digits", corrupt="symmetric:0.5" if demonstration else corrupt, fields={})
    how, place = spread.asked(jobs, together, engine, gpu, shard), None if out is None else Path(out)
    raise typer.Exit(hold(config, methods or ["all"], fields or [], seeds, how, Path(store), place, demonstration))
