"""Files that start servers: docker-compose, systemd units, configurations of llama-swap, LiteLLM.

https://docs.docker.com/reference/compose-file/services/, systemd.service(5),
podman-systemd.unit(5),
https://github.com/mostlygeek/llama-swap, https://docs.litellm.ai/docs/proxy/configs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.sweep.recipes.command_lines import find, of_image
from nixwulf.sweep.recipes.pasted import read as read_text
from nixwulf.sweep.recipes.pasted import without_workers
from nixwulf.sweep.recipes.recipe import Omission, Start, reasons, without_meaning

_REASONS = reasons("services")
_TAKEN = ("command", "entrypoint", "environment")
_MACRO = re.compile(r"\$\{(\w+)\}")
# Keys of units, by what a compose file calls them; and two that each kind of unit has.
_STARTING = {"ExecStart": "", "Environment": "", "Image": "image", "Exec": "command"}
_UNITS = (("[Service]", "ExecStart"), ("[Container]", "Image="))
_SHELL = {"-c", "-lc", "-ec"}
_UNIT = re.compile(r"^(?P<key>[A-Z]\w+)[ \t]*=[ \t]*(?P<value>.*)$", re.MULTILINE)


def recognises(document: Any) -> bool:
    """Whether a YAML document is one of these."""
    return isinstance(document, dict) and any(
        isinstance(document.get(key), kind)
        for key, kind in (("services", dict), ("model_list", list), ("models", dict))
    )


def read(document: Mapping[str, Any], source: str) -> list[Start]:
    """What each service or model of it starts; raises InputError where none is an engine's."""
    found: list[Start] = []
    others: list[Omission] = []
    key = next(one for one in ("services", "model_list", "models") if document.get(one))
    blocks = document[key] if key != "model_list" else dict(enumerate(document[key]))
    for name, block in blocks.items():
        if not isinstance(block, dict):
            raise InputError(f"{source}: {key} {name} is {quoted(block)}, expected a table.")
        starts = _READERS[key](block, document, f"{source}: {name}")
        found += [replace(one, name=str(name)) for one in starts]
        if not starts:
            others.append(Omission(f"{key} {name}", "it starts no engine that is known"))
    if not found:
        raise InputError(
            f"{source}: none of its {key} starts an engine that is known; paste the command of one "
            "into a text file, and import that."
        )
    left = without_meaning(document, (key, "version", "name", "macros"), {})
    head = replace(found[0], left_out=(*found[0].left_out, *others, *left))
    return without_workers([head, *found[1:]])


def _service(block: Mapping[str, Any], document: Mapping[str, Any], source: str) -> list[Start]:
    given = block.get("environment") or {}
    if isinstance(given, list):
        given = dict(str(one).partition("=")[::2] for one in given)
    kept: dict[str, Any] = {}
    left = [*without_meaning(block, _TAKEN, _REASONS)]
    for name, value in given.items():
        if value in (f"${{{name}}}", f"${name}"):
            kept[name] = None
        elif "$" in str(value):
            why = "it is of the file's own .env; write its value"
            left.append(Omission(f"{name}={value}", why))
        else:
            kept[name] = value
    return [
        replace(one, environment={**kept, **one.environment}, left_out=(*one.left_out, *left))
        for one in _of_container(block, source)
    ]


def _of_container(block: Mapping[str, Any], source: str) -> list[Start]:
    """What a container starts: by the command that it is given, or its image with flags."""
    begin, rest = block.get("entrypoint"), block.get("command")
    if begin and rest:
        begin = _split(begin) if isinstance(begin, str) else begin
        rest = _split(rest) if isinstance(rest, str) and not _SHELL & {*map(str, begin)} else rest
    words = [*_words(begin), *_words(rest)]
    script = _script(words)
    found = [one for one in read_text(script, source) if find(one.words)] if script else []
    flags = of_image(str(block.get("image", "")), _split(" ".join(words)))
    return found or ([Start(flags)] if flags else [])


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()


def _words(value: Any) -> list[str]:
    """Of a text, the text; of a list its words."""
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


def _script(words: Sequence[str]) -> str:
    """The text for a shell: what stands behind its -c, or the words themselves."""
    if _SHELL & {*words[:3]} and " " in words[-1]:
        # Folded YAML keeps the lines of options, which stand further in.
        return re.sub(r"\n[ \t]+(?=-)", " ", words[-1].replace("$$", "$"))
    program = [one for one in words if one not in ("/bin/bash", "/bin/sh", "bash", "sh")]
    return program[0] if len(program) == 1 else shlex.join(program)


def _swapped(block: Mapping[str, Any], document: Mapping[str, Any], source: str) -> list[Start]:
    """A model of llama-swap: its command with the file's macros, of which PORT is its own."""
    macros = {**(document.get("macros") or {}), "PORT": "8080", "MODEL_ID": "model"}
    text = str(block.get("cmd") or "")
    for _ in range(4):
        text = _MACRO.sub(lambda one: str(macros.get(one[1], one[0])), text)
    text = " ".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = [one for one in read_text(text, source) if find(one.words)] if text else []
    given = dict(str(one).partition("=")[::2] for one in block.get("env") or ())
    left = without_meaning(block, ("cmd", "env"), {})
    return [
        replace(one, environment={**given, **one.environment}, left_out=(*one.left_out, *left))
        for one in found
    ]


def _routed(block: Mapping[str, Any], document: Mapping[str, Any], source: str) -> list[Start]:
    """A model of LiteLLM: a server that is there already."""
    given = block.get("litellm_params")
    if not isinstance(given, dict) or not given.get("api_base"):
        return []
    name = str(given.get("model", "")).partition("/")[2] or str(block.get("model_name", ""))
    left = without_meaning(
        given, ("model", "api_base"), {"api_key": "export it where you run nixwulf"}
    )
    return [
        Start(("nixwulf-endpoint", "--url", str(given["api_base"]), "--model", name), left_out=left)
    ]


_READERS = {"services": _service, "models": _swapped, "model_list": _routed}


def is_unit(text: str) -> bool:
    """Whether a text is a systemd unit, or one of Podman, that starts something."""
    return any(head in text and key in text for head, key in _UNITS)


def read_unit(text: str, source: str) -> list[Start]:
    """What a unit starts, with its environment; raises InputError."""
    kept: list[tuple[str, str]] = []
    left: list[Omission] = []
    for one in _UNIT.finditer(re.sub(r"\\[ \t]*\n", " ", text)):
        key, value = one["key"], one["value"].strip()
        if key not in _STARTING:
            left.append(Omission(f"{key}={value}", "it is of systemd"))
        elif value:
            kept.append((key, value))
        else:  # as in a drop-in: what was said before holds no longer
            left += [Omission(f"{k}={v}", "a later line replaces it") for k, v in kept if k == key]
            kept = [pair for pair in kept if pair[0] != key]
    environment = {
        name: value
        for key, text_of in kept
        if key == "Environment"
        for name, _, value in (word.partition("=") for word in _split(text_of))
    }
    commands = "\n".join(value.lstrip("-@:+!") for key, value in kept if key == "ExecStart")
    container = {_STARTING[key]: value for key, value in kept}
    found = read_text(commands, source) if commands else _of_container(container, source)
    return [
        replace(
            one, environment={**environment, **one.environment}, left_out=(*one.left_out, *left)
        )
        for one in found
    ]
