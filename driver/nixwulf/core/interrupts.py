"""Ctrl-C and SIGTERM, held back while what belongs together is written."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """The block ends before an interrupt that comes meanwhile; then the interrupt comes.

    Only for the main thread, where Python runs handlers of signals, and for blocks that do not
    wait for anything.

    Raises:
        KeyboardInterrupt: after the block, where SIGINT or SIGTERM came during it.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
