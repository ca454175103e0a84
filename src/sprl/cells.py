"""CSV files whose cells come back as they were written, and that do no harm in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sprl.atomic import written
from sprl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# A spreadsheet may take a cell of ours for several: at a semicolon, a tab, the end of a line. Each may begin as a formula, also behind a
# quotation mark, and what begins with an apostrophe would lose it when it is read back.
ENDS = r"(?<![^;\t\r\n])"
GUARDED = re.compile(ENDS + r"(?=\"*[=+\-@\uff1d\uff0b\uff0d\uff20]|')|\A(?=[\t\r\n])")
GUARD = re.compile(ENDS + "'")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
BOM = b"\xef\xbb\xbf"
SPECIAL = re.compile(r'[,"\r\n]')


def guard(text: str) -> str:
    """The text with an apostrophe wherever a spreadsheet would begin to run it, or where it has one itself. Numbers stay."""
    return text if NUMBER.fullmatch(text) else GUARDED.sub("'", text)


def unguard(cell: str) -> str:
    """What was guarded; a text that needed no guard as it is."""
    return GUARD.sub("", cell)


def guarded(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its columns of text guarded."""
    from pandas.api.types import is_numeric_dtype  # booleans are numeric to it

    columns = [name for name in frame if not is_numeric_dtype(frame[name])]
    return frame.assign(**{name: [guard(str(cell)) for cell in frame[name].tolist()] for name in columns})


def write(path: Path, frame: pd.DataFrame, note: str = "") -> None:
    """The table by RFC 4180 but for its line ends, which are LF, with a note above the header. Guards nothing itself.

    Python's own writer leaves a lone carriage return without quotes (before 3.13), and a reader takes it for the end of the row.
    """
    with written(path) as file:
        file.write(f"# {note}\n".encode() if note else b"")
        file.writelines(line.encode() for line in lines(frame))


def lines(frame: pd.DataFrame) -> Iterator[str]:
    columns = [[quote(str(cell)) for cell in frame[name].tolist()] for name in frame]
    yield ",".join(map(quote, frame)) + "\n"
    yield from (",".join(row) + "\n" for row in zip(*columns, strict=True))


def quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if SPECIAL.search(cell) else cell


class Table(NamedTuple):
    """A CSV file: the note above its header, "" without one, and its cells as text, as they are written there."""

    note: str
    cells: pd.DataFrame


def read(path: Path) -> Table:
    """Read a file that may not be ours. A row that is too short is filled up with empty cells."""
    import pandas as pd

    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        note, rest = split_note(path.read_bytes().removeprefix(BOM))
        header = next((row for row in csv.reader(io.TextIOWrapper(io.BytesIO(rest), "utf-8", newline="")) if row), [])
        check_header(path, header)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # all rows are longer than the header
            cells = pd.read_csv(io.BytesIO(rest), dtype=object, na_filter=False, index_col=False, encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8: save it as CSV in UTF-8") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (csv.Error, pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} is not a readable CSV file: {str(error).strip().split('C error: ')[-1]}") from None
    return Table(note, cells)


def split_note(raw: bytes) -> tuple[str, bytes]:
    """The note of a file, and what follows it. A spreadsheet may have put quotes into its line, and commas behind it."""
    if not raw.startswith((b"#", b'"#')):
        return "", raw
    note, _, rest = raw.partition(b"\n")
    return note.decode("utf-8").replace('"', "").strip("# \r,"), rest


def check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise InputError(f"{path} is empty")
    refuse_separators(path, header)
    twice = next((name for name, count in Counter(header).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{path} has more than one column {twice!r}")


def refuse_separators(path: Path, header: Sequence[str], tabs: str = "") -> None:
    """A header that is one cell, by other marks than commas. `tabs`: what else the file may be saved with."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and mark in header[0]:
            raise InputError(f"{path} has {name} between its cells: save it with commas{tabs}")
