"""Lines of PyTorch smoke tests of all_to_all_single: time and rate by message size.

https://github.com/hellas-ai/thunderbolt-ibverbs/tree/eca80ec/results
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.pipe_table import NUMBER

_START = "all_to_all_single bytes="
_LINE = re.compile(rf"{_START}([0-9]{{1,18}}): ({NUMBER}) us/iter \(({NUMBER}) Gb/s logical/rank\)")


@dataclass(frozen=True)
class AllToAllRow:
    """One line: message in bytes, microseconds an iteration, Gbit/s a rank."""

    size: int
    time_us: float
    gbps: float


def parse(text: str) -> tuple[AllToAllRow, ...]:
    """The results in the order of the lines; at least one."""
    results = []
    for number, line in enumerate(text.splitlines(), 1):
        if _START in line:
            found = _LINE.search(line)
            if found is None:
                raise ParseError(
                    f"all_to_all_single, line {number}: {line.strip()[:80]!r}, expected "
                    "'bytes=262144: 156.8 us/iter (13.37 Gb/s logical/rank)'."
                )
            results.append(AllToAllRow(int(found[1]), float(found[2]), float(found[3])))
    if not results:
        raise ParseError(
            f"all_to_all_single: no result in {len(text.splitlines())} lines{last_words(text)}"
        )
    return tuple(results)


def recognises(text: str) -> bool:
    """The start of its lines."""
    return _START in text
