"""What is known to be private of a run: names, hosts, users, disks and keys of its cluster file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from nixwulf.inventory.platforms import platform_names
from nixwulf.results.publish.patterns import HOST_TEXTS, SERIAL_TEXTS, USER_TEXTS, Kind
from nixwulf.results.publish.words import texts as texts_of
from nixwulf.results.record import Record

# Names that many machines and users have identify nobody.
_EVERYBODYS = frozenset(
    {
        *("root", "nixos", "nobody", "admin", "ubuntu", "debian", "user", "builder", "runner"),
        *("localhost", "host", "hostname", "node", "nodes", "server", "worker", "head", "rank"),
        *("lab", "linux", "version", "cpu", "gpu", "rpc", "http", "https", "tcp", "rdma", "main"),
        *("nvidia", "amd", "apple", "intel", "ray", "pi", "memory", "system"),
        *("none", "null", "true", "false", "self", "unknown"),
    }
)
_SHORTEST = 3
_PLACE = re.compile(r"n[1-9][0-9]*")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_PRIVATE_FACT = re.compile(
    r"(?i)host_?name|serial|uuid|guid|machine_?id|mac(_address)?$|address|user$|login$|e?ssid"
)
_HOMES = frozenset({"home", "root", "users", "var", "usr", "lib", "mnt", "srv", "tmp"})
_USER_VARIABLES = frozenset({"USER", "LOGNAME", "USERNAME", "SUDO_USER"})
_HOST_VARIABLES = frozenset({"HOSTNAME", "HOST", "SSH_CLIENT"})


@dataclass(frozen=True)
class Word:
    """A word to take out, what it is, and what to put instead."""

    kind: Kind | Literal["word"]
    instead: str


Words = dict[str, Word]
"""By the word in small letters."""


def closed_words(names: Iterable[str]) -> frozenset[str]:
    """These names and the platforms': a value that is one of them stays, whatever it is."""
    return frozenset({*platform_names(), *names})


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

    Args:
        cluster: its cluster file as the plan has it; may be empty.
        closed: words that are never private.
        users: of the driver's machine.
        hosts: names of the driver's machine.
        homes: folders of these users there.
    """
    kept = sorted(records, key=lambda r: (-len(r.get("nodes", ())), r["id"]))
    texts = list(dict.fromkeys(text for _, text in texts_of(kept)))
    found = _Private(closed)
    for host in (*hosts, *_found(HOST_TEXTS, texts), *_variables(kept, _HOST_VARIABLES)):
        found.add_host(host, "[host]")
    for user in (*users, *_found(USER_TEXTS, texts), *_variables(kept, _USER_VARIABLES)):
        found.add(user, "user name", "[user]")
    for serial in _found(SERIAL_TEXTS, texts):
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
    for key in cluster.get("deploy", {}).get("ssh_keys", ()):
        found.add(" ".join(key.split(" ")[2:]), "key", "[key]")
    of_cluster = {node["name"]: node for node in cluster.get("nodes", ())}
    of_records = [node["name"] for record in kept for node in record.get("nodes", ())]
    for name, place in _places(dict.fromkeys((*of_cluster, *of_records))).items():
        if name in of_cluster:
            found.add_node(of_cluster[name], place)
        found.words[name.lower()] = Word("host name", place)
    return found.words | {other.lower(): Word("word", "[...]") for other in others}


@dataclass
class _Private:
    """Private words as they are found; those of the closed lists and everybody's are left out."""

    closed: frozenset[str]
    words: Words = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.closed |= _EVERYBODYS

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
        if len(parts) > 1 or (parts and parts[0] not in _HOMES):
            for path in ("/" + "/".join(parts), "%2F" + "%2F".join(parts)):
                self.add(path, "user name", "/[user]")
            if parts[-1].lower() not in _HOMES:
                self.add(parts[-1], "user name", "[user]")

    def add_node(self, node: Mapping[str, Any], place: str) -> None:
        """The private words of a node of the cluster file."""
        user, _, host = node["ssh"].rpartition("@")
        self.add(user, "user name", "[user]")
        for name in (
            host,
            *(fabric.get("address", "") for fabric in node.get("fabrics", {}).values()),
        ):
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


def _facts(records: Iterable[Record]) -> Iterator[tuple[str, Any]]:
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
