"""File names of pages: safe for every name, and no two names share one."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from nixwulf.core.naming import slug

_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_LONGEST_WORDS = 60
_SHORT_HASH, _WHOLE_HASH = 8, 64  # hexadecimal digits of a sha256
_TAKEN = frozenset({"index"})


def page_names(names: Iterable[str]) -> dict[str, str]:
    """A file name without its suffix for each name; the same whatever the other names are.

    It has lower case letters, digits, '.', '_' and '-' only, so that it is one file on every file
    system and nothing else in a URL. A name that had to be changed ends in 8 digits of its
    sha256, and in all 64 where even those do not tell it from another.
    """
    distinct = sorted(set(names))
    counts = Counter(map(_name, distinct))
    return {
        name: _name(name) if counts[_name(name)] == 1 else _hashed(name, _WHOLE_HASH)
        for name in distinct
    }


def _name(name: str) -> str:
    lossless = _SAFE.fullmatch(name) and name not in _TAKEN and ".." not in name
    return name if lossless else _hashed(name, _SHORT_HASH)


def _hashed(name: str, digits: int) -> str:
    words = slug(name, _LONGEST_WORDS, also="_") or "page"
    # Records hold any text that JSON can, also halves of surrogate pairs.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{words}-{digest[:digits]}"
