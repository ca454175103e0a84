"""What a method finds out for itself before its run proper: epochs on nine tenths of the samples, judged on the noisy rest."""

from collections.abc import Callable, Sequence

from torch import Tensor

from sprl.core import Method, Search
from sprl.functional import one_standard_error
from sprl.state import Task
from sprl.validation import FEWEST_PICTURES, FEWEST_ROWS, a_tenth


def search_of(method: Method, epochs: int) -> Search | None:
    """What is still to be found out. Most methods have nothing of the kind."""
    describe = getattr(method, "search", None)
    found: Search | None = None if describe is None else describe(epochs)
    return found if found is not None and getattr(method, found.field) == "auto" else None


def trailing(scores: Sequence[float], over: int) -> list[float]:
    """The mean of each score and those before it, `over` in all or as many as there are."""
    parts = (scores[max(0, end - over) : end] for end in range(1, len(scores) + 1))
    return [sum(part) / len(part) for part in parts]


def first_as_good(scores: Sequence[float], count: int, slack: Callable[[float, int], float] = one_standard_error) -> int:
    """The first epoch, from 1, whose score on `count` samples is as good as the best."""
    enough = max(scores) - slack(max(scores), count)
    return next(t for t, score in enumerate(scores, 1) if score >= enough)


def held_out(task: Task) -> Tensor | None:
    """A tenth of each class, drawn at random, as a mask [N]; None where there are too few to spare."""
    tenth = a_tenth(task.y.cpu(), task.num_classes, FEWEST_ROWS if len(task.x.shape) == 2 else FEWEST_PICTURES, task.seed)
    return None if tenth is None else tenth.to(task.device)


def longest_search(task: Task, method: Method) -> int:
    """Epochs that are searched at most; 0: there is nothing to find, or too few samples or epochs to find it."""
    search = search_of(method, task.epochs)
    return 0 if search is None or search.longest < 2 or held_out(task) is None else search.longest
