"""Plug-ins are found by folder: one file or one folder of its own is all that one takes."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from nixwulf.core.errors import InputError

Found = TypeVar("Found")


def discover(package: ModuleType, attribute: str) -> dict[str, object]:
    """The objects that the modules of a package offer under an attribute, by their name.

    A module is a file or a folder; the attribute is an object with a name, or a tuple of such.
    """
    found: dict[str, object] = {}
    for module in pkgutil.iter_modules(package.__path__):
        offered = getattr(
            importlib.import_module(f"{package.__name__}.{module.name}"), attribute, None
        )
        several = offered if isinstance(offered, tuple) else (offered,)
        found |= {one.name: one for one in several if one is not None}
    return dict(sorted(found.items()))


def choose(found: dict[str, Found], name: str, what: str, source: str) -> Found:
    """The one of that name; raises InputError with the names there are."""
    if name not in found:
        raise InputError(f"{source}: unknown {what} {name!r}; known: {', '.join(found)}.")
    return found[name]
