"""A clock that does not count what a busy machine makes a trial late by.

The kernel counts for each thread how long it was ready to run and waited for a processor
(/proc/PID/task/TID/schedstat, the second number, nanoseconds). That of the trial's processes is not
counted. A process that hangs waits for no processor, so that its time is counted whole; and of no
moment is more than two thirds left out, so that a limit comes after three times as long at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_EVERY_S = 0.25
_MOST = 2 / 3


def waited_s(process: int) -> dict[str, float]:
    """How long each thread of a process has waited for a processor in its life, seconds."""
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError, IndexError):
                found[task.name] = int((task / "schedstat").read_text("ascii").split()[1]) / 1e9
    return found


class Clock:
    """Seconds that a trial had, to be looked at often.

    late: the seconds that its processes waited for a processor and that are not counted.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        """Begin now; processes: gives those of the trial."""
        self._processes = processes
        self._looked = time.monotonic()
        self._waited: dict[str, float] = {}
        self.late = 0.0

    def now(self) -> float:
        """Monotonic seconds, without those that the machine was late."""
        now = time.monotonic()
        if now - self._looked > _EVERY_S:
            waited: dict[str, float] = {}
            for process in self._processes():
                waited |= waited_s(process)
            # They wait at the same time: what the longest waited is what all of them were late.
            grown = max((s - self._waited.get(task, 0.0) for task, s in waited.items()), default=0)
            self.late += min(max(0.0, grown), _MOST * (now - self._looked))
            self._looked, self._waited = now, waited
        return now - self.late
