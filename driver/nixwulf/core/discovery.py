"""Engines and benchmarks are found by folder: one file that holds one class is all it takes."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from nixwulf.core.errors import InputError

Found = TypeVar("Found")


def discover(package: ModuleType, attribute: str) -> dict[str, object]:
    """The objects that the modules of a package offer under an attribute, by their name."""
    found: dict[str, object] = {}
    for module in pkgutil.iter_modules(package.__path__):
        offered = getattr(
            importlib.import_module(f"{package.__name__}.{module.name}"), attribute, None
        )
        if offered is not None:
            found[offered.name] = offered
    return dict(sorted(found.items()))


def choose(found: dict[str, Found], name: str, what: str, source: str) -> Found:
    """The one of that name; raises InputError with the names there are."""
    if name not in found:
        raise InputError(f"{source}: unknown {what} {name!r}; known: {', '.join(found)}.")
    return found[name]
