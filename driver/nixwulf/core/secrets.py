"""Secrets by their names (options, variables, fields), and texts without those in use."""

from __future__ import annotations

import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

# Not by core.files, whose errors are cut by this module.
_FORMS = tomllib.loads((Path(__file__).parents[1] / "data" / "secrets.toml").read_text("utf-8"))
_ANY = {name: "|".join(words) for name, words in _FORMS["words"].items()}
SECRET_NAME = re.compile(rf"(?i)({_ANY['names']})s?\d*$")
"""Names of options, variables and fields whose values are secrets; who joins has an invitation."""
_WITHIN = re.compile(
    rf"(?i)(?:^|[_-])({_ANY['within']})s?\d*[_-](?!([a-z0-9]+[_-])*({_ANY['about_a_secret']})$)"
)
_KEY_INSIDE = re.compile(
    rf"(?!\w*(?:{_ANY['no_key']}))[A-Z0-9_]*KEY(?!\w*(?:{_ANY['about_a_key']})$)\w*$"
)
# Of an address the user with a password, or a user that is as long as a key.
_USER = re.compile(r"(?<=://)(?P<user>[^/\s:@\"'$]*:[^/\s\"'$]+|[^/\s:@\"'$]{8,})@")
_WRITTEN = [re.compile(rf"(?im){form}") for form in _FORMS["written"]]
_PLAIN = re.compile(r"(?i)[0-9.,]+|true|false|yes|no|on|off|auto|none")
HIDDEN = "[key]"
_SHORTEST = 8  # a shorter one may be part of any word of a log
_LONGEST_FORM = 16  # characters that a form has for one of the secret
_IN_USE: set[str] = set()


def is_secret(name: str, value: str) -> bool:
    """Tell whether an option, a variable or a field holds a secret, by its name.

    So is, by any name, an address with a user and a password. No secret: a number of tokens, and a
    variable of an owned process that has it in its place.
    """
    if not value or value.startswith("$"):
        return False
    if _USER.search(value):
        return True
    if SECRET_NAME.search(name):
        return not (name.lower().endswith("s") and re.fullmatch(r"[0-9.,]+", value))
    inside = _WITHIN.search(name) or _KEY_INSIDE.match(name)
    return bool(inside) and not _PLAIN.fullmatch(value)


def without_user(address: str) -> str:
    """An address without its user and password."""
    return _USER.sub("", address)


def written(text: str) -> set[str]:
    """The secrets of a text with commands, also where a program has them without a name."""
    found = {one["user"].rpartition(":")[2] for one in _USER.finditer(text)}
    for form in _WRITTEN:
        for name, value in form.findall(text):
            if not name or is_secret(name, value.strip()):
                found |= {value.strip(), *value.split()}
    return found


@cache
def pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern of secrets, also in base64, hexadecimal, percent form and JSON's escapes."""
    forms = []
    for secret in sorted(secrets, key=len, reverse=True):
        data, each = secret.encode("utf-8", "surrogateescape"), ""
        for one in secret:
            percent = "".join(f"%(?:25)?{byte:02x}" for byte in os.fsencode(one))
            codes = rf"{percent}|\\{{1,4}}u{ord(one):04x}|&#(?:x0*{ord(one):x}|{ord(one)});"
            each += rf"(?:\\{{0,4}}{re.escape(one)}|(?i:{codes}))"
        forms += [each, f"(?i:{data.hex()})"]
        for shift in range(3):  # bytes before it; of three four characters are made
            code = b64encode(bytes(shift) + data).decode()
            code = code[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
            other = {"+": "(?:[+-]|%2[Bb])", "/": r"(?:\\?/|_|%2[Ff])"}
            forms.append("".join(other.get(one, one) + r"(?:\\[rn]|\s){0,4}" for one in code))
    return re.compile("|".join(forms) or "(?!)")


def long_pattern(secrets: Iterable[str]) -> re.Pattern[str]:
    """The pattern of those that are long enough to be no other word."""
    return pattern(frozenset(one for one in secrets if len(one) >= _SHORTEST))


def use(secrets: Iterable[str]) -> None:
    """Secrets that this process sends or hands on, so that a server or program may repeat them."""
    _IN_USE.update(secrets)


def cut(text: str, most: int) -> str:
    """The first characters of a text from outside, the only way to cut one.

    A secret is hidden before the cut: less its last character, nothing finds it afterwards.
    """
    if len(text) <= most:
        return text
    enough = (most + 1) * _LONGEST_FORM * max(map(len, _IN_USE), default=1)
    return without(text[:enough])[:most]


def without(text: str) -> str:
    """A text without the secrets in use."""
    return long_pattern(_IN_USE).sub(HIDDEN, text) if _IN_USE else text


def named_secrets(argv: Sequence[str], environment: Mapping[str, str]) -> set[str]:
    """The values in a command line and its environment that are secrets by their names."""
    found = {value for name, value in environment.items() if is_secret(name, value)}
    for option, value in pairwise(argv):
        if option.startswith("-") and not value.startswith("-") and is_secret(option, value):
            found.add(value)
    for name, _, value in (word.partition("=") for word in argv):
        if is_secret(name, value):
            found.add(value)
    found |= {one["user"].rpartition(":")[2] for word in argv for one in _USER.finditer(word)}
    return found
