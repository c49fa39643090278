"""A command of the user's, run on the driver's machine, that turns a node off and on again."""

from __future__ import annotations

import shlex
import subprocess

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import PowerSwitch
from nixwulf.plugins.switches import SwitchKind

_TIMEOUT_S = 120


def _cycle(node: str, switch: PowerSwitch, off_s: float) -> None:
    shown = shlex.join(switch.command)
    try:
        done = subprocess.run(
            switch.command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C between off and on would leave the node off
        )
    except OSError as error:
        raise NixwulfError(
            f"The power switch of {node!r} cannot be run: {shown!r}: {error.strerror}."
        ) from None
    except subprocess.TimeoutExpired:
        raise NixwulfError(
            f"The power switch of {node!r} did not end in {_TIMEOUT_S} s, and the node "
            f"may be OFF; try: {shown}"
        ) from None
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())
        raise NixwulfError(
            f"The power switch of {node!r} failed with {done.returncode}: {words or 'silence'}; "
            f"the node may be OFF; try: {shown}"
        )


SWITCHES = (SwitchKind("command", "command", _cycle),)
