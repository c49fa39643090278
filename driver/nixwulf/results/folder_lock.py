"""One driver a run folder: a lock that ends with the process that has it, however that ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.text import login

LOCK = ".lock"
_MOST_BYTES = 4096
# Of a file system that knows no locks, some network and FUSE ones: there nobody is kept out.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@contextmanager
def only_driver(folder: Path) -> Iterator[None]:
    """Nobody else runs what goes into the folder while the block lasts.

    The folder is made where it is not there, and removed where nothing is left in it.

    Raises:
        InputError: another driver has the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = _locked(path)
    try:
        with suppress(OSError):  # a full disk: the lock holds, only who has it is not known
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_self()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
            folder.rmdir()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """The descriptor of a file that is locked and still lies there: its last owner removes it."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            holder = os.pread(descriptor, _MOST_BYTES, 0)
            os.close(descriptor)
            raise InputError(f"{str(path.parent)!r} {_sentence(holder)}") from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)


def _self() -> dict[str, str | int]:
    return {
        "user": login() or str(os.getuid()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "command": shlex.join(["nixwulf", *sys.argv[1:]]),
    }


def _sentence(content: bytes) -> str:
    """Who has the folder, from what that driver wrote; it may have written nothing yet."""
    try:
        found = json.loads(content)
        user, host, pid, since, command = (
            str(found[key]) for key in ("user", "host", "pid", "since", "command")
        )
    except (ValueError, LookupError, TypeError):
        return "is in use by another nixwulf, which has just begun; wait until it has ended."
    at = "" if host == socket.gethostname() else f" on {quoted(host)}"
    return (
        f"is in use by user {quoted(user)}, process {pid} on {quoted(host)}, since {since} "
        f"({quoted(command)}); wait until it has ended, or end it with 'kill {pid}'{at}."
    )
