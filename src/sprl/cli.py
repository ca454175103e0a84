"""The command line: a thin shell over run, files and tune. Heavy imports stand where they are used, so that --help answers at once."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from sprl import __version__
from sprl.errors import InputError, SprlWarning, printable

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # ours or click's, whichever this typer stands on

app = typer.Typer(
    help="Train through wrong labels, and find them: self-paced resistance learning (Shi et al. 2021).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="A set (digits) or an .npz file with x, y[, x_test, y_test]. None: a demonstration on digits."),
]
Labels = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Other labels for the same rows: a CSV with id,label, or an .npy in the rows' order."),
]
MethodName = Annotated[str, typer.Option(metavar="NAME", help="How to train; `sprl methods` lists them.")]
Network = Annotated[
    str, typer.Option(metavar="NAME", help="resnet18, convnet, cnn, mlp, or auto; fields follow a colon: resnet18:stem=released.")
]
Epochs = Annotated[int | None, typer.Option(metavar="N", help="Epochs in all. Default: 200 for pictures on a GPU, else 60.")]
BatchSize = Annotated[int | None, typer.Option(metavar="B", help="Rows a step. Default: 128, or 32 for small data.")]
Rate = Annotated[float | None, typer.Option("--lr", metavar="LR", help="Learning rate of Adam. Default: 0.001.")]
Seed = Annotated[int, typer.Option(metavar="S", min=0, help="Seeds label noise, first weights and batches, each on its own.")]
NoiseRate = Annotated[float | None, typer.Option(metavar="R", help="Tells the share of wrong labels, if you know it.")]
Corrupt = Annotated[str | None, typer.Option(metavar="KIND:RATE", help="Damages labels for an experiment: symmetric:0.5 or pair:0.4.")]
DataDir = Annotated[str | None, typer.Option(metavar="DIR", help="Where DATA is looked for too.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, or auto: the GPU where there is one.")]


@app.command()
def train(
    data: Data = None,
    labels: Labels = None,
    method: MethodName = "sprl",
    network: Network = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    seed: Seed = 0,
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the method, such as T1=10; repeatable.")
    ] = None,
    noise_rate: NoiseRate = None,
    corrupt: Corrupt = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Folder of the run. Default: runs/<data>-<n>, a fresh number.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out holds.")] = False,
) -> None:
    """Train on labels that may be wrong; write the model, and a list of the labels that look wrong.

    No DATA: a demonstration on scikit-learn's digits, half of whose labels are made wrong. DATA named: labels as they are.
    """
    from sprl import show
    from sprl.config import Config, parse_assignments
    from sprl.files import make_folder, write_config, write_metrics, write_results
    from sprl.labels import warn_of_doubts
    from sprl.run import prepare

    demonstration = data is None and labels is None and corrupt is None
    config = Config(
        data=data or "digits",
        data_dir=data_dir,
        labels=labels,
        corrupt="symmetric:0.5" if demonstration else corrupt,
        noise_rate=noise_rate,
        method=method,
        fields=parse_assignments(fields or []),
        network=network,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        device=device,
    )
    run = prepare(config)
    show.plan(run, demonstration)
    path = make_folder(out, run.data.name, overwrite)
    write_config(path, run)
    interrupted = False
    try:
        with show.progress(run) as update:
            for row in run:
                write_metrics(path, run.rows)
                update(row)
    except (KeyboardInterrupt, InputError) as error:
        if not run.rows:
            with suppress(OSError):  # other files in it stay
                (path / "config.json").unlink()
                path.rmdir()
        if not run.rows or isinstance(error, InputError):
            raise
        interrupted = True
    with undisturbed():
        issues, summary = write_results(path, run)
    warn_of_doubts(issues, run.state.memory)
    show.results(run, issues, summary, path)
    if interrupted:
        raise typer.Exit(130)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    rows: Annotated[Path, typer.Argument(metavar="INPUT", help="An .npz file with x, or an .npy file with the rows.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the CSV here instead of to the terminal.")] = None,
) -> None:
    """Predict the classes of new rows: a CSV with index, predicted_label, confidence."""
    import numpy as np
    import pandas as pd

    from sprl.data.arrays import read_rows
    from sprl.files import load

    model = load(run)
    p = model.predict_proba(read_rows(rows))
    names = np.array(model.classes)[p.argmax(1)]
    table = pd.DataFrame({"index": np.arange(len(p)), "predicted_label": names, "confidence": p.max(1).round(6)})
    if out is not None and out.exists():
        raise InputError(f"{out} is there already: choose another --out")
    try:
        table.to_csv(sys.stdout if out is None else out, index=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}") from error


@app.command()
def methods() -> None:
    """List the methods with their fields and defaults."""
    from sprl import show

    show.methods()


@app.command()
def tune(
    data: Data = None,
    labels: Labels = None,
    network: Network = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    seed: Seed = 0,
    folds: Annotated[int, typer.Option(metavar="N", min=2, help="Parts of the data, each held out once.")] = 5,
    corrupt: Corrupt = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Search SPRL's T1 and gamma_d by cross-validation on the noisy labels, as the paper does; print the command to train with."""
    from sprl import show
    from sprl.config import Config
    from sprl.run import prepare
    from sprl.tune import search

    corrupt = "symmetric:0.5" if data is None and labels is None and corrupt is None else corrupt
    config = Config(
        data=data or "digits",
        data_dir=data_dir,
        labels=labels,
        corrupt=corrupt,
        network=network,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        device=device,
    )
    run = prepare(config)
    show.tuning(run, search(run, folds), folds)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits: files are being written."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def version(value: bool) -> None:
    if value:
        print(f"sprl {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    pass


def main() -> None:
    """Bad input gets one line and exit code 2; warnings one line each."""

    def one_line(message: Any, category: Any, *place: Any, **more: Any) -> None:
        if issubclass(category, SprlWarning):
            print(f"sprl: note: {printable(str(message))}", file=sys.stderr)

    warnings.showwarning = one_line
    warnings.simplefilter("always", SprlWarning)
    try:
        sys.exit(app(prog_name="sprl", standalone_mode=False) or 0)
    except InputError as error:
        message = str(error)
    except UsageError as error:
        message = error.format_message()
    except BrokenPipeError:  # whoever read us has enough, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"sprl: {printable(message)}", file=sys.stderr)
    sys.exit(2)
