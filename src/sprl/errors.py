"""Mistakes a user can make, each told in one line that says what to do."""

import difflib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MANY, FEW = 40, 5  # more options than MANY are not told, only the FEW that are nearest
LETTERS = 2**23  # pairs of them, one of a name and one of an option, that are compared in a second or two


class InputError(ValueError):
    """Bad input. The command line prints its message alone and exits with 2; in Python it is a ValueError."""


class RankError(InputError):
    """Of several processes that share a run, what one has to say for all."""


class SprlWarning(UserWarning):
    """Something a user should know about a run that goes on all the same."""


def printable(text: str) -> str:
    """`text` on one line without control characters: names of files and classes are other people's."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def escaped(text: str) -> str:
    """`text` with its control characters spelt out, as \\x1b: for a terminal, which would obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def reason(error: Exception) -> str:
    """Why, in one line. Of what is no bad input, such as a mistake in a method of one's own, also where."""
    if isinstance(error, InputError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    known = (str(Path(__file__).parent), "site-packages", "dist-packages")
    frame = ([frame for frame in frames if not any(part in frame.filename for part in known)] or frames)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Whatever a function of somebody else's raises, as one line that names it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} failed: {reason(error)}") from error


def ensure(true: bool, otherwise: str) -> None:
    if not true:
        raise InputError(otherwise)


def check_file(path: Path) -> None:
    """InputError for what is there but not a file: to open a pipe would wait for ever."""
    ensure(path.is_file() or path.is_dir() or not path.exists(), f"cannot read {path}: it is not a file")


def check_rate(rate: float) -> None:
    ensure(0 <= rate < 1, f"the noise rate is {rate} but must be at least 0 and below 1")


def nearest(name: str, options: Sequence[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The options most like the name, at most `count`; none where it would take long to find them."""
    quick = len(name) * sum(map(len, options)) <= LETTERS
    return difflib.get_close_matches(name, options, count, cutoff) if quick else []


def pick(kind: str, name: str, options: Iterable[str]) -> str:
    """`name` if it is one of `options`, else an InputError that names the nearest."""
    options = list(options)
    if name in options:
        return name
    same = [option for option in options if option.lower() == name.lower()]
    near = same or nearest(name, options, cutoff=0.5)
    if not options:
        hint = "there is none"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    elif len(options) <= MANY:
        hint = f"choose from: {', '.join(options)}"
    else:
        few = nearest(name, options, FEW, cutoff=0) or options[:FEW]
        hint = f"choose from: {', '.join(few)} and {len(options) - len(few):,} more"
    raise InputError(f"unknown {kind} {name!r}; {hint}")


def is_out_of_memory(error: BaseException) -> bool:
    """Which says nothing about a file."""
    words = ("can't allocate memory", "Cannot allocate memory", "out of memory")  # torch's and the system's, and CUDA's
    told = isinstance(error, RuntimeError | OSError) and any(word in str(error) for word in words)
    return told or isinstance(error, MemoryError)
