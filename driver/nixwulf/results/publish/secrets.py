"""What is a secret by its name: options, variables and fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

SECRET_NAME = re.compile(
    r"(?i)(api[_-]?key|access[_-]?key|(private|secret|signing|shared|ssh)[_-]?key|token|secret"
    r"|passw(or)?d|passwort|pwd|(?<![a-z])pass|passphrase|psk|credentials?|cookies?|auth"
    r"|webhook|(?<![a-z])join|(?-i:(?<!BY)PASS|KEY|CREDS|_PW|_PAT|_PIN))s?$"
)
"""Names of options, variables and fields whose values are secrets; who joins has an invitation."""
HIDDEN = "[key]"


def is_secret(name: str, value: str) -> bool:
    """Whether the value of an option, a variable or a field is one, by its name.

    No secret: a number of tokens, and a variable of an owned process that has it in its place.
    """
    if not value or value.startswith("$") or not SECRET_NAME.search(name):
        return False
    return not (name.lower().endswith("s") and re.fullmatch(r"[0-9.,]+", value))


def named_secrets(argv: Sequence[str], environment: Mapping[str, str]) -> set[str]:
    """The values in a command line and its environment that are secrets by their names."""
    found = {value for name, value in environment.items() if is_secret(name, value)}
    for option, value in pairwise(argv):
        if option.startswith("-") and not value.startswith("-") and is_secret(option, value):
            found.add(value)
    for name, _, value in (word.partition("=") for word in argv):
        if is_secret(name, value):
            found.add(value)
    return found
