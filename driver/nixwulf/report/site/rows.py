"""Rows of a site: each value of each record, or the outcome of one that has none.

The pages of a site beside its records: one for each model, platform and kind of fabric.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import better, rank
from nixwulf.core.query import grouped
from nixwulf.core.text import (
    GIB,
    Band,
    clean,
    format_significant,
    link_name,
    microseconds,
    plural,
    unit_name,
)
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.report.lines import MetricKey, MetricSummary, band_of, metric_summary
from nixwulf.results import identity
from nixwulf.results.record import Record
from nixwulf.results.store import Entry
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy

if TYPE_CHECKING:
    from nixwulf.perf.explain.explanation import Explained

NOT_STATED = "not stated"
_LONGEST_CELL = 100
_TOKENS = {"n_prompt": "prompt", "n_gen": "generate", "depth": "depth"}
_URL = re.compile(r"https?://[^\s<>\"'`\\]+")
_KIND_ORDER = {"run": 0, "imported": 1, "published": 2}


@dataclass(frozen=True)
class Source:
    """A record as pages name it: page is its file name without suffix, url a link or empty."""

    entry: Entry
    page: str

    @property
    def record(self) -> Record:
        """The record."""
        return self.entry.record

    @property
    def url(self) -> str:
        """The address where its numbers are published; empty for anything but a web address."""
        return web_address(self.record.get("source", {}).get("url", ""))

    @property
    def name(self) -> str:
        """The name of who measured it, or of the tool or file that was read; empty for runs."""
        source = self.record.get("source", {})
        return str(source.get("name") or source.get("file") or source.get("tool") or "")


@dataclass(frozen=True)
class SiteRow:
    """A value with everything that is shown beside it; without a value of a run that failed.

    columns: of the tidy table, with the machine as its source calls it; measured: as a report has
    it of a case; conditions: parameters of the case and conditions of the metric, by one name each;
    explained: the prediction beside it.
    """

    source: Source
    columns: Mapping[str, object]
    kind: str
    platforms: tuple[str, ...]
    nodes: int
    fabric_kind: str
    fabric: str
    transport: str
    engine: str
    engine_version: str
    benchmark: str
    model: str
    weights: str
    parallelism: str
    outcome: str
    reason: str
    started: str
    metric: str
    unit: str
    state: str
    measured: MetricSummary | None
    conditions: Mapping[str, object]
    rtt_us: float | None
    bandwidth_gbps: float | None
    speed_gbps: float | None
    explained: Explained | None = None

    @property
    def machines(self) -> str:
        """The machines as its source calls them; may be empty."""
        return str(self.columns["machine"])

    @property
    def value(self) -> float | None:
        """The measured value, in the unit."""
        return self.measured.mean if self.measured else None

    @property
    def watts(self) -> float | None:
        """The watts of all nodes together, W."""
        return self.measured.cost.watts if self.measured and self.measured.cost else None

    @property
    def predicted(self) -> Band | None:
        """Return where 80 % of measurements should lie, in the unit; None without a prediction."""
        return band_of(self.explained) if self.explained else None

    @cached_property
    def alone(self) -> Hashable:
        """A key that the rows of one line share, also with those on one node."""
        return identity.same(self.columns, without=identity.OVER_NODES)

    @cached_property
    def line(self) -> Hashable:
        """A key that the rows of one line share, but not with those on one node."""
        return identity.same(self.columns, without=identity.OVER_FABRICS)

    @cached_property
    def panel(self) -> Hashable:
        """A key that the rows of one chart share."""
        return identity.same(self.columns, without=identity.DRAWN_APART, conditions=identity.WORK)

    @property
    def crosses(self) -> bool:
        """Tell whether several nodes share the work over a fabric."""
        return self.nodes > 1 and self.parallelism != identity.REPLICAS

    @property
    def link(self) -> str:
        """The fabric and how it was crossed; empty on one node."""
        if not self.crosses:
            return ""
        return link_name(self.fabric or NOT_STATED, self.transport)

    @property
    def program(self) -> str:
        """The engine, or the benchmark that measures the machines themselves."""
        return self.engine or self.benchmark

    @property
    def key(self) -> MetricKey:
        """The metric and its unit."""
        return MetricKey(self.metric, self.unit)

    @property
    def number(self) -> str:
        """The value with its deviation; empty where there is none."""
        return self.measured.text if self.measured else ""

    @property
    def on(self) -> str:
        """The configuration in words: '2 nodes of dgx-spark, roce (rdma), vllm 0.11, tensor'."""
        parts = [
            f"{plural(self.nodes, 'node')} of {'+'.join(self.platforms)}",
            self.link,
            f"{self.program} {self.engine_version}".strip(),
            self.parallelism if self.nodes > 1 else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def where(self) -> str:
        """The same with the conditions."""
        return ", ".join(filter(None, (self.on, self.condition_words)))

    @cached_property
    def condition_words(self) -> str:
        """The conditions for people: 'prompt 512, depth 0, threads 8'."""
        known = [
            f"{word} {self.conditions[key]}"
            for key, word in _TOKENS.items()
            if key in self.conditions and identity.is_work(key, self.conditions[key])
        ]
        others = [
            f"{key.replace('_', ' ')} {scalar(value)}"
            for key, value in sorted(self.conditions.items())
            if key not in _TOKENS
        ]
        return ", ".join([*known, *others, *([self.state] if self.state == "cold" else [])])

    @property
    def work(self) -> str:
        """The conditions that make up the work: lengths, depth and requests at once."""
        return ", ".join(
            f"{_TOKENS.get(key, key)} {clean(str(self.conditions[key]))}"
            for key in identity.WORK
            if key in self.conditions and identity.is_work(key, self.conditions[key])
        )

    @property
    def unit_and_work(self) -> str:
        """The unit and the work of a chart of such rows; of tokens also that it is not stated."""
        unit = unit_name(self.unit) + (", less is better" if self.key.better == "less" else "")
        unknown = "lengths not stated" if self.unit == "tok/s" else ""
        return "; ".join(filter(None, (unit, self.work or unknown)))


# What a row takes from the tidy table as it is there.
_MADE = {"source", "conditions"}
_OF_TABLE = sorted({one.name for one in fields(SiteRow)} & TIDY_COLUMNS.keys() - _MADE)


@lru_cache(4096)  # names come again in hundreds of rows
def shorten(text: str, longest: int = _LONGEST_CELL) -> str:
    """Text on one line without control characters, at most so many characters; else of a cell."""
    words = " ".join(clean(text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def web_address(text: str) -> str:
    """The text where it is an address of the web, else nothing: no other scheme becomes a link."""
    return text if _URL.fullmatch(text) else ""


def rows_of(sources: Iterable[Source]) -> list[SiteRow]:
    """The rows of records: models in alphabetic order, of each metric the best first."""
    by_page = {source.page: source for source in sources}
    # Runs of one case have one id in every run folder, but pages of their own.
    table = tidy({**source.record, "id": page} for page, source in by_page.items())
    rows = [_row(by_page[row["record"]], row) for row in as_rows(table)]
    return sorted(rows, key=_by_model)


def _row(source: Source, row: Mapping[str, Any]) -> SiteRow:
    record, case = source.record, source.record["case"]
    fabric = record.get("fabric", {})
    return SiteRow(
        **{name: row[name] for name in _OF_TABLE},
        source=source,
        columns={name: row.get(name, "") for name in (*identity.COLUMNS, *identity.GROUPS)}
        | {"machine": record["cluster"].get("machine", "")},
        platforms=tuple(dict.fromkeys(record["cluster"]["platforms"])),
        fabric_kind=fabric.get("kind", "") if case["nodes"] > 1 else "",
        measured=None if row["value"] is None else metric_summary(row),
        conditions=identity.one_name(case["parameters"], json.loads(row["conditions"] or "{}")),
        speed_gbps=fabric.get("speed_gbps"),
    )


def scalar(value: object) -> str:
    """A number, text or truth for people."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else clean(str(value))


def by_value(row: SiteRow) -> tuple[object, ...]:
    """Metric by metric, and of each the best value first."""
    value = row.value or 0.0
    return (
        not row.metric,
        rank(row.metric, row.unit),
        row.unit,
        value if better(row.metric, row.unit) == "less" else -value,
        _KIND_ORDER[row.kind],
        row.source.page,
        sorted((key, str(value)) for key, value in row.conditions.items()),
    )


def _by_model(row: SiteRow) -> tuple[object, ...]:
    about = row.model or row.benchmark
    return (not row.model, about.lower(), about, *by_value(row))


_BILLION = 1e9
_T = TypeVar("_T", str, int)
_PLATFORM_FACTS: dict[str, list[str]] = read_toml(DATA / "site.toml")["platform_facts"]


class Fact(NamedTuple):
    """Something about a page's subject; url is its source where that is an address of the web."""

    name: str
    text: str
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class Group:
    """A page's subject: folder is models, platforms or fabrics."""

    folder: str
    name: str
    about: str
    facts: tuple[Fact, ...]
    rows: tuple[SiteRow, ...]

    @property
    def counts(self) -> str:
        """The counts of values and records in words."""
        return count_words(self.rows)


def groups(rows: Sequence[SiteRow]) -> list[Group]:
    """Models, platforms and kinds of fabric in alphabetic order, each with its rows."""
    return [
        *_groups("models", rows, lambda row: [row.model] if row.model else [], _model),
        *_groups("platforms", rows, lambda row: row.platforms, _platform),
        *_groups("fabrics", rows, lambda row: [fabric_name(row)] if row.crosses else [], _fabric),
    ]


def fabric_name(row: SiteRow) -> str:
    """The page of a row's fabric: its kind, or 'not stated'."""
    return row.fabric_kind or NOT_STATED


def count_words(rows: Iterable[SiteRow]) -> str:
    """'34 values in 12 records (2 run, 10 published); 2 more did not end ok: 1 hang, 1 failed'."""
    rows = list(rows)
    values = sum(row.value is not None for row in rows)
    ended = {row.source.page: row for row in rows}.values()
    kinds = Counter(row.kind for row in ended if row.outcome == "ok")
    outcomes = Counter(row.outcome for row in ended if row.outcome != "ok")
    words = f"{plural(values, 'value')} in {plural(kinds.total(), 'record')}"
    words += f" ({_counts(kinds)})" if kinds else ""
    if outcomes:
        words += f"; {plural(outcomes.total(), 'record')} more did not end ok: {_counts(outcomes)}"
    return words


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


def _groups(
    folder: str,
    rows: Sequence[SiteRow],
    names: Callable[[SiteRow], Iterable[str]],
    describe: Callable[[str, Sequence[SiteRow]], tuple[str, list[Fact]]],
) -> list[Group]:
    found = grouped((name, row) for row in rows for name in names(row))
    made = []
    for name in sorted(found, key=lambda name: (name.lower(), name)):
        about, facts = describe(name, found[name])
        made.append(Group(folder, name, about, tuple(facts), tuple(found[name])))
    return made


def _model(_: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    models = [row.source.record.get("model", {}) for row in rows]

    def among(found: Iterable[_T | None], words: Callable[[_T], str] = str) -> str:
        known = sorted({one for one in found if one is not None})
        return ", ".join(dict.fromkeys(map(words, known)))

    active = [one.get("active_parameters") for one in models]
    sizes = [one.get("bytes") for one in models]
    facts = [
        Fact("weights", among(one.get("weights") for one in models)),
        Fact("parameters", among((one.get("parameters") for one in models), _billions)),
        Fact("of them active for a token", among(active, _billions)),
        Fact("size", among(sizes, lambda size: f"{format_significant(size / GIB)} GiB")),
        Fact("architecture", among(one.get("architecture") for one in models)),
        Fact("on Hugging Face", among(one.get("hub") for one in models)),
        Fact("as its server calls it", among(one.get("served") for one in models)),
    ]
    if any(one.get("random_weights") for one in models):
        facts.append(Fact("made for tests", "random weights: its text means nothing"))
    return "", [fact for fact in facts if fact.text]


def _billions(count: int) -> str:
    if count < _BILLION / 10:
        return f"{count:,}"
    return f"{format_significant(count / _BILLION)} billion"


def _platform(name: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    facts = []
    about = ""
    with suppress(InputError):  # 'nixwulf validate' reports a broken platform file
        document: Mapping[str, Any] = load_platform(name) if name in platform_names() else {}
        about = document.get("description", "")
        for key, (words, unit) in _PLATFORM_FACTS.items():
            if key in document:
                fact = document[key]
                value = fact["value"] if isinstance(fact["value"], str) else f"{fact['value']:g}"
                url, note = web_address(fact["source"]), fact.get("note", "")
                text = f"US$ {value}" if unit == "US$" else f"{value} {unit}".strip()
                facts.append(Fact(words, text, url, note or ("" if url else fact["source"])))
        for port in document.get("ports", ()):
            speed = f", {port['speed_gbps']:g} Gbit/s" if "speed_gbps" in port else ""
            text = f"{port['count']} × {port['kind']}{speed}"
            url = web_address(port["source"])
            facts.append(Fact("ports", text, url, port.get("note", "")))
    machines = sorted({row.machines for row in rows if row.machines})
    if machines:
        facts.append(Fact("called by its sources", "; ".join(machines)))
    return about, facts


def _fabric(_: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    """A fact for each fabric by name: what was sold, and what its runs measured on it."""
    by_name = grouped((row.link, row) for row in rows)
    facts = []
    for name, own in sorted(by_name.items()):
        speeds = sorted({row.speed_gbps for row in own if row.speed_gbps})
        known = [row.source.record.get("fabric", {}) for row in own if own[0].fabric]
        stacks = sorted({fabric["stack"] for fabric in known if fabric.get("stack")})
        rates = [row.bandwidth_gbps for row in own]
        words = [
            "/".join(f"{speed:g}" for speed in speeds) + " Gbit/s nominal" if speeds else "",
            ", ".join(stacks),
            _span("measured round trip", [row.rtt_us for row in own], microseconds, "us"),
            _span("measured bandwidth", rates, format_significant, "Gbit/s"),
            plural(sum(row.value is not None for row in own), "value"),
        ]
        facts.append(Fact(name, "; ".join(filter(None, words))))
    return "", facts


def _span(
    what: str, values: Iterable[float | None], words: Callable[[float], str], unit: str
) -> str:
    known = sorted({words(value) for value in values if value}, key=float)
    if not known:
        return ""
    span = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return f"{what} {span} {unit_name(unit)}"
