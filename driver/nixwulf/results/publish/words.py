"""Words of a run that are in none of our texts: only who wrote them knows whether they are private.

data/public_words.txt has the others; tools/public_words.py writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from nixwulf.core.files import DATA

_FILE = DATA / "public_words.txt"
_SHORTEST = 3
_AROUND = 24
_NUMBER = re.compile(r"(?i)0x[0-9a-f]+|(?=[a-f]*\d)[0-9a-f]{6,}|\d+[a-z]{3}")
# A number, a digest or a password: public where it is called a commit or a field is of digests.
_CODE = re.compile(r"(?i)(?=[a-f]*\d)[0-9a-f]{6,}")
_COMMIT = re.compile(r"(?i)(?:\d[.,]|\b(?:commit|rev(?:ision)?|build|blob|tree|sha\d*)\W{1,3})$")
_DIGESTS = frozenset({"id", "digest", "sha256", "build_commit", "revision", "plan_digest"})
_TAKEN_OUT = re.compile(r"\[(?:address|host|user|serial|key|\.\.\.)\]")
# What --hide takes out at once: letters and digits, and what they are of.
WORD = re.compile(r"[^\W_]+")
# Four numbers of a list of sizes, or an address of a private network.
_LIST = r"(?<![\w.,/])(?:10|172|192)(?P<gap>[,/])\d{1,3}(?:(?P=gap)\d{1,3}){2}(?![\w,/])"
_JUDGED = re.compile(f"{_LIST}|{WORD.pattern}")
_PARTS = re.compile(r"[A-Z]?[^\W\dA-Z_]+|[A-Z]+(?![^\W\dA-Z_])|\d+")


@dataclass(frozen=True)
class Unknown:
    """A word, how many fields have it, and where the first is: the field and what is around it."""

    word: str
    fields: int
    place: str
    around: str


@cache
def public_words() -> frozenset[str]:
    """The words of texts of ours."""
    return frozenset(_FILE.read_text("utf-8").split())


def parts(word: str) -> Iterator[str]:
    """What a word is looked up by: by itself with any number, else by what is joined in it."""
    yield re.sub(r"\d+", "0", word.lower())
    if not any(map(str.isdecimal, word)):
        yield from (part.lower() for part in _PARTS.findall(word) if len(part) >= _SHORTEST)


def is_short(word: str) -> bool:
    """Whether a word is a number, or too short to name somebody."""
    return sum(map(str.isalpha, word)) < _SHORTEST or bool(_NUMBER.fullmatch(word))


def is_public(word: str) -> bool:
    """Whether a word, or all that is joined in it, is in our texts."""
    if is_short(word):
        return True
    whole, *joined = parts(word)
    return whole in public_words() or (
        len(joined) > 1 and all(one in public_words() for one in joined)
    )


@lru_cache(1 << 14)
def _unknown_of(text: str) -> tuple[tuple[str, str], ...]:
    """The words of one text, with what is around each."""
    bare = _TAKEN_OUT.sub(lambda taken: " " * len(taken[0]), text)
    return tuple(
        (match[0].lower(), text[max(0, match.start() - _AROUND) : match.end() + _AROUND])
        for match in _JUDGED.finditer(bare)
        if match["gap"]
        or not is_public(match[0])
        or (
            _CODE.fullmatch(match[0])
            and not _COMMIT.search(bare[max(0, match.start() - _AROUND) : match.start()])
        )
    )


def unknown_words(documents: Iterable[object]) -> tuple[Unknown, ...]:
    """The words that are in no text of ours, those of most fields first."""
    found: dict[str, list[tuple[str, str]]] = {}
    known: set[str] = set()
    for place, text in (one for document in documents for one in texts(document)):
        if place.rpartition(".")[2] in _DIGESTS:
            known.update(WORD.findall(text.lower()))
        for word, around in _unknown_of(text):
            found.setdefault(word, []).append((place, around))
    words = (
        Unknown(word, len({place for place, _ in places}), *places[0])
        for word, places in found.items()
        if word not in known or not _CODE.fullmatch(word)
    )
    return tuple(sorted(words, key=lambda one: (-one.fields, one.word)))


def texts(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, keys too, by its field."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield place, key
            yield from texts(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner, place)
