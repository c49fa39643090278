"""What private texts look like: keys, serial numbers, addresses, and names of hosts and users."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["key", "serial number", "host name", "user name", "address"]

# Same-machine addresses are everybody's.
_NO_ADDRESSES = re.compile(r"127\..*|0\.0\.0\.0|255\.255\..*|::1?")
_SHORTEST_SECRET = 8
_NUMBERS = 4
_OF_A_GAP = len("::")
_NO_HOSTS = re.compile(r"sha256|entry|plt|GLIBC.*|GCC.*|CXXABI.*", re.IGNORECASE)
# A version of four numbers cannot be distinguished from an address,
# nor an address behind a version.
_IPV4 = re.compile(r"(?<!\d)(?:\d{1,3}\.){3,}\d{1,3}(?!\d)")
_COLONS = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")
_PRIVATE = (
    r"local|lan|home|internal|localdomain|intranet|intra|corp|private|home\.arpa|fritz\.box|ts\.net"
)
_USER_AT_HOST = re.compile(r"(?<![\w.+-])[\w.+-]+@(?P<host>\[host\]|[A-Za-z0-9][\w.-]*)")


@dataclass(frozen=True)
class Pattern:
    """A kind of private text; the group 'it', or the whole, is taken out, unless spared."""

    kind: Kind
    expression: re.Pattern[str]
    instead: str
    spare: Callable[[re.Match[str]], bool] = lambda _match: False

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it is in a text: begin and end of each, in order."""
        group = "it" if "it" in self.expression.groupindex else 0
        for match in self.expression.finditer(text):
            if not self.spare(match):
                yield match.span(group)


def _pattern(
    kind: Kind,
    expression: str,
    instead: str,
    spare: Callable[[re.Match[str]], bool] = lambda _match: False,
) -> Pattern:
    return Pattern(kind, re.compile(expression, re.DOTALL), instead, spare)


def _no_secret(match: re.Match[str]) -> bool:
    """Numbers and short words after 'tokens:' are counts."""
    value = match["it"]
    return len(value) < _SHORTEST_SECRET or bool(re.fullmatch(r"[0-9.,/x]+\S{0,3}", value))


def _no_serial(match: re.Match[str]) -> bool:
    return not any(char.isdecimal() for char in match["it"])


def _no_login(match: re.Match[str]) -> bool:
    host = match["host"]
    return bool(_NO_HOSTS.fullmatch(host)) or (
        host[0].isdecimal() and not _IPV4.fullmatch(host.rstrip("."))
    )


def _no_ipv4(match: re.Match[str]) -> bool:
    numbers = match[0].split(".")
    return bool(_NO_ADDRESSES.fullmatch(match[0])) or (
        len(numbers) == _NUMBERS and not _is_ip(match[0])
    )


PATTERNS = (
    _pattern("key", r"-----BEGIN [A-Z ]*KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", "[key]"),
    _pattern("key", r"AAAA[0-9A-Za-z+/]{16,}={0,3}", "[key]"),
    _pattern("key", r"SHA256:[0-9A-Za-z+/]{43}(?![0-9A-Za-z+/])", "[key]"),
    _pattern(
        "key",
        r"(?<![A-Za-z0-9])(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|nvapi-|tskey-)[A-Za-z0-9_-]{16,}",
        "[key]",
    ),
    # A JSON Web Token: two JSON objects in base64, and a signature.
    _pattern(
        "key", r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", "[key]"
    ),
    _pattern(
        "key",
        r"(?:(?i:authorization)\W+(?:\w+\s+)?|Bearer\s+)(?P<it>[A-Za-z0-9._~+/=-]{12,})",
        "[key]",
    ),
    _pattern("key", r"://(?P<it>[^/\s:@]+:[^/\s@]+)@", "[key]"),
    _pattern(
        "key",
        r"(?:(?i:api[_-]?key|token|secret|passw(?:or)?d|passphrase)s?[\"']?\s*[:=]\s*"
        r"|--[a-z-]*(?:api-key|token|secret|password|passphrase)\s+)[\"']?(?P<it>[^\s\"',;\[]+)",
        "[key]",
        spare=_no_secret,
    ),
    _pattern(
        "serial number", r"/dev/disk/by-(?:id|uuid|partuuid)/(?P<it>[^\s,;'\"\[]+)", "[serial]"
    ),
    _pattern(
        "serial number",
        r"(?<![A-Za-z0-9])(?:(?:nvme|ata|scsi|usb|mmc)-[\w.:+-]*_[\w.:+-]*"
        r"|wwn-0x[0-9a-f]+|(?:eui|naa)\.[0-9a-f]{16,})",
        "[serial]",
    ),
    _pattern(
        "serial number",
        r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Za-z])",
        "[serial]",
    ),
    # Of libp2p, and so of exo: a node's identity for as long as its key lasts.
    _pattern("serial number", r"12D3KooW[1-9A-HJ-NP-Za-km-z]{44}", "[serial]"),
    _pattern("serial number", r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])", "[serial]"),
    _pattern(
        "serial number",
        r"(?<![A-Za-z])(?i:serial(?:[ _-]?(?:number|num|no\.?))?|s/n|sn|(?:asset|service)[ _-]?tag)"
        r"[\"']?(?:\s*[:=#]\s*|\s+)[\"']?(?P<it>[A-Za-z0-9][\w-]{4,})",
        "[serial]",
        spare=_no_serial,
    ),
    Pattern("user name", _USER_AT_HOST, "[user]@[host]", _no_login),
    _pattern(
        "user name",
        r"[/\\](?:home|Users|media)[/\\](?P<it>[^./\\\s:'\",;()\[\]][^/\\\s:'\",;()\[\]]*)",
        "[user]",
    ),
    _pattern(
        "host name",
        rf"(?i)(?<![a-z0-9])(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9])?\.)+(?:{_PRIVATE})(?![a-z0-9])",
        "[host]",
    ),
    _pattern("host name", r"(?<![A-Za-z0-9])ip(?:-\d{1,3}){4}(?!\d)", "[host]"),
    _pattern("host name", r"nixos-system-(?P<it>[^\s/\[]+?)-\d\d\.\d\d", "[host]"),
    # Four groups and more, whatever is around: IPv6, MAC and InfiniBand addresses, GUIDs, and GIDs,
    # which perftest writes as sixteen decimal numbers, the IPv4 address in them too.
    _pattern("address", r"(?:[0-9A-Fa-f]{1,4}:){3,}[0-9A-Fa-f:]*", "[address]"),
    _pattern(
        "address",
        r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}-){5,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])",
        "[address]",
    ),
    _pattern(
        "address", r"(?<![A-Za-z0-9])(?:enx|wlx)(?P<it>[0-9a-f]{12})(?![0-9A-Za-z])", "[address]"
    ),
    Pattern("address", _IPV4, "[address]", _no_ipv4),
)
"""In the order in which they are applied, IPv6 addresses after them."""

HOST_TEXTS = tuple(
    re.compile(expression, re.MULTILINE)
    for expression in (
        r"\b(?i:local host|remote host|hostname)[\"']?\s*[:=]\s*[\"']?([A-Za-z0-9][\w.-]*)",
        r"^([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\] NCCL",
        r"nixos-system-([^\s/\[]+?)-\d\d\.\d\d",
        r"(?<!\w)[A-Za-z_][\w.+-]*@(?!entry|plt|sha256|GLIBC)([A-Za-z][\w-]*)(?![\w.-])",
    )
)
"""Where programs print the names of hosts: Open MPI, HPCC, NCCL, NixOS, prompts and logins."""

USER_TEXTS = tuple(
    re.compile(expression)
    for expression in (
        r"[/\\](?:home|Users)[/\\]([A-Za-z_][\w.-]*)",
        r"\b(?:USER|LOGNAME|USERNAME)=([A-Za-z_][\w.-]*)",
        r"(?<!\w)([A-Za-z_][\w.+-]*)@(?!entry|plt|sha256|GLIBC)[A-Za-z][\w-]*(?![\w.-])",
    )
)
"""Where the names of users stand."""

SERIAL_TEXTS = tuple(
    p.expression
    for p in PATTERNS
    if p.kind == "serial number" and "it" in p.expression.groupindex and p.spare is _no_serial
)
"""Where serial numbers are labelled as such."""


def ipv6_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where a text has short IPv6 addresses, such as fe80::1, but for ::1 and ::.

    Colons in other things, such as std::add, are recognised by the letters beside them.
    """
    for match in _COLONS.finditer(text):
        begin, end = match.span()
        if begin and text[begin - 1].isalnum():
            begin = _after_colons(text, begin, end)
        if end < len(text) and text[end].isalnum():
            end = _before_colons(text, begin, end)
        while begin < end and not _is_ip(text[begin:end]):
            if text[end - 1] == ":":
                end -= 1
            elif text[begin] == ":":
                begin += 1
            else:
                break
        if _is_ip(text[begin:end]) and not _NO_ADDRESSES.fullmatch(text[begin:end]):
            yield begin, end


def _after_colons(text: str, begin: int, end: int) -> int:
    """Past the first word, which belongs to what is before, and the colons after it.

    Of three colons and more, two belong to an address.
    """
    colons = re.compile(":+").search(text, begin, end)
    if colons is None:
        return end
    return colons.end() - (_OF_A_GAP if len(colons[0]) > _OF_A_GAP else 0)


def _before_colons(text: str, begin: int, end: int) -> int:
    """The same from the other end."""
    colons = list(re.compile(":+").finditer(text, begin, end))
    if not colons:
        return begin
    return colons[-1].start() + (_OF_A_GAP if len(colons[-1][0]) > _OF_A_GAP else 0)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
