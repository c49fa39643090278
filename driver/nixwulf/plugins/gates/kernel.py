"""Gate: the kernel is not older than what the platform needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown


def version_of(text: str) -> tuple[int, ...]:
    """The numbers that a release begins with, such as 6.19.1 of '6.19.1-rc2'; empty for none."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", text, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else ()


def is_older(version: str, than: str) -> bool:
    """Whether a release is before another; 6.19 and 6.19.0 are the same."""
    ours, theirs = version_of(version), version_of(than)
    length = max(len(ours), len(theirs))
    return _filled(ours, length) < _filled(theirs, length)


def _filled(numbers: tuple[int, ...], length: int) -> tuple[int, ...]:
    return numbers + (0,) * (length - len(numbers))


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    platform = subject.platform(node)
    kernel, floor = subject.facts[node.name].kernel, platform["kernel_floor"]["value"]
    if not version_of(kernel):
        yield unknown(f"Node {node.name!r} has the kernel {kernel!r}, which has no number.")
    elif is_older(kernel, floor):
        yield refused(
            f"Node {node.name!r} runs kernel {kernel!r}, and {platform['name']!r} needs {floor} "
            f"({platform['kernel_floor']['source']}); deploy it, or install a newer kernel and "
            "reboot."
        )


GATE = Gate(
    name="kernel",
    holds="the kernel is not older than the platform's `kernel_floor`",
    reads="`/proc/sys/kernel/osrelease`",
    fix="install a newer kernel and reboot",
    concerns=lambda subject, node: "kernel_floor" in subject.platform(node),
    judge=_judge,
)
