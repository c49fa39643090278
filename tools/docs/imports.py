"""The tools whose outputs are read, and what else has a parser."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from markdown import code, table

from nixwulf import outputs
from nixwulf.outputs.importers import all_tools

_INTRODUCTION = """# Outputs that are read

`nixwulf import FILE... --platform NAME` recognises these tools by the content; of a file with
several, `--tool NAME` says which.

"""
_OTHERS = """
These are read too, and hold no benchmark's result, so that no record is made of them alone.

"""


def pages() -> dict[str, str]:
    """The page of tools."""
    tools = all_tools()
    of_tools = {tool.parser.__name__ for tool in tools.values()}
    names = (info.name for info in pkgutil.iter_modules(outputs.__path__))
    modules = [import_module(f"{outputs.__name__}.{name}") for name in names]
    others = [one for one in modules if hasattr(one, "recognises") and one.__name__ not in of_tools]
    first = table(
        ["`--tool`", "what is read"],
        ([code(name), _what(tool.parser)] for name, tool in tools.items()),
    )
    second = table(
        ["parser", "what is read"],
        ([code(one.__name__.rpartition(".")[2]), _what(one)] for one in others),
    )
    return {"imports.md": _INTRODUCTION + first + _OTHERS + second}


def _what(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").split("\n\n")[0].split())
