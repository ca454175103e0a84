"""Fields of methods: read from text, and checked against their types."""

import json
import math
import types
import typing
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from sprl.core import Matrix, Method
from sprl.errors import InputError, pick, printable


def read_fields(cls: type[Method], name: str, values: dict[str, Any]) -> dict[str, Any]:
    """`values` checked and, where they are text, read as the type of their field."""
    hints = typing.get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    return {pick(f"field of {name}", key, known): read_value(key, value, hints[key]) for key, value in values.items()}


def checked(method: Method) -> Method:
    """`method` with every field of its type; InputError where one cannot be."""
    values = {f.name: getattr(method, f.name) for f in fields(method)}  # type: ignore[arg-type]
    return replace(method, **read_fields(type(method), type(method).__name__, values))  # type: ignore[type-var]


def read_value(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type that `hint` names, e.g. "5" as 5 for int | Literal["auto"]."""
    options, words = parts(hint)
    if (isinstance(value, str) and value in words) or (value is None and type(None) in options):
        return value
    for option in options:
        if option is bool and str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        if option in (int, float) and not isinstance(value, bool):
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if math.isfinite(number) and (option is float or number.is_integer()):
                return option(number)
        if option is Matrix:
            with suppress(TypeError, ValueError, OverflowError, RecursionError):  # JSON's errors are ValueErrors
                return tuple(tuple(float(entry) for entry in row) for row in (json.loads(value) if isinstance(value, str) else value))
    raise InputError(f"{name} cannot be {printable(repr(value))[:100]}: it must be {describe(hint)}")


def describe(hint: Any) -> str:
    """What a field may be, in words."""
    options, words = parts(hint)
    names = {int: "a whole number", float: "a number", bool: "true or false", Matrix: "a matrix, [[0.9, 0.1], [0.2, 0.8]]"}
    return " or ".join([*map(repr, words), *(names[option] for option in options if option in names)])


def parts(hint: Any) -> tuple[tuple[Any, ...], list[str]]:
    """The types that a hint allows, and the words."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    return options, [word for option in options if typing.get_origin(option) is typing.Literal for word in typing.get_args(option)]
