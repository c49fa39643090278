"""Lines of a report: a case with the values of its metrics over its repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nixwulf.core.metric import Better, accepted, better, short_name
from nixwulf.core.text import (
    Band,
    case_name,
    format_significant,
    link_name,
    with_deviation,
)
from nixwulf.results.identity import Setting
from nixwulf.results.table import FabricStats


class MetricKey(NamedTuple):
    """A quantity of a setting: its name in the records and its unit."""

    name: str
    unit: str

    @property
    def words(self) -> str:
        """Its name for people."""
        return short_name(self.name)

    @property
    def better(self) -> Better:
        """Which direction is better."""
        return better(self.name, self.unit)


class Cost(NamedTuple):
    """Watts (W), US$ and a speed over them, as the table has them; what is not known is None.

    watts and price_usd are of all nodes together, per_watt and per_usd in the unit over them.
    """

    watts: float | None
    watts_source: str
    per_watt: float | None
    joules_per_token: float | None
    price_usd: float | None
    price_source: str
    per_usd: float | None


@dataclass(frozen=True)
class MetricSummary:
    """A metric over the runs of a case that ended ok, in its unit.

    deviation is over all samples (n-1), None for one sample; n_samples is 0 where they are not
    known; percentiles are the 50th, 95th and 99th, None where they add nothing to the mean;
    acceptance is that of drafted tokens, empty without any;
    speed_up and efficiency are against one node, None where that was not measured or means nothing.
    """

    unit: str
    mean: float
    deviation: float | None
    n_samples: int
    n_runs: int
    percentiles: tuple[float, float, float] | None = None
    speed_up: float | None = None
    efficiency: float | None = None
    cost: Cost | None = None
    predicted: Band | None = None
    acceptance: str = ""

    @property
    def counts(self) -> str:
        """Samples and runs: '9 (3)'; '- (1)' where a source gives no samples."""
        return f"{self.n_samples or '-'} ({self.n_runs})"

    @property
    def above_linear(self) -> bool:
        """More than N times one node: one node throttled, or its cache was too small."""
        return self.efficiency is not None and self.efficiency > 1

    @property
    def typical(self) -> float:
        """The one number to compare and draw: the median of a distribution, else the mean."""
        return self.percentiles[0] if self.percentiles else self.mean

    @property
    def text(self) -> str:
        """Mean and deviation: '22.1 ± 0.4'; with drafted tokens '22.1 ± 0.4 (71.2 % accepted)'."""
        return with_deviation(self.mean, self.deviation) + accepted(self.acceptance)

    @property
    def spread(self) -> tuple[str, str, str]:
        """The percentiles; empty texts where there are none."""
        if self.percentiles is None:
            return ("", "", "")
        p50, p95, p99 = map(format_significant, self.percentiles)
        return (p50, p95, p99)


def metric_summary(row: Mapping[str, Any]) -> MetricSummary:
    """The value of a row of the tidy table, or of what it is over the runs of a case."""
    cost = Cost(*(row[name] for name in Cost._fields))
    return MetricSummary(
        unit=row["unit"],
        mean=row.get("mean", row.get("value")),
        deviation=row["stddev"],
        n_samples=int(row["n_samples"] or 0),
        n_runs=row.get("n_runs", 1),
        percentiles=None if row["p50"] is None else (row["p50"], row["p95"], row["p99"]),
        speed_up=row.get("speed_up"),
        efficiency=row.get("efficiency"),
        acceptance=row["acceptance"],
        cost=cost if cost.watts is not None or cost.price_usd is not None else None,
    )


@dataclass(frozen=True)
class CaseSummary:
    """One case, and one variant of its conditions, over its repetitions.

    rtt_us (microseconds) and bandwidth_gbps (Gbit/s) are medians over the runs that ended ok, or
    over all where none did; fabrics has what all runs measured on its fabric, for each shaping;
    planned is how many runs the plan asks for, None without a plan; axes are the parameters and
    conditions that distinguish it from other lines of its setting.
    """

    setting: Setting
    case: str
    nodes: int
    parallelism: str
    fabric: str
    transport: str
    rtt_us: float | None
    bandwidth_gbps: float | None
    fabrics: Sequence[FabricStats]
    outcomes: Mapping[str, int]
    planned: int | None
    axes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, MetricSummary] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The fabric, with the transport where it is not TCP; empty on one node."""
        return link_name(self.fabric, self.transport)

    @property
    def variant(self) -> str:
        """Its axes in words: 'concurrency 4, n_gen 64'."""
        return ", ".join(f"{key} {value}" for key, value in self.axes.items())

    @property
    def outcome(self) -> str:
        """'ok', '2 ok, 1 hang', 'not run' or '1 ok, 2 to come'."""
        to_come = max(0, (self.planned or 0) - sum(self.outcomes.values()))
        if not self.outcomes:
            return "not run"
        if len(self.outcomes) == 1 and not to_come:
            return next(iter(self.outcomes))
        parts = [f"{count} {name}" for name, count in self.outcomes.items()]
        return ", ".join(parts + ([f"{to_come} to come"] if to_come else []))

    @property
    def counts(self) -> str:
        """Samples and runs that its values rest on: '9 (3)'; several where the metrics differ."""
        counts = {(value.n_samples, value.n_runs) for value in self.values.values()}
        return ", ".join(f"{n or '-'} ({runs})" for n, runs in sorted(counts))

    @property
    def what(self) -> str:
        """'2 nodes, tensor, lan, concurrency 4', or 'one node'."""
        name = case_name(self.nodes, self.parallelism, self.link)
        return ", ".join(filter(None, (name, self.variant)))
