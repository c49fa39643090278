"""The cases of a report with their values, and the predictions to show behind those, and why.

Also published decode speeds by number of nodes, each beside its prediction: for the picture of the
README, and for who waits for an engine to be built.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nixwulf.core.files import DATA, find_results, read_toml
from nixwulf.core.metric import Better, accepted, better, is_predicted, short_name
from nixwulf.core.text import Band, case_name, format_significant, link_name, plural, with_deviation
from nixwulf.results.identity import Setting, case_id, record_setting
from nixwulf.results.store import RunFolder
from nixwulf.results.table import FabricStats

if TYPE_CHECKING:
    from rich.table import Table

    from nixwulf.perf.explain.explanation import Explained


class MetricKey(NamedTuple):
    """A quantity of a setting: its name in the records and its unit."""

    name: str
    unit: str

    @property
    def words(self) -> str:
        """The name for people."""
        return short_name(self.name)

    @property
    def better(self) -> Better:
        """The direction that is better."""
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
    """A case, and one variant of its conditions, over its repetitions.

    rtt_us (microseconds) and bandwidth_gbps (Gbit/s) are medians over the runs that ended ok,
    or over all where none did; fabrics has what all runs measured on its fabric, for each
    shaping; planned is how many runs the plan asks for, None without a plan; axes are the
    parameters and conditions that distinguish it from other lines of its setting.
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
        """The axes in words: 'concurrency 4, n_gen 64'."""
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


_MOST_SENTENCES = 3


@dataclass(frozen=True)
class About:
    """Notes of predictions below plots.

    inside: how many of the values with a prediction are in its interval, without a full stop and
    empty without any; why: a sentence for each parallelism; why_not: why something, or all of it,
    has no prediction.
    """

    inside: str
    why: tuple[str, ...]
    why_not: str


@dataclass(frozen=True)
class Predicted:
    """The explained metrics of a run folder, by setting and case."""

    explained: Mapping[tuple[Setting, str], Sequence[Explained]]

    def beside(self, line: CaseSummary) -> CaseSummary:
        """A line with intervals at those of its values that have a prediction."""
        values = {
            name: replace(value, predicted=band_of(one) if one else None)
            for name, value in line.values.items()
            for one in [self._explanation_of(line, name, value)]
        }
        return replace(line, values=values)

    def about(self, lines: Sequence[CaseSummary]) -> About:
        """Notes about the lines of a setting."""
        drawn = [
            (value.typical, value.predicted)
            for line in map(self.beside, lines)
            for value in line.values.values()
            if value.predicted
        ]
        found = [
            (line.what, one)
            for line in lines
            for name, value in line.values.items()
            if (one := self._explanation_of(line, name, value)) is not None
        ]
        return about(found, drawn)

    def _explanation_of(
        self, line: CaseSummary, name: str, value: MetricSummary
    ) -> Explained | None:
        if not is_predicted(name, value.unit):
            return None
        explained = self.explained.get((line.setting, line.case), ())
        return next((one for one in explained if one.metric == name and _same(line, one)), None)


def about(found: Sequence[tuple[str, Explained]], drawn: Sequence[tuple[float, Band]]) -> About:
    """Notes about explained values, each with its name, and those with a band."""
    inside = sum(band.low <= value <= band.high for value, band in drawn)
    lie = "lies in its" if len(drawn) == 1 else "lie in their"
    return About(
        inside=f"{inside} of {plural(len(drawn), 'value')} {lie} interval" if drawn else "",
        why=_why(found),
        why_not=_why_not([one for _, one in found], predicted=bool(drawn)),
    )


def band_of(one: Explained) -> Band | None:
    """Return the interval in its record's measure; None where nothing is predicted."""
    if one.prediction is None:
        return None
    from nixwulf.perf.explain.subject import batch

    # The sums are of all requests at once, and the decode of a server is that of each.
    requests = batch(one.conditions) if one.case["benchmark"] == "serve" else 1
    return Band(*(speed / requests for speed in one.prediction))


def predicted(folder: RunFolder) -> Predicted:
    """Predict the cases of a run folder; loads the model where there is a speed to predict."""
    found: defaultdict[tuple[Setting, str], list[Explained]] = defaultdict(list)
    speeds = (metric for record in folder.records for metric in record.get("metrics", ()))
    if any(is_predicted(metric["name"], metric["unit"]) for metric in speeds):
        from nixwulf.perf.explain.explanation import explain_records

        for one in explain_records([(record, folder.plan) for record in folder.records])[0]:
            setting = record_setting(one.record)
            found[setting, case_id(one.record)].append(one)
    return Predicted(found)


def _same(line: CaseSummary, one: Explained) -> bool:
    """Tell whether a value has a line's conditions; one without conditions fits all lines."""
    conditions, parameters = one.conditions, one.case["parameters"]
    return all(
        value in (conditions.get(key, value), parameters.get(key))
        for key, value in line.axes.items()
    )


def _why(found: Sequence[tuple[str, Explained]]) -> tuple[str, ...]:
    """Say what holds each parallelism's slowest decode, or prompt, on most nodes; what helps."""
    predicted = [(what, one) for what, one in found if one.prediction]
    predicted = [pair for pair in predicted if pair[1].metric == "decode"] or predicted
    if not predicted:
        return ()
    from nixwulf.perf.explain.text import advice

    slowest: dict[str, tuple[str, Explained]] = {}
    for what, one in sorted(predicted, key=lambda pair: (-pair[1].case["nodes"], pair[1].measured)):
        slowest.setdefault(one.case.get("parallelism", ""), (what, one))
    split = [pair for pair in slowest.values() if pair[1].case["nodes"] > 1]
    return tuple(
        f"{what} ({one.verdict}): {' '.join(advice(one))}"
        for what, one in (split or list(slowest.values()))[:_MOST_SENTENCES]
    )


def _why_not(found: Sequence[Explained], *, predicted: bool) -> str:
    without = [one for one in found if one.prediction is None]
    if predicted or not without:
        return ""
    reason = max(without, key=lambda one: one.case["nodes"]).why_not
    return f"Nothing is predicted: {reason[:1].lower()}{reason[1:]}"


RECORDS = Path("results/published/records")


@dataclass(frozen=True)
class Comparison:
    """Published records that differ in the number of nodes alone.

    pattern: of their files. machines, model, split: in words. source: who measured.
    """

    pattern: str
    machines: str
    model: str
    split: str
    source: str


_DATA = DATA / "comparisons.toml"
COMPARISONS = tuple(Comparison(**row) for row in read_toml(_DATA)["comparisons"])


def decodes(comparison: Comparison) -> list[Explained]:
    """List decode speeds by number of nodes, without those of who measured one node only."""
    from nixwulf.perf.explain.explanation import explain

    records = sorted(find_results(RECORDS).glob(comparison.pattern))
    found = [one for path in records for one in explain(path)[0] if one.metric == "decode"]
    split = {_who(one) for one in found if one.case["nodes"] > 1}
    return sorted((one for one in found if _who(one) in split), key=lambda one: one.case["nodes"])


def to_rich(comparisons: Sequence[Comparison] = COMPARISONS) -> Table:
    """Tabulate all of them for the terminal."""
    from rich.table import Table

    table = Table(
        title="Until there are speeds of your own, decode in tok/s, published and predicted:",
        title_justify="left",
        box=None,
    )
    table.add_column("", no_wrap=True)
    for name in ("nodes", "published", "predicted (80 %)"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in comparisons:
        words = (f"{each.model}, {each.machines}", each.split, f"measured by {each.source}")
        for name, one in zip_longest(words, decodes(each)):
            band = band_of(one) if one else None
            speeds = (str(one.case["nodes"]), format_significant(one.measured)) if one else ("", "")
            table.add_row(name or "", *speeds, band.text if band else "")
    return table


def _who(one: Explained) -> tuple[str, ...]:
    source, engine = one.record["source"], one.record["engine"]
    return source["url"], engine["name"], engine.get("version", "")
