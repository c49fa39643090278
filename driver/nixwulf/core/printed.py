"""Texts that programs and nodes print: kept up to a limit, with numbers that a machine can have.

A program of a node may never stop printing.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO

from nixwulf.core.errors import NixwulfError, quoted

MOST_CHARACTERS = 8 * 2**20  # of each stream; the longest that the driver asks for are below 1 MB
_PART = 2**16
# In quotes is a text, such as a serial number.
_LARGE = re.compile(r"\d{40,}|(?<![\w.\"'])-?\d{16,}(?: kB)?(?!\w)")
_KIB, _LONGEST = 1024, 39


class TooMuch(Exception):
    """A child printed more than is kept, and was killed."""


def communicate(
    process: subprocess.Popen[str], stdin: str | None, timeout_s: float
) -> tuple[str, str]:
    """Give a child its input, return both outputs; raises TooMuch or subprocess.TimeoutExpired."""
    until = time.monotonic() + timeout_s
    parts: tuple[list[str], list[str]] = ([], [])
    above = threading.Event()

    def read(pipe: IO[str], into: list[str]) -> None:
        count = 0
        with pipe, suppress(OSError, ValueError):
            for part in iter(lambda: pipe.read(_PART), ""):
                count += len(part)
                if count > MOST_CHARACTERS:
                    above.set()
                    process.kill()
                    return
                into.append(part)

    def write(pipe: IO[str], text: str) -> None:
        with suppress(OSError, ValueError), pipe:
            pipe.write(text)

    assert process.stdout and process.stderr  # noqa: S101, PT018 - the caller asked for pipes
    work = [
        threading.Thread(target=read, args=(process.stdout, parts[0]), daemon=True),
        threading.Thread(target=read, args=(process.stderr, parts[1]), daemon=True),
    ]
    if stdin is not None and process.stdin:
        work.append(threading.Thread(target=write, args=(process.stdin, stdin), daemon=True))
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(max(0.0, until - time.monotonic()))
        if above.is_set():
            raise TooMuch
        if thread.is_alive():
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    process.wait(max(0.0, until - time.monotonic()))
    return "".join(parts[0]), "".join(parts[1])


def check_numbers(name: str, text: str) -> str:
    """Check what a node printed; raises NixwulfError for a number beyond 64 bits, in bytes."""
    for found in _LARGE.finditer(text):
        digits, _, kilobytes = found[0].partition(" ")
        times = _KIB if kilobytes else 1
        if len(digits) > _LONGEST or not -(2**63) <= int(digits) * times < 2**64:
            raise NixwulfError(
                f"Node {name!r} gives {quoted(digits)}, a number of {len(digits)} digits that no "
                "machine has, so nothing that it says of itself is believed; look at what answers "
                "there."
            )
    return text
