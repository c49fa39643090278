"""Engines, benchmarks and gates: what each is, and its parameters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from markdown import code, codes, table

from nixwulf.core.registry import MOST, Parameter
from nixwulf.plugins.benchmarks import all_benchmarks
from nixwulf.plugins.engines import all_engines
from nixwulf.plugins.gates import all_gates
from nixwulf.sweep.plan import OF_EVERY_ENGINE

_INTRODUCTION = """# Engines and benchmarks, and their parameters

A sweep lists values of a parameter below `parameters`; a case has those that its own engine and
benchmark know. [engines.md](../engines.md) and [benchmarks.md](../benchmarks.md) say how they are
used. Every engine has
"""

_GATES = """# Gates

Conditions that have to hold before a case runs; [sweeps.md](../sweeps.md#gates) says how they are
held, waived and read. `on`: systems of which a gate can be judged; elsewhere it refuses nothing.

"""


def pages() -> dict[str, str]:
    """The page of parameters, and that of gates."""
    return {"parameters.md": _parameters(), "gates.md": _gates()}


def _parameters() -> str:
    parts = [_INTRODUCTION, _table(OF_EVERY_ENGINE)]
    for title, found in (("Engines", all_engines()), ("Benchmarks", all_benchmarks())):
        parts.append(f"## {title}\n")
        for name, one in found.items():
            parts += [f"### {name}\n", _what(one)]
            ports = getattr(one, "ports", ())
            if ports:
                parts.append(f"Listens on {codes(ports)}.\n")
            if one.parameters:
                parts.append(_table(one.parameters))
            parts += _reserved(getattr(one, "reserved_arguments", {}), "`arguments`")
            parts += _reserved(getattr(one, "reserved_variables", {}), "`environment`")
    return "\n".join(parts)


def _reserved(reserved: Mapping[str, str], key: str) -> list[str]:
    """What of a key the driver sets itself, as a table with what to use instead; none without."""
    if not reserved:
        return []
    grouped: dict[str, list[str]] = {}
    for names, instead in reserved.items():
        grouped.setdefault(instead, []).extend(names.split())
    rows = ([codes(names), instead] for instead, names in grouped.items())
    return [table([f"refused in {key}", "use instead"], rows)]


def _what(one: Any) -> str:
    """Its module's docstring in a line, which begins with its name, and more of its class's."""
    module = sys.modules[type(one).__module__].__doc__ or ""
    line = " ".join(module.partition("\n\n")[0].split()).partition(": ")[2]
    more = inspect.cleandoc(type(one).__doc__ or "").partition("\n\n")[2]
    return f"{line[:1].upper()}{line[1:]}\n" + (f"\n{more}\n" if more else "")


def _table(parameters: Mapping[str, Parameter]) -> str:
    return table(
        ["parameter", "default", "values", ""],
        (
            [code(name), code(_yaml(one.default)), _values(one), one.help]
            for name, one in parameters.items()
        ),
    )


def _values(one: Parameter) -> str:
    if one.choices:
        return codes(one.choices)
    if isinstance(one.default, bool):
        return codes(("true", "false"))
    most = f" to {one.maximum}" if one.maximum < MOST else ""
    return f"from {one.minimum}{most}" if isinstance(one.default, int) else "text"


def _yaml(value: int | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else '""'


def _gates() -> str:
    rows = (
        [
            code(gate.name),
            gate.holds,
            gate.reads,
            gate.fix,
            "any" if gate.systems is None else ", ".join(gate.systems),
        ]
        for gate in all_gates().values()
    )
    return _GATES + table(["gate", "what must hold", "what it reads", "what to do", "on"], rows)
