"""Plug-ins are found by folder: one file or one folder is all that one takes; parameters."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from nixwulf.core.errors import InputError
from nixwulf.core.files import shipped_table
from nixwulf.core.text import did_you_mean

Found = TypeVar("Found")
MOST = (1 << 31) - 1
"""Of a number where nothing says less: foreign programs read 32 bits."""


def discover(package: ModuleType, attribute: str) -> dict[str, object]:
    """Find what a package's modules offer under an attribute, one or a tuple, by their names."""
    found: dict[str, object] = {}
    for module in pkgutil.iter_modules(package.__path__):
        offered = getattr(
            importlib.import_module(f"{package.__name__}.{module.name}"), attribute, None
        )
        several = offered if isinstance(offered, tuple) else (offered,)
        found |= {one.name: one for one in several if one is not None}
    return dict(sorted(found.items()))


def choose(found: dict[str, Found], name: str, what: str, source: str) -> Found:
    """The plug-in of a name; raises InputError with the names there are where there is none."""
    if name not in found:
        raise InputError(f"{source}: unknown {what} {name!r}; {did_you_mean(name, found)}")
    return found[name]


@dataclass(frozen=True)
class Parameter:
    """An axis of the sweep that a benchmark or an engine has; values are of the default's type.

    help: what it does, for the reference that `make docs` writes. omitted: whether a case has it
    only where it is not the default, so that cases of before there was one are the same cases.
    """

    default: int | str
    minimum: int = 0
    maximum: int = MOST
    choices: tuple[str, ...] = ()
    help: str = ""
    omitted: bool = False

    def problem(self, value: object) -> str | None:
        """Say what was expected instead of a value, or None."""
        if type(value) is not type(self.default):
            return f"{type(self.default).__name__}"
        if self.choices and value not in self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(value, int) and value < self.minimum:
            return f"int of at least {self.minimum}"
        if isinstance(value, int) and value > self.maximum:
            return f"int of at most {self.maximum}"
        return None


def parameters_of(name: str, **choices: Iterable[str]) -> dict[str, Parameter]:
    """Return a plug-in's rows of data/parameters.toml; choices: of those that the code knows."""
    return {
        key: Parameter(**{**row, "choices": tuple(choices.get(key, row.get("choices", ())))})
        for key, row in shipped_table("parameters")[name].items()
    }
