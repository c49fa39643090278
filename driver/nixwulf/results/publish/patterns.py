"""Patterns of private texts: data/private_texts.toml, and what of it no expression can tell.

Also what is known to be private of a run: names, hosts, users, disks and keys of its cluster file,
and what the driver's machine and its user are called; and words of a run that are in none of our
texts: only who wrote them knows whether they are private. data/public_words.txt has the others;
tools/public_words.py writes it.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import platform
import pwd
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import log2
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import login
from nixwulf.inventory.platforms import shipped_platforms
from nixwulf.results.record import Record

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
    """Split a word for looking it up: by itself with any number, else by what is joined in it."""
    yield re.sub(r"\d+", "0", word.lower())
    if not any(map(str.isdecimal, word)):
        yield from (part.lower() for part in _PARTS.findall(word) if len(part) >= _SHORTEST)


def is_short(word: str) -> bool:
    """Tell whether a word is a number, or too short to name somebody."""
    return sum(map(str.isalpha, word)) < _SHORTEST or bool(_NUMBER.fullmatch(word))


def is_public(word: str) -> bool:
    """Tell whether a word, or all that is joined in it, is in our texts."""
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
    """Yield every text of a document, keys too, by its field."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield place, key
            yield from texts(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner, place)


Kind = Literal["key", "serial number", "host name", "user name", "address"]
FAMILIES = DATA / "token_families.toml"
TEXTS = read_toml(DATA / "private_texts.toml")
"""Regular expressions of what is private, and names of what is not."""

_SPARED = {kind: re.compile(form) for kind, form in TEXTS["spared"].items()}
_NUMBERS = 4
_COLONS = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")
_RUN = re.compile(":+")
_OF_A_GAP = len("::")
_DOTTED = re.compile(r"(?:\d{1,3}\.){3,}\d{1,3}")
_CHANGES = 4
_LONG = 10
_ESCAPES = frozenset("nrtbfvaux")
# As one number, other networks of nobody are as good as any count of bytes.
_BY_NUMBER = tuple(map(ipaddress.ip_network, ("172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")))

# The largest vocabularies have fewer tokens than this: the number of one is no secret.
_VOCABULARY = 1 << 22
_DECIMALS = re.compile(r"\d+\.\d+[A-Za-z%]{0,3}")
_SHORTEST_WORD = 8
_BITS_PER_CHARACTER = 3.4
_OF_EACH = 3


@dataclass(frozen=True)
class Pattern:
    """A kind of private text; the group 'it', or the whole, is taken out, unless spared."""

    kind: Kind
    expression: re.Pattern[str]
    instead: str
    spare: Callable[[re.Match[str]], bool]
    unless: re.Pattern[str]
    everywhere: bool

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Find it in a text: begin and end of each, in order."""
        group = "it" if "it" in self.expression.groupindex else 0
        for match in self.expression.finditer(text):
            if not self.unless.fullmatch(match[group]) and not self.spare(match):
                yield match.span(group)


def _no_secret(match: re.Match[str]) -> bool:
    """Counts of tokens and their numbers in a vocabulary are none; of a password all is one."""
    name, value = match["name"].lower(), match["it"].rstrip(".")
    if _SPARED["values"].fullmatch(value):
        return True
    if not re.fullmatch(r"[0-9.,/x]+\S{0,3}", value):
        # Of a token of text a word is the text.
        of_text = name == "token" and not match[0].startswith("-")
        is_word = not any(map(str.isdigit, value)) and len(value) < _SHORTEST_WORD
        return (of_text and is_word) or (bool(match["many"]) and not any(map(str.isdigit, value)))
    if name == "token":
        return bool(match["many"]) or not value.isdecimal() or int(value[:20]) < _VOCABULARY
    few = len(value) <= _OF_EACH or _DECIMALS.fullmatch(value)
    return bool(match["many"]) or (name in {"pass", "pin", "secret"} and bool(few))


def _no_mixture(match: re.Match[str]) -> bool:
    """Letters and digits that are mixed as in no word look made."""
    text = match[0]
    kinds = (sum(map(str.islower, text)), sum(map(str.isupper, text)), sum(map(str.isdigit, text)))
    entropy = -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())
    return min(kinds) < _OF_EACH or entropy <= _BITS_PER_CHARACTER


def _no_bare_serial(match: re.Match[str]) -> bool:
    """Serial numbers change between letters and digits more often than names of models do."""
    text = match[0]
    changes = sum(a.isdecimal() != b.isdecimal() for a, b in itertools.pairwise(text))
    fewest = _CHANGES - (len(text) >= _LONG and sum(map(str.isdecimal, text)) > _LONG // 2)
    return changes < fewest or bool(_SPARED["serials"].fullmatch(text))


def _no_login(match: re.Match[str]) -> bool:
    host = match["host"]
    return bool(_SPARED["hosts"].fullmatch(host)) or (
        host[0].isdecimal() and not _DOTTED.fullmatch(host.rstrip("."))
    )


def _no_ipv4(match: re.Match[str]) -> bool:
    numbers = [number.lstrip("0") or "0" for number in re.findall(r"\d+", match[0])]
    text = ".".join(numbers)
    return bool(_SPARED["addresses"].fullmatch(text)) or (
        len(numbers) == _NUMBERS and not _is_ip(text)
    )


def _no_other_ipv4(match: re.Match[str]) -> bool:
    """Octal and hexadecimal parts, or dashes: an address where it is a private one or long."""
    parts = re.split(r"[.\-_]", match[0])
    try:
        numbers = [int(p, 0 if p[:2].lower() == "0x" else 8 if p[0] == "0" else 10) for p in parts]
        address = ipaddress.IPv4Address(".".join(map(str, numbers)))
    except ValueError:
        return True
    return not address.is_private or bool(_SPARED["addresses"].fullmatch(str(address)))


def _no_number_of_ipv4(match: re.Match[str]) -> bool:
    """Eight hexadecimal digits are an address where they are a private one, in either order."""
    number = bytes.fromhex(match["it"])
    orders = (number, number[::-1]) if match["port"] else (number,)
    places = [ipaddress.IPv4Address(order) for order in orders]
    return not any(p.is_private and not p.is_loopback and p.packed[0] for p in places)


def _no_decimal_ipv4(match: re.Match[str]) -> bool:
    number = int(match[0])
    return number >> 32 > 0 or not any(ipaddress.ip_address(number) in n for n in _BY_NUMBER)


def _no_domain_user(match: re.Match[str]) -> bool:
    """A path, or a line that was broken: '\\n' before a word that is everybody's."""
    name = match["name"]
    broken = len(match["slash"]) == 1 and name[0] in _ESCAPES and is_public(name[1:])
    return broken or bool(_SPARED["accounts"].fullmatch(name))


def _no_public_word(match: re.Match[str]) -> bool:
    return all(map(is_public, WORD.findall(match["it"])))


def _no_card(match: re.Match[str]) -> bool:
    """The last digit of a card's number checks the others (Luhn)."""
    digits = [int(one) for one in match[0] if one.isdecimal()]
    doubled = [sum(divmod(2 * one, 10)) for one in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 > 0


_SPARES: dict[str, Callable[[re.Match[str]], bool]] = {
    function.__name__[1:]: function
    for function in (
        *(_no_secret, _no_mixture, _no_bare_serial, _no_login, _no_domain_user, _no_ipv4),
        *(_no_other_ipv4, _no_number_of_ipv4, _no_decimal_ipv4, _no_public_word, _no_card),
    )
}


def _written(text: str, pieces: Mapping[str, str]) -> str:
    """An expression whose pieces, and theirs, are in their places."""
    while (whole := re.sub(r"<<(\w+)>>", lambda piece: pieces[piece[1]], text)) != text:
        text = whole
    return text


def _patterns() -> Iterator[Pattern]:
    families = "|".join(read_toml(FAMILIES)["families"].values())
    pieces = {**TEXTS["pieces"], "families": families}
    for entry in TEXTS["text"]:
        kind = entry["kind"]
        instead = entry.get("instead", f"[{kind.removesuffix(' name').removesuffix(' number')}]")
        unless = re.compile(_written(entry.get("unless", "(?!)"), pieces))
        spare = _SPARES.get(entry.get("spare"), lambda _match: False)
        for form in entry["forms"]:
            expression = re.compile(_written(form, pieces), re.DOTALL)
            yield Pattern(kind, expression, instead, spare, unless, "everywhere" in entry)


PATTERNS = tuple(_patterns())
"""In the order in which they are applied, IPv6 addresses after them."""

HOST_TEXTS = tuple(re.compile(form, re.MULTILINE) for form in TEXTS["names"]["hosts"])
"""Where programs print the names of hosts: Open MPI, HPCC, NCCL, NixOS, ssh, logs and prompts."""

USER_TEXTS = tuple(re.compile(form) for form in TEXTS["names"]["users"])
"""Where the names of users stand."""

SERIAL_TEXTS = tuple(p.expression for p in PATTERNS if p.everywhere)
"""Where serial numbers are labelled as such."""


def ipv6_spans(text: str) -> Iterator[tuple[int, int]]:
    """Find short IPv6 addresses in a text, such as fe80::1, but for ::1 and ::.

    Colons in other things, such as std::add, are recognised by the letters beside them.
    """
    for match in _COLONS.finditer(text):
        begin, end = match.span()
        runs = list(_RUN.finditer(text, begin, end))
        # The word beside a letter belongs to what is there; of three colons two to an address.
        if begin and text[begin - 1].isalnum():
            begin = runs[0].end() - (_OF_A_GAP if len(runs[0][0]) > _OF_A_GAP else 0)
        if end < len(text) and text[end].isalnum():
            end = runs[-1].start() + (_OF_A_GAP if len(runs[-1][0]) > _OF_A_GAP else 0)
        begin = max(begin, runs[0].end() - _OF_A_GAP) if runs[0].start() <= begin else begin
        end = min(end, runs[-1].start() + _OF_A_GAP) if runs[-1].end() >= end else end
        while begin < end and not _is_ip(text[begin:end]):
            if text[end - 1] == ":":
                end -= 1
            elif text[begin] == ":":
                begin += 1
            else:
                break
        if _is_ip(text[begin:end]) and not _SPARED["addresses"].fullmatch(text[begin:end]):
            yield begin, end


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_KNOWN = {kind: frozenset(words) for kind, words in TEXTS["names"].items()}
_PLACE = re.compile(r"n[1-9][0-9]*")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_PRIVATE_FACT = re.compile(
    r"(?i)host_?name|serial|uuid|guid|machine_?id|mac(_address)?$|address|user$|login$|e?ssid"
)


@dataclass(frozen=True)
class Word:
    """A word to take out, what it is, and what to put instead."""

    kind: Kind | Literal["word"]
    instead: str


Words = dict[str, Word]
"""By the word in small letters."""


def closed_words(names: Iterable[str]) -> frozenset[str]:
    """These names and the platforms': a value that is one of them stays, whatever it is."""
    return frozenset({*shipped_platforms(), *names})


def known_words(
    records: Iterable[Record],
    cluster: Mapping[str, Any],
    closed: frozenset[str],
    users: Iterable[str] = (),
    hosts: Iterable[str] = (),
    homes: Iterable[str] = (),
    others: Iterable[str] = (),
) -> Words:
    """The private words of a run: of its records, its cluster file, and of the driver's machine.

    Nodes become n1, n2, ... in the order of the cluster file, else of the largest run.

    cluster: its cluster file as the plan has it; may be empty. closed: words that are never
    private. users, hosts, homes: of the driver's machine.
    """
    kept = sorted(records, key=lambda r: (-len(r.get("nodes", ())), r["id"]))
    found = _Private(closed)
    _add_of_records(found, kept, users, hosts, homes)
    for key in cluster.get("deploy", {}).get("ssh_keys", ()):
        found.add(" ".join(key.split(" ")[2:]), "key", "[key]")
    of_cluster = {node["name"]: node for node in cluster.get("nodes", ())}
    of_records = [node["name"] for record in kept for node in record.get("nodes", ())]
    for name, place in _places(dict.fromkeys((*of_cluster, *of_records))).items():
        if name in of_cluster:
            found.add_node(of_cluster[name], place)
        found.words[name.lower()] = Word("host name", place)
    return found.words | {other.lower(): Word("word", "[...]") for other in others}


def _add_of_records(
    found: _Private,
    kept: Sequence[Record],
    users: Iterable[str],
    hosts: Iterable[str],
    homes: Iterable[str],
) -> None:
    """Add what is known of the driver's machine, and what texts and facts of records name so."""
    known = list(dict.fromkeys(text for _, text in texts(kept)))
    for host in (*hosts, *_found(HOST_TEXTS, known), *_variables(kept, _KNOWN["host_variables"])):
        found.add_host(host, "[host]")
    for user in (*users, *_found(USER_TEXTS, known), *_variables(kept, _KNOWN["user_variables"])):
        found.add(user, "user name", "[user]")
    for serial in _found(SERIAL_TEXTS, known):
        if any(char.isdecimal() for char in serial):
            found.add(serial, "serial number", "[serial]")
    for key, value in _facts(kept):
        if isinstance(value, str) and _PRIVATE_FACT.search(key):
            found.add_fact(key.lower(), value)
    for record in kept:
        found.add_url(str(record.get("case", {}).get("parameters", {}).get("url", "")))
    variables = _variables(kept, frozenset({"HOME"}))
    of_nodes = (v for k, v in _facts(kept) if k == "home" and isinstance(v, str))
    for home in (*homes, *variables, *of_nodes):
        found.add_home(home)


@dataclass
class _Private:
    """Private words as they are found; those of the closed lists and everybody's are left out."""

    closed: frozenset[str]
    words: Words = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.closed |= _KNOWN["everybodys"]

    def add(self, word: str, kind: Kind, instead: str) -> None:
        """Keep a word as private, unless it identifies nobody."""
        bare = word.strip().rstrip(".").lower()
        if len(bare) >= _SHORTEST and not bare.isdecimal() and bare not in self.closed:
            self.words[bare] = Word(kind, instead)

    def add_host(self, host: str, instead: str) -> None:
        """A host by its whole name and by the first part of it."""
        if _ADDRESS.fullmatch(host):
            self.add(host, "address", instead)
        else:
            for name in (host, host.partition(".")[0]):
                self.add(name, "host name", instead)

    def add_fact(self, key: str, value: str) -> None:
        """A fact whose name says that it is private."""
        if "host" in key:
            self.add_host(value, "[host]")
        elif "user" in key or "login" in key:
            self.add(value, "user name", "[user]")
        else:
            self.add(value, "serial number", "[serial]")

    def add_home(self, home: str) -> None:
        """A user's folder, wherever it is, by its path in two spellings and by its own name."""
        parts = [part for part in home.split("/") if part]
        if len(parts) > 1 or (parts and parts[0] not in _KNOWN["homes"]):
            for path in ("/" + "/".join(parts), "%2F" + "%2F".join(parts)):
                self.add(path, "user name", "/[user]")
            if parts[-1].lower() not in _KNOWN["homes"]:
                self.add(parts[-1], "user name", "[user]")

    def add_node(self, node: Mapping[str, Any], place: str) -> None:
        """The private words of a node of the cluster file."""
        user, _, host = node["ssh"].rpartition("@")
        self.add(user, "user name", "[user]")
        fabrics = node.get("fabrics", {}).values()
        for name in (host, *(fabric.get("address", "") for fabric in fabrics)):
            self.add_host(name, place)
        disk = node.get("disk", "").rpartition("/")[2]
        self.add(disk, "serial number", "[serial]")
        self.add(disk.rpartition("_")[2], "serial number", "[serial]")
        self.add("".join(node.get("host_key", "").split(" ")[1:2]), "key", "[key]")
        for outside in (node.get("meter", {}), node.get("power_switch", {})):
            self.add_url(outside.get("url", ""))

    def add_url(self, url: str) -> None:
        """The host of an address that a case has; what is no address has none."""
        with suppress(ValueError):
            self.add_host(urlsplit(url).hostname or "", "[host]")


def _places(names: Iterable[str]) -> dict[str, str]:
    """n1, n2, ... for nodes in order; those that are called so already keep their names."""
    kept = {name: name for name in names if _PLACE.fullmatch(name)}
    free = (place for number in itertools.count(1) if (place := f"n{number}") not in kept)
    return kept | {name: next(free) for name in names if name not in kept}


def _facts(records: Iterable[Record]) -> Iterator[tuple[str, object]]:
    for record in records:
        for node in record.get("nodes", ()):
            yield from node.get("facts", {}).items()


def _found(expressions: Iterable[re.Pattern[str]], texts: Iterable[str]) -> Iterator[str]:
    kept = list(texts)
    for expression in expressions:
        for text in kept:
            for match in expression.finditer(text):
                yield match[expression.groupindex.get("it", 1)]


def _variables(records: Iterable[Record], names: frozenset[str]) -> Iterator[str]:
    for record in records:
        for command in record.get("commands", ()):
            for name, value in command.get("environment", {}).items():
                if name in names:
                    yield value


_NAMES = (Path("/etc/hostname"), Path("/etc/machine-info"))


def users() -> Iterator[str]:
    """The user's logins, and the name that goes with them."""
    yield login() or ""
    with suppress(KeyError):
        entry = pwd.getpwuid(os.getuid())
        yield entry.pw_name
        yield entry.pw_gecos.partition(",")[0]
    for name in ("SUDO_USER", "LOGNAME", "USER"):
        yield os.environ.get(name, "")


def homes() -> Iterator[str]:
    """List the folders of the user's files."""
    yield os.environ.get("HOME", "")
    with suppress(KeyError):
        yield pwd.getpwuid(os.getuid()).pw_dir


def hosts() -> Iterator[str]:
    """The machine's names; no name server is asked."""
    yield socket.gethostname()
    yield platform.node()
    for path in _NAMES:
        with suppress(OSError, UnicodeDecodeError):
            for line in path.read_text("utf-8").splitlines():
                name = line.partition("=")[2] if line.startswith("PRETTY_HOSTNAME") else line
                if "=" not in name:
                    yield name.strip().strip('"')
