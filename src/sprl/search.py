"""What a method finds out for itself before its run proper: epochs on nine tenths of the samples, judged on the noisy rest."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sprl.core import Method
from sprl.functional import shares, smallest
from sprl.seeds import stream_seed
from sprl.state import Task


class Search(NamedTuple):
    """How to find a field that is "auto". `method.search(epochs)` describes it, `method.found(t, p)` turns its end into the field's value:
    t is the epoch that was taken, p [H, C] what the network predicts there for the rows held out."""

    field: str
    longest: int  # epochs, fewer than the run has: one with as many counts as ended
    patience: int  # epochs without a better score that end it
    score: Callable[[Tensor, Tensor], Tensor]  # (p [H, C], y [H]) -> 0-d in [0, 1], the larger the better
    over: int  # the last epochs whose mean score counts
    slack: Callable[[float, int], float]  # (best score, H) -> by how much less is as good; the first such epoch is taken
    afresh_from: int  # where that epoch, or a later one, is taken, the run proper begins with first weights, not with its
    otherwise: Any  # the field's value where there are too few samples to hold some out


def search_of(method: Method, epochs: int) -> Search | None:
    """What is still to be found out. Most methods have nothing of the kind."""
    describe = getattr(method, "search", None)
    found: Search | None = None if describe is None else describe(epochs)
    return found if found is not None and getattr(method, found.field) == "auto" else None


def accuracy(p: Tensor, y: Tensor) -> Tensor:
    return (p.argmax(1) == y).float().mean()


def likelihood(p: Tensor, y: Tensor) -> Tensor:
    """The geometric mean of p[label]: largest where the cross-entropy is least."""
    return p.gather(1, y.unsqueeze(1)).clamp(min=1e-30).log().mean().exp()


def one_standard_error(best: float, count: int) -> float:
    """Of an accuracy. The plain argmax is a lottery on small sets, where the best of many near-equal epochs is chance."""
    return math.sqrt(best * (1 - best) / count)


def no_slack(best: float, count: int) -> float:
    return 0.0


def trailing(scores: Sequence[float], over: int) -> list[float]:
    """The mean of each score and those before it, `over` in all or as many as there are."""
    parts = (scores[max(0, end - over) : end] for end in range(1, len(scores) + 1))
    return [sum(part) / len(part) for part in parts]


def first_as_good(scores: Sequence[float], count: int, slack: Callable[[float, int], float] = one_standard_error) -> int:
    """The first epoch, from 1, whose score on `count` samples is as good as the best."""
    enough = max(scores) - slack(max(scores), count)
    return next(t for t, score in enumerate(scores, 1) if score >= enough)


FEWEST_ROWS, FEWEST_PICTURES = 60, 200  # features are learned in an epoch or two, and memorised soon after; pictures take longer


def held_out(task: Task) -> Tensor | None:
    """A tenth of each class, drawn at random, as a mask [N]; None where there are too few to spare."""
    tenth = a_tenth(task.y.cpu(), task.num_classes, FEWEST_ROWS if len(task.x.shape) == 2 else FEWEST_PICTURES, task.seed)
    return None if tenth is None else tenth.to(task.device)


def a_tenth(y: Tensor, num_classes: int, fewest: int, seed: int) -> Tensor | None:
    """The same, of labels y [N] on the host; None under `fewest` of them, or under five of a class."""
    sizes = torch.bincount(y, minlength=num_classes)
    if len(y) < fewest or int(sizes[sizes > 0].min()) < 5:
        return None
    draw = torch.rand(len(y), generator=torch.Generator().manual_seed(stream_seed(seed, "holdout")))
    return smallest(draw, y, shares(len(y) // 10, sizes))


def longest_search(task: Task, method: Method) -> int:
    """Epochs that are searched at most; 0: there is nothing to find, or too few samples or epochs to find it."""
    search = search_of(method, task.epochs)
    return 0 if search is None or search.longest < 2 or held_out(task) is None else search.longest
