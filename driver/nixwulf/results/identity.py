"""Conditions that equal measurements share: what has to be equal, listed once.

Tables, comparisons, charts and explanations ask `same` or `identity`; each names what it leaves
out, by one of the sets below, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

from nixwulf.results.record import Record

OWNER = ("kind", "cluster", "machine")
SUBJECT = ("platform", "benchmark", "engine", "engine_version", "model", "weights")
PLACE = ("nodes", "parallelism", "fabric", "transport")
QUANTITY = ("metric", "unit", "state")
GROUPS = ("parameters", "conditions")
COLUMNS = (*OWNER, *SUBJECT, *PLACE, *QUANTITY)
"""Columns of the tidy table, and the machine as a source calls it."""

REPLICAS = "replicas"
"""The parallelism of servers that each have the whole model: nothing crosses a fabric."""

OVER_NODES = frozenset({*PLACE, "split", "servers"})
"""Against one node, or over their number: one node crosses no fabric and has nothing to split."""
OVER_FABRICS = frozenset({"fabric"})
"""From one fabric to the next; how it is crossed stays the same."""
OVER_OWNERS = frozenset({*OWNER, "engine_version"})
"""A comparison is of two clusters, sources, versions or days: it lists them as differences."""
OF_ONE_CLUSTER = frozenset({"engine_version", "platform", "machine"})
"""Runs of one cluster, by its name: its platforms follow from the number of nodes, and an engine
that was updated between two runs does not make its speed on one node another."""
DRAWN_APART = frozenset({*OWNER, *PLACE, "platform", "engine", "engine_version", "weights"})
"""One chart may hold them, each with marks of its own."""
WORK = ("n_prompt", "n_gen", "depth", "concurrency", "bytes", "size", "operation")
"""The conditions that make up the amount of work: no chart mixes two of these."""
_ONE_NAME = {"n_depth": "depth"}
_IN_ORDER = json.JSONEncoder(sort_keys=True)
_Value = TypeVar("_Value")


@dataclass(frozen=True, order=True)
class Key:
    """A condition: its name, and whether it is one of the parameters or of the conditions."""

    group: str
    name: str

    def is_called(self, names: Collection[str]) -> bool:
        """Tell whether one of these names is its own or its group's."""
        return self.name in names or self.group in names


Identity = Mapping[Key, object]


def identity(row: Mapping[str, object], *, without: Collection[str] = ()) -> Identity:
    """List what has to be equal of a row of the tidy table, in the order of reading."""
    found = {Key("", name): row.get(name, "") for name in COLUMNS if name not in without}
    for group in GROUPS:
        inner = json.loads(str(row[group])) if row.get(group) else {}
        found |= {Key(group, name): value for name, value in inner.items()}
    return found


def same(
    row: Mapping[str, object],
    *,
    without: Collection[str] = (),
    conditions: Collection[str] | None = None,
) -> Hashable:
    """Return a key that two rows of the same conditions share, to compare one with the other.

    A condition has one name here, whichever tool named it, and replaces a parameter of its name.

    without: names of columns, parameters and conditions that may differ. conditions: those of
    parameters and conditions that alone have to be equal; None: all.
    """
    columns = tuple(str(row.get(name, "")) for name in COLUMNS if name not in without)
    documents = (_group(row[group]) if row.get(group) else {} for group in GROUPS)
    found = {key: one for key, one in one_name(*documents).items() if key not in without}
    if conditions is not None:
        found = {key: found[key] for key in conditions if key in found and is_work(key, found[key])}
    return columns, tuple(sorted((key, str(value)) for key, value in found.items()))


@lru_cache(1024)  # a row is held against others by several rules
def _group(text: str) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads(text)
    return found


def is_work(condition: str, value: object) -> bool:
    """Tell whether an amount of work is known: a depth of 0 is; no tokens or requests are not."""
    return condition == "depth" or bool(value)


def one_name(*documents: Mapping[str, _Value]) -> dict[str, _Value]:
    """Later ones win; a condition that two tools name differently has one name."""
    return {_ONE_NAME.get(key, key): value for one in documents for key, value in one.items()}


def canonical(values: Mapping[str, object]) -> str:
    """A dictionary as one comparable text; empty for an empty one."""
    return _IN_ORDER.encode(values) if values else ""


class Setting(NamedTuple):
    """The conditions that values in one table of a report, and in one plot, share.

    Engine and model are empty where the benchmark measures the machines themselves.
    """

    cluster: str
    engine: str
    benchmark: str
    model: str

    def name(self, several: Collection[str]) -> str:
        """The engine and model, or the benchmark, and each field of which there are several."""
        shown = {"engine", "model", *several} if self.engine else {"benchmark", *several}
        return ", ".join(filter(None, (getattr(self, key) for key in self._fields if key in shown)))


def setting_of(kind: str, cluster: str, platform: str, case: Mapping[str, object]) -> Setting:
    """The setting of a case; of one that is no run with its platforms, joined by '+'."""
    name = cluster if kind == "run" else f"{cluster}: {platform}"
    return Setting(name, *(str(case.get(key, "")) for key in ("engine", "benchmark", "model")))


def record_setting(record: Record) -> Setting:
    """The setting of a record."""
    cluster = record["cluster"]
    return setting_of(
        record["kind"], cluster["name"], "+".join(cluster["platforms"]), record["case"]
    )


def case_id(record: Record) -> str:
    """Return the case's id; of what is no run its own id: nobody knows which repeat a case."""
    return str(record["case"]["id"] if record["kind"] == "run" else record["id"])


def record_key(record: Record) -> tuple[str, str]:
    """Return a record's id, and a run's start: run folders share ids of case and repetition."""
    return str(record["id"]), str(record["started"]) if record["kind"] == "run" else ""


def differing(found: Iterable[Identity]) -> set[Key]:
    """The keys of which not all have the same value."""
    every = list(found)
    keys = {key for one in every for key in one}
    return {key for key in keys if len({str(one.get(key)) for one in every}) > 1}


@dataclass(frozen=True, order=True)
class SessionKey:
    """A boot and a system of each node, on one day (UTC).

    machines: a node's boot and system, in the order of the nodes. A toolbox is no part of it:
    two of them can be run in turn in one session.
    """

    machines: tuple[tuple[str, str], ...]
    day: str


def session_of(record: Record) -> SessionKey:
    """Find a record's session; a file or a source that is no run is a session of its own."""
    day = str(record.get("started", ""))[:10]
    if record["kind"] != "run":
        source = record.get("source", {})
        return SessionKey((("", source.get("sha256") or str(record["id"])),), day)
    machines = []
    for facts in (node.get("facts", {}) for node in record.get("nodes", ())):
        # NixOS names the whole system; of others the kernel and the release are known.
        system = facts.get("closure") or f"{facts.get('kernel', '')} {facts.get('os', '')}"
        machines.append((str(facts.get("boot", "")), str(system)))
    return SessionKey(tuple(machines), day)
