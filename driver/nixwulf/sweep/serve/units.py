"""Processes of a service on its nodes, which stay when the driver has gone, and its files there.

What starts a process is a file that only its user may read: a restart needs no driver that knows
the command line, and no list of processes shows a variable.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.nodes import counters
from nixwulf.nodes.counters import Counters
from nixwulf.nodes.process import SHELL
from nixwulf.nodes.ssh import Connection

_SHELL = SHELL + shipped_text("sweep/serve/units.sh")
_COUNTERS = shipped_text("nodes/counters.sh")
_UNIT = re.compile(r"nixwulf-unit (\S+) (\d+) (\S) (\d+)")
_MICROWATTS = re.compile(r"nixwulf-microwatts (\d+)")
_DEGREES = re.compile(r"nixwulf-millidegrees (\S+) (-?\d+)")
_CLOCK = re.compile(r"nixwulf-kilohertz cpu (\d+)")
_MEMORY = re.compile(r"nixwulf-memory (\w+): (\d+)")
# W, °C and MHz of a GPU; what it cannot tell is '[N/A]'.
_CELL = r"(?:(\d+(?:\.\d+)?)|[^,\n]*)"
_NVIDIA = re.compile(rf"nixwulf-nvidia {_CELL}, {_CELL}, {_CELL}")
_ERRORS = re.compile(r"/proc/net/dev:\s*([^:\s]+):\s*((?:\d+\s+){11})")
_GONE, _WARNING = "nixwulf-gone ", "nixwulf-warning "
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_STOPPED = "Tt"
_STOP_S, _EVIDENCE_S, LOOK_LIMIT_S = 30.0, 90.0, 4.0
GRACE_S = 3.0


class Gone(NixwulfError):
    """What a process cannot do without is not on its node: no restart brings it back."""


@dataclass(frozen=True)
class UnitSign:
    """A process as its node shows it: its number, 0 of none; whether it is stopped; CPU seconds."""

    process: int
    stopped: bool
    cpu_s: float


@dataclass(frozen=True)
class NodeLook:
    """A node, as of one look: its units by name, its counters, and what its sensors tell.

    watts: of all GPUs; celsius and mhz: by sensor, the hottest and the mean; memory: bytes by the
    names of /proc/meminfo; errors: of receiving and sending, by interface.
    """

    units: Mapping[str, UnitSign]
    counters: Counters
    watts: float | None
    celsius: Mapping[str, float] = field(default_factory=dict)
    mhz: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)


def _ask(node: Connection, function: str, *words: str, limit_s: float = 30, stdin: str = "") -> str:
    """What a function of units.sh prints; raises NixwulfError where it fails."""
    command = ["sh", "-c", f'{_SHELL}\n{function} "$@"', "sh", *words]
    done = node.run(command, stdin=stdin, timeout_s=limit_s)
    if done.returncode != 0:
        why = " ".join((done.stderr or done.stdout or "it printed nothing").split())
        raise NixwulfError(f"Node {node.node.name!r} cannot {function.replace('_', ' ')}: {why}")
    return done.stdout


def write(
    node: Connection,
    service: str,
    unit: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Write what starts a unit of a service: the program with its arguments and variables."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines.append(f"exec {shlex.join(argv)}\n")
    _ask(node, "write_unit", service, unit, stdin="\n".join(lines))


def start(node: Connection, service: str, unit: str, needs: str = "") -> None:
    """Start a written unit; one that runs is left alone.

    needs: a path without which it cannot work. Raises Gone: that is not there.
    """
    printed = _ask(node, "start_unit", service, unit, needs)
    if printed.startswith(_GONE):
        path = printed.removeprefix(_GONE).strip()
        raise Gone(f"Node {node.node.name!r} has no {path!r} any more; bring it back there.")


def keep(node: Connection, service: str, unit: str) -> list[str]:
    """Start a unit now, and where there is systemd after each boot; what is to be known of it."""
    lines = _ask(node, "keep_unit", service, unit).splitlines()
    return [line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)]


def stop(node: Connection, service: str, unit: str) -> None:
    """Stop a unit with all that it started; one that does not run is none."""
    _ask(node, "stop_unit", service, unit, f"{GRACE_S * 10:.0f}", limit_s=_STOP_S)


def look(
    node: Connection, service: str, names: Sequence[str], *, counted: bool = False
) -> NodeLook:
    """The units of a service on a node, in one round trip; raises Unreachable.

    counted: also the counters of its interfaces.
    """
    script = f'{_SHELL}\n( look "$@" )\n{_COUNTERS if counted else ""}'
    done = node.run(["sh", "-s", "--", service, *names], stdin=script, timeout_s=LOOK_LIMIT_S)
    return parse_look(done.stdout)


def trim(node: Connection, service: str, names: Sequence[str]) -> None:
    """Keep the logs of units short; raises NixwulfError."""
    _ask(node, "trim_logs", service, *names)


def parse_look(text: str) -> NodeLook:
    """What `look` printed; lines that are none of it are left out."""
    found = {
        match[1]: UnitSign(
            0 if match[3] == "-" else int(match[2]),
            match[3] in _STOPPED,
            int(match[4]) / _TICKS_A_SECOND,
        )
        for match in _UNIT.finditer(text)
    }
    watts = [int(value) / 1e6 for value in _MICROWATTS.findall(text)]
    celsius = {(name, int(value) / 1000) for name, value in _DEGREES.findall(text)}
    mhz = [("cpu", int(value) / 1000) for value in _CLOCK.findall(text)]
    for line in _NVIDIA.findall(text):
        power, heat, clock = line
        watts += [float(power)] if power else []
        celsius |= {("nvidia", float(heat))} if heat else set()
        mhz += [("nvidia", float(clock))] if clock else []
    errors = ((name, numbers.split()) for name, numbers in _ERRORS.findall(text))
    return NodeLook(
        found,
        counters.parse(text),
        sum(watts) if watts else None,
        {name: max(heat for key, heat in celsius if key == name) for name, _ in celsius},
        {name: fmean(one for key, one in mhz if key == name) for name, _ in mhz},
        {name: int(size) * 1024 for name, size in _MEMORY.findall(text)},
        {name: int(numbers[2]) + int(numbers[10]) for name, numbers in errors},
    )


def evidence(node: Connection, service: str, names: Sequence[str]) -> str:
    """Logs, stacks and the kernel's words of a node's units; why there are none, if it is so."""
    try:
        return _ask(node, "evidence", service, *names, limit_s=_EVIDENCE_S)
    except NixwulfError as error:
        return error.message


def services(node: Connection, file: str) -> list[str]:
    """The names of the services that have a file on a node; raises Unreachable."""
    return _ask(node, "services", file).split()


def show(node: Connection, service: str, file: str, lines: int | None = None) -> str:
    """A file of a service, or its last lines; empty where there is none."""
    return _ask(node, "show", service, file, "" if lines is None else str(lines))


def save(node: Connection, service: str, file: str, text: str, *, add: bool = False) -> None:
    """Write a file of a service whole, or add to it."""
    _ask(node, "save", service, file, "add" if add else "", stdin=text)


def forget(node: Connection, service: str) -> None:
    """Remove all files of a service on a node."""
    node.script('rm -rf "$HOME/.local/state/nixwulf/serve/${1:?}"', service)
