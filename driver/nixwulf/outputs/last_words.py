"""The line in which a program that failed says why, for the sentence of a ParseError."""

from __future__ import annotations

import re

_TELLING = re.compile(
    r"\b(error|failed|failure|crashed|abort(ed)?|terminate called|what\(\)|unable|fatal|killed)\b",
    re.IGNORECASE,
)
_LENGTH = 160


def last_words(text: str) -> str:
    """'; line 22 says "...".' of the first line that tells of a failure, else a full stop."""
    for number, line in enumerate(text.splitlines(), 1):
        if _TELLING.search(line):
            text = "".join(char if char.isprintable() else " " for char in line).strip()
            return f'; line {number} says "{text[:_LENGTH]}".'
    return "."
