"""The recipes that are read, and what flags of their command lines are in a sweep."""

from __future__ import annotations

from collections.abc import Iterator

from markdown import code, codes, table

from nixwulf.plugins import engines
from nixwulf.sweep.recipes.command_lines import CommandLine, Flag, tables

_INTRODUCTION = """# Recipes that are read

`nixwulf import RECIPE` prints the sweep of one. A GPU is a node. It reads

* YAML of sparkrun and of spark-vllm-docker: `command` is filled with `defaults`, or made of them;
* YAML of vllm-project/recipes: the default variant, with the features that are on;
* YAML of a server's flags; its model is given by `--model` where it has none;
* a text of commands, one a line but for continued lines, each a block of the sweep.

Other flags than those below stay in `arguments`, but for those that the driver sets by itself,
which are named on standard error with what to use. Named too is what a recipe has of containers,
builds, hosts and ports. Variables stay in `environment`; of a secret the name alone.
"""


def pages() -> dict[str, str]:
    """The page of recipes."""
    lines = [line for one in tables() for line in one.commands]
    return {"recipes.md": _INTRODUCTION + "".join(map(_of, lines))}


def _of(line: CommandLine) -> str:
    lacks = "" if line.engine in engines.all_engines() else ", an engine that this version lacks"
    measured = f"Measured by {code(line.benchmark)}."
    defaults = {**line.otherwise, **line.otherwise_on_several}
    without = ", ".join(code(f"{key}: [{_value(one)}]") for key, one in defaults.items())
    ends = f" Where no flag says otherwise: {without}." if without else ""
    rows = ([codes(names), _meaning(flag)] for flag, names in _rows(line))
    head = ["flag", "in the sweep"]
    return (
        f"\n## {', '.join(code(begin) for begin in line.begins)}\n\n"
        f"Engine {code(line.engine)}{lacks}. {measured}{ends}\n\n{table(head, rows)}"
    )


def _rows(line: CommandLine) -> Iterator[tuple[Flag, list[str]]]:
    """Each meaning with the flags that have it."""
    kinds: list[Flag] = []
    for flag in line.flags.values():
        if flag not in kinds:
            kinds.append(flag)
    for kind in kinds:
        yield kind, [name for name, flag in line.flags.items() if flag == kind]


def _meaning(flag: Flag) -> str:
    if not flag.key:
        return f"left out: {flag.why}"
    what = {"hub": "model", "nodes": "nodes"}.get(flag.key, flag.key)
    said = code(what)
    if flag.parallelism:
        said += f", {code(f'parallelism: [{flag.parallelism}]')}"
    if flag.reads == "percent":
        said += " in per cent"
    if flag.reads == "peers":
        said += ": one more than its peers"
    if flag.by_value:
        values = (
            f"{code(text) if text else 'alone'}: {_value(one)}"
            for text, one in flag.by_value.items()
        )
        said += f" ({', '.join(values)})"
    return f"{said}; else left out: {flag.why}" if flag.why else said


def _value(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
