"""The programs of this folder run where the models are: here, and on nodes over ssh."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.models import peer, store
from nixwulf.ops.models.store import Document, Refusal

HERE = "this machine"
PYTHON = ("python3", "-I", "-S", "-c")
STORE = Path(store.__file__).read_text("utf-8")
PEER = Path(peer.__file__).read_text("utf-8")
# peer.py imports store.py by its full name, which a module made here has.
BOTH = f"""
import sys, types
store = types.ModuleType({store.__name__!r})
exec(sys.argv[1], store.__dict__)
sys.modules[store.__name__] = store
exec(sys.argv[2])
"""
_NOT_FOUND = 127
_HOURS_S = 24 * 3600.0


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
    done = node.run(argv, timeout_s=_HOURS_S)
    try:
        found: Document = json.loads(done.stdout)
    except ValueError:
        raise NixwulfError(no_python(node, done.returncode, done.stderr)) from None
    if "error" in found:
        raise NixwulfError(f"On node {node.node.name!r} {found['error']}.")
    return found


def sha256_on(node: Connection, path: str) -> str | None:
    """A model's sha256, read once and kept beside it; None where that cannot be."""
    place = PurePosixPath(path)
    with contextlib.suppress(NixwulfError):
        found = on_node(node, "index", folder=str(place.parent), name=place.name)
        return str(found["sha256"])
    return None


def no_python(node: Connection, returncode: int | None, words: str) -> str:
    """Why a node's Python printed no JSON."""
    if returncode == _NOT_FOUND:
        return (
            f"Node {node.node.name!r} has no python3 on PATH, which copies and hashes models; "
            "deploy the node or install it (macOS: 'xcode-select --install')."
        )
    last = (words.strip().splitlines() or ["silence"])[-1]
    return f"python3 on node {node.node.name!r} ended with {returncode}: {last}"
