"""The programs of this folder run where the models are: here, and on nodes over ssh."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from nixwulf.core import names
from nixwulf.core.bounded import check_numbers
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import cache_dir, parse_json
from nixwulf.core.names import Refusal
from nixwulf.core.schema import problems
from nixwulf.nodes.ssh import Connection, Unreachable
from nixwulf.nodes.transfer import run_long
from nixwulf.ops.models import peer, store
from nixwulf.ops.models.store import Document

HERE = "this machine"
PYTHON = ("python3", "-I", "-S", "-c")


def _program(*modules: ModuleType) -> str:
    """A text that is the last of some modules as a program; it finds the others by their names."""
    *known, last = [(one.__name__, Path(one.__file__ or "").read_text("utf-8")) for one in modules]
    return f"""
import sys, types
for name, text in {known!r}:
    sys.modules[name] = types.ModuleType(name)
    exec(text, sys.modules[name].__dict__)
exec({last[1]!r})
"""


STORE = _program(names, store)
PEER = _program(names, store, peer)
_NOT_FOUND = 127
_LOOK = "'nixwulf nodes exec --node {} -- python3 -V'"
_HOURS_S = 24 * 3600.0
_LIMITS_S = {"list": 120.0, "remove": 120.0}  # what reads no whole model
Observer = Callable[[int, int], None]


def folder_here() -> Path:
    """This machine's folder of models."""
    return cache_dir() / "models"


def here(command: Callable[..., Document], *arguments: str) -> Document:
    """Run a command of store.py in this machine's folder; raises NixwulfError."""
    try:
        return command(str(folder_here()), *arguments)
    except (Refusal, OSError) as error:
        words = store.sentence(error) if isinstance(error, OSError) else str(error)
        raise NixwulfError(f"On {HERE} {words}.") from None


def on_node(node: Connection, command: str, **values: Any) -> Document:
    """Run a command of store.py on a node; raises NixwulfError."""
    argv = [*PYTHON, STORE, command, json.dumps(values)]
    return _answer(node, command, node.run(argv, timeout_s=_LIMITS_S.get(command, _HOURS_S)))


def index_on(
    node: Connection, folder: str, name: str, observer: Observer = lambda read, size: None
) -> Document:
    """What stands for a model on a node, all of which is read unless that is known.

    Args:
        observer: called with how many bytes of how many have been read.

    Raises:
        NixwulfError: the node did not answer, reads nothing more, or has no such model.
    """

    def look(line: str) -> None:
        words = line.split()
        if len(words) == len(("read", "size")) and all(word.isdecimal() for word in words):
            observer(int(words[0]), int(words[1]))

    argv = [*PYTHON, STORE, "index", json.dumps({"folder": folder, "name": name})]
    return _answer(node, "index", run_long(node, argv, look))


def _answer(node: Connection, command: str, done: subprocess.CompletedProcess[str]) -> Document:
    name = node.node.name
    try:
        found: Document = parse_json(check_numbers(name, done.stdout), f"node {name!r}")
    except InputError:
        raise NixwulfError(no_python(node, done.returncode, done.stderr)) from None
    if problems({command: found}, "node-models"):
        raise NixwulfError(
            f"Node {name!r} answers {quoted(done.stdout)} of its models, which nixwulf's program "
            f"does not print; look at what {_LOOK.format(name)} says."
        )
    if "error" in found:
        raise NixwulfError(f"On node {node.node.name!r} {found['error']}.")
    return found


def sha256_on(node: Connection, path: str, observer: Observer) -> str | None:
    """A model's sha256, read once and kept beside it; None where that cannot be.

    Args:
        observer: called with how many bytes of how many have been read.

    Raises:
        Unreachable: the node did not answer, or reads nothing more.
    """
    place = PurePosixPath(path)
    try:
        return str(index_on(node, str(place.parent), place.name, observer)["sha256"])
    except Unreachable:
        raise
    except NixwulfError:
        return None


def no_python(node: Connection, returncode: int | None, words: str) -> str:
    """Why a node's Python printed no JSON."""
    if returncode == _NOT_FOUND:
        return (
            f"Node {node.node.name!r} has no python3 on PATH, which copies and hashes models; "
            "deploy the node or install it (macOS: 'xcode-select --install')."
        )
    name, last = node.node.name, (words.strip().splitlines() or ["no words of why"])[-1]
    return (
        f"python3 on node {name!r} ended with {returncode} and no answer: {last}; look at what "
        f"{_LOOK.format(name)} says."
    )
