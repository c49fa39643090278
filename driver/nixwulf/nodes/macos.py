"""Facts of macOS, of four of its own programs, where Linux has files.

Written from Apple's manual pages, from netstat's and vm_stat's sources
(https://github.com/apple-oss-distributions/network_cmds and system_cmds) and from outputs that
others published; not yet run on a Mac by this project. Each function finds its own lines in all
that was printed, and leaves out what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

SYSTEM = "Darwin"

# Without -n sysctl names each value, and goes on after a name that this macOS does not have.
_VALUES = (
    "kern.ostype",
    "kern.osrelease",
    "kern.osproductversion",
    "kern.osversion",
    "kern.hostname",
    "hw.model",
    "hw.memsize",
    "hw.ncpu",
    "machdep.cpu.brand_string",
    "iogpu.wired_limit_mb",
)
# For a shell on a Mac: interfaces with their addresses; and what each has carried.
_INTERFACES = "ifconfig -a 2>/dev/null"
FACTS = f"sysctl {' '.join(_VALUES)} 2>/dev/null; vm_stat 2>/dev/null; {_INTERFACES}"
COUNTERS = f"{_INTERFACES}; netstat -ibn 2>/dev/null"

_VALUE = re.compile(rf"({'|'.join(map(re.escape, _VALUES))}): (.*)")
_PAGE_SIZE = re.compile(r"Mach Virtual Memory Statistics: \(page size of ([0-9]{1,9}) bytes\)")
_PAGES = re.compile(r'"?([A-Z][a-zA-Z -]+)"?:\s+([0-9]{1,18})\.')
# Memory that a program may have without anything being paged out: what is free, what only repeats
# files (as in Linux's MemAvailable), and what programs have said may be thrown away. vm_stat counts
# speculative pages, which repeat files too, as file-backed and not as free.
_AVAILABLE = frozenset({"Pages free", "File-backed pages", "Pages purgeable"})
_INTERFACE = re.compile(r"([^\s:]+): flags=\S+ mtu ([0-9]{1,9})\b")
_ADDRESS = re.compile(r"\s+inet6? ([^\s%]+)")
# Ipkts Ierrs Ibytes Opkts Oerrs Obytes Coll
_COUNTERS = 7


@dataclass(frozen=True)
class Port:
    """A network interface as ifconfig shows it; addresses are without the interface's name."""

    mtu: int
    addresses: tuple[str, ...]


def values(lines: Iterable[str]) -> dict[str, str]:
    """sysctl's values by name."""
    matches = filter(None, map(_VALUE.fullmatch, lines))
    return {match[1]: match[2].strip() for match in matches}


def memory_available(lines: Iterable[str]) -> int:
    """Bytes of memory that nothing needs, of vm_stat; 0 where it lacks one of them."""
    size = 0
    pages: dict[str, int] = {}
    for line in lines:
        if head := _PAGE_SIZE.match(line):
            size = int(head[1])
        elif size and (count := _PAGES.fullmatch(line)):
            pages[count[1]] = int(count[2])
    known = pages.keys() >= _AVAILABLE
    return size * sum(pages[name] for name in _AVAILABLE) if known else 0


def ports(lines: Iterable[str]) -> dict[str, Port]:
    """Interfaces by name, of ifconfig."""
    found: dict[str, Port] = {}
    name = ""
    for line in lines:
        if head := _INTERFACE.match(line):
            name = head[1]
            found[name] = Port(int(head[2]), ())
        elif name in found and (address := _ADDRESS.match(line)):
            found[name] = Port(found[name].mtu, (*found[name].addresses, address[1]))
        elif not line[:1].isspace():
            name = ""
    return found


def carried(lines: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """Bytes received and sent by interface, of `netstat -ibn`."""
    return {name: (received, sent) for name, received, sent in _rows(lines)}


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Each interface has one row of its link, and more of its addresses with the same numbers.

    The address of a link may be missing, so columns count from the right; a row that was cut has
    too few numbers. A star marks an interface that is down.
    """
    for line in lines:
        words = line.split()
        if len(words) < 3 or not re.fullmatch(r"<Link#[0-9]+>", words[2]):  # noqa: PLR2004
            continue
        numbers = words[3:][-_COUNTERS:]
        whole = len(numbers) == _COUNTERS and len(words) <= _COUNTERS + 4
        if whole and all(re.fullmatch(r"[0-9]{1,20}", number) for number in numbers):
            yield words[0].rstrip("*"), int(numbers[2]), int(numbers[5])
