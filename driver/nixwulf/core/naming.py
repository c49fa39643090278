"""Names made of values: readable words, and hashes that differ where the values do."""

from __future__ import annotations

import getpass
import hashlib
import json
import re
from typing import Any


def slug(text: str, longest: int, also: str = "") -> str:
    """Lower case letters, digits and what is also kept, with '-' for all else; perhaps empty.

    Args:
        longest: characters of the result at the most.
    """
    words = re.sub(rf"[^a-z0-9{re.escape(also)}]+", "-", text.lower())
    return words[:longest].strip(f"-{also}")


def fingerprint(document: Any) -> str:
    """sha256 of JSON with sorted keys, 64 hexadecimal digits: documents that are equal share it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def login() -> str | None:
    """The name of the user of this process; None where a number has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
