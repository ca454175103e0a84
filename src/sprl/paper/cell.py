"""A cell: one number of a table or one curve of a figure, as the run that makes it; and which records are such runs."""

from __future__ import annotations

import json
import math
import os.path
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sprl.config import Config, edition, later, make_method, needs_rate
from sprl.data.catalogue import SETS
from sprl.errors import InputError, ensure, pick
from sprl.methods import METHODS
from sprl.noise import MATRIX
from sprl.store import LATER, Record, is_number
from sprl.timm_models import PRETRAINED

Rule = Literal["last10", "best", "labeller-training", "labeller-test"]
RULES: dict[Rule, str] = {
    "last10": "mean test accuracy of the last ten epochs",
    "best": "test accuracy of the best epoch",
    "labeller-training": "accuracy on the training rows of the network that gave the labels, after its last epoch",
    "labeller-test": "accuracy on the test rows of the network that gave the labels, after its last epoch",
}
ANY = ("seed", "data_dir", "noise_rate", "device", "precision", "stream", "graph", "compile")  # may differ between the runs of a cell
DEFAULTS = asdict(Config())
FILLED = ("network", "epochs", "batch_size", "lr", "cutout")  # None or "auto" in a cell: whatever suits the data


@dataclass(frozen=True)
class Cell:
    """What the paper calls it, and the run that is meant by it. `None` and "auto" in the config: whatever suits."""

    dataset: str  # as the paper writes it: CIFAR-10
    network: str  # resnet18 or convnet
    noise: str  # symmetric, pair, clean, cnn, real, human
    rate: float | None  # of wrong labels, as it was asked for
    method: str  # as a row of the table: sprl, sprl-published, standard, ...
    config: Config = field(compare=False)
    rule: Rule = "last10"
    paper: float | None = None  # its number
    paper_std: float | None = None  # deviation over the last ten epochs
    optional: bool = False  # shown where it was run, and run where it is asked for by name
    swept: str = ""  # what sets it apart from cells like it: gamma_d=300

    @property
    def words(self) -> set[str]:
        """By which it may be asked for."""
        rate = [] if self.rate is None else [f"{self.rate:g}", f"{self.noise}:{self.rate:g}"]
        kinds = (self.noise, self.noise.partition(":")[0])  # human:worse is also human
        return {word.lower() for word in (self.dataset, self.config.data, self.network, *kinds, self.method, self.swept, *rate)} - {""}

    @property
    def name(self) -> str:
        return self.named()

    def named(self, without: Sequence[str] = ()) -> str:
        """What it is called where `without`, some of its fields, are known."""
        return " ".join([*(getattr(self, name) for name in ("dataset", "network") if name not in without), self.noise_and_rate, self.way])

    @property
    def noise_and_rate(self) -> str:
        return self.noise if self.rate in (None, 0) else f"{self.noise} {self.rate:g}"

    @property
    def way(self) -> str:
        """Its method, with what is swept."""
        return f"{self.method} {self.swept}".rstrip()


def meaning(config: Config) -> dict[str, Any]:
    """What a config asks for, the fields of its method filled in, as records have it. A rate that the method is told by whoever made the
    labels is not asked for."""
    told = needs_rate(METHODS[pick("method", config.method, METHODS)]) and "noise_rate" not in config.fields and config.noise_rate is None
    values = asdict(make_method(config.method, config.fields, config.noise_rate, known=lambda: 0.0))  # type: ignore[call-overload]
    if told:
        del values["noise_rate"]
    asked = {name: value for name, value in asdict(config).items() if name not in ANY and not (name in FILLED and value in (None, "auto"))}
    found: dict[str, Any] = json.loads(json.dumps(asked | {"fields": values}))
    return found | {"edition": edition(config.method, values)}


def is_run_of(asked: dict[str, Any], record: Record) -> bool:
    """Whether the record is of a run that a config's `meaning` asks for. A field that came later than the record has there what was done
    before it came, as `store.LATER` and the method's `later` say."""
    method = METHODS[asked["method"]]
    config, values = record.config, record.config["fields"]
    if asked["edition"] != record.edition:
        return False
    if not all(value_in(config, name) == value for name, value in asked.items() if name not in ("data", "fields", "edition")):
        return False
    if "data" in asked and not is_called(asked["data"], record):
        return False
    values = later(asked["method"]) | values
    told = needs_rate(method) and "noise_rate" not in asked["fields"]
    same = all(name in values and values[name] == value for name, value in asked["fields"].items())
    return same and (not told or is_told_right(record))


def value_in(config: Mapping[str, Any], name: str) -> Any:
    """Of a field of a record's config."""
    value = config.get(name)
    return LATER.get(name, DEFAULTS[name]) if value is None else value


def is_called(data: str, record: Record) -> bool:
    """Whether the record is of data of that name. A set is known by it; files of one's own may have moved, and may have changed."""
    its = str(record.config.get("data", DEFAULTS["data"]))
    if data in SETS or its in SETS:
        return data == its
    path = Path(os.path.abspath(data))
    names = (path.stem, path.name, path.parent.name if path.stem == "metadata" else path.name)  # as those who read them name them
    return path == Path(os.path.abspath(its)) or record.data in names


def takes_files(config: Mapping[str, Any]) -> bool:
    """Whether files of one's own decide what is run: by the config alone it cannot be told whether it was run before."""
    data, corrupt, labels, weights = (config.get(name, DEFAULTS[name]) for name in ("data", "corrupt", "labels", "weights"))
    file = labels is not None and not str(labels).startswith("human:")
    return data not in SETS or str(corrupt).startswith(f"{MATRIX}:") or file or weights not in (None, PRETRAINED)


def is_told_right(record: Record) -> bool:
    """Whether the method was told the share of wrong labels as it is, but for the luck of the draw: somebody may have given it another."""
    told, is_so = record.config["fields"].get("noise_rate"), record.summary["noise_rate_realised"]
    if is_so is None:
        return True  # there is nothing to hold it against
    known = is_number(told) and is_number(is_so) and 0 <= told <= 1
    return known and abs(told - is_so) <= 1e-9 + 6 * math.sqrt(told * (1 - told) / max(1, record.n))


def runs_of(cell: Cell, records: Iterable[Record]) -> list[Record]:
    """The records of a cell, by seed; of several with one seed the latest."""
    asked = meaning(cell.config)
    found = sorted((record for record in records if is_run_of(asked, record)), key=lambda record: (record.seed, record.finished))
    return list({record.seed: record for record in found}.values())


def only(cells: Sequence[Cell], text: str, optional: bool = True) -> list[Cell]:
    """Those that all words of `text` fit, of which "a,b" is one or the other: "cifar10 resnet18 sprl,standard". No words: all. Without
    `optional`, optional ones only where a word is their method. Words with spaces in them stand in quotes."""
    ensure(len(cells) > 0, "there is nothing to run or show: the recipe has no cells, or none in this form")
    try:
        groups = [set(word.split(",")) - {""} for word in shlex.split(text.lower())]
    except ValueError as error:
        raise InputError(f'cannot read the words {text!r}: {error}; write names with spaces or quotes as "bob\'s cats"') from error
    ensure(all(groups), f"cannot read the words {text!r}: a comma stands between two words, as in sprl,standard")
    named = {word for group in groups for word in group}
    known = sorted({word for cell in cells for word in cell.words})
    for word in named:
        pick("word to choose cells by", word, known)
    fits = [cell for cell in cells if all(cell.words & group for group in groups)]
    if not fits:
        raise InputError(f"no cell of it is all of {text!r}: each of these words fits some cells, but not the same ones")
    return [cell for cell in fits if optional or not cell.optional or cell.method.lower() in named]


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """One cell of each run: figures and tables share them."""
    found = dict[str, Cell]()
    for cell in cells:
        found.setdefault(repr(sorted(meaning(cell.config).items(), key=str)), cell)
    return list(found.values())


def summed(cells: Iterable[Cell]) -> list[str]:
    """A line for each data set, network and noise: its methods."""
    methods = defaultdict[str, list[str]](list)
    for cell in cells:
        methods[cell.name.removesuffix(cell.way).strip()].append(cell.way)
    return [f"{where}: {', '.join(dict.fromkeys(names))}" for where, names in methods.items()]


def at(cell: Cell, **changes: Any) -> Cell:
    """The same cell with other settings of its run."""
    return replace(cell, config=replace(cell.config, **changes))
