"""Gate: the nodes' clocks agree, so that their logs can be read side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.facts import Clock
from nixwulf.plugins.gates import LINUX_AND_MACOS, Gate, GateContext, Verdict, refused, unknown

# NTP keeps nodes within milliseconds; without it they drift apart by seconds a day.
_LIMIT_S = 1.0


def _command(subject: GateContext, node: Node) -> Sequence[str] | None:
    if all(subject.facts[other.name].clock for other in subject.nodes):
        return None
    return ["date", "+%s.%N"]


def _clock(subject: GateContext, node: Node) -> Clock | None:
    answer = subject.answers.get(GATE.name, {}).get(node.name, "")
    printed = re.fullmatch(r"([0-9]{1,12})\.(?:([0-9]{9})|%?N)", answer)
    if printed:
        clock = Clock.of(float(f"{printed[1]}.{printed[2] or 0}"), *subject.asked)
        # A date that knows no %N, as macOS's, is anywhere in its second.
        return clock if printed[2] else Clock(clock.least, clock.most + 1)
    return subject.facts[node.name].clock


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    first = subject.nodes[0]
    ours, theirs = _clock(subject, node), _clock(subject, first)
    if ours is None or theirs is None:
        yield unknown(f"Node {(first if ours else node).name!r} does not tell the time.")
        return
    # What the round trip may explain is taken off: the rest is certain.
    ahead, behind = ours.least - theirs.most, theirs.least - ours.most
    if max(ahead, behind) > _LIMIT_S:
        way = "ahead of" if ahead > behind else "behind"
        yield refused(
            f"The clock of node {node.name!r} is at least {max(ahead, behind):.1f} s {way} that of "
            f"{first.name!r}; run NTP on both."
        )


GATE = Gate(
    name="clock",
    holds=f"the clocks of the nodes are less than {_LIMIT_S:g} s apart",
    reads="the shell's `$EPOCHREALTIME`, else `date`, against the driver's clock before and after",
    fix="run NTP on all nodes",
    concerns=lambda subject, node: len(subject.nodes) > 1,
    judge=_judge,
    command=_command,
    systems=LINUX_AND_MACOS,
)
