"""Gate: there is room where nodes keep models and what programs write."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown

# Room for logs and caches; models are there already when a case runs.
_LEAST_GIB = 1


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    text = subject.answers.get(GATE.name, {}).get(node.name, "")
    rows = re.findall(r"^.* +\d+ +\d+ +(\d+) +\d+% +(/.*)$", text, re.MULTILINE)
    if not rows:
        yield unknown(f"Node {node.name!r} does not tell its free space: {text[:80]!r}.")
    for free_kib, place in dict.fromkeys(rows):
        free = int(free_kib) / 2**20
        if free < _LEAST_GIB:
            yield refused(
                f"Node {node.name!r} has {free:.2f} GiB free on {place!r}, less than "
                f"{_LEAST_GIB}; see 'df -h' there, and remove what is not needed."
            )


GATE = Gate(
    name="disk",
    holds=f"at least {_LEAST_GIB} GiB is free below the home folder and /tmp",
    reads="`df -Pk`",
    fix="remove what is not needed, or move models to another disk",
    concerns=lambda subject, node: True,
    judge=_judge,
    command=lambda subject, node: ["sh", "-c", 'df -Pk "$HOME" /tmp'],
    systems=None,
)
