"""Runs what a fuzz target makes: a command of nixwulf, or a reader of model files, cut off."""

from __future__ import annotations

import io
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from nixwulf.cli.main import main as nixwulf
from nixwulf.llm import sizes_on
from nixwulf.nodes.ssh import Connection

ROOT = Path(__file__).parents[2]
_CODES = {0, 1, 2, 3}


class Broken(Exception):
    """An input that did not end in a result or in a sentence."""


def isolate() -> None:
    """Close the network to this process and its children's programs."""

    def refuse(*_: Any) -> None:
        raise OSError("the campaign's targets connect nowhere")

    socket.socket.connect = refuse  # type: ignore[assignment,method-assign]
    programs = Path(tempfile.mkdtemp(prefix="fuzz-programs-"))
    for name in ("ssh", "scp", "nix", "git", "ip", "ping", "podman", "docker", "sudo", "curl"):
        (programs / name).write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    for name in ("sh", "head", "ls", "cat", "wc", "find", "awk"):  # what a "node" of ours runs
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    os.environ["PATH"] = str(programs)


REACHED = {"commands": 0, "accepted": 0}
"""How many commands and readers ran, and how many took their input: a target that is always refused
at its first check measures nothing."""


def command(folder: Path, *arguments: str) -> str:
    """The stdout of a command of nixwulf in a folder; raises Broken, or what it let through."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict") for _ in range(2))
    err.reconfigure(errors="backslashreplace")
    before, argv = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["nixwulf", *arguments]
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            nixwulf()
    except SystemExit as end:
        code = end.code or 0
    finally:
        os.chdir(before)
        sys.argv = argv
    count(accepted=code in (0, 1))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    if code not in _CODES:
        raise Broken(f"exit {code!r}")
    if code and not texts[1].strip() and not texts[0].strip():
        raise Broken(f"exit {code} without a sentence")
    if bad := [line for line in texts[1].split("\n") if not line.isprintable()]:
        raise Broken(f"on stderr: {bad[0]!r}")
    return texts[0]


def count(*, accepted: bool) -> None:
    REACHED["commands"] += 1
    REACHED["accepted"] += accepted


def file_for(name: str, *commands: tuple[str, ...]) -> Callable[[bytes, Path], None]:
    """Gives a file to commands, in which FILE is its name."""

    def run(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        for arguments in commands:
            command(folder, *(one.replace("FILE", name) for one in arguments))

    return run


class _Here(Connection):
    """This machine in the place of a node."""

    def argv(self, command: Any = ()) -> list[str]:
        return list(command)


def on_a_node(path: Path) -> None:
    from nixwulf.inventory.cluster import load_cluster

    here = _Here(load_cluster(ROOT / "clusters/lab.toml").nodes[0], ())
    count(accepted=sizes_on(here, str(path)) is not None)
