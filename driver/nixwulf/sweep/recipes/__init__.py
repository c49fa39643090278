"""Recipes of others as sweeps: what they start, in the words of a sweep, and what has none there.

A recipe is a command line with a model, however it is written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.secrets import is_secret

MOST_TEXT = 1 << 16  # characters of a recipe that is no YAML
_MOST_WORDS = 6  # of a line by which it is found


def is_yaml(path: Path) -> bool:
    """By its suffix."""
    return path.suffix in (".yaml", ".yml")


Value = bool | int | str


@dataclass(frozen=True)
class RecipeFile:
    """What sentences call a recipe, and the file's text where a command is only a part of it.

    begin: the lines of the text before the part that is read.
    """

    name: str = ""
    text: str = ""
    begin: int = 0

    def __str__(self) -> str:
        return self.name

    def below(self, key: object) -> RecipeFile:
        """The part of the file that a key begins."""
        lines = self.text.split("\n")
        begins = re.compile(rf"[\s-]*(?:name:\s*)?[\"']?{re.escape(str(key))}[\"']?\s*(?::|$)")
        found = (n for n in range(self.begin, len(lines)) if begins.match(lines[n]))
        return RecipeFile(f"{self.name}: {key}", self.text, next(found, self.begin))

    def line(self, shown: str, number: int) -> int:
        """The number of a line in the file, by its beginning; without the file's text this one."""
        lines, words = self.text.split("\n"), shown.split()
        for count in range(min(len(words), _MOST_WORDS) if self.text else 0, 0, -1):
            begin = " ".join(words[:count])
            for n in range(self.begin, len(lines)):
                if begin in " ".join(lines[n].split()):
                    return n + 1
        return number


@dataclass(frozen=True)
class Omission:
    """What of a recipe no sweep has, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Start:
    """What a form says before its command line is understood.

    words: program and arguments. environment: values as the recipe has them; None is the driver's
    own. line: of the command in its file, from 1 on; 0 where it has none.
    """

    words: tuple[str, ...]
    environment: Mapping[str, object] = field(default_factory=dict)
    name: str = ""
    description: str = ""
    line: int = 0
    left_out: tuple[Omission, ...] = ()

    def within(self, environment: Mapping[str, object], left: Iterable[Omission]) -> Start:
        """Add the variables that stand around a command, and what is left out there."""
        around = {**environment, **self.environment}
        return replace(self, environment=around, left_out=(*self.left_out, *left))


@dataclass(frozen=True)
class SweepRecipe:
    """A command line in the words of a sweep.

    model: as under `models` of a sweep; draft: so, of a model that drafts. transport: empty where
    none is asked for. parameters: lists of values by name, without arguments and environment.
    sweep: keys of the sweep itself. limits: seconds.
    """

    name: str
    description: str
    engine: str
    benchmark: str
    model: Mapping[str, str]
    draft: Mapping[str, str]
    nodes: int
    parallelism: str
    transport: str
    parameters: Mapping[str, list[Value]]
    arguments: str
    environment: Mapping[str, object]
    sweep: Mapping[str, Value]
    limits: Mapping[str, int]
    left_out: tuple[Omission, ...]


@cache
def reasons(form: str) -> Mapping[str, str]:
    """Why a sweep has none of the keys of a form of recipe, by key."""
    path = DATA / "recipe_keys.toml"
    found: Mapping[str, str] = read_toml(path)[form]
    return found


def without_meaning(
    document: Mapping[str, object], known: Iterable[str], reasons: Mapping[str, str]
) -> tuple[Omission, ...]:
    """The keys of a recipe that its reader has no use for, each with why: reasons has it by key."""
    return tuple(
        Omission(_shown(key, value), reasons.get(key, "a sweep has no such key"))
        for key, value in document.items()
        if key not in set(known) and value not in (None, [], {})
    )


def mapping(block: object, key: str, source: str) -> dict[str, object]:
    """A table of texts and numbers in another; raises InputError."""
    value = block.get(key) or {} if isinstance(block, dict) else block
    if not isinstance(value, dict):
        raise InputError(f"{source}: {key} is {quoted(value)}, expected names with values.")
    for name, one in value.items():
        if isinstance(one, dict | list):
            raise InputError(f"{source}: {key}.{name} is {quoted(one)}, expected one value.")
    return value


def _shown(key: str, value: object) -> str:
    if isinstance(value, dict | list) or is_secret(key, str(value)):
        return f"{key}: ..." if is_secret(key, str(value)) else key
    return f"{key}: {str(value).lower() if isinstance(value, bool) else quoted(value)}"
