"""What `sprl train --together R` does: R runs side by side that differ in their seed, each with a folder of its own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from sprl import files, show
from sprl.checkpoint import Keeper
from sprl.commands import stopping, within_memory
from sprl.config import Config
from sprl.errors import InputError
from sprl.files import CONFIG
from sprl.run import Run, prepare, read
from sprl.together import together


def begin_together(config: Config, count: int, out: str | None, overwrite: bool, demonstration: bool) -> int:
    """Runs with `count` seeds from the config's on, in OUT/seed-S. Returns the exit code."""
    seeds = range(config.seed, config.seed + count)
    for seed in seeds:
        files.check_folder(None if out is None else str(Path(out) / f"seed-{seed}"), overwrite)
    with within_memory(config.batch_size):
        runs = prepare_together(config, seeds)
        show.plan(runs[0], demonstration, count)
    home = files.make_folder(None, runs[0].data.name, overwrite) if out is None else Path(out)
    with ExitStack() as locks, stopping() as stop:
        keepers: dict[int, Keeper] = {}
        for run in runs:
            path = files.make_folder(str(home / f"seed-{run.config.seed}"), run.data.name, overwrite)
            locks.enter_context(files.held(path))
            replaces = (path / CONFIG).is_file()
            if not replaces:
                files.write_config(path, run)
            keepers[id(run)] = Keeper(path, run, stop, replaces)
        with within_memory(runs[0].task.batch_size), show.progress(runs) as update:
            for run, row in together(runs):
                keepers[id(run)].keep(row)
                if row is not None:
                    update(run, row)
                if stop():
                    break
        unfinished = [run for run in runs if len(run.rows) < run.task.epochs]
        for run in unfinished:
            keepers[id(run)].save()
        begun = [run for run in runs if run.rows]
        summaries = [files.write_results(keepers[id(run)].folder, run)[1] for run in begun]
        show.results_together(begun, summaries, [keepers[id(run)].folder for run in begun])
        for run in unfinished:
            show.stopped(run, keepers[id(run)].folder)
        return stop.code if unfinished else 0


def prepare_together(config: Config, seeds: range) -> list[Run]:
    """The data is read once, and shared where it lies on the device."""
    if len(seeds) < 1:
        raise InputError("--together needs at least one run")
    with show.reading() as (say, progress):
        data = read(config, say, progress)
        runs = [prepare(replace(config, seed=seeds[0]), data, say, progress)]
        if not config.frozen:
            x, x_test = runs[0].task.x, runs[0].x_test
            data = replace(data, x=x if isinstance(x, Tensor) else data.x, x_test=x_test if isinstance(x_test, Tensor) else data.x_test)
        return runs + [prepare(replace(config, seed=seed), data, say, progress) for seed in seeds[1:]]
