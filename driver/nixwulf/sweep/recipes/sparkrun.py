"""Recipes of sparkrun, and of eugr's spark-vllm-docker, whose form is sparkrun's first one.

Their keys: https://github.com/spark-arena/sparkrun/blob/main/RECIPES.md. The command is a template
that `defaults` fill; where there is none it is made of them, as sparkrun does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.text import did_you_mean
from nixwulf.sweep.recipes.command_lines import tables
from nixwulf.sweep.recipes.pasted import starts
from nixwulf.sweep.recipes.recipe import Omission, Start, mapping, reasons, without_meaning
from nixwulf.sweep.recipes.shell import ShellError, commands, refusal

_PASSES = 4  # of values that have placeholders themselves
_LONGEST = 1 << 16
_KNOWN = ("recipe_version", "name", "description", "model", "command", "defaults", "env", "runtime")
_REASONS = reasons("sparkrun")
_PLACE = re.compile(r"\{(\w+)\}")
_PLACE_OR_BRACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def recognises(document: Any) -> bool:
    """Whether a YAML document is such a recipe."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("model"), str)
        and not {"container", "runtime", "defaults", "command"}.isdisjoint(document)
    )


def read(document: Mapping[str, Any], text: str, source: str) -> Start:
    """What a recipe starts.

    Raises InputError: for a shell's work in the command, a placeholder without a value, keys of
    another type, and a runtime that is not known where there is no command.
    """
    defaults, environment = (mapping(document, key, source) for key in ("defaults", "env"))
    command = document.get("command")
    if not isinstance(command, str | None):
        raise InputError(f"{source}: command is {quoted(command)}, expected text.")
    if command is None:
        start = Start(_made(document, defaults, source))
        unused: tuple[Omission, ...] = ()
    else:
        start = _of_template(command, document, defaults, text, source)
        unused = tuple(
            Omission(f"defaults.{key}", "the command does not use it")
            for key in defaults
            if f"{{{key}}}" not in command
        )
    metadata = document.get("metadata")
    described = metadata.get("description") if isinstance(metadata, dict) else None
    known = (*_KNOWN, *(["metadata"] if metadata == {"description": described} else []))
    return replace(
        start,
        environment={**environment, **start.environment},
        description=str(document.get("description") or described or document.get("name") or ""),
        left_out=(*without_meaning(document, known, _REASONS), *unused, *start.left_out),
    )


def _of_template(
    template: str, document: Mapping[str, Any], defaults: Mapping[str, Any], text: str, source: str
) -> Start:
    """The command of a template; its line is that of the file."""
    lines = text.splitlines()
    head = next((n for n, line in enumerate(lines, 1) if line.startswith("command:")), 1)
    try:
        commands(template)
    except ShellError as error:
        line = template.split("\n")[error.line - 1].strip()
        number = next((n for n, one in enumerate(lines, 1) if line in one), head)
        raise refusal(error, line, number, source) from None
    values = {**defaults, "model": document["model"]}
    filled = _filled(template, values, document.get("recipe_version"), f"{source}: line {head}")
    try:
        found = starts(filled)
    except ShellError as error:
        line = filled.split("\n")[error.line - 1]
        raise refusal(error, line, head, source) from None
    if len(found) != 1:
        raise InputError(
            f"{source}: line {head}: the command has {len(found)} commands; a recipe is never "
            "given to a shell: write one."
        )
    return replace(found[0], line=head)


def _filled(template: str, values: Mapping[str, Any], version: Any, source: str) -> str:
    """A template with its values; in the first version two braces stand for one.

    Raises InputError for a placeholder without a value, and for values that never end.
    """
    first = str(version) == "1"
    for _ in range(_PASSES):
        pieces, at, length = [], 0, 0
        for place in (_PLACE_OR_BRACE if first else _PLACE).finditer(template):
            key = place[1]
            if key is not None and key not in values:
                known = ", ".join(values)
                raise InputError(f"{source}: the command has {{{key}}}; defaults have: {known}.")
            value = place[0][0] if key is None else values[key]
            piece = "" if value is None else str(value)
            pieces += [template[at : place.start()], piece]
            at, length = place.end(), length + len(pieces[-2]) + len(piece)
            if length > _LONGEST:
                raise InputError(f"{source}: the command is longer than {_LONGEST >> 10} KiB.")
        template = "".join(pieces) + template[at:]
        if first or not pieces:
            return template
    raise InputError(f"{source}: values of defaults have placeholders without end.")


def _made(document: Mapping[str, Any], defaults: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The command that sparkrun makes of defaults where a recipe has none."""
    runtime = str(document.get("runtime") or "")
    table = next((one for one in tables() if runtime in one.runtimes), None)
    if table is None:
        known = [name for one in tables() for name in one.runtimes]
        raise InputError(
            f"{source}: it has no command, and the runtime {quoted(runtime)} is not known; "
            f"{did_you_mean(runtime, known)} Or write its command."
        )
    line, words = table.commands[0], []
    name = next(flag for flag, known in line.flags.items() if known.key == "model")
    for key, value in {name: document["model"], **defaults}.items():
        flag = key if key == name else table.keys.get(key, f"--{key.replace('_', '-')}")
        if value is not False and value is not None:
            words += [flag, *([] if value is True else [str(value)])]
    return (*line.begins[0].split(), *words)
