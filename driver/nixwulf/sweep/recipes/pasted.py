"""Command lines as they are pasted from a page or a terminal, one or more in a text."""

from __future__ import annotations

import re
from dataclasses import replace

from nixwulf.sweep.recipes.command_lines import find
from nixwulf.sweep.recipes.recipe import Omission, Start
from nixwulf.sweep.recipes.shell import ShellCommand, ShellError, commands, refusal

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_PROMPT = re.compile(r"^[ \t]*\$ ", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_TOOLBOXES = ("toolbox", "distrobox")
_IN_TOOLBOX = "the parameter toolbox takes an image, else the engine on PATH of each node"


def recognises(text: str) -> bool:
    """Whether a command of a text starts an engine; also where a shell would have more to do."""
    plain = _plain(text)
    try:
        found = commands(plain)
    except ShellError:
        found = [ShellCommand(tuple(line.split()), 1) for line in plain.splitlines()]
    return any(find(split_start(command).words) for command in found)


def read(text: str, source: str) -> list[Start]:
    """What each command of a text starts; raises InputError for a shell's work, with its line."""
    plain = _plain(text)
    try:
        return starts(plain)
    except ShellError as error:
        line = plain.split("\n")[error.line - 1]
        raise refusal(error, line, error.line, source) from None


def starts(text: str) -> list[Start]:
    """The same of a text without prompts and fences; raises ShellError.

    Variables that it exports are of the commands after them.
    """
    found: list[Start] = []
    exported: dict[str, str | None] = {}
    for command in commands(text):
        start = split_start(command)
        if start.words[:1] in ((), ("export",)):
            exported |= start.environment
            exported |= {name: value for word in start.words[1:] for name, value in [_pair(word)]}
        else:
            found.append(replace(start, environment={**exported, **start.environment}))
    return found


def split_start(command: ShellCommand) -> Start:
    """The variables before a program, and the program, without the toolbox that it runs in."""
    words, at = command.words, 0
    environment: dict[str, str | None] = {}
    left_out: tuple[Omission, ...] = ()
    while at < len(words):
        if _ASSIGNED.match(words[at]):
            name, value = _pair(words[at])
            environment[name] = value
        elif words[at] in _TOOLBOXES and "--" in words[at:]:
            end = words.index("--", at)
            left_out = (Omission(" ".join(words[at:end]), _IN_TOOLBOX),)
            at = end
        elif words[at] != "env":
            break
        at += 1
    return Start(words[at:], environment, line=command.line, left_out=left_out)


def _pair(word: str) -> tuple[str, str | None]:
    """NAME=VALUE; of a name alone the driver's own value."""
    name, equals, value = word.partition("=")
    return name, value if equals else None


def _plain(text: str) -> str:
    """Without a byte order mark, prompts and fences; each line stays where it is."""
    return _FENCE.sub("", _PROMPT.sub("", text.removeprefix("\ufeff")))
