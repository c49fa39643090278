"""Programs of an engine on this machine: those the lab's nodes run."""

from __future__ import annotations

from collections.abc import Callable
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
