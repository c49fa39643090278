"""JSON that a tool wrote, read with the tool's name in the error."""

from __future__ import annotations

import json
from typing import Any

from nixwulf.outputs import ParseError


def json_object(tool: str, text: str) -> dict[str, Any]:
    """The one object that a text is; its numbers may be NaN and Infinity, which Python knows."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(
            f"{tool}, line {error.lineno}: {error.msg}, expected a whole JSON object."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{tool}: {error}, expected JSON as {tool} writes it.") from None
    if not isinstance(value, dict):
        raise ParseError(f"{tool}, line 1: a {type(value).__name__}, expected a JSON object.")
    return value
