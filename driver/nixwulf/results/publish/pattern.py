"""A kind of private text by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["key", "serial number", "host name", "user name", "address"]


@dataclass(frozen=True)
class Pattern:
    """A kind of private text; the group 'it', or the whole, is taken out, unless spared."""

    kind: Kind
    expression: re.Pattern[str]
    instead: str
    spare: Callable[[re.Match[str]], bool] = lambda _match: False

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it is in a text: begin and end of each, in order."""
        group = "it" if "it" in self.expression.groupindex else 0
        for match in self.expression.finditer(text):
            if not self.spare(match):
                yield match.span(group)


def pattern(
    kind: Kind,
    expression: str,
    spare: Callable[[re.Match[str]], bool] = lambda _match: False,
) -> Pattern:
    """A pattern in whose place stands its kind's last word but 'name' and 'number', in brackets.

    Args:
        expression: with a group 'it' around what is private, if not all of it is.
        spare: whether a match is nothing private.
    """
    instead = kind.removesuffix(" name").removesuffix(" number")
    return Pattern(kind, re.compile(expression, re.DOTALL), f"[{instead}]", spare)
