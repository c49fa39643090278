"""What was found, in words: sentences computed from the lines of a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nixwulf.core.metric import accepted, adds_up, is_time, long_name
from nixwulf.core.text import (
    amount,
    format_significant,
    percent,
    plural,
    round_trip,
    times,
    unit_name,
)
from nixwulf.report.lines import CaseSummary, MetricKey, MetricSummary
from nixwulf.report.summary import Section

_HEADLINE_METRIC = ("decode", "prompt")
_MOST_VARIANTS = 4
_WHOLE_FROM = 10.0


def findings(section: Section) -> list[str]:
    """The sentences of a setting, the most general first; none where nothing was measured."""
    return list(_of_setting(section))


def _of_setting(section: Section) -> Iterator[str]:
    """Of each variant of conditions; what matters most of each where they are several."""
    lines = [line for line in section.lines if line.values]
    metrics = section.headline
    variants = list(dict.fromkeys(line.variant for line in lines))
    for variant in variants[:_MOST_VARIANTS]:
        own = [line for line in lines if line.variant == variant]
        if len(variants) == 1:
            yield from _of_variant(own, metrics)
        else:
            best = (_best_and_worst(own, m) for m in metrics if _having(own, m))
            yield f"{f'With {variant}' if variant else 'By default'}: {' '.join(best)}"
    if len(variants) > _MOST_VARIANTS:
        yield f"{len(variants) - _MOST_VARIANTS} more are in the table."
    if any(value.above_linear for line in lines for value in line.values.values()):
        yield (
            "Some cases are faster than their number of nodes times one node: suspect that one "
            "node throttled, or that its caches were too small."
        )


def _of_variant(lines: list[CaseSummary], metrics: Sequence[MetricKey]) -> list[str]:
    measured = [metric for metric in metrics if _having(lines, metric)]
    first = sorted(measured, key=lambda m: m.name not in _HEADLINE_METRIC[:1])
    if not first:
        return []
    found = [_best_and_worst(lines, first[0]), *_with_round_trip(lines, first[0])]
    return [*found, *(_best_and_worst(lines, metric) for metric in first[1:])]


def _having(lines: Sequence[CaseSummary], metric: MetricKey) -> list[CaseSummary]:
    """The lines with a metric, the best first."""
    some = [line for line in lines if metric.name in line.values]
    sign = 1 if metric.better == "less" else -1
    return sorted(some, key=lambda line: sign * line.values[metric.name].typical)


def _best_and_worst(lines: list[CaseSummary], metric: MetricKey) -> str:
    """The best and the worst case of several nodes against one node, as far as there are such."""
    ranked = _having(lines, metric)
    one = [line for line in ranked if line.nodes == 1]
    several = [line for line in ranked if line.nodes > 1]
    name, (best_word, worst_word) = _name(metric, ranked[0]), _superlatives(metric)
    if not several:
        return f"{name} on one node: {_amount(one[0], metric)}."
    best, worst = several[0], several[-1]
    if not one:
        if worst is best:
            return f"{name} on {_case(best)}: {_amount(best, metric)}."
        text = f"{name} is {best_word} on {_case(best)}, at {_amount(best, metric)}"
        return f"{text}, and {worst_word} on {_case(worst)}, at {_amount(worst, metric)}."
    text = f"{name} on one node: {_amount(one[0], metric)}. "
    if len(several) == 1:
        return text + f"On {_case(best)}: {_against_one(best, metric)}."
    if _having([best, one[0]], metric)[0] is one[0]:
        text += "No case of several nodes reaches that: the best, "
    else:
        text += "The best case of several nodes, "
    return text + (
        f"{_case(best)}, gives {_against_one(best, metric)}; the {worst_word}, {_case(worst)}, "
        f"{_against_one(worst, metric)}."
    )


def _superlatives(metric: MetricKey) -> tuple[str, str]:
    """Of the best and of the worst."""
    if adds_up(metric.unit):
        return "fastest", "slowest"
    if is_time(metric.unit):
        return "shortest", "longest"
    return ("lowest", "highest") if metric.better == "less" else ("highest", "lowest")


def _with_round_trip(lines: list[CaseSummary], metric: MetricKey) -> Iterator[str]:
    """How a metric changes from the shortest to the longest round trip, on the most nodes."""
    if is_time(metric.unit) and not any(line.setting.engine for line in lines):
        return  # a latency of the machines is the round trip itself
    for parallelism in sorted({line.parallelism for line in lines}):
        over = [
            (line.rtt_us, line)
            for line in _having(lines, metric)
            if line.parallelism == parallelism and line.rtt_us is not None
        ]
        nodes = max((line.nodes for _, line in over), default=0)
        ends = [(rtt, line.values[metric.name]) for rtt, line in over if line.nodes == nodes]
        ends.sort(key=lambda end: (end[0], end[1].typical))
        if len(ends) > 1 and ends[0][0] < ends[-1][0]:
            split = f" in {parallelism}" if parallelism else ""
            what = f"{_name(metric, over[0][1])}{split} on {plural(nodes, 'node')}"
            yield _change(what, metric, ends[0], ends[-1])


def _change(
    what: str,
    metric: MetricKey,
    near: tuple[float, MetricSummary],
    far: tuple[float, MetricSummary],
) -> str:
    """From one end to the other, each a round trip in microseconds and a value."""
    before, after = near[1].typical, far[1].typical
    unit = unit_name(metric.unit)
    trips = f"the measured round trip grows from {round_trip(near[0])} to {round_trip(far[0])}"
    if abs(after - before) <= max(near[1].deviation or 0.0, far[1].deviation or 0.0):
        return (
            f"{what} stays within one standard deviation ({format_significant(before)} and "
            f"{format_significant(after)} {unit}) as {trips}."
        )
    usual, other = ("fall", "grow") if metric.better == "more" else ("grow", "fall")
    happened = "fall" if after < before else "grow"
    verb = f"{usual}s" if happened == usual else f"does not {usual} but {other}s"
    change = percent(abs(1 - after / before)) if before else "from nothing"
    text = (
        f"{what} {verb} from {format_significant(before)} to {format_significant(after)} {unit} "
        f"(by {change}) as {trips}"
    )
    if metric != ("decode", "tok/s") or after > before:
        return f"{text}."
    longer_us = 1e6 / after - 1e6 / before
    added = longer_us / (far[0] - near[0])
    count = f"{added:.0f}" if added >= _WHOLE_FROM else f"{added:.1f}"
    return (
        f"{text}: a token takes {round_trip(longer_us)} longer, {count} times the added round trip."
    )


def _name(metric: MetricKey, line: CaseSummary) -> str:
    name = long_name(metric.name)
    name = f"median {name}" if line.values[metric.name].percentiles else name
    return f"{name[:1].upper()}{name[1:]}"


def _amount(line: CaseSummary, metric: MetricKey) -> str:
    value = line.values[metric.name]
    return amount(value.typical, metric.unit) + accepted(value.acceptance)


def _against_one(line: CaseSummary, metric: MetricKey) -> str:
    speed_up = line.values[metric.name].speed_up
    if speed_up is None:
        return _amount(line, metric)
    share = f"{times(speed_up)} that" if speed_up >= 1 else f"{percent(speed_up)} of it"
    return f"{_amount(line, metric)} ({share})"


def _case(line: CaseSummary) -> str:
    rtt = f" (round trip {round_trip(line.rtt_us)})" if line.rtt_us is not None else ""
    split = f" in {line.parallelism}" if line.parallelism else ""
    link = f" over {line.link}" if line.link else ""
    return f"{plural(line.nodes, 'node')}{split}{link}{rtt}"
