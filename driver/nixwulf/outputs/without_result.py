"""Outputs that people have beside those of benchmarks: recognised, so that an import can say so."""

from __future__ import annotations

import re
from typing import NamedTuple

from nixwulf.core.files import DATA, read_toml


class Kind(NamedTuple):
    """An output without a benchmark's result: its name, what it holds, how it is recognised."""

    name: str
    what: str
    pattern: re.Pattern[str]


KINDS = tuple(
    Kind(name, one["what"], re.compile(one["pattern"], re.MULTILINE))
    for name, one in read_toml(DATA / "outputs_without_result.toml").items()
)


def kind_of(text: str) -> Kind | None:
    """What a text is of these, or None."""
    return next((kind for kind in KINDS if kind.pattern.search(text)), None)
