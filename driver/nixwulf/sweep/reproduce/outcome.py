"""What a repeat came to: measured beside published and predicted, and where it is off, why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nixwulf.core.metric import better
from nixwulf.perf.explain.explanation import Explained, explain_records
from nixwulf.perf.predict import Prediction
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.compare.interval import Interval, ratio_interval
from nixwulf.results.identity import canonical
from nixwulf.results.record import Record
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.reproduce.causes import Cause, causes
from nixwulf.sweep.reproduce.expected import Expectation, expectations, metrics_of

INSIDE, SLOWER, FASTER, MISSING = "inside", "slower", "faster", "not measured"
_RUNS = 3
Explanations = Mapping[tuple[str, str, str], Explained]


@dataclass(frozen=True)
class Repeat:
    """A number and its repeat, None where it was not measured: why_not says why.

    ratio: of the speeds, repeat over record, with its interval of 95 %.
    """

    expected: Expectation
    verdict: str
    case: Case | None = None
    measured: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    predicted: Prediction | None = None
    causes: tuple[Cause, ...] = ()
    why_not: str = ""


def repeats(plan: Plan, records: Sequence[Record]) -> list[Repeat]:
    """All that a plan's sweep expects, in its order; raises InputError for a bad 'expect'."""
    document = {"sweep": {"document": plan.sweep.document}}
    explained, _ = explain_records([(record, document) for record in records])
    explanations: Explanations = {
        (one.case["id"], one.metric, canonical(one.conditions)): one for one in explained
    }
    return [
        repeat
        for expected in expectations(plan.sweep)
        for repeat in _of(expected, plan, records, explanations)
    ]


def _of(
    expected: Expectation, plan: Plan, records: Sequence[Record], explanations: Explanations
) -> Iterator[Repeat]:
    cases = [case for case in plan.cases if expected.of(case)]
    if not cases:
        yield Repeat(expected, MISSING, why_not=_left_out(expected, plan))
    for case in cases:
        own = [record for record in records if record["case"]["id"] == case.id]
        good = [record for record in own if record["outcome"] == "ok"]
        found = [(r, m) for r in good for m in _metrics(r, expected)]
        if not found:
            reasons = [r["failure"]["reason"] for r in own if r["outcome"] != "ok"]
            why = reasons[0] if reasons else "it has not run yet" if not own else "no such metric"
            yield Repeat(expected, MISSING, case, why_not=why)
        else:
            key = (case.id, expected.metric, canonical(found[0][1]["conditions"]))
            model = plan.sweep.models.get(case.model or "")
            verdict, ratio, interval = _verdict(expected, [metric for _, metric in found])
            reference = expected.references[0]
            explained = explanations.get(key)
            costless = explained.costless if explained else ()
            source, slow = plan.cluster.source, verdict == SLOWER
            yield Repeat(
                expected,
                verdict,
                case,
                fmean(metric["value"] for _, metric in found),
                ratio,
                interval,
                explained.prediction if explained else None,
                tuple(causes(found[-1][0], reference, model, source, costless)) if slow else (),
            )


def _metrics(record: Record, expected: Expectation) -> list[dict[str, Any]]:
    found = metrics_of(record, expected.metric, expected.conditions)
    return [metric for metric in found if metric["unit"] == expected.unit]


def _verdict(
    expected: Expectation, metrics: Sequence[Mapping[str, Any]]
) -> tuple[str, float, Interval | None]:
    """Outside: beyond the tolerance, and shown to differ where there is an interval."""
    sides = (expected.samples, [one.get("samples") or [one["value"]] for one in metrics])
    values = (expected.value, fmean(one["value"] for one in metrics))
    if better(expected.metric, expected.unit) == "less":
        sides, values = (sides[1], sides[0]), (values[1], values[0])
    ratio = values[1] / values[0]
    # The tolerance is for what differs between the two days.
    before, now = ({"": _pooled(side)} for side in sides)
    interval = ratio_interval(before, now, distribution=False)
    shown = interval is None or interval.shows_difference
    if not shown or abs(ratio - 1) <= expected.tolerance:
        return INSIDE, ratio, interval
    return FASTER if ratio > 1 else SLOWER, ratio, interval


def _pooled(runs: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Two runs tell nothing of how runs differ: their samples are then taken as of one."""
    return list(runs) if len(runs) >= _RUNS else [[sample for run in runs for sample in run]]


def _left_out(expected: Expectation, plan: Plan) -> str:
    """The reason for which the plan lacks its case, of the point that is most like it."""
    of = expected.references[0]["case"]
    known = {key: of[key] for key in ("nodes", "parallelism", "transport") if key in of}
    asked = {**known, **expected.case, **expected.case.get("parameters", {})}
    asked.pop("parameters", None)
    points = [({**left.what, **left.what["parameters"]}, left.reason) for left in plan.left_out]
    likeness = [(sum(p.get(k) == v for k, v in asked.items()), why) for p, why in points]
    return max(likeness, default=(0, "the sweep has no such case"), key=lambda one: one[0])[1]
