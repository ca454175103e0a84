"""Signals that ask a run to end, heard where it can be saved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stop:
    """Whether a signal asked the run to end, and which."""

    signal = 0

    def __call__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """To exit with, as shells count; another process may have been the one that was asked."""
        return 128 + (self.signal or signal.SIGTERM)


@contextmanager
def stopping(once: bool = False) -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and a closed terminal as a request to end; a second one breaks off at once, which harms no file, unless it counts
    `once`: torchrun passes on what the terminal has sent already."""
    stop = Stop()

    def note(number: int, _: Any) -> None:
        again, stop.signal = stop(), number
        if again and not once:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
