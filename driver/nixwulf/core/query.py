"""Queries that choose cases and records: 'nodes=2 model=tiny* fabric!=thunderbolt nodes<=4'.

Also what is chosen, in groups.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt
from typing import TypeVar

from nixwulf.core.errors import InputError
from nixwulf.core.text import did_you_mean

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_TERM = re.compile(r"([a-z_]+)(!=|<=|>=|=|<|>)(.+)")
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class Term:
    """A condition on one key."""

    key: str
    operator: str
    value: str

    def holds(self, values: Mapping[str, object]) -> bool:
        """Tell whether the values meet it; a key without a value meets only '!='."""
        actual = values.get(self.key)
        if self.operator in {"=", "!="}:
            same = actual is not None and fnmatchcase(str(actual), self.value)
            return same == (self.operator == "=")
        if not isinstance(actual, int | float):
            return False
        return _ORDERS[self.operator](actual, float(self.value))


def is_query(text: str) -> bool:
    """Tell whether a text has the sign of a term, so that it is no name."""
    return any(sign in text for sign in "=<>")


def parse_query(text: str, keys: frozenset[str]) -> tuple[Term, ...]:
    """The terms of a query, all of which must hold; raises InputError for a bad one."""
    terms = []
    for word in text.split():
        match = _TERM.fullmatch(word)
        if match is None:
            raise InputError(
                f"Cannot read {word!r} in {text!r}; write terms such as nodes=2, model=tiny* or "
                "nodes<=4, with spaces between them."
            )
        term = Term(*match.groups())
        if term.key not in keys:
            raise InputError(
                f"Unknown key {term.key!r} in {text!r}; {did_you_mean(term.key, sorted(keys))}"
            )
        if term.operator not in {"=", "!="} and not _NUMBER.fullmatch(term.value):
            raise InputError(
                f"{term.value!r} in {text!r} is not a number, and {term.operator!r} needs one."
            )
        terms.append(term)
    return tuple(terms)


def matches(terms: tuple[Term, ...], values: Mapping[str, object]) -> bool:
    """Tell whether all terms hold."""
    return all(term.holds(values) for term in terms)


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Values by their keys; each key is where it came first."""
    groups: defaultdict[_K, list[_V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)
