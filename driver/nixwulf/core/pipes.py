"""Tables and texts as GitHub Markdown shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nixwulf.core.text import clean

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@])")


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns of which no row has anything."""
    kept = [i for i, name in enumerate(head) if not name or any(row[i] for row in rows)]
    lines = [
        [head[i] for i in kept],
        ["---"] * len(kept),
        *([escaped(row[i]) for i in kept] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
