"""The record of a run, put together from what its phases found.

Also, for the terminal, a plan and how a sweep goes on: a live line where there is one, or lines.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from nixwulf import __version__
from nixwulf.core.document import Column, Table, output, rich_table
from nixwulf.core.metric import Metric, accepted
from nixwulf.core.secrets import HIDDEN, cut, is_secret, long_pattern, named_secrets
from nixwulf.core.text import format_significant, plural
from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.llm import PlacedModel
from nixwulf.nodes.process import OwnedProcess
from nixwulf.perf.scenarios.candidates import NO_SPLIT
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.run import Run
from nixwulf.results.record import SCHEMA_VERSION, Record, sealed
from nixwulf.sweep.consent import active, addresses
from nixwulf.sweep.plan import COORDINATES, Plan, by_reason

_MOST_SHOWN = 4  # metrics of a run on its line; the report has all


class TerminalProgress:
    """An observer of a sweep that prints a line for each run, and the time that is left."""

    def __init__(self, console: Console) -> None:
        """Print to a console; its live line appears only on a terminal."""
        self._console = console
        self._live = Progress(
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", table_column=RichColumn(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task("Starting", total=None, left="")
        self._title = ""
        self._runs: Sequence[tuple[Case, int]] = ()
        self._ended: list[float] = []
        self._built = ("", -1)

    def __enter__(self) -> TerminalProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, words: str) -> None:
        """A line, or on a terminal the live line's new text."""
        self._live.update(self._task, description=words)
        if not self._console.is_terminal:
            self._print(words)

    def building(self, step: str, share: float) -> None:
        """On a terminal the share moves; elsewhere there is a line for each tenth."""
        self._live.update(self._task, description=step, total=1.0, completed=share)
        if not self._console.is_terminal and (step, tenth := int(share * 10)) != self._built:
            self._built = (step, tenth)
            self._print(f"{step}: {share:.0%}")

    def show(self, table: RichTable) -> None:
        """Print a table above the live line."""
        self._console.print(table)

    def sweep_starts(self, runs: Sequence[tuple[Case, int]]) -> None:
        """Keep what is to come: the time that is left is estimated from it."""
        self._runs = runs

    def run_starts(self, case: Case, repetition: int) -> None:
        """The case, and how far the sweep is."""
        self._title = self._name(case, repetition)
        self._live.update(
            self._task,
            description=self._title,
            total=len(self._runs),
            completed=len(self._ended),
            left=self._left(),
        )

    def phase_starts(self, phase: str) -> None:
        """Beside the case on the live line."""
        self._live.update(
            self._task,
            description=f"{self._title}: {phase}",
            total=len(self._runs),  # a copy of the model shows its own
            completed=len(self._ended),
        )

    def run_ends(self, record: Record, seconds: float) -> None:
        """One line: what came of it, how long it took, how long the rest will take."""
        self._ended.append(seconds)
        measured = ", ".join(
            f"{metric['name']} {format_significant(metric['value'])} {metric['unit']}"
            f"{accepted(metric.get('observed', {}).get('acceptance', ''))}"
            for metric in record["metrics"][:_MOST_SHOWN]
        )
        came = measured or f"{record['outcome']}: {record['failure']['reason']}"
        place = f"[{len(self._ended)}/{len(self._runs)}]"
        self._print(f"{place} {self._title}: {came} ({seconds:.1f} s{self._left(', ')})")

    def _name(self, case: Case, repetition: int) -> str:
        """What differs between a run and the others of its sweep."""
        way = f"{plural(case.nodes, 'node')} {case.fabric or ''}".rstrip()
        cases = [other for other, _ in self._runs]
        split = [case.parallelism] if case.nodes > 1 and case.parallelism else []
        variant = [
            value
            for key in ("benchmark", "engine", "model")
            if len({getattr(other, key) for other in cases}) > 1 and (value := getattr(case, key))
        ]
        # Engines and benchmarks have parameters of their own, and are named where they differ.
        kin = [o for o in cases if (o.benchmark, o.engine) == (case.benchmark, case.engine)]
        own = {
            key: value
            for key, value in case.parameters.items()
            if any(other.parameters.get(key) != value for other in kin)
        }
        parameters = [pairs(own)] if own else []
        several = len({number for _, number in self._runs}) > 1
        number = [f"(pass {repetition + 1})"] if several else []
        return " ".join([*variant, way, *split, *parameters, *number])

    def _left(self, before: str = "") -> str:
        """The time that is left: of a case that ran before, what it took, else the mean of all."""
        to_come = self._runs[len(self._ended) :]
        if not self._ended or not to_come:
            return ""
        known = {case.id: took for (case, _), took in zip(self._runs, self._ended, strict=False)}
        mean = sum(self._ended) / len(self._ended)
        seconds = sum(known.get(case.id, mean) for case, _ in to_come)
        return f"{before}about {time.strftime('%M:%S', time.gmtime(seconds))} left"

    def _print(self, words: str) -> None:
        soft = not self._console.is_terminal  # there, no word is broken
        with suppress(OSError):  # a run goes on when nobody can hear of it
            self._console.print(words, highlight=False, markup=False, soft_wrap=soft)


def make_progress(*, quiet: bool = False) -> TerminalProgress:
    """An observer that writes to standard error, so that standard output stays for results."""
    return TerminalProgress(Console(file=sys.stderr, quiet=quiet))


def print_plan(plan: Plan) -> None:
    """The cases that would run by what differs between them, and why how many points are none."""
    rows = [
        {name: getattr(case, name) for name in COORDINATES} | case.parameters for case in plan.cases
    ]
    values = distinct(rows)
    same = {name: found[0] for name, found in values.items() if len(found) == 1}
    columns = [name for name, found in values.items() if len(found) > 1]
    cells = [
        [case.id, *("" if row.get(name) is None else str(row[name]) for name in columns)]
        for case, row in zip(plan.cases, rows, strict=True)
    ]
    cases, repetitions = len(plan.cases), plan.sweep.repetitions
    console = output()
    for url in addresses(plan):
        console.print(Text(f"Asks {url}"))
    for line in active(plan):
        console.print(Text(f"Look at this: {line}"))
    console.print(Text(f"All cases: {pairs(same)}."))
    console.print(rich_table(Table([Column("case", whole=True), *columns], cells)))
    for reason, points in by_reason(plan.left_out).items():
        if reason != NO_SPLIT:
            console.print(Text(f"Left out {points}: {reason}."))
    counts = plural(cases, "case"), plural(repetitions, "repetition")
    console.print(Text(f"{', '.join(counts)}, {plural(cases * repetitions, 'run')}."))


def pairs(values: Mapping[str, object]) -> str:
    """'nodes=2 fabric=cable'."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def distinct(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """List the values that each key has in the rows, in order, without None and repetitions."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            known = found.setdefault(key, [])
            if value is not None and value not in known:
                known.append(value)
    return found


_TAIL_LINES = 20
_TAIL_BYTES = 1 << 16


@dataclass
class Findings:
    """What the phases of one run found, as documents of the record.

    model: on the nodes, None for a benchmark without one. shaped_by: what shapes the fabric of a
    lab, None on machines.
    """

    model: PlacedModel | None = None
    shaped_by: str | None = None
    outcome: str = "ok"
    failure: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    links: list[dict[str, Any]] = field(default_factory=list)
    sanity: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    power: dict[str, Any] = field(default_factory=dict)


def record_of(run: Run, found: Findings, repetition: int, started: datetime) -> Record:
    """The sealed record of a run that has ended; the first repetition is 1."""
    secrets = passthrough.secrets(run.case.parameters)
    secrets = secrets.union(*(named_secrets(p.argv, p.environment) for p in run.owned))
    long = long_pattern(secrets)
    _hide_in_files(run.raw, long)
    tails = log_tails(run) if found.outcome != "ok" else {}
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "run",
        "id": run.name,
        "case": run.case.document(),
        "repetition": repetition,
        "outcome": found.outcome,
        "failure": found.failure,
        "started": _time(started),
        "finished": _time(datetime.now(UTC)),
        "phases": {
            **found.seconds,
            "engine": round(sum(p.seconds for p in run.owned if not p.background), 4),
        },
        "cluster": {
            "name": run.cluster.name,
            "platforms": sorted({node.node.platform for node in run.nodes}),
            "lab": run.head.node.platform == LAB_PLATFORM,
            **_price(run),
        },
        "nodes": _nodes(run, tails),
        "fabric": _fabric(run, found),
        "engine": {"name": run.case.engine, **run.engine_facts} if run.case.engine else {},
        "model": found.model.document() if found.model else {},
        "commands": [_command(process, secrets) for process in run.owned],
        "sanity": found.sanity,
        "metrics": [metric.document() for metric in found.metrics],
        "warnings": run.warnings,
        "gates": found.gates,
        "waived": list(run.waived),
        "power": found.power,
        "provenance": {"nixwulf": __version__, **revision(), "driver": _driver()},
        "raw": sorted(f"raw/{path.parent.name}/{path.name}" for path in run.raw.glob("*")),
    }
    for key in ("failure", "fabric", "engine", "model", "warnings", "gates", "waived"):
        if not document[key]:
            del document[key]
    return sealed(_hidden(document, long))


def _hidden(value: object, secrets: re.Pattern[str]) -> Any:
    """A document without secrets in any of its texts: a log may repeat them."""
    if isinstance(value, str):
        return secrets.sub(HIDDEN, value)
    if isinstance(value, list):
        return [_hidden(one, secrets) for one in value]
    if isinstance(value, dict):
        return {key: _hidden(one, secrets) for key, one in value.items()}
    return value


def _hide_in_files(folder: Path, secrets: re.Pattern[str]) -> None:
    """Take secrets out of the outputs of a run's programs, which are kept beside its record."""
    for path in folder.glob("*"):
        before = path.read_bytes().decode("utf-8", "surrogateescape")
        if (after := secrets.sub(HIDDEN, before)) != before:
            path.write_bytes(after.encode("utf-8", "surrogateescape"))


def bare_record(
    run: Run, found: Findings, repetition: int, started: datetime, reason: str
) -> Record:
    """What can always be recorded: that it failed, the seconds of its phases, and the reason."""
    bare = replace(run, owned=[], facts={}, engine_facts={}, warnings=[])
    words = cut(reason, _TAIL_BYTES).encode("ascii", "backslashreplace").decode()
    failure = {"phase": found.failure.get("phase", "teardown"), "reason": words}
    kept = Findings(outcome="failed", failure=failure, seconds=found.seconds)
    return record_of(bare, kept, repetition, started)


def log_tails(run: Run) -> dict[str, str]:
    """The last lines of the output of every node's processes, by node."""
    tails: dict[str, list[str]] = {}
    for process in run.owned:
        for path in (process.stdout, process.stderr):
            lines = _end(path).splitlines()
            if lines:
                tails.setdefault(process.node, []).extend([f"[{path.name}]", *lines[-_TAIL_LINES:]])
    return {node: "\n".join(lines) for node, lines in tails.items()}


def _end(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return stream.read().decode("utf-8", "replace")


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _nodes(run: Run, tails: dict[str, str]) -> list[dict[str, Any]]:
    nodes = []
    for node in run.nodes:
        name = node.node.name
        document: dict[str, Any] = {
            "name": name,
            "platform": node.node.platform,
            "role": "head" if node is run.head else "worker",
        }
        if name in run.facts:
            document["facts"] = run.facts[name].document()
        if name in tails:
            document["log_tail"] = tails[name]
        nodes.append(document)
    return nodes


def _price(run: Run) -> dict[str, float]:
    """US$ for the nodes of this case together, where the cluster file has that of each."""
    prices = [node.node.price_usd for node in run.nodes if node.node.price_usd is not None]
    return {"price_usd": sum(prices)} if len(prices) == len(run.nodes) else {}


def _fabric(run: Run, found: Findings) -> dict[str, Any]:
    fabric = run.fabric
    if fabric is None:
        return {}
    document: dict[str, Any] = {
        "name": fabric.name,
        "kind": fabric.kind,
        "speed_gbps": fabric.speed_gbps,
        "mtu": fabric.mtu,
        "links": found.links,
    }
    if found.shaped_by is not None:
        document["shaped_by"] = found.shaped_by
    if fabric.shape is not None:
        asked = vars(fabric.shape)
        document["asked"] = {key: value for key, value in asked.items() if value is not None}
    return document


def _command(process: OwnedProcess, secrets: Collection[str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "node": process.node,
        "argv": [_word_without(word, secrets) for word in process.argv],
    }
    if process.environment:
        document["environment"] = {
            name: HIDDEN if is_secret(name, value) else value
            for name, value in process.environment.items()
        }
    if process.returncode is not None and not process.stopped_by_driver:
        document["returncode"] = process.returncode
    return {**document, "seconds": round(process.seconds, 4)}


def _word_without(word: str, secrets: Collection[str]) -> str:
    """A word of a command line; one that is a secret, or NAME=SECRET, without it."""
    name, equals, value = word.partition("=")
    if word in secrets:
        return HIDDEN
    return f"{name}={HIDDEN}" if equals and value in secrets else word


def _driver() -> dict[str, Any]:
    """The machine that the driver ran on, without its name."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": os.cpu_count() or 0,
    }


@cache
def revision() -> dict[str, str]:
    """The commit of the flake or checkout that holds the driver; empty where there is none."""
    flake = os.environ.get("NIXWULF_REVISION")
    if flake:
        return {"revision": flake}
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"revision": done.stdout.strip()} if done.returncode == 0 else {}
