"""When this process itself stood still: stopped by a signal, or paused with its machine."""

from __future__ import annotations

import threading
import time
from functools import cache

_TICK_S = 0.5
# A thread that is so late was not only waiting for a processor.
_STOPPED_S = 5.0


class Pulse(threading.Thread):
    """A thread that ticks, and whose missing ticks show that nothing of the process ran."""

    def __init__(self) -> None:
        """Begin at once; it ends with the process."""
        super().__init__(daemon=True, name="pulse")
        self._ticked = time.monotonic()
        self._ended = float("-inf")
        self.start()

    def run(self) -> None:
        """Tick."""
        while True:
            time.sleep(_TICK_S)
            self.end_of_standstill()
            self._ticked = time.monotonic()

    def end_of_standstill(self) -> float:
        """The monotonic time at which the last standstill was over; -inf before the first."""
        now = time.monotonic()
        if now - self._ticked > _TICK_S + _STOPPED_S:
            self._ended = now
        return self._ended


_pulse = cache(Pulse)


def end_of_standstill() -> float:
    """The same of the process's one pulse, which the first call starts."""
    return _pulse().end_of_standstill()
