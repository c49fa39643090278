"""Words of a survey's comments."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_NAMED = 4


def some(names: Sequence[str]) -> str:
    """The first of names, and how many there are beside them."""
    more = len(names) - _MOST_NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMED])} and {more} more"
