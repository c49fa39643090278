"""Gate: nothing listens on the ports that a case needs."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.link import PORT as LINK_PORT
from nixwulf.nodes.listeners import listeners
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown

_ANY = {"0.0.0.0", "::"}  # noqa: S104 - what to look for
# Servers for the driver alone listen here, also where engines talk over a fabric.
_LOOPBACK = "127.0.0.1"


def _wanted(subject: GateContext, node: Node) -> dict[int, str]:
    """Ports and whose they are: a case's, or those of all that could run."""
    users: list[Engine | Benchmark | None] = [subject.engine, subject.benchmark]
    if not subject.is_case:
        users = [*engines.all_engines().values(), *benchmarks.all_benchmarks().values()]
    wanted = {LINK_PORT: "the link's measurement"} if subject.crossings_of(node) else {}
    for user in users:
        if user:
            wanted |= dict.fromkeys(user.ports, user.name)
    return wanted


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
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
