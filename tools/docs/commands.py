"""The commands: what click knows of each, its options and examples."""

from __future__ import annotations

from collections.abc import Iterator

import click
from markdown import code, table

from nixwulf.cli.main import cli

_INTRODUCTION = """# Commands

`nixwulf COMMAND --help` says the same. A cluster is a file or the name of one in `clusters/`, a
sweep one in `sweeps/`, such as `smoke` or `lab/demo`.

Exit codes: 0 ok; 1 a run did not end `ok`, or a comparison found less than it was told to; 2
usage or a bad file; 3 a gate refused, or a node is not as expected; 130 interrupted, with what
was done kept.
"""


def pages() -> dict[str, str]:
    """The page of all commands."""
    context = click.Context(cli, info_name="nixwulf")
    return {"commands.md": _INTRODUCTION + "".join(_group(cli, context, "nixwulf"))}


def _group(group: click.Group, context: click.Context, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield _command(command, f"{path} {name}")
        if isinstance(command, click.Group):
            yield from _group(command, inner, f"{path} {name}")


def _command(command: click.Command, path: str) -> str:
    arguments = " ".join(
        str(one.make_metavar(click.Context(command)))
        for one in command.params
        if isinstance(one, click.Argument)
    )
    text, _, examples = (command.help or "").replace("\b\n", "").partition("Example")
    parts = [f"\n## {path} {arguments}".rstrip(), _flowing(text)]
    if examples:
        lines = [line.strip() for line in examples.partition(":")[2].strip().splitlines()]
        parts.append("```\n" + "\n".join(lines) + "\n```")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        parts.append(table(["option", "default", ""], map(_option, options)).rstrip())
    return "\n\n".join(parts) + "\n"


def _flowing(text: str) -> str:
    paragraphs = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    return "\n\n".join(filter(None, paragraphs))


def _option(option: click.Option) -> tuple[str, str, str]:
    name = option.opts[0]
    if isinstance(option.type, click.Choice):
        name += " " + "|".join(map(str, option.type.choices))
    elif not option.is_flag:
        name += f" {option.metavar or option.type.name.partition(' ')[0].upper()}"
    given = option.default not in (None, "") and not option.is_flag
    shown = given and isinstance(option.default, str | int | float)
    default = code(option.default) if shown else "required" if option.required else ""
    return code(name), default, option.help or ""
