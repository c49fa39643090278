"""Gate: RDMA may lock any amount of memory, in logins and in units."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    login = subject.facts[node.name].memlock
    if login is None:
        yield unknown(f"Node {node.name!r} does not tell how much memory a login may lock.")
    elif not math.isinf(login):
        yield refused(
            f"A login on node {node.name!r} may lock {login / 1024:.0f} KiB of memory, and RDMA "
            "needs any amount; write '* - memlock unlimited' to /etc/security/limits.conf there, "
            f"and end the shared login by 'ssh -O exit {node.ssh}'."
        )
    unit = subject.answers.get(GATE.name, {}).get(node.name, "")
    if unit.isdecimal():
        yield refused(
            f"A unit on node {node.name!r} may lock {int(unit) // 1024} KiB of memory, and RDMA "
            "needs any amount; write 'DefaultLimitMEMLOCK=infinity' below [Manager] in "
            "/etc/systemd/system.conf there, and reboot."
        )
    elif unit != "infinity":
        yield unknown(f"Node {node.name!r} does not tell the limit of its units: {unit[:80]!r}.")


GATE = Gate(
    name="memlock",
    holds="for `rdma`: logins and units may lock any amount of memory",
    reads="`ulimit -l` of the login, `systemctl show --property DefaultLimitMEMLOCK`",
    fix="`/etc/security/limits.conf`, `/etc/systemd/system.conf`; log in again",
    concerns=lambda subject, node: any(c.rdma for c in subject.crossings_of(node)),
    judge=_judge,
    command=lambda subject, node: [
        "systemctl",
        "show",
        "--value",
        "--property",
        "DefaultLimitMEMLOCK",
    ],
)
