"""Findings: what a check read of a machine, what it should be, and what mends it.

The checks are data (data/doctor.toml): a text that is looked for in what a machine printed, or a
name of a function of machine.py with the numbers that it compares with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Literal

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import clean, plural
from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.inventory.fabrics import Attachment
from nixwulf.inventory.platforms import Platform
from nixwulf.nodes import macos
from nixwulf.nodes.facts import Facts, NodeReading
from nixwulf.nodes.interfaces import Interface, parse_interfaces

State = Literal["ok", "warning", "wrong", "unknown"]
LOG = "@log"
_LONGEST = 200
"""Characters of a line that is shown."""


@dataclass(frozen=True)
class Finding:
    """A line of the page: of a node and a check, what was read and what it should be.

    mend: what makes it right, empty where it is; source: the document or thread that says so.
    """

    node: str
    check: str
    state: State
    read: str
    expected: str
    mend: str
    source: str

    def document(self) -> dict[str, str]:
        """Return the JSON form, with every field."""
        return dict(vars(self))


@dataclass(frozen=True)
class Check:
    """A row of data/doctor.toml; numbers: what it compares with, by the row's own names."""

    name: str
    holds: str
    mend: str
    state: State
    source: str
    read: str
    of: str = ""
    pattern: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def ok(self, read: str, expected: str = "") -> Remark:
        """Return a remark that a thing is as it should be."""
        return Remark("ok", read, expected)

    def bad(self, read: str, expected: str = "", state: State | None = None) -> Remark:
        """Return a remark that a thing is wrong, in the row's own state or another."""
        return Remark(state or self.state, read, expected)

    def when(self, fault: bool, read: str, expected: str = "") -> Remark:
        """Bad where it is a fault, else ok."""
        return self.bad(read, expected) if fault else self.ok(read, expected)

    def unknown(self, read: str) -> Remark:
        """Return a remark that a thing could not be read."""
        return Remark("unknown", read)


@dataclass(frozen=True)
class Remark:
    """A check's finding about one thing; empty expected and source are the check's."""

    state: State
    read: str
    expected: str = ""
    source: str = ""


@cache
def checks() -> dict[str, Check]:
    """List the checks by name, in the order of the data."""
    own = {"holds", "mend", "state", "source", "read", "of", "pattern"}
    return {
        name: Check(
            name,
            **{key: value for key, value in row.items() if key in own},
            numbers={key: value for key, value in row.items() if key not in own},
        )
        for name, row in read_toml(DATA / "doctor.toml").items()
    }


def faults() -> str:
    """The faults to find in the kernel's log, as one extended regular expression."""
    return "|".join(f"({one.pattern})" for one in checks().values() if one.of == LOG)


@dataclass(frozen=True)
class Subject:
    """A machine that is examined: what it printed, its platform, its place on a cluster's fabrics.

    ends: of a cluster file, each fabric with the machine's port on it; empty of a host by name.
    others: that are examined too: some checks compare both ends of a link.
    """

    node: Node
    reading: NodeReading
    platform: Platform
    ends: tuple[tuple[Fabric, Attachment], ...] = ()
    others: Sequence[Subject] = ()

    @property
    def facts(self) -> Facts:
        """The facts of the node."""
        return self.reading.facts

    @property
    def mac(self) -> bool:
        """Tell whether the machine runs macOS."""
        return self.facts.system == macos.SYSTEM

    def first(self, path: str) -> str:
        """The first line of a file or a program's output, without blanks; empty without one."""
        return next(iter(self.reading.lines.get(path, ())), "").strip()

    def number(self, path: str) -> int | None:
        """A whole number that a file or a program's output begins with, None without one."""
        text = self.first(path)
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None

    def files(self, pattern: str) -> Iterator[tuple[str, list[str]]]:
        """The files that a glob matches, with their lines."""
        for path, lines in self.reading.lines.items():
            if fnmatchcase(path, pattern) and path.count("/") == pattern.count("/"):
                yield path, lines

    def folders(self, pattern: str) -> dict[str, dict[str, str]]:
        """First lines by the folder that a glob matches, and then by what follows of the path."""
        found: dict[str, dict[str, str]] = {}
        depth = pattern.count("/") + 1
        for path, lines in self.reading.lines.items():
            parts = path.split("/")
            folder, rest = "/".join(parts[:depth]), "/".join(parts[depth:])
            if rest and lines and fnmatchcase(folder, pattern):
                found.setdefault(folder, {})[rest] = lines[0].strip()
        return found

    @cached_property
    def memory(self) -> dict[str, int]:
        """Lines of /proc/meminfo, bytes; those without a unit are counts."""
        found = {}
        for line in self.reading.lines.get("/proc/meminfo", ()):
            match = re.fullmatch(r"(\S+):\s+([0-9]{1,18})( kB)?", line)
            if match:
                found[match[1]] = int(match[2]) * (1024 if match[3] else 1)
        return found

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """The interfaces but the loopback; none where the machine listed none."""
        lines = self.reading.lines
        if self.mac:
            names = ("@ports", "@thunderbolt", "@ibv")
            return macos.interfaces(
                self.reading.text, *("\n".join(lines.get(name, ())) for name in names)
            )
        addresses = "\n".join(lines.get("@addresses", ()))
        return parse_interfaces(addresses, lines, self.facts.hardware, lines.get("@folders", ()))


Function = Callable[[Subject, Check], Iterable[Remark]]


def functions_of(*modules: ModuleType) -> dict[str, Function]:
    """The functions of checks, by what data/doctor.toml calls them: _pcie_lanes is 'pcie-lanes'."""
    own = {name: one for module in modules for name, one in vars(module).items()}
    called = {name: f"_{name.replace('-', '_')}" for name in checks()}
    return {name: own[function] for name, function in called.items() if function in own}


def judge(
    subject: Subject, everyone: Sequence[Subject], functions: Mapping[str, Function]
) -> Iterator[Finding]:
    """Judge a machine: its findings in the order of the checks.

    everyone: all machines, itself among them. functions: of checks that are no text, by name.
    """
    of = replace(subject, others=[one for one in everyone if one is not subject])
    for check in checks().values():
        found = _texts(subject, check) if check.pattern else ()
        function = functions.get(check.name)
        for one in found if function is None else function(of, check):
            fine = one.state == "ok"
            yield Finding(
                subject.node.name,
                check.name,
                one.state,
                clean(one.read)[:_LONGEST],
                one.expected or check.holds,
                "" if fine else check.mend,
                one.source or check.source,
            )


def _texts(subject: Subject, check: Check) -> Iterator[Remark]:
    """A finding for each file in which a text is, or one that it is in none of them."""
    files = list(subject.files(check.of))
    bad = [
        (path, hits)
        for path, lines in files
        if (hits := [line.strip() for line in lines if re.search(check.pattern, line)])
    ]
    for path, hits in bad:
        more = f" ({plural(len(hits), 'line')})" if len(hits) > 1 else ""
        where = "" if path.startswith("@") or check.of == path else f"{path}: "
        yield check.bad(f"{where}{hits[0][: _LONGEST - 60]}{more}")
    if files and not bad:
        yield check.ok("not there" if check.of == LOG else files[0][1][0].strip())
