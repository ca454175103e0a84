"""Search for SPRL's T1 and gamma_d by cross-validation on the noisy labels, as the paper does (section V.A)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from sprl.curriculum import longest_warmup
from sprl.data.rows import select
from sprl.engine import never, predict, start
from sprl.errors import InputError
from sprl.methods import SPRL, Standard
from sprl.run import Run
from sprl.search import first_as_good
from sprl.seeds import stream_seed
from sprl.state import Task
from sprl.training import train_pausing

GAMMAS = (1.0, 5.0, 10.0, 50.0, 100.0, 300.0)
MOST = len(GAMMAS) + 3  # trials


class Trial(NamedTuple):
    """What a pair of T1 and gamma_d reached: percent of held-out noisy labels predicted, mean of the last ten epochs and all folds."""

    T1: int
    gamma_d: float
    agreement: float


def search(run: Run, folds: int = 5, stop: Callable[[], bool] = never) -> Iterator[Trial]:
    """Each gamma_d with the T1 that plain training's held-out accuracy names; then the best gamma_d with shorter warm-ups.

    Under pair noise that accuracy still rises while wrong labels are being learned, so that a shorter warm-up may serve better.
    The best trial is the one of the largest agreement. Costs `folds` warm-ups and at most folds x MOST trainings.
    Where `stop` says so, between two batches, it breaks off with a KeyboardInterrupt.
    """
    task = run.task
    if len(task.y) < 2 * folds:
        raise InputError(f"{len(task.y)} samples are too few for {folds} folds")
    if task.epochs < 2:
        raise InputError("tuning needs at least 2 epochs")
    parts = split(task, folds)
    longest = longest_warmup(task.epochs)
    warmups = [held_out_accuracy(run, held, Standard(), longest, stop) for held in parts]
    means = [sum(epoch) / folds for epoch in zip(*warmups, strict=True)]
    T1 = first_as_good(means, len(task.y))

    def trial(T1: int, gamma_d: float) -> Trial:
        last = [held_out_accuracy(run, held, SPRL(T1=T1, gamma_d=gamma_d), task.epochs, stop)[-10:] for held in parts]
        return Trial(T1, gamma_d, 100 * sum(sum(fold) / len(fold) for fold in last) / folds)

    trials = []
    for gamma_d in GAMMAS:
        trials.append(trial(T1, gamma_d))
        yield trials[-1]
    gamma_d = max(trials, key=lambda trial: trial.agreement).gamma_d
    for shorter in sorted({max(1, T1 // 4), max(1, T1 // 2), max(1, 3 * T1 // 4)} - {T1}):
        yield trial(shorter, gamma_d)


def split(task: Task, folds: int) -> tuple[Tensor, ...]:
    """The rows in `folds` parts at random, each with its share of every given class."""
    draw = torch.randperm(len(task.y), generator=torch.Generator().manual_seed(stream_seed(task.seed, "holdout")))
    by_class = draw[torch.argsort(task.y.cpu()[draw], stable=True)].to(task.device)
    return tuple(by_class[k::folds] for k in range(folds))


def held_out_accuracy(run: Run, held: Tensor, method: SPRL | Standard, epochs: int, stop: Callable[[], bool] = never) -> list[float]:
    """Train without the rows `held`; after each epoch, the share of their given labels predicted."""
    rest = torch.ones(len(run.task.y), dtype=torch.bool, device=run.task.device)
    rest[held] = False
    rest = rest.nonzero().squeeze(1)
    task = replace(run.task, x=select(run.task.x, rest), y=run.task.y[rest])
    y = run.task.y[held]
    state = start(task, method, run.config.network)
    accuracies: list[float] = []
    for epoch in train_pausing(task, state, stop):
        if epoch is None:
            raise KeyboardInterrupt
        accuracies.append((predict(state.networks, run.task.x, held).argmax(1) == y).float().mean().item())
        if epoch.t == epochs:
            break
    return accuracies
