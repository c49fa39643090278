"""What was found, in words: sentences computed from the lines of a summary."""

from __future__ import annotations

from collections.abc import Sequence

from nixwulf.report.contents import Line, Setting, Speed, Summary
from nixwulf.report.words import figure, percent, plural, round_trip, times

_HEADLINE_METRIC = ("decode", "prompt")
_WHOLE_FROM = 10.0


def findings(summary: Summary) -> dict[Setting, list[str]]:
    """For each setting in which something was measured its sentences, the most general first."""
    found = {}
    for setting in summary.settings:
        lines = [line for line in summary.lines if line.setting == setting and line.speeds]
        found[setting] = _of_setting(lines, summary)
    return {setting: sentences for setting, sentences in found.items() if sentences}


def _of_setting(lines: list[Line], summary: Summary) -> list[str]:
    metric = next((m for m in (*_HEADLINE_METRIC, *summary.metrics) if _having(lines, m)), None)
    if metric is None:
        return []
    found = [_fastest_and_slowest(lines, metric), *_with_round_trip(lines, metric)]
    if metric != "prompt" and _having(lines, "prompt"):
        found.append(_fastest_and_slowest(lines, "prompt"))
    if any(speed.above_linear for line in lines for speed in line.speeds.values()):
        found.append(
            "Some cases are faster than their number of nodes times one node: suspect that one "
            "node throttled, or that its caches were too small."
        )
    return found


def _having(lines: Sequence[Line], metric: str) -> list[Line]:
    """The lines with a metric, fastest first."""
    some = [line for line in lines if metric in line.speeds]
    return sorted(some, key=lambda line: -line.speeds[metric].mean)


def _fastest_and_slowest(lines: list[Line], metric: str) -> str:
    """The best and the worst case of several nodes against one node, as far as there are such."""
    ranked = _having(lines, metric)
    one = [line for line in ranked if line.nodes == 1]
    several = [line for line in ranked if line.nodes > 1]
    name = metric.capitalize()
    if not several:
        return f"{name} on one node: {_speed(one[0], metric)}."
    best, worst = several[0], several[-1]
    if not one:
        text = f"{name} is fastest on {_case(best)}, at {_speed(best, metric)}"
        slowest = f", and slowest on {_case(worst)}, at {_speed(worst, metric)}"
        return f"{text}{slowest if worst is not best else ''}."
    text = f"{name} on one node: {_speed(one[0], metric)}. "
    if len(several) == 1:
        return text + f"On {_case(best)}: {_against_one(best, metric)}."
    if best.speeds[metric].mean < one[0].speeds[metric].mean:
        text += "No case of several nodes reaches that: the best, "
    else:
        text += "The best case of several nodes, "
    return text + (
        f"{_case(best)}, gives {_against_one(best, metric)}; the slowest, {_case(worst)}, "
        f"{_against_one(worst, metric)}."
    )


def _with_round_trip(lines: list[Line], metric: str) -> list[str]:
    """How a metric changes from the shortest to the longest round trip, on the most nodes."""
    sentences = []
    for parallelism in sorted({line.parallelism for line in lines}):
        over = [
            (line.rtt_us, line)
            for line in _having(lines, metric)
            if line.parallelism == parallelism and line.rtt_us is not None
        ]
        nodes = max((line.nodes for _, line in over), default=0)
        ends = [(rtt, line.speeds[metric]) for rtt, line in over if line.nodes == nodes]
        ends.sort(key=lambda end: (end[0], end[1].mean))
        if len(ends) > 1 and ends[0][0] < ends[-1][0]:
            what = f"{metric.capitalize()} in {parallelism} on {plural(nodes, 'node')}"
            sentences.append(_change(what, metric, ends[0], ends[-1]))
    return sentences


def _change(what: str, metric: str, near: tuple[float, Speed], far: tuple[float, Speed]) -> str:
    """From one end to the other, each a round trip in microseconds and a speed."""
    before, after = near[1].mean, far[1].mean
    trips = f"the measured round trip grows from {round_trip(near[0])} to {round_trip(far[0])}"
    if abs(after - before) <= max(near[1].deviation or 0.0, far[1].deviation or 0.0):
        return (
            f"{what} stays within one standard deviation ({figure(before)} and {figure(after)} "
            f"tok/s) as {trips}."
        )
    verb = "falls" if after < before else "does not fall but grows"
    change = percent(abs(1 - after / before))
    text = f"{what} {verb} from {figure(before)} to {figure(after)} tok/s (by {change}) as {trips}"
    if metric != "decode" or after > before:
        return f"{text}."
    longer_us = 1e6 / after - 1e6 / before
    added = longer_us / (far[0] - near[0])
    count = f"{added:.0f}" if added >= _WHOLE_FROM else f"{added:.1f}"
    return (
        f"{text}: a token takes {round_trip(longer_us)} longer, {count} times the added round trip."
    )


def _speed(line: Line, metric: str) -> str:
    return f"{figure(line.speeds[metric].mean)} tok/s"


def _against_one(line: Line, metric: str) -> str:
    speed_up = line.speeds[metric].speed_up
    if speed_up is None:
        return _speed(line, metric)
    share = f"{times(speed_up)} that" if speed_up >= 1 else f"{percent(speed_up)} of it"
    return f"{_speed(line, metric)} ({share})"


def _case(line: Line) -> str:
    rtt = f" (round trip {round_trip(line.rtt_us)})" if line.rtt_us is not None else ""
    return f"{plural(line.nodes, 'node')} in {line.parallelism} over {line.link}{rtt}"
