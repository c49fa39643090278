"""Gate: nothing listens on the ports that a case needs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.link import PORT as LINK_PORT
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.gates import Gate, Subject, Verdict, refused, unknown

# The fourth column (proc_net_tcp in the kernel's documentation), and what it says of listeners.
_STATE = 3
_LISTEN = "0A"
_ANY = {"0.0.0.0", "::"}  # noqa: S104 - what to look for
# Servers for the driver alone listen here, also where engines talk over a fabric.
_LOOPBACK = "127.0.0.1"


@runtime_checkable
class Listening(Protocol):
    """An engine or a benchmark that listens on fixed TCP ports of the nodes."""

    ports: tuple[int, ...]


def listeners(text: str) -> set[tuple[str, int]]:
    """Addresses and ports that are listened on, of /proc/net/tcp and tcp6; other lines are not."""
    found = set()
    for line in text.splitlines():
        words = line.split()
        if words[_STATE : _STATE + 1] == [_LISTEN]:
            match = re.fullmatch(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})", words[1])
            if match:
                found.add((_address(match[1]), int(match[2], 16)))
    return found


def _address(digits: str) -> str:
    """The kernel prints each 32-bit word in the machine's order; nodes are little-endian."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    if len(words) == 1:
        return str(ipaddress.IPv4Address(words[0]))
    address = ipaddress.IPv6Address(b"".join(words))
    return str(address.ipv4_mapped or address)


def _wanted(subject: Subject, node: Node) -> dict[int, str]:
    """Ports and whose they are: a case's, or those of all that could run."""
    users: list[object] = [subject.engine, subject.benchmark]
    if not subject.is_case:
        users = [*engines.all_engines().values(), *benchmarks.all_benchmarks().values()]
    wanted = {LINK_PORT: "the link's measurement"} if subject.crossings_of(node) else {}
    for user in users:
        if isinstance(user, Listening):
            wanted |= dict.fromkeys(user.ports, str(getattr(user, "name", "")))
    return wanted


def _judge(subject: Subject, node: Node) -> Iterator[Verdict]:
    text = subject.answers.get(GATE.name, {}).get(node.name, "")
    if "local_address" not in text:
        yield unknown(f"Node {node.name!r} does not tell what listens: {text[:80]!r}.")
    taken = listeners(text)
    ours = {node.fabrics[c.fabric.name].address for c in subject.crossings_of(node)}
    for port, user in _wanted(subject, node).items():
        for address in sorted({*_ANY, _LOOPBACK, *ours}):
            if (address, port) in taken:
                yield refused(
                    f"Something on node {node.name!r} listens on '{address}:{port}', which "
                    f"{user} needs; see 'ss -ltnp sport = :{port}' there, and end it."
                )


GATE = Gate(
    name="ports",
    holds="nothing listens on the ports of the engine, the benchmark and the link",
    reads="`/proc/net/tcp`, `/proc/net/tcp6`",
    fix="end what `ss -ltnp` shows",
    concerns=lambda subject, node: bool(_wanted(subject, node)),
    judge=_judge,
    command=lambda subject, node: ["cat", "/proc/net/tcp", "/proc/net/tcp6"],
)
