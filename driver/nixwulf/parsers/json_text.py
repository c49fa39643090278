"""JSON that a tool wrote, read with the tool's name in the error."""

from __future__ import annotations

import json
from typing import Any

from nixwulf.parsers import ParseError


def json_object(tool: str, text: str) -> dict[str, Any]:
    """The one object that a text is; a number that JSON does not know (NaN) is refused."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ParseError(
            f"{tool}, line {error.lineno}: {error.msg}, expected a whole JSON object."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{tool}: {error}, expected JSON with numbers.") from None
    if not isinstance(value, dict):
        raise ParseError(f"{tool}, line 1: a {type(value).__name__}, expected a JSON object.")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")
