"""Gate: a packet of the fabric's MTU reaches every other node in one piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import (
    LINUX_AND_MACOS,
    MACOS,
    Gate,
    GateContext,
    Verdict,
    pairs,
    refused,
    unknown,
)

# IPv4's and ICMP's headers, bytes.
_HEADERS = 28
# $@ are pairs of a payload and an address. The first packets over a cable may find no neighbour.
# macOS's ping forbids fragments by -D, and waits for milliseconds.
_PROBE = """
if [ -e /proc/meminfo ]; then whole="-M do"; wait=1; else whole=-D; wait=1000; fi
ping="ping -n -q -c 1 -W $wait"
try() {
  for _ in 1 2 3; do
    if $ping $whole -s "$1" "$2" >/dev/null 2>&1; then echo "$2 passes"; return; fi
  done
  if $ping "$2" >/dev/null 2>&1; then echo "$2 small"; else echo "$2 silent"; fi
}
while [ $# -gt 1 ]; do try "$1" "$2" & shift 2; done
wait
"""


def _command(subject: GateContext, node: Node) -> Sequence[str]:
    words = []
    for crossing, other in pairs(subject, node):
        fabric = crossing.fabric
        words += [str(fabric.mtu - _HEADERS), other.fabrics[fabric.name].address]
    return ["sh", "-c", _PROBE, "sh", *words]


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    text = subject.answers.get(GATE.name, {}).get(node.name, "")
    found = dict(line.split(" ", 1) for line in text.splitlines() if line.count(" ") == 1)
    for crossing, other in pairs(subject, node):
        fabric = crossing.fabric
        address = other.fabrics[fabric.name].address
        way = f"from {node.name!r} to {other.name!r} over {fabric.name!r}"
        whole = "-D" if subject.facts[node.name].system == MACOS else "-M do"
        ping = f"ping {whole} -s {fabric.mtu - _HEADERS} {address}"
        if found.get(address) == "small":
            yield refused(
                f"Small packets pass {way}, and those of its MTU, {fabric.mtu} bytes, do not; set "
                f"MTU {fabric.mtu} on what is between them, or a smaller one in the cluster file, "
                f"and try '{ping}'."
            )
        elif found.get(address) == "silent":
            yield refused(
                f"No packet came back {way}; see the cable and the firewall, and try '{ping}' on "
                f"{node.name!r}."
            )
        elif found.get(address) != "passes":
            yield unknown(f"{node.name!r} could not be asked for the path to {other.name!r}.")


GATE = Gate(
    name="path-mtu",
    holds="packets of the fabric's MTU pass to every other node, unfragmented",
    reads="`ping -M do -s MTU-28` (macOS: `-D`), each way",
    fix="set the MTU of switches, bridges and routes between them",
    concerns=lambda subject, node: any(True for _ in pairs(subject, node)),
    judge=_judge,
    command=_command,
    systems=LINUX_AND_MACOS,
)
