"""The few Linux calls that Python 3.11's standard library lacks, through the C library."""

from __future__ import annotations

import ctypes
import os
from enum import IntFlag
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_TIMERSLACK = 29


def search_path() -> str:
    """PATH with the folders of tc and sshd, which ordinary users' PATH often lacks."""
    inherited = os.environ.get("PATH", os.defpath).split(":")
    return ":".join(dict.fromkeys([*inherited, "/usr/sbin", "/usr/local/sbin", "/sbin"]))


class Namespace(IntFlag):
    """Kinds of namespaces, the CLONE_NEW* values of sched.h."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NET = 0x40000000


class Mount(IntFlag):
    """Flags of a mount, the MS_* values of sys/mount.h."""

    NONE = 0
    NOSUID = 2
    NODEV = 4
    BIND = 4096
    REC = 16384


def unshare(namespaces: Namespace) -> None:
    """Move this process (for PID: its next child) into new namespaces; raises OSError."""
    _checked(_libc.unshare(int(namespaces)), "unshare")


def mount(source: str, target: Path, kind: str, flags: Mount, options: str = "") -> None:
    """Mount a file system or bind a folder or file; raises OSError that names the target."""
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(int(flags)),
        options.encode(),
    )
    _checked(result, f"mount {kind or 'bind'} on {target}")


def set_timer_slack(nanoseconds: int) -> None:
    """How late the kernel may wake this process; 50000 ns unless set, too coarse for a switch."""
    _checked(_libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0), "prctl")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
