"""Programs of an engine on this machine: those the lab's nodes run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Progress = Callable[[str, float], None]
"""Told the step that goes on and the share of it that is done, 0 to 1."""


@dataclass(frozen=True)
class Installation:
    """Programs of an engine that belong together.

    origin: PATH or the driver's cache; programs: their places by name; version: what they say.
    """

    origin: Literal["path", "cache"]
    programs: dict[str, Path]
    version: str


@contextmanager
def only_one(lock: Path, progress: Progress, waiting: str) -> Iterator[None]:
    """Hold the lock; the kernel lets it go however the driver ends. waiting: said meanwhile."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(waiting, 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
