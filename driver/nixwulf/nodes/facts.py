"""Facts: what is read from a node, in one round trip, by one program that starts no others.

`grep -sH ''` prints every line of many small files, each with its path, in one process: sixteen
lab nodes on two cores have no time for a fork a file. macOS has no such files, but three programs.

Addresses and ports that a node listens on, as its kernel lists them.
"""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from subprocess import CompletedProcess
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.core.printed import check_numbers
from nixwulf.nodes import macos
from nixwulf.nodes.interfaces import (
    DOCTOR_FILES,
    HARDWARE_FILES,
    Hardware,
    parse_hardware,
    whole_number,
)
from nixwulf.nodes.ssh import Connection, Unreachable, run_all


def _script(files: Iterable[str], faults: str) -> str:
    return (
        f"hardware='{' '.join(files)}' values='{' '.join(macos.VALUES)}' "
        f"faults={shlex.quote(faults)}\n{shipped_text('nodes/facts.sh')}"
    )


_SCRIPT = _script(HARDWARE_FILES, "")

NOT_RUN = (126, 127)  # a shell's exit status for a program that cannot be run, or is not there
_LOOK_S = 0.1
# Seconds since the boot and seconds that all CPUs idled, twice; macOS has neither.
_IDLE = (
    "read -r began idle </proc/uptime || exit 0; sleep "
    f'{_LOOK_S:g}; read -r ended idled </proc/uptime; echo "$began $idle $ended $idled"'
)

_ALLOWED = "Cpus_allowed_list"
_CPU_FIELDS = {"model name", "Model"}


@dataclass(frozen=True)
class Clock:
    """How far a node's time of day is ahead of the driver's, seconds: between these two."""

    least: float
    most: float

    @classmethod
    def of(cls, theirs: float, before: float, after: float) -> Clock:
        """The clock of a node, read between two times of the driver's; all are s since 1970."""
        return cls(theirs - after, theirs - before)


@dataclass(frozen=True)
class Facts:
    """Facts of a node. Memory is in bytes; what could not be read is absent.

    system is 'Linux' or 'Darwin'; of any other only the programs are known, and it is empty.
    memlock is what a process of this login may lock, infinite where there is no limit. time_of_day,
    in seconds since 1970, is of the shells that have it; clock is the same against the driver's.
    Of its CPUs a process of this login may run on cpus_allowed, and has the time of cpu_quota
    (None: no limit); busy_cpus were busy while nothing of the driver ran (None: nobody looked).
    """

    hostname: str
    kernel: str
    command_line: str
    memory_total: int
    memory_available: int
    cpu: str
    cpus: int
    os: str
    programs: Mapping[str, str]
    mtus: Mapping[str, int]
    addresses: frozenset[str]
    other: Mapping[str, str]
    hardware: Hardware = field(default_factory=Hardware)
    memlock: float | None = None
    time_of_day: float | None = None
    clock: Clock | None = None
    system: str = ""
    cpus_allowed: int = 0
    cpu_quota: float | None = None
    busy_cpus: float | None = None

    def document(self) -> dict[str, Any]:
        """What a record keeps: nothing that changes from one second to the next but memory."""
        return {
            "kernel": self.kernel,
            **({"command_line": self.command_line} if self.command_line else {}),
            "memory_total_bytes": self.memory_total,
            "memory_available_bytes": self.memory_available,
            "cpu": self.cpu,
            "cpus": self.cpus,
            **({"cpus_allowed": self.cpus_allowed} if 0 < self.cpus_allowed < self.cpus else {}),
            **({} if self.cpu_quota is None else {"cpu_quota": round(self.cpu_quota, 3)}),
            **({} if self.busy_cpus is None else {"busy_cpus": round(self.busy_cpus, 2)}),
            "os": self.os,
            **(
                {}
                if self.memlock is None
                else {
                    "memlock": "unlimited"
                    if math.isinf(self.memlock)
                    else f"{self.memlock / 1024:.0f} KiB"
                }
            ),
            **self.hardware.document(),
            **self.other,
        }


@dataclass(frozen=True)
class NodeReading:
    """Facts of a node, and all that it printed: lines by file, or by '@' and a name of facts.sh.

    text: of what has no such beginning, as of macOS's programs.
    """

    facts: Facts
    lines: Mapping[str, list[str]]
    text: str = ""

    @classmethod
    def of(cls, text: str) -> NodeReading:
        """The reading of the script's output."""
        lines = f"\n{text}".partition("\n--\n")[2].splitlines()
        return cls(parse_facts(text), _by_file(lines), "\n".join(lines))


def gather(connections: Iterable[Connection], programs: Iterable[str]) -> dict[str, Facts]:
    """Facts of nodes by name, in parallel, one round trip a node; raises NixwulfError."""
    facts = {}
    for name, found in gather_each(connections, programs).items():
        if isinstance(found, NixwulfError):
            raise found
        facts[name] = found
    return facts


def gather_each(
    connections: Iterable[Connection], programs: Iterable[str]
) -> dict[str, Facts | NixwulfError]:
    """The same, with the error of each node that gives none."""
    found = _ask(connections, _SCRIPT, programs)
    return {k: one.facts if isinstance(one, NodeReading) else one for k, one in found.items()}


def gather_readings(
    connections: Iterable[Connection], programs: Iterable[str], faults: str
) -> dict[str, NodeReading | NixwulfError]:
    """Of nodes by name, in one round trip a node, what doctor judges, or why there is nothing.

    Args:
        connections: to nodes that answer.
        programs: names to look for on PATH.
        faults: an extended regular expression, by which lines of the kernel's log are chosen.
    """
    return _ask(connections, _script(DOCTOR_FILES, faults), programs)


def _ask(
    connections: Iterable[Connection], script: str, programs: Iterable[str]
) -> dict[str, NodeReading | NixwulfError]:
    nodes = list(connections)
    before = time.time()
    answers = run_all(nodes, ["sh", "-c", script, "sh", *programs], timeout_s=30)
    after = time.time()
    return {
        node.node.name: _reading(node.node.name, answer, before, after)
        for node, answer in zip(nodes, answers, strict=True)
    }


def _reading(
    name: str, answer: Unreachable | CompletedProcess[str], before: float, after: float
) -> NodeReading | NixwulfError:
    if isinstance(answer, Unreachable):
        return answer
    if answer.returncode in NOT_RUN:
        return NixwulfError(
            f"Node {name!r} lacks 'grep' on PATH, which reads its facts and counters; install it "
            "there."
        )
    try:
        found = NodeReading.of(check_numbers(name, answer.stdout))
    except NixwulfError as error:
        return error
    theirs = found.facts.time_of_day
    if theirs is None:
        return found
    return replace(found, facts=replace(found.facts, clock=Clock.of(theirs, before, after)))


def busy_cpus(connections: Iterable[Connection], facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """The facts with how many CPUs are busy over 0.1 s, in which the driver runs nothing there."""
    nodes = list(connections)
    found = dict(facts)
    for node, answer in zip(nodes, run_all(nodes, ["sh", "-c", _IDLE], timeout_s=30), strict=True):
        text = "" if isinstance(answer, Unreachable) else answer.stdout
        if re.fullmatch(r"([0-9]{1,12}\.[0-9]{1,9}\s){4}", text):
            began, idle, ended, idled = map(float, text.split())
            known = facts[node.node.name]
            busy = known.cpus - (idled - idle) / max(ended - began, _LOOK_S)
            found[node.node.name] = replace(known, busy_cpus=max(0.0, busy))
    return found


def parse_facts(text: str) -> Facts:
    """Facts of the script's output; unknown lines are left out."""
    places, _, contents = f"\n{text}".partition("\n--\n")
    programs = {
        place.rpartition("/")[2]: place for place in places.splitlines() if place.startswith("/")
    }
    lines = contents.splitlines()
    files = _by_file(lines)
    first = {path: lines[0] for path, lines in files.items() if lines}
    if files.get("kern.ostype") == [f" {macos.SYSTEM}"]:
        return _of_macos(programs, lines)
    memory = dict(_pairs(files.get("/proc/meminfo", [])))
    cpuinfo = list(_pairs(files.get("/proc/cpuinfo", [])))
    release = dict(line.partition("=")[::2] for line in files.get("/etc/os-release", []))
    kernel = first.get("/proc/sys/kernel/osrelease", "")
    return Facts(
        hostname=first.get("/proc/sys/kernel/hostname", ""),
        kernel=kernel,
        command_line=first.get("/proc/cmdline", ""),
        memory_total=_kib(memory.get("MemTotal", "")),
        memory_available=_kib(memory.get("MemAvailable", "")),
        cpu=next((value for key, value in cpuinfo if key in _CPU_FIELDS), ""),
        cpus=_count(first.get("/sys/devices/system/cpu/online", "")),
        os=release.get("PRETTY_NAME", "").strip('"'),
        programs=programs,
        mtus=_mtus(first),
        addresses=frozenset(_addresses(files.get("/proc/net/fib_trie", []))),
        other=_other(first)
        | _session(first.get("/proc/sys/kernel/random/boot_id", ""), first.get("closure", "")),
        hardware=parse_hardware(files),
        memlock=_memlock(lines[0] if lines else ""),
        time_of_day=_seconds(first.get("clock", "")),
        system="Linux" if kernel else "",
        cpus_allowed=_count(dict(_pairs(files.get("/proc/self/status", []))).get(_ALLOWED, "")),
        cpu_quota=min(
            map(_quota, files.get("quota", [])),
            default=None,
            key=lambda quota: math.inf if quota is None else quota,
        ),
    )


def _by_file(lines: Iterable[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for line in lines:
        path, _, content = line.partition(":")
        files.setdefault(path, []).append(content)
    return files


def _of_macos(programs: Mapping[str, str], lines: list[str]) -> Facts:
    values, ports = macos.values(lines), macos.ports(lines)
    version = values.get("kern.osproductversion", ""), values.get("kern.osversion", "")
    kept = {"product": "hw.model", "iogpu.wired_limit_mb": "iogpu.wired_limit_mb"}
    return Facts(
        hostname=values.get("kern.hostname", ""),
        kernel=f"{macos.SYSTEM} {values.get('kern.osrelease', '')}".strip(),
        command_line="",
        memory_total=whole_number(values.get("hw.memsize", "")),
        memory_available=macos.memory_available(lines),
        cpu=values.get("machdep.cpu.brand_string", ""),
        cpus=whole_number(values.get("hw.ncpu", "")),
        os=f"macOS {version[0]} ({version[1]})" if all(version) else "macOS",
        programs=programs,
        mtus={name: port.mtu for name, port in ports.items()},
        addresses=frozenset(address for port in ports.values() for address in port.addresses),
        other={name: values[key] for name, key in kept.items() if key in values}
        | _session(values.get("kern.bootsessionuuid", ""), "")
        | _person({key: value for key, _, value in (line.partition(":") for line in lines)}),
        memlock=_memlock(lines[0]),
        time_of_day=next((_seconds(line[6:]) for line in lines if line.startswith("clock:")), None),
        system=macos.SYSTEM,
    )


def _memlock(text: str) -> float | None:
    """Bytes of what `ulimit -l` prints in KiB."""
    if text == "unlimited":
        return math.inf
    return float(text) * 1024 if re.fullmatch(r"[0-9]{1,18}", text) else None


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,9}", text) else None


def _quota(text: str) -> float | None:
    """CPUs of 'QUOTA PERIOD' in microseconds; None for 'max' and -1, which are no limit."""
    match = re.fullmatch(r"([0-9]{1,15}) ([1-9][0-9]{0,14})", text)
    return int(match[1]) / int(match[2]) if match else None


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def _kib(text: str) -> int:
    match = re.fullmatch(r"(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def _count(cpu_list: str) -> int:
    """How many CPUs a list such as '0-3,8' names."""
    count = 0
    for part in filter(None, cpu_list.split(",")):
        low, _, high = part.partition("-")
        if low.isdecimal() and (high or low).isdecimal():
            count += int(high or low) - int(low) + 1
    return count


def _mtus(first: Mapping[str, str]) -> dict[str, int]:
    """By network interface."""
    found = {}
    for path, mtu in first.items():
        match = re.fullmatch(r"/sys/class/net/([^/]+)/mtu", path)
        if match and mtu.isdecimal():
            found[match[1]] = int(mtu)
    return found


def _addresses(trie: Iterable[str]) -> Iterable[str]:
    """The local addresses of /proc/net/fib_trie: each leaf whose next line has 'host LOCAL'."""
    leaf = ""
    for line in trie:
        match = re.match(r"\s*\|-- (\S+)", line)
        if match:
            leaf = match[1]
        elif "host LOCAL" in line:
            yield leaf


def _session(boot: str, closure: str) -> dict[str, str]:
    """What tells sessions apart: the beginnings of a boot's UUID and of a closure's hash.

    The rest of them is of no use here, and a closure's name is its host's.
    """
    of_boot = re.match(r"[0-9a-fA-F]{8}(?=-)", boot)
    of_closure = re.match(r"/nix/store/([0-9a-z]{12})", closure)
    return ({"boot": of_boot[0].lower()} if of_boot else {}) | (
        {"closure": of_closure[1]} if of_closure else {}
    )


def _person(first: Mapping[str, str]) -> dict[str, str]:
    """Who is logged in, and where at home, for publish to take out: root is everybody."""
    return {
        key: value for key in ("login", "home") if "root" not in (value := first.get(key, "root"))
    }


def _other(first: Mapping[str, str]) -> dict[str, str]:
    names = {
        "/sys/class/dmi/id/product_name": "product",
        "/sys/class/dmi/id/bios_version": "firmware",
        "/sys/devices/system/cpu/cpu0/cache/index3/size": "cpu_cache",
    }
    other = {names[path]: value for path, value in first.items() if path in names}
    other |= _person(first)
    for path, value in first.items():
        match = re.fullmatch(r"/sys/bus/thunderbolt/devices/([^/]+)/([rt]x_(?:speed|lanes))", path)
        if match:
            other[f"thunderbolt {match[1]} {match[2]}"] = value
        match = re.fullmatch(r"/sys/class/drm/(card\d+)/device/(mem_info_\w+)", path)
        if match:
            other[f"{match[1]} {match[2]}"] = value
    return other


# The fourth column (proc_net_tcp in the kernel's documentation), and its value for listeners.
_STATE = 3
_LISTEN = "0A"


def listeners(text: str) -> set[tuple[str, int]]:
    """Addresses and ports that are listened on, of /proc/net/tcp and tcp6; other lines are not."""
    found = set()
    for line in text.splitlines():
        words = line.split()
        if words[_STATE : _STATE + 1] == [_LISTEN]:
            match = re.fullmatch(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})", words[1])
            if match:
                found.add((_address(match[1]), int(match[2], 16)))
    return found


def _address(digits: str) -> str:
    """The kernel prints each 32-bit word in the machine's order; nodes are little-endian."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    if len(words) == 1:
        return str(ipaddress.IPv4Address(words[0]))
    address = ipaddress.IPv6Address(b"".join(words))
    return str(address.ipv4_mapped or address)
