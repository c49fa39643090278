"""Tables with pipes, as several tools print them: Markdown, with numbers aligned by spaces."""

from __future__ import annotations

import re

# Of speeds, times and sizes: none is negative, none so large that a float has no room for it.
NUMBER = r"\+?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?"
_MEAN = re.compile(rf"({NUMBER})(?:\s*±\s*({NUMBER}))?")


def cells(line: str) -> list[str]:
    """The cells of one line of a table; empty for any other line, and for the rule under a head."""
    line = line.strip()
    if len(line) < len("||") or line[0] != "|" or line[-1] != "|":
        return []
    found = [cell.strip() for cell in line[1:-1].split("|")]
    return [] if all(set(cell) <= set("-: ") for cell in found) else found


def mean_and_deviation(cell: str) -> tuple[float, float | None] | None:
    """A mean and its standard deviation from '55.73 ± 0.04' or '55.73'; None for another text."""
    found = _MEAN.fullmatch(cell)
    return (float(found[1]), float(found[2]) if found[2] else None) if found else None
