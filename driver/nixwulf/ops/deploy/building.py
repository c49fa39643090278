"""Builds by nix on this machine: announced before they begin, or refused with what to do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nixwulf.core import interrupts
from nixwulf.core.errors import NixwulfError
from nixwulf.core.text import GIB, plural, some
from nixwulf.ops.deploy.flake import COLLECT, FEATURES, error_of, remedy

_STORE = Path("/nix/store")
_MADE = re.compile(r"^ +/nix/store/[0-9a-z]{32}-(.+)\.drv$", re.MULTILINE)
_FETCHED = re.compile(r"\(([\d.]+) ([KMGT])iB download, ([\d.]+) ([KMGT])iB unpacked\)")
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGT", start=1)}
# Kernels, their modules of NVIDIA, engines and HPL: minutes to hours, where the rest takes seconds.
_LONG = re.compile(
    r"(?:linux(?:-rpi)?|nvidia-\w+|llama-cpp\S*|distributed-llama|hpl\S*)"
    r"-\d[\d.]*(?:-(?:rc|stable_)?[\d.]+)?"
)


def build_here(command: Sequence[str], what: str, elsewhere: str = "") -> None:
    """Announce a build, and build with nix's own progress on the terminal; as `announce`."""
    announce(command, what, elsewhere)
    done = interrupts.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0:
        why = f"nix ended with {done.returncode}, see its words above"
        raise _failed(what, why, f"run '{shlex.join(command)}'", elsewhere)


def announce(command: Sequence[str], what: str, elsewhere: str = "") -> None:
    """Print a line on what a command of nix would build, if anything.

    Args:
        what: begins the sentence of a failure, such as 'The systems are'.
        elsewhere: ends it.

    Raises NixwulfError: it cannot be built, or does not fit into the store.
    """
    asked = interrupts.ask([*command, "--dry-run"])
    if asked.returncode:
        then = remedy(asked.stderr, ".") or f"run '{shlex.join(command)}'"
        raise _failed(what, error_of(asked.stderr), then, elsewhere)
    free = shutil.disk_usage(_STORE).free if _STORE.is_dir() else sys.maxsize
    unpacked = sum(float(size) * _UNITS[u] for _, _, size, u in _FETCHED.findall(asked.stderr))
    if unpacked > free:
        sizes = f"{unpacked / GIB:.2f} GiB come to '{_STORE}', which has {free / GIB:.2f} GiB left"
        raise _failed(what, sizes, f"make room by '{COLLECT}'", elsewhere)
    print(announcement(asked.stderr), end="", file=sys.stderr)


def _failed(what: str, why: str, then: str, elsewhere: str) -> NixwulfError:
    return NixwulfError(f"{what} not built, and no node is changed: {why}; {then}.{elsewhere}")


def announcement(dry_run: str) -> str:
    """What nix says that it is going to make, as a line; empty where everything is there."""
    made, fetched = _MADE.findall(dry_run), _FETCHED.search(dry_run)
    parts = [f"builds {plural(len(made), 'derivation')} here"] if made else []
    parts += [f"fetches {fetched[1]} {fetched[2]}iB"] if fetched else []
    if not parts:
        return ""
    long = sorted(filter(_LONG.fullmatch, made))
    slow = f"; what takes long on {os.cpu_count()} CPUs is {some(long)}" if long else ""
    return f"Nix {' and '.join(parts)}{slow}.\n"


def systems_built_here() -> set[str]:
    """The systems that nix builds on this machine."""
    found: set[str] = set()
    for setting in ("system", "extra-platforms"):
        shown = interrupts.ask(["nix", "config", "show", *FEATURES, setting])
        found |= set(shown.stdout.split())
    return found


def store_address(ssh: str) -> str:
    """A node's store, as nix names it."""
    user, at, host = ssh.rpartition("@")
    return f"ssh-ng://{user}{at}[{host}]" if ":" in host else f"ssh-ng://{ssh}"
