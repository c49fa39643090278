"""The tools whose outputs are read, and what else is recognised."""

from __future__ import annotations

import inspect

from markdown import code, table

from nixwulf.outputs import Tool, all_tools
from nixwulf.outputs.described import KINDS

_INTRODUCTION = """# Outputs that are read

`nixwulf import FILE... --platform NAME` recognises these tools by the content; of a file with
several, `--tool NAME` says which.

"""
_OTHERS = """
These are recognised too, and hold no benchmark's result, so that no record is made of them.

"""


def pages() -> dict[str, str]:
    """The page of tools."""
    head = ["`--tool`", "what is read"]
    first = table(head, ([code(name), _what(tool)] for name, tool in all_tools().items()))
    second = table(["output", "what it holds"], ([code(one.name), one.what] for one in KINDS))
    return {"imports.md": _INTRODUCTION + first + _OTHERS + second}


def _what(tool: Tool) -> str:
    if tool.what:
        return f"{tool.what[0].upper()}{tool.what[1:]}."
    document = inspect.getdoc(inspect.getmodule(tool.read)) or ""
    return " ".join(document.split("\n\n")[0].split())
