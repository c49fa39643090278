"""Parsers of what tools print: one module a tool, and beside them the few forms that tools share.

The module of a tool has two pure functions:

    parse(text) -> what the tool found, as frozen dataclasses, with the units that it prints
    recognises(text) -> bool: whether the text looks like this tool's, whole, cut short or failed

parse raises ParseError and nothing else, on any text at all: where the tool failed, where its
output ends too early to hold a result, and where a number is none. What was printed whole before
a crash is kept; whether a run ended well is for its exit status to say.
"""

from __future__ import annotations

from nixwulf.core.errors import NixwulfError


class ParseError(NixwulfError):
    """An output that is not what its tool prints when all went well."""
