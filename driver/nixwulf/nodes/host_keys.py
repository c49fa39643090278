"""Host keys that a cluster file pins: ssh accepts such a node with that key and with no other."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from nixwulf.inventory.cluster import Node

_MISMATCH = ("HOST IDENTIFICATION HAS CHANGED", "Host key verification failed")


def alias(node: Node) -> str:
    """The name under which ssh looks for a pinned key, whatever the node's address is."""
    return f"nixwulf-{node.name}"


def known_hosts(node: Node) -> str:
    """The known_hosts file of a node whose key is pinned."""
    kind, key = (node.host_key or "").split(" ")[:2]
    return f"{alias(node)} {kind} {key}\n"


def pin(node: Node, folder: Path) -> dict[str, str]:
    """The ssh settings that accept a node's pinned key alone; empty where none is pinned.

    The names of the file and of the shared connection come from the key: a connection that was
    opened while another key or none was pinned is never used again.
    """
    if node.host_key is None:
        return {}
    text = known_hosts(node)
    name = hashlib.sha256(f"{node.ssh} {text}".encode()).hexdigest()[:40]
    file = folder / f"{name}.known"
    if not file.exists():
        part = folder / f"{name}.{os.getpid()}"
        part.touch(mode=0o600)
        part.write_text(text, "utf-8")
        part.replace(file)
    return {
        "UserKnownHostsFile": str(file),
        "GlobalKnownHostsFile": "/dev/null",
        "KnownHostsCommand": "none",
        "VerifyHostKeyDNS": "no",
        "UpdateHostKeys": "no",
        "HostKeyAlias": alias(node),
        "StrictHostKeyChecking": "yes",
        "ControlPath": str(folder / name),
    }


def mismatch(node: Node, words: str) -> str | None:
    """What ssh's words mean when it refused a pinned key, or None."""
    if node.host_key is None or not any(mark in words for mark in _MISMATCH):
        return None
    return (
        f"it has another host key than the host_key of node {node.name!r} in the cluster file; "
        "correct host_key if the machine was replaced or booted an installer of its own"
    )
