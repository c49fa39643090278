"""The session of a record: what repeated runs of one case share, and runs of another day do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nixwulf.results.record import Record


@dataclass(frozen=True, order=True)
class SessionKey:
    """One boot and one system of each node, on one day (UTC).

    machines: a node's boot and system, in the order of the nodes. A toolbox is no part of it: two
    of them can be run in turn in one session.
    """

    machines: tuple[tuple[str, str], ...]
    day: str


def session_of(record: Record) -> SessionKey:
    """The session in which a record was measured.

    What is no run says nothing of its session, so that each file or source is one of its own.
    """
    day = str(record.get("started", ""))[:10]
    if record["kind"] != "run":
        source = record.get("source", {})
        return SessionKey((("", source.get("sha256") or str(record["id"])),), day)
    facts = (node.get("facts", {}) for node in record.get("nodes", ()))
    return SessionKey(tuple((str(known.get("boot", "")), _system(known)) for known in facts), day)


def _system(facts: dict[str, Any]) -> str:
    """NixOS names the whole system; of others the kernel and the release are known."""
    return str(facts.get("closure") or f"{facts.get('kernel', '')} {facts.get('os', '')}")
