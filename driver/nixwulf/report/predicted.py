"""Predictions of a report's cases: intervals to show behind their values, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nixwulf.core.metric import is_predicted
from nixwulf.core.text import Band, plural
from nixwulf.report.lines import CaseSummary, MetricSummary
from nixwulf.results.identity import Setting, case_id, record_setting
from nixwulf.results.store import RunFolder

if TYPE_CHECKING:
    from nixwulf.perf.explain.explanation import Explained

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
    """Its interval in the measure of its record; None where nothing is predicted."""
    if one.prediction is None:
        return None
    from nixwulf.perf.explain.subject import batch

    # The sums are of all requests at once, and the decode of a server is that of each.
    requests = batch(one.conditions) if one.case["benchmark"] == "serve" else 1
    return Band(*(speed / requests for speed in one.prediction.band))


def predicted(folder: RunFolder) -> Predicted:
    """All predictions of a run folder; the model is loaded where there is a speed to predict."""
    found: defaultdict[tuple[Setting, str], list[Explained]] = defaultdict(list)
    speeds = (metric for record in folder.records for metric in record.get("metrics", ()))
    if any(is_predicted(metric["name"], metric["unit"]) for metric in speeds):
        from nixwulf.perf.explain.explanation import explain_records

        for one in explain_records([(record, folder.plan) for record in folder.records])[0]:
            setting = record_setting(one.record)
            found[setting, case_id(one.record)].append(one)
    return Predicted(found)


def _same(line: CaseSummary, one: Explained) -> bool:
    """Whether it is of a line's conditions; what is no condition is of all of the case."""
    conditions, parameters = one.conditions, one.case["parameters"]
    return all(
        value in (conditions.get(key, value), parameters.get(key))
        for key, value in line.axes.items()
    )


def _why(found: Sequence[tuple[str, Explained]]) -> tuple[str, ...]:
    """For each parallelism the slowest on most nodes: the bottleneck, and what helps.

    Of decode, or of prompts where there is no decode.
    """
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
