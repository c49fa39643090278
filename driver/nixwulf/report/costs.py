"""What the speeds of a setting cost, in watts and in US$, each beside what it is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from nixwulf.core.text import format_significant, unit_name
from nixwulf.report.contents import Summary
from nixwulf.results.identity import Setting

_HEADS = ("case", "metric", "speed", "W", "per W", "J/token", "US$", "per US$")


@dataclass(frozen=True)
class Costs:
    """A table of texts, the first two columns words, and where watts and prices are from."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]


def costs(summary: Summary, setting: Setting) -> Costs | None:
    """One row a case and speed that has watts or a price; without columns that would be empty."""
    rows: list[tuple[str, ...]] = []
    sources: dict[str, None] = {}
    for line in summary.lines_of(setting):
        for metric in summary.metrics(setting):
            value = line.values.get(metric.name)
            if value is None or value.cost is None:
                continue
            cost = value.cost
            numbers = (
                *(cost.watts, cost.per_watt, cost.joules_per_token),
                *(cost.price_usd, cost.per_usd),
            )
            texts = ("" if number is None else format_significant(number) for number in numbers)
            name = f"{metric.words}, {unit_name(metric.unit)}"
            rows.append((line.what, name, format_significant(value.mean), *texts))
            if cost.watts_source:
                sources[f"Watts: {cost.watts_source}."] = None
            if cost.price_source:
                sources[f"Price: {cost.price_source}."] = None
    if not rows:
        return None
    kept = [at for at in range(len(_HEADS)) if any(row[at] for row in rows)]
    return Costs(
        tuple(_HEADS[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        tuple(sources),
    )
