"""What a checkpoint must be like before anything is taken from it: a sound archive of plain tensors, and of this run's shapes."""

from __future__ import annotations

import math
import pickletools
import re
import warnings
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sprl.engine import batch_sizes
from sprl.errors import InputError, printable
from sprl.fields import read_fields
from sprl.search import Search, held_out, search_of
from sprl.state import contents
from sprl.training import first_of

if TYPE_CHECKING:
    from sprl.core import Method
    from sprl.run import Run

# All that a checkpoint of ours names in its pickle; torch's own list is longer and can be made to allocate at will.
NAMES = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_tensor_v2|torch (Byte|Char|Short|Int|Long|Bool|Half|BFloat16|Float|Double)Storage"
)
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam, the one optimizer of runs that are kept, remembers of a weight


class Unreadable(InputError):
    """A checkpoint that is damaged, or none of this run."""


def require(true: bool, otherwise: str) -> None:
    if not true:
        raise Unreadable(otherwise)


def read(path: Path) -> dict[str, Any]:
    """What the file holds, as torch reads it, not yet compared with any run. Tensors lie in the file until they are copied."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            require(all(e.compress_type == zipfile.ZIP_STORED for e in entries), "it is compressed")
            require(sum(e.file_size for e in entries) <= path.stat().st_size, "it claims to be larger than it is")
            require(archive.testzip() is None, "it is damaged")
            for entry in entries:
                if entry.filename.endswith(".pkl"):
                    check_names(archive.read(entry))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is refused below
            saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Unreadable:
        raise
    except Exception as error:  # of damaged files there are many kinds
        if is_out_of_memory(error):
            raise
        raise Unreadable(printable((str(error).splitlines() or [""])[0])[:200] or type(error).__name__) from error
    require(isinstance(saved, dict), "it holds something else")
    return saved


def is_out_of_memory(error: BaseException) -> bool:
    """Which says nothing about a file."""
    words = ("can't allocate memory", "Cannot allocate memory", "out of memory")  # torch's and the system's, and CUDA's
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def check_names(pickled: bytes) -> None:
    for code, argument, _ in pickletools.genops(pickled):
        if "GLOBAL" in code.name or code.name == "INST":
            require(bool(NAMES.fullmatch(str(argument))), f"it names {printable(str(argument))[:80]}, which no checkpoint needs")


def check(saved: dict[str, Any], run: Run) -> Method:
    """Refuse what cannot be of this run, freshly prepared, whatever its numbers. Returns the method."""
    like = contents(run.state)
    method = read_method(saved["method"], run)
    check_state(saved["state"], like, run)
    t = saved["state"]["t"]
    check_warmup(saved["warmup"], like, run, search_of(method, run.task.epochs), saved["state"])
    check_rows(saved["rows"], t, run)
    require(type(saved["seconds"]) is float and 0 <= saved["seconds"] < math.inf, "seconds is no time")
    steppers: tuple[str, ...] = ("eager", "captured", "compiled") if run.task.device.type == "cuda" else ("eager",)
    steppers = steppers if run.task.ranks.count == 1 else (run.state.stepper.name,)
    require(type(saved["stepper"]) is str and saved["stepper"] in steppers, "stepper is none of this device")
    return method


def compare_kinds(given: Any, like: Any, where: str) -> None:
    """Refuse what has not the types, keys, lengths, shapes and number types of `like`; numbers and text may be others."""
    if isinstance(like, Tensor):
        require(is_plain(given) and given.shape == like.shape and given.dtype == like.dtype, f"{where} is not {kind_of(like)}")
    elif isinstance(like, dict):
        require(isinstance(given, dict) and given.keys() == like.keys(), f"{where or 'it'} has other keys")
        for key in like:
            compare_kinds(given[key], like[key], f"{where}.{key}" if where else str(key))
    elif isinstance(like, list | tuple):
        require(type(given) is type(like) and len(given) == len(like), f"{where} is of another length")
        for i, (a, b) in enumerate(zip(given, like, strict=True)):
            compare_kinds(a, b, f"{where}.{i}")
    else:
        require(type(given) is type(like), f"{where} is not of type {type(like).__name__}")


def is_plain(given: Any) -> bool:
    """A tensor of plain numbers, alone in its memory: copying it takes no more than it took in the file."""
    return (
        type(given) is Tensor
        and given.layout == torch.strided
        and given.device.type == "cpu"
        and not given.requires_grad
        and owns_memory(given)
    )


def owns_memory(tensor: Tensor) -> bool:
    """Whether its memory is what its elements need: no number stands for many, and no other numbers lie there."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def kind_of(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def read_method(given: Any, run: Run) -> Method:
    """The method of the config; what it searches for perhaps found."""
    method = run.state.method
    search = search_of(method, run.task.epochs)
    wanted: dict[str, Any] = asdict(method)  # type: ignore[call-overload]
    if search is not None and isinstance(given, dict) and given.get(search.field) != "auto":
        wanted[search.field] = given.get(search.field)
    compare_kinds(given, wanted, "method")
    require(given == wanted, "method is not that of the config")
    try:
        method = replace(method, **read_fields(type(method), "method", wanted))  # type: ignore[type-var]
        method.init(run.task.y, run.task.num_classes, run.task.epochs)
    except InputError as error:
        raise Unreadable(str(error)) from error
    return method


def check_state(given: Any, like: dict[str, Any], run: Run) -> None:
    """A snapshot of this run's state: everything as in a fresh one, but for the optimizer's memory and the epoch under way."""
    require(isinstance(given, dict) and given.keys() == like.keys(), "state has other keys")
    for name in ("networks", "memory", "order", "draws", "t"):
        compare_kinds(given[name], like[name], name)
    require(0 <= given["t"] <= run.task.epochs, "t is out of range")
    check_optimizer(given["optimizer"], like["optimizer"], run)

    progress, n = given["progress"], len(run.task.y)
    require(isinstance(progress, dict), "progress has other keys")
    compare_kinds({**progress, "rows": None}, {**like["progress"], "rows": None}, "progress")
    rows, done = progress.get("rows"), progress["done"]
    require(0 <= done <= len(progress["losses"]), "progress.done is out of range")
    if rows is not None:
        require(is_plain(rows) and rows.dtype == torch.int64 and rows.ndim == 1 and 0 < len(rows) <= n, "progress.rows are no rows")
        require(int(rows.min()) >= 0 and int(rows.max()) < n and len(rows.unique()) == len(rows), "progress.rows are no rows")
        require(done <= len(batch_sizes(len(rows), run.task.batch_size)), "progress.done is out of range")


def check_optimizer(given: Any, like: dict[str, Any], run: Run) -> None:
    require(isinstance(given, dict) and given.keys() == like.keys() and isinstance(given["state"], dict), "optimizer has other keys")
    compare_kinds(given["param_groups"], like["param_groups"], "optimizer.param_groups")
    for group, fresh in zip(given["param_groups"], like["param_groups"], strict=True):
        fixed = {name: value for name, value in fresh.items() if name not in ("lr", "betas")}  # those follow the epoch
        require(all(group[name] == value for name, value in fixed.items()), "optimizer.param_groups are others")
    weights = dict(enumerate(run.state.networks.parameters()))
    for number, moments in given["state"].items():
        require(type(number) is int and number in weights, "optimizer.state is of other weights")
        like = {name: torch.zeros(()) if name == "step" else weights[number] for name in MOMENTS}
        compare_kinds(moments, like, f"optimizer.state.{number}")
        require(float(moments["step"]) >= 0, "optimizer.state has a negative step")


def check_warmup(given: Any, like: dict[str, Any], run: Run, search: Search | None, state: dict[str, Any]) -> None:
    """The search, as long as the state has epochs: a score for each, a snapshot of the one that would be taken now, and the beginning."""
    t, count = state["t"], 0
    if search is not None:
        held = held_out(run.task)
        count = 0 if held is None or search.longest < 2 else int(held.sum())
    begun = t > 0 or state["progress"]["rows"] is not None
    begins = [0] if count and begun else []
    require(isinstance(given, dict) and list(given) == [*begins, *range(1, t + 1 if count else 1)], "warmup is of other epochs")
    for epoch, pair in given.items():
        require(isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is float and 0 <= pair[0] <= 1, "warmup holds no score")
        if pair[1] is not None:
            check_state(pair[1], like if epoch else like | {"memory": {}}, run)
            require(pair[1]["t"] == epoch and pair[1]["progress"]["rows"] is None, "warmup holds another epoch")
    if begins:
        require(given[0][1] is not None, "warmup lacks the beginning")
    if search is not None and count and t:
        require(given[first_of(given, search, count)][1] is not None, "warmup lacks the best epoch")


def check_rows(given: Any, t: int, run: Run) -> None:
    require(isinstance(given, list) and len(given) == t, "rows are of other epochs")
    needed = {"epoch", "loss", "chosen"} | {name for name, value in run.state.memory.items() if value.ndim == 0 and not value.isnan()}
    needed |= ({"test_accuracy"} if run.x_test is not None else set()) | ({"recall"} if run.data.clean is not None else set())
    for number, row in enumerate(given, 1):
        require(isinstance(row, dict) and row.keys() >= needed, "rows are no metrics")
        require(all(type(k) is str and type(v) in (int, float) for k, v in row.items()), "rows are no metrics")
        require(row["epoch"] == number, "rows are of other epochs")
