"""What is known by its name: ours, and what other packages add by entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from sprl.errors import SprlWarning, printable

T = TypeVar("T")


class Registry(MutableMapping[str, T]):
    """Other packages are imported when it is first looked into, not with the module that it stands in: they may import any of ours."""

    def __init__(self, kind: str, group: str, ours: dict[str, T], adopt: Callable[[str, Any], T]) -> None:
        """`adopt` makes of a name and what was found what is kept, or raises what is wrong with it."""
        self.kind, self.group, self.known, self.adopt, self.asked = kind, group, ours, adopt, False

    @property
    def every(self) -> dict[str, T]:
        if not self.asked:
            self.asked = True  # first: what is imported may look in here itself
            for point in entry_points(group=self.group):
                try:
                    if point.name in self.known:
                        raise ValueError("there is one of that name already; give it another")
                    self.known[point.name] = self.adopt(point.name, point.load())
                except Exception as error:  # of other people's packages: ours works without
                    told = printable(f"the {self.kind} {point.name} of {point.value} cannot be loaded: {error}")
                    warnings.warn(told, SprlWarning, stacklevel=3)
        return self.known

    def __getitem__(self, name: str) -> T:
        return self.every[name]

    def __setitem__(self, name: str, value: T) -> None:
        self.every[name] = value

    def __delitem__(self, name: str) -> None:
        del self.every[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.every)

    def __len__(self) -> int:
        return len(self.every)

    def __repr__(self) -> str:
        return repr(self.every)
