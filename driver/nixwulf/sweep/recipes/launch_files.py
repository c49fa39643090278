"""Files that start servers: docker-compose, systemd units, configurations of llama-swap, LiteLLM.

https://docs.docker.com/reference/compose-file/services/, systemd.service(5),
https://github.com/mostlygeek/llama-swap, https://docs.litellm.ai/docs/proxy/configs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
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
    environment = block.get("environment") or {}
    if isinstance(environment, list):
        environment = dict(str(one).partition("=")[::2] for one in environment)
    kept = {name: value for name, value in environment.items() if not _expands(value)}
    left = [
        Omission(f"{name}={value}", "it is of the file's own .env; write its value")
        for name, value in environment.items()
        if _expands(value) and value not in (f"${{{name}}}", f"${name}")
    ]
    kept |= {
        name: None for name, value in environment.items() if value in (f"${{{name}}}", f"${name}")
    }
    left += without_meaning(block, _TAKEN, _REASONS)
    words = [*_words(block.get("entrypoint")), *_words(block.get("command"))]
    if words and words[-1] != block.get("command") and not any(" " in one for one in words):
        start = words if find(words) else of_image(str(block.get("image", "")), words)
        starts = [Start(tuple(start))] if start else []
    else:
        starts = read_text("\n".join(_script(words)), source) if words else []
        starts = [one for one in starts if find(one.words)]
        flags = of_image(str(block.get("image", "")), _split(" ".join(words)))
        starts = starts or ([Start(flags)] if flags else [])
    return [
        replace(one, environment={**kept, **one.environment}, left_out=(*one.left_out, *left))
        for one in starts
    ]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()


def _expands(value: Any) -> bool:
    return isinstance(value, str) and "$" in value


def _words(value: Any) -> list[str]:
    """Of a text, the text; of a list its words."""
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


def _script(words: Sequence[str]) -> Iterator[str]:
    """The text for a shell: what stands behind its -c, or the words themselves."""
    if any(word in ("-c", "-lc", "-ec") for word in words[:3]):
        # Folded YAML keeps the lines of options, which stand further in.
        yield re.sub(r"\n[ \t]+(?=-)", " ", words[-1].replace("$$", "$"))
    else:
        program = [one for one in words if one not in ("/bin/bash", "/bin/sh", "bash", "sh")]
        yield program[0] if len(program) == 1 else shlex.join(program)


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
    """Whether a text is a systemd unit that starts something."""
    return "[Service]" in text and "ExecStart" in text


def read_unit(text: str, source: str) -> list[Start]:
    """What a unit starts, with its environment; raises InputError."""
    joined = re.sub(r"\\[ \t]*\n", lambda one: " ", text)
    pairs = [(one["key"], one["value"].strip()) for one in _UNIT.finditer(joined)]
    environment = {
        name: value
        for key, text_of in pairs
        if key == "Environment"
        for name, _, value in (word.partition("=") for word in _split(text_of))
    }
    left = tuple(
        Omission(f"{key}={value}", "it is of systemd")
        for key, value in pairs
        if key not in ("ExecStart", "Environment")
    )
    commands = "\n".join(value.lstrip("-@:+!") for key, value in pairs if key == "ExecStart")
    return [
        replace(
            one, environment={**environment, **one.environment}, left_out=(*one.left_out, *left)
        )
        for one in read_text(commands, source)
    ]
