"""The command line: a thin shell over run, files and tune. Heavy imports stand where they are used, so that --help answers at once."""

import os
import sys
import time
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sprl import __version__, cli_compare, cli_paper, options
from sprl.errors import InputError, RankError, SprlWarning, escaped, printable
from sprl.launch import processes


def examples(*lines: str) -> str:
    """What stands below a command's options: each line a paragraph, so that none is joined to the next."""
    return "\n\n".join(("Examples:", *lines))


UsageError: type[Any] = typer.BadParameter.__mro__[1]  # ours or click's, whichever this typer stands on

app = typer.Typer(
    help="Train through wrong labels, and find them: self-paced resistance learning (Shi et al. 2021).",
    epilog="Start with: sprl train (a demonstration, ten seconds)\n\nThen: sprl train YOUR_DATA",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    epilog=examples(
        "sprl train",
        "sprl train photos/",
        "sprl train table.csv --label-column species",
        "sprl train digits --corrupt pair:0.4 --method standard",
        "sprl train photos/ --network timm:resnet50 --weights FILE --frozen",
        "sprl train --resume runs/photos-1",
    )
)
def train(
    context: typer.Context,
    data: options.Data = None,
    labels: options.Labels = None,
    method: options.MethodName = "auto",
    network: options.Network = "auto",
    weights: options.Weights = None,
    frozen: options.Frozen = False,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Rate = None,
    augment: options.Augment = None,
    cutout: options.Cutout = None,
    seed: options.Seed = 0,
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the method, such as T1=10; repeatable.")
    ] = None,
    noise_rate: options.NoiseRate = None,
    corrupt: options.Corrupt = None,
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
    sync_norm: options.SyncNorm = False,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Folder of the run. Default: runs/<data>-<n>, a fresh number.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that --out holds, once the new one has its first checkpoint.")
    ] = False,
    together: Annotated[
        int,
        typer.Option(
            metavar="R",
            min=1,
            help="Train R runs side by side on one GPU, with seeds S, S + 1, ...: in RUN/seed-S, ..., each resumed by itself.",
        ),
    ] = 1,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run that was stopped or killed, from its last checkpoint (every 30 s). Options come from its folder; "
            "of those given beside it only places of data may differ.",
        ),
    ] = None,
) -> None:
    """Train on labels that may be wrong; write the model, and a list of the labels that look wrong.

    No DATA: a demonstration on scikit-learn's digits, half of whose labels are made wrong. DATA named: labels as they are.
    """
    from sprl import commands
    from sprl.config import parse_assignments

    demonstration = data is None and labels is None and corrupt is None
    config = options.asked(
        context.params,
        data=data or "digits",
        corrupt="symmetric:0.5" if demonstration else corrupt,
        fields=parse_assignments(fields or []),
    )
    if "" in (out, resume):
        raise InputError("--out and --resume need the name of a folder")
    if resume is None:
        raise typer.Exit(commands.begin(config, out, overwrite, demonstration, together))
    if together > 1:
        raise InputError("--resume goes on with one run: give it the folder of each, such as RUN/seed-0")
    given = {name for name in context.params if getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"}
    raise typer.Exit(commands.go_on(resume, config, given, out, overwrite))


@app.command(epilog=examples("sprl predict runs/photos-1 new/", "sprl predict runs/table-1 new.csv --out predicted.csv"))
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="New rows of the kind that the model was trained on: a folder of pictures, one picture, a table, an .npz or .npy. "
            "Saved Hugging Face data sets are not read here: give their pictures or table.",
        ),
    ],
    skip_bad: options.SkipBad = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the CSV here instead of to the terminal.")] = None,
) -> None:
    """Predict the classes of new rows: a CSV with id, predicted_label, confidence."""
    import numpy as np
    import pandas as pd

    from sprl import cells
    from sprl.data import How
    from sprl.model import load

    if out is not None and os.path.lexists(out):
        raise InputError(f"{out} is there already: choose another --out")
    model = load(run)
    ids, p = model.predict_file(rows, How(skip_bad=skip_bad))
    names = np.array(model.classes, dtype=object)[p.argmax(1)]
    table = pd.DataFrame({"id": ids, "predicted_label": names, "confidence": p.max(1).astype(np.float64).round(6)})
    if out is None:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        for line in cells.lines(cells.guarded(table)):
            print(escaped(line[:-1]) + "\n" if terminal else line, end="")  # print does without a stdout that is closed
        return
    cells.write(out, cells.guarded(table))


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that has ended.")]


@app.command(
    epilog=examples(
        "sprl audit runs/photos-1",
        "sprl audit runs/photos-1 --precision 0.95",
        "sprl audit runs/photos-1 --budget 500 --out suspects.csv",
        "sprl audit runs/photos-1 --reset",
        "sprl audit runs/photos-2 --before runs/photos-1",
    )
)
def audit(
    run: RunFolder,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="List as many labels as can be named with this expected precision, such as 0.95, where the verdict is clear."
        ),
    ] = None,
    budget: Annotated[int | None, typer.Option(metavar="N", help="List the N most suspicious labels.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Mark the usual list in RUN/labels.csv again, where it marks another.")] = False,
    corrections: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What a review found: from 50 checked labels on, probabilities follow. Default: RUN's, if any."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the list to this CSV, and leave RUN as it is.")] = None,
    before: Annotated[Path | None, typer.Option(metavar="RUN2", help="Tell what is different since this run on the same rows.")] = None,
) -> None:
    """Tell how many labels are wrong, and which: by class, by pairs of classes, one by one.

    Listed are labels that are more likely wrong than right. --precision or --budget make another list, and mark it in RUN/labels.csv;
    --reset marks the usual one there again.
    """
    from sprl import reviews

    reviews.audit(run, precision, budget, corrections, out, before, reset)


@app.command(
    epilog=examples(
        "sprl apply runs/photos-1 corrections.csv",
        "sprl apply runs/photos-1 --suggestions 100 --out corrected.csv",
        "sprl train photos/ --labels runs/photos-1/corrected.csv",
    )
)
def apply(
    run: RunFolder,
    corrections: Annotated[Path | None, typer.Argument(metavar="CORRECTIONS", help="The corrections.csv that a review made.")] = None,
    suggestions: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Take the suggestions for the N most suspicious labels, unreviewed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to. Default: RUN/corrected.csv.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Write the labels of a run with corrections put in, for sprl train --labels."""
    from sprl import reviews

    reviews.apply(run, corrections, suggestions, out, overwrite)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A method to show with its fields and defaults. None: list all.")
    ] = None,
) -> None:
    """List the methods, or show one with its fields and defaults."""
    from sprl import show

    show.methods() if name is None else show.method(name)


@app.command(epilog=examples("sprl tune mine.npz", "sprl tune table.csv --label-column species --folds 3"))
def tune(
    data: options.Data = None,
    labels: options.Labels = None,
    network: options.Network = "auto",
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Rate = None,
    seed: options.Seed = 0,
    folds: Annotated[int, typer.Option(metavar="N", min=2, help="Parts of the data, each held out once.")] = 5,
    corrupt: options.Corrupt = None,
    label_column: options.LabelColumn = "label",
    size: options.Size = None,
    skip_bad: options.SkipBad = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
) -> None:
    """Search SPRL's T1 and gamma_d by cross-validation on the noisy labels, as the paper does; print the command to train with."""
    from sprl import show
    from sprl.config import Config
    from sprl.run import prepare
    from sprl.stopping import stopping
    from sprl.tune import search

    corrupt = "symmetric:0.5" if data is None and labels is None and corrupt is None else corrupt
    config = Config(
        data=data or "digits",
        data_dir=data_dir,
        label_column=label_column,
        labels=labels,
        skip_bad=skip_bad,
        size=size,
        corrupt=corrupt,
        network=network,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        device=device,
    )
    with show.reading() as (say, progress):
        run = prepare(config, say=say, progress=progress)
    with stopping() as stop:
        ended = show.tuning(run, search(run, folds, stop), folds)
    raise typer.Exit(0 if ended else stop.code)


app.command(epilog=cli_compare.EXAMPLES)(cli_compare.compare)
app.command(epilog=cli_paper.BENCH_EXAMPLES)(cli_paper.bench)
app.command(epilog=cli_paper.SHOW_EXAMPLES)(cli_paper.show)


@app.command(
    epilog=examples("sprl data", "sprl data cifar10", "sprl data cifar10 --download --data-dir /disk/sets", "sprl data --clear-cache")
)
def data(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A set to check. None: list all.")] = None,
    data_dir: options.DataDir = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the set from its official address.")] = False,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove all decoded pictures, embeddings and generated labels.")
    ] = False,
) -> None:
    """List the benchmark sets, check one, or download it; clear the cache of decoded pictures."""
    from sprl import show
    from sprl.data import cache, sets
    from sprl.data.download import download as fetch
    from sprl.errors import pick

    if clear_cache:
        count, size = cache.clear()
        show.say("Cache", f"{count} entries removed, {size / 1e6:,.0f} MB freed in {cache.folder()}")
        return
    if name is None:
        if download:
            raise InputError("which set is to be downloaded? sprl data NAME --download")
        show.sets(data_dir)
        return
    if name == "digits":
        show.say("digits", "complete: it comes with scikit-learn")
        return
    chosen = sets.BENCHMARKS[pick("set", name, ["digits", *sets.BENCHMARKS])]
    if download:
        with show.reading() as (_, progress):
            fetch(chosen, sets.data_folder(data_dir), progress)
    show.checked(chosen, data_dir)


def version(value: bool) -> None:
    if value:
        print(f"sprl {__version__}")
        raise typer.Exit()


@app.callback()
def of_all(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    if processes() > 1 and context.invoked_subcommand != "train":
        raise InputError(f"torchrun shares one run among processes: it goes with sprl train, not with sprl {context.invoked_subcommand}")


def main() -> None:
    """Bad input gets one line and exit code 2; warnings one line each."""

    def one_line(message: Any, category: Any, *place: Any, **more: Any) -> None:
        if issubclass(category, SprlWarning):
            print(f"sprl: note: {printable(str(message))}", file=sys.stderr)

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # a ± where only ASCII can be written is a ?, not an error
    # threads that wait for one another asleep: spinning, they are many times slower than one wherever another program has a core
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    warnings.showwarning = one_line
    warnings.simplefilter("always", SprlWarning)
    spoken_for = False
    try:
        end(app(prog_name="sprl", standalone_mode=False) or 0)
    except SystemExit as error:
        end(error.code)
    except InputError as error:
        message, spoken_for = str(error), isinstance(error, RankError)
    except UsageError as error:
        message = error.format_message()
    except BrokenPipeError:  # whoever read us has enough, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        end(1)
    except KeyboardInterrupt:
        end(130)
    except OSError as error:  # a full disk, a folder taken away
        message = f"{error.filename or 'a file'}: {error.strerror or error}"
    if os.environ.get("RANK", "0") != "0" and os.environ.get("WORLD_SIZE", "1") != "1" and not spoken_for:
        end(2)  # the first process says it
    print(f"sprl: {printable(message)}", file=sys.stderr)
    end(2)


def end(code: Any) -> NoReturn:
    """Of processes that share a run without any ado: what of torch.distributed is still about would abort them as Python ends."""
    if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        if code and os.environ["RANK"] != "0":
            time.sleep(5)  # torchrun ends all once one has ended so: the first is to say why before
        os._exit(code or 0)
    sys.exit(code)
