"""What the driver's machine and its user are called: in a run's texts, none of it is others'."""

from __future__ import annotations

import os
import platform
import pwd
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nixwulf.core.text import login

_NAMES = (Path("/etc/hostname"), Path("/etc/machine-info"))


def users() -> Iterator[str]:
    """The user's logins, and the name that goes with them."""
    yield login() or ""
    with suppress(KeyError):
        entry = pwd.getpwuid(os.getuid())
        yield entry.pw_name
        yield entry.pw_gecos.partition(",")[0]
    for name in ("SUDO_USER", "LOGNAME", "USER"):
        yield os.environ.get(name, "")


def homes() -> Iterator[str]:
    """Where the user's files are."""
    yield os.environ.get("HOME", "")
    with suppress(KeyError):
        yield pwd.getpwuid(os.getuid()).pw_dir


def hosts() -> Iterator[str]:
    """The machine's names; no name server is asked."""
    yield socket.gethostname()
    yield platform.node()
    for path in _NAMES:
        with suppress(OSError, UnicodeDecodeError):
            for line in path.read_text("utf-8").splitlines():
                name = line.partition("=")[2] if line.startswith("PRETTY_HOSTNAME") else line
                if "=" not in name:
                    yield name.strip().strip('"')
