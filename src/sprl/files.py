"""The folder of a run, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from sprl.run import Row, Run

CONFIG, METRICS, SUMMARY, MODEL, BACKBONE, LABELS, CURVES = FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "backbone.safetensors",
    "labels.csv",
    "curves.png",
)


def make_folder(out: str | None, data: str, overwrite: bool) -> Path:
    """A folder for a new run: `out`, or runs/<data>-<n> with a fresh number. An older run in it goes only with `overwrite`."""
    if out is None:
        number = 1
        while True:
            path = Path("runs") / f"{data}-{number}"
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                number += 1
            except OSError as error:
                raise InputError(f"cannot write to {path}: {error.strerror}") from error
    path = Path(out)
    check_folder(out, overwrite)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        (path / CONFIG).write_text("{}\n")  # shows that the folder can be written to before time is spent on training
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error
    return path


def check_folder(out: str | None, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is to stay."""
    path = Path(out) if out is not None else None
    try:
        if path is None or not path.exists() or not any(path.iterdir()):
            return
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} holds other files and no run: choose another --out")
    if not overwrite:
        raise InputError(f"{path} holds a run already: choose another --out, or --overwrite it")


def write_config(path: Path, run: Run) -> None:
    """What repeats the run, and what `load` needs to build its network again."""
    data = run.data
    model = {
        "classes": list(data.classes),
        "preprocess": vars(data.preprocess),
        "resize": None if data.resize is None else data.resize._asdict(),
        "columns": None if data.columns is None else data.columns.to_json(),
    }
    write_json(path / CONFIG, {**run.config.to_json(), "model": model})


def write_metrics(path: Path, rows: list[Row]) -> None:
    (path / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_results(path: Path, run: Run) -> tuple[pd.DataFrame, Row]:
    """Summary, model, labels and curves of a run that has ended. Returns labels and summary."""
    from safetensors.torch import save_file

    from sprl.curves import draw

    labels = run.labels()
    summary = run.summary(labels)
    write_metrics(path, run.rows)
    labels.to_csv(path / LABELS, index=False)
    for module, name in ((run.state.networks, MODEL), (run.backbone, BACKBONE)):
        if module is not None:
            save_file({k: v.contiguous().cpu() for k, v in module.state_dict().items()}, path / name)
    write_json(path / SUMMARY, summary)
    draw(run, path / CURVES)
    return labels, summary


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
