"""The tables of a site, of the columns that reports have too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from nixwulf.core.document import Cell, Column, Table, Value
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import format_significant, unit_name
from nixwulf.report.markup import html_link
from nixwulf.report.site.rows import Group, SiteRow, fabric_name, scalar, shorten, web_address
from nixwulf.report.tables import METRIC_COLUMNS, PERCENTILES, costs, metric_cells

_LONGEST_CELL = 100
_MOST_VALUES = 200
_LONGEST_TEXT = 1500
_MOST_MADE = 2_000  # with all 50,000 of 5,000 records a site took 30 MB more
_MOST_LEVELS, _MOST_KEYS, _MOST_NESTED, _MOST_IN_LIST = 6, 60, 12, 24  # of a record's own

_SITE = read_toml(DATA / "site.toml")
COLUMNS = tuple(Column(**row) for row in _SITE["columns"])
LIST_COLUMNS = tuple(Column(**row) for row in _SITE["lists"])


class Links(NamedTuple):
    """Addresses of pages: root is that of the site, pages the file names by folder and name."""

    root: str
    pages: Mapping[str, Mapping[str, str]]

    def page(self, folder: str, name: str) -> str:
        """Of a model, a platform or a kind of fabric."""
        return f"{self.root}{folder}/{self.pages[folder][name]}.html"

    def record(self, row: SiteRow) -> str:
        """Of the record of a row."""
        return f"{self.root}records/{row.source.page}.html"


def brief(text: str, longest: int = _LONGEST_CELL) -> str:
    """Text for a cell: one line, no control characters, not too long."""
    return shorten(text, longest)


class Trees:
    """What records hold, list in list; of what is long or deep the first.

    Records that were read together hold what is equal in them once, so it is made once.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], str] = {}

    def of(self, values: Mapping[str, Any]) -> Markup:
        """Of values of a record that lives as long as this."""
        return Markup(self._dict(values, 0))  # noqa: S704 - made of escaped texts

    def _dict(self, values: Mapping[str, Any], depth: int) -> str:
        parts = [
            f"<dt>{_leaf(key)}</dt><dd>{self._of(inner, depth + 1)}</dd>\n"
            for key, inner in islice(values.items(), _MOST_KEYS)
        ]
        more = f"<dt>…</dt><dd>{len(values)} in all</dd>\n" if len(values) > _MOST_KEYS else ""
        return f'<dl class="tree">\n{"".join(parts)}{more}</dl>\n'

    def _of(self, value: Any, depth: int) -> str:
        if depth > _MOST_LEVELS:
            return "…"
        if isinstance(value, dict):
            known = (id(value), depth)
            if known not in self._made:
                if len(self._made) > _MOST_MADE:
                    self._made.clear()
                self._made[known] = self._dict(value, depth)
            return self._made[known]
        if isinstance(value, list):
            nested = bool(value) and isinstance(value[0], dict)
            most = _MOST_NESTED if nested else _MOST_IN_LIST
            more = f" … {len(value)} in all" if len(value) > most else ""
            if nested:
                return "".join(self._of(inner, depth + 1) for inner in value[:most]) + more
            return _leaf(" ".join(map(str, value[:most])), _LONGEST_TEXT) + more
        if isinstance(value, str):
            return html_link(value, value) if web_address(value) else _leaf(value, _LONGEST_TEXT)
        return scalar(value)


@lru_cache(4096)  # records of one cluster hold the same texts
def _leaf(text: str, longest: int = _LONGEST_CELL) -> str:
    return str(escape(shorten(text, longest)))


def cells(row: SiteRow, links: Links) -> dict[str, Value]:
    """The cells of a row by the heads of COLUMNS."""
    cost = row.measured.cost if row.measured else None
    per_watt = per_usd = Cell("")
    if cost and cost.per_watt is not None and cost.watts:
        of = f"of {format_significant(cost.watts)} W"
        per_watt = Cell(format_significant(cost.per_watt), of)
    if cost and cost.per_usd is not None and cost.price_usd:
        of = f"of {cost.price_usd:,.0f} US$"
        per_usd = Cell(format_significant(1000 * cost.per_usd), of)
    split = row.parallelism if row.nodes > 1 else ""
    fabric = links.page("fabrics", fabric_name(row)) if row.crosses else ""
    spread = row.measured.spread if row.measured and row.measured.percentiles else ("", "", "")
    named = zip(PERCENTILES, spread, strict=True)
    percentiles = ", ".join(f"{name} {text}" for name, text in named if text)
    model = links.page("models", row.model) if row.model else ""
    return {
        "model": Cell(brief(row.model), brief(row.weights), href=model),
        "metric": brief(row.key.words) if row.metric else "no number",
        "value": _value(row, links),
        "per W": per_watt,
        "per 1000 US$": per_usd,
        "nodes": str(row.nodes),
        "platform": Cell(
            Markup(" + ").join(
                html_link(links.page("platforms", name), brief(name)) for name in row.platforms
            ),
            brief(row.machines),
        ),
        "fabric": Cell(brief(row.link), split, href=fabric),
        "engine": Cell(brief(row.program), _version(row)),
        "conditions": Cell(brief(row.condition_words if row.measured else row.reason), percentiles),
        "kind": row.kind,
        "source": Cell(brief(row.source.name) or row.started[:10], href=row.source.url),
    }


def _value(row: SiteRow, links: Links) -> Cell:
    if row.measured is None:
        return Cell(row.outcome, style=f"kind {row.kind} bad", href=links.record(row))
    unit = unit_name(row.unit)
    return Cell(row.number, unit, style=f"kind {row.kind}", href=links.record(row))


def _version(row: SiteRow) -> str:
    if not (row.engine or row.engine_version):
        return ""
    version = brief(row.engine_version) or "version not stated"
    shown = row.engine and row.benchmark not in {row.engine, "llama-bench"}
    return f"{version}, {brief(row.benchmark)}" if shown else version


def of_group(group: Group, best: SiteRow | None, links: Links) -> list[Value]:
    """The cells of LIST_COLUMNS; best: its fastest decode, None without any."""
    kinds = Counter(row.kind for row in group.rows)
    return [
        Cell(brief(group.name), brief(group.about), href=links.page(group.folder, group.name)),
        str(sum(row.value is not None for row in group.rows)),
        brief(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))),
        _value(best, links) if best else "",
        f"{best.kind}: {brief(best.where)}" if best else "",
    ]


def values(rows: Iterable[SiteRow]) -> Table:
    """What a record measured."""
    found: list[Sequence[Value]] = [
        [
            *metric_cells(row.key, row.measured),
            brief(row.condition_words),
            str(row.measured.n_samples or "not stated"),
        ]
        for row in rows
        if row.measured
    ]
    columns = (*METRIC_COLUMNS, Column("conditions"), Column("samples", whole=True))
    return Table(columns, found[:_MOST_VALUES]).filled


def costs_of(rows: Iterable[SiteRow]) -> Table | None:
    """What the speeds of a record cost in watts and US$."""
    measured = [(row.condition_words, row.key, row.measured) for row in rows if row.measured]
    return costs(((brief(what), key, value) for what, key, value in measured), "conditions")
