"""Parsers of what tools print: one module a tool; each raises only ParseError."""

from __future__ import annotations

from nixwulf.errors import NixwulfError


class ParseError(NixwulfError):
    """An output that is not what its tool prints when all went well."""
