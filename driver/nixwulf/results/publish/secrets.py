"""What keys look like: known families, what is called a password, and texts like no word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import pairwise
from math import log2
from pathlib import Path

from nixwulf.core.files import read_toml
from nixwulf.results.publish.pattern import Pattern, pattern

_FAMILIES = Path(str(resources.files("nixwulf"))) / "data" / "token_families.toml"
_NAMED = (
    r"api[_-]?key|access[_-]?key|(?:private|secret|signing|encryption|shared|master)[_-]?key"
    r"|token|bearer|secret|pass[_-]?wor[dt]|passwd|pwd|passphrase|passcode|pass|psk|pin|credentials?"
)
# Those that are no end of another word may have one before them: hfToken, PGPASSWORD.
_GLUED = r"(?:[a-z0-9]+(?=token|secret|api[_-]?key|pass[_-]?wor[dt]|passwd|passphrase))?"
_VALUE = r"(?P<it>(?<=\")(?:\\.|[^\"\\\[])+|(?<=')(?:\\.|[^'\\\[])+|[^\s\"',;\[\]]+)"
SECRET_NAME = re.compile(
    r"(?i)(api[_-]?key|access[_-]?key|(private|secret|signing|shared|ssh)[_-]?key|token|secret"
    r"|passw(or)?d|passwort|pwd|(?<![a-z])pass|passphrase|psk|credentials?|cookies?|auth"
    r"|webhook|(?<![a-z])join)s?$"
)
"""Names of options, variables and fields whose values are secrets; who joins has an invitation."""
HIDDEN = "[key]"

# The largest vocabularies have fewer tokens than this: the number of one is no secret.
_VOCABULARY = 1 << 22
_NO_VALUES = re.compile(
    r"(?i:true|false|none|null|nil|yes|no|on|off|unset|empty|bool:.*|\(.*|<.*|\$.*|-.*)|[A-Z_]{3,9}"
)
_OF_PASSWORDS = re.compile(
    r"(?i)for|is|was|and|or|not|must|may|can|cannot|will|has|from|with|without|required|prompts?|file|files"
    r"|auth\w*|logins?|incorrect|wrong|failed|expired|needed|missing|empty|accepted|given|changed|hash\w*"
    r"|entry|field|manager|protected|protection|changes?|twice|again|when|that|which|instead|-.*"
)
_SHORTEST_WORD = 8
_BITS_PER_CHARACTER = 3.4
_OF_EACH = 3


def _no_secret(match: re.Match[str]) -> bool:
    """Counts of tokens and their numbers in a vocabulary are none; of a password all is one."""
    name, value = match["name"].lower(), match["it"].rstrip(".")
    if _NO_VALUES.fullmatch(value):
        return True
    if not re.fullmatch(r"[0-9.,/x]+\S{0,3}", value):
        # Of a token of text a word is the text.
        of_text = name == "token" and not match[0].startswith("-")
        is_word = not any(map(str.isdigit, value)) and len(value) < _SHORTEST_WORD
        return (of_text and is_word) or (bool(match["many"]) and not any(map(str.isdigit, value)))
    if name == "token":
        return bool(match["many"]) or not value.isdecimal() or int(value[:20]) < _VOCABULARY
    return bool(match["many"]) or (name in {"pass", "pin", "secret"} and len(value) < _OF_EACH + 1)


def _looks_made(match: re.Match[str]) -> bool:
    """Whether letters and digits are mixed as in no word: then it is not spared."""
    text = match[0]
    kinds = (
        sum(map(str.islower, text)),
        sum(map(str.isupper, text)),
        sum(map(str.isdigit, text)),
    )
    entropy = -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())
    return min(kinds) >= _OF_EACH and entropy > _BITS_PER_CHARACTER


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


def _secrets() -> tuple[Pattern, ...]:
    families = "|".join(read_toml(_FAMILIES)["families"].values())
    return (
        pattern("key", r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)"),
        # Before what has no prefix: of a token whose rest looks like a key the prefix would stay.
        pattern("key", rf"(?<![A-Za-z0-9])(?:{families})"),
        pattern("key", r"(?<![0-9A-Za-z+/])AAAA[0-9A-Za-z+/]{16,}={0,3}"),
        # A certificate without its frame, and a key of WireGuard.
        pattern("key", r"(?<![A-Za-z0-9+/=])MI[ICEGH][A-Za-z0-9+/\s]{60,}={0,2}"),
        pattern("key", r"(?<![A-Za-z0-9+/=-])[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="),
        pattern("key", r"SHA256:[0-9A-Za-z+/]{43}(?![0-9A-Za-z+/])"),
        # A JSON Web Token: two JSON objects in base64, and a signature.
        pattern("key", r"(?<![A-Za-z0-9])eyJ[\w-]{8,}\.(?:eyJ)?[\w-]+(?:\.[\w-]*)*"),
        pattern(
            "key",
            r"(?:(?i:authorization)\W+(?:\w+\s+)?|(?:Bearer|Basic)\s+)(?P<it>(?!Bearer|Basic)[A-Za-z0-9._~+/=-]{6,})",
        ),
        # Of a URL that is signed, or has a key.
        pattern(
            "key",
            r"(?i)[?&](?:[\w-]*(?:sig|signature|credential)|key|code|auth)=(?P<it>[^\s&\[\"']{8,})",
        ),
        pattern("key", r"(?i)(?:set-)?cookie[\"']?\s*[:=]\s*(?P<it>[^\r\n\[]+)"),
        pattern("key", r"://(?P<it>[^/\s:@]*:[^/\s@]+)@"),
        pattern("key", r"://(?P<it>[^/\s:@\[]{16,})@"),
        pattern(
            "key",
            rf"(?<![A-Za-z])(?i:(?:[a-z0-9]+[_.-])*?{_GLUED}(?P<name>{_NAMED}))(?P<many>s?)(?:[\"']?\s*"
            r"(?::=|=>|[:=]|%3[dD]|\bis\b(?=\s+[\"'\S]*[\d\"'!$%#]))\s*)"
            rf"[\"']?{_VALUE}",
            _no_secret,
        ),
        pattern(
            "key",
            rf"(?<![\w-])-{{1,2}}(?i:(?:[a-z0-9]+-)*?(?P<name>{_NAMED}))(?P<many>)"
            r"(?:\s+|=|[\"']\s*,\s*(?=[\"']))"
            rf"[\"']?{_VALUE}",
            _no_secret,
        ),
        # In running text; what comes after it may as well be about the password.
        pattern(
            "key",
            r"(?i)\b(?:password|passwd|passphrase|passcode|wpa-psk|psk)\s+"
            r"(?:for\s+[^:\n]*:\s*)?(?P<it>[^\s\"',;:\[\]()]{4,})",
            lambda match: bool(_OF_PASSWORDS.fullmatch(match["it"])),
        ),
        pattern("key", r"\b(?:mysql|mariadb|psql)\w*\s[^\n]*?-p(?P<it>[^\s\[]{3,})"),
        pattern("key", r"\bsshpass\s+-p\s*(?P<it>[^\s\[]+)"),
        pattern("key", r"(?<![\w-])(?:-u|--user)\s+[^\s:\[]+:(?P<it>[^\s\[]+)"),
        pattern("key", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<it>[^\s\[]+)"),
        # The forty digits of a commit are what is called one, or of no known key.
        pattern(
            "key",
            r"(?<![A-Za-z0-9_@/-])(?<!commit )(?<!commit:)(?<!commit: )(?<!commit=)(?<!rev=)"
            r"(?<!rev:)(?<!revision )(?<!revision: )(?<!sha1:)(?<!git )(?<!\()"
            r"[0-9a-f]{40}(?![\w-])",
        ),
        pattern(
            "key",
            r"(?<![A-Za-z0-9])(?<!sha\d{3}-)[A-Za-z0-9]{20,}(?![A-Za-z0-9])",
            lambda match: not _looks_made(match),
        ),
    )


SECRETS = _secrets()
