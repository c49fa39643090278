"""Programs of an engine on this machine: those the lab's nodes run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Installation:
    """Programs of an engine that belong together.

    origin: PATH or the driver's cache; programs: their places by name; version: what they say.
    """

    origin: Literal["path", "cache"]
    programs: dict[str, Path]
    version: str


@dataclass(frozen=True)
class LocalEngine:
    """How an engine is found on this machine; a module of this package offers it as LOCAL.

    programs: the names that an installation has places for; built_from: what a build takes and
    how long, as a phrase.
    """

    name: str
    programs: tuple[str, ...]
    find: Callable[[], Installation | None]
    built_from: str
