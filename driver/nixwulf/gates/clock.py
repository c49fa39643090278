"""Gate: the nodes' clocks agree, so that their logs can be read side by side."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.cluster import Node
from nixwulf.gates import Gate, Subject, Verdict, refused, unknown

# NTP keeps nodes within milliseconds; without it they drift apart by seconds a day.
_LIMIT_S = 1.0


def _judge(subject: Subject, node: Node) -> Iterator[Verdict]:
    first = subject.nodes[0]
    ours, theirs = subject.facts[node.name].clock, subject.facts[first.name].clock
    if ours is None or theirs is None:
        yield unknown(f"Node {(first if ours else node).name!r} does not tell the time.")
        return
    # What is certain: the round trip, and the second that some shells leave open, are taken off.
    ahead, behind = ours.least - theirs.most, theirs.least - ours.most
    if max(ahead, behind) > _LIMIT_S:
        way = "ahead of" if ahead > behind else "behind"
        yield refused(
            f"The clock of node {node.name!r} is at least {max(ahead, behind):.1f} s {way} that of "
            f"{first.name!r}; see 'timedatectl' on both, and run NTP."
        )


GATE = Gate(
    name="clock",
    holds=f"the clocks of the nodes are less than {_LIMIT_S:g} s apart",
    reads="the shell's `$EPOCHREALTIME`, else `/proc/stat` and `/proc/uptime` to a second, "
    "against the driver's clock before and after",
    fix="run NTP on all nodes",
    concerns=lambda subject, node: len(subject.nodes) > 1,
    judge=_judge,
)
