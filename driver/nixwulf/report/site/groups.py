"""The pages of a site beside its records: one for each model, platform and kind of fabric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import GIB, format_significant, microseconds, plural, unit_name
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.report.site.rows import NOT_STATED, SiteRow, web_address

_BILLION = 1e9
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
        """Its values and records in words."""
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
    found: dict[str, list[SiteRow]] = defaultdict(list)
    for row in rows:
        for name in names(row):
            found[name].append(row)
    made = []
    for name in sorted(found, key=lambda name: (name.lower(), name)):
        about, facts = describe(name, found[name])
        made.append(Group(folder, name, about, tuple(facts), tuple(found[name])))
    return made


def _model(_: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    documents = [row.source.record.get("model", {}) for row in rows]

    def among(key: str, words: Callable[[Any], str] = str) -> str:
        known = sorted({document[key] for document in documents if key in document})
        return ", ".join(dict.fromkeys(map(words, known)))

    facts = [
        Fact("weights", among("weights")),
        Fact("parameters", among("parameters", _billions)),
        Fact("of them active for a token", among("active_parameters", _billions)),
        Fact("size", among("bytes", lambda size: f"{format_significant(size / GIB)} GiB")),
        Fact("architecture", among("architecture")),
        Fact("on Hugging Face", among("hub")),
        Fact("as its server calls it", among("served")),
    ]
    if any(document.get("random_weights") for document in documents):
        facts.append(Fact("made for tests", "random weights: its text means nothing"))
    return "", [fact for fact in facts if fact.text]


def _billions(count: int) -> str:
    if count < _BILLION / 10:
        return f"{count:,}"
    return f"{format_significant(count / _BILLION)} billion"


def _platform(name: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    facts = []
    about = ""
    if name in platform_names():
        document = _facts_of(name)
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


def _facts_of(name: str) -> dict[str, Any]:
    try:
        return load_platform(name)
    except InputError:  # a site is about records; 'nixwulf validate' reports a broken platform file
        return {}


def _fabric(_: str, rows: Sequence[SiteRow]) -> tuple[str, list[Fact]]:
    """A fact for each fabric by name: what was sold, and what its runs measured on it."""
    by_name: dict[str, list[SiteRow]] = defaultdict(list)
    for row in rows:
        by_name[row.link].append(row)
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
