"""Lines of PyTorch smoke tests of all_to_all_single: time and rate by message size.

https://github.com/hellas-ai/thunderbolt-ibverbs/tree/eca80ec/results
"""

from __future__ import annotations

import re

from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, ParseError, Tool
from nixwulf.outputs.forms import NUMBER, last_words

_START = "all_to_all_single bytes="
_LINE = re.compile(rf"{_START}([0-9]{{1,18}}): ({NUMBER}) us/iter \(({NUMBER}) Gb/s logical/rank\)")


def recognises(text: str) -> bool:
    """The start of its lines."""
    return _START in text


def read(text: str) -> list[Found]:
    """Microseconds an iteration and Gbit/s a rank by bytes, in the order of the lines."""
    metrics = []
    for number, line in enumerate(text.splitlines(), 1):
        if _START in line:
            found = _LINE.search(line)
            if found is None:
                raise ParseError(
                    f"all_to_all_single, line {number}: {line.strip()[:80]!r}, expected "
                    "'bytes=262144: 156.8 us/iter (13.37 Gb/s logical/rank)'."
                )
            conditions = {"bytes": int(found[1])}
            time, rate = float(found[2]), float(found[3])
            metrics.append(Metric("all_to_all_time", "us", value=time, conditions=conditions))
            # Logical and of one rank: not the bus bandwidth of nccl-tests.
            metrics.append(
                Metric("all_to_all_rank_rate", "Gbit/s", value=rate, conditions=conditions)
            )
    if not metrics:
        raise ParseError(
            f"all_to_all_single: no result in {len(text.splitlines())} lines{last_words(text)}"
        )
    return [Found("torch-all-to-all", metrics, machines=True)]


TOOL = Tool("torch-all-to-all", recognises, read, reads_all=True)
