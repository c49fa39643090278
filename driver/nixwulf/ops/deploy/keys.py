"""Whether the user could log in to what is installed: one of their keys must be let in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import PRIVATE, Cluster
from nixwulf.nodes.ssh import Connection


def locked_out(cluster: Cluster, connections: Iterable[Connection]) -> str | None:
    """Why nobody here could log in after an installation, or None."""
    own = own_keys(connections)
    if _bare(own) & _bare(cluster.ssh_keys):
        return None
    which = (
        f"none of your {len(own)} public keys ({', '.join(sorted({_name(key) for key in own}))})"
        if own
        else "you have no public key in ~/.ssh or in your ssh agent, and so none"
    )
    return (
        f"{cluster.source}: {which} is in deploy.ssh_keys, so you would be locked out; add one "
        "('cat ~/.ssh/*.pub', or make one by 'ssh-keygen')."
    )


def own_keys(connections: Iterable[Connection]) -> list[str]:
    """The public keys that ssh would offer to nodes: of the agent, and beside its key files."""
    lines: list[str] = []
    if shutil.which("ssh-add"):
        agent = subprocess.run(["ssh-add", "-L"], capture_output=True, text=True, check=False)
        lines += agent.stdout.splitlines() if agent.returncode == 0 else []
    files = set(Path("~/.ssh").expanduser().glob("*.pub"))
    for connection in connections:
        settings = subprocess.run(
            ["ssh", *connection.options, "-G", connection.node.ssh],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in settings.stdout.splitlines():
            key, _, value = line.partition(" ")
            if key == "identityfile":
                files.add(Path(f"{value}.pub").expanduser())
    for file in sorted(files):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if PRIVATE in text:
            raise InputError(
                f"'{file}' holds a private key, and a public one is expected there; write it anew "
                f"by 'ssh-keygen -y -f {file.with_suffix('')} >{file}'."
            )
        lines += text.splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if _bare([line])))


def _bare(keys: Iterable[str]) -> set[tuple[str, str]]:
    """Type and key, without what says whose it is."""
    return {(words[0], words[1]) for key in keys if len(words := key.split()) >= 2}  # noqa: PLR2004


def _name(key: str) -> str:
    kind, _, *comment = key.split(" ", 2)
    return comment[0] if comment else kind
