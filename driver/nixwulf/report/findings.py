"""What was found, in words: sentences computed from the lines of a summary."""

from __future__ import annotations

from collections.abc import Sequence

from nixwulf.report.summary import Line, Setting, Summary
from nixwulf.report.words import figure, percent, plural, round_trip, times

_HEADLINE_METRIC = ("decode", "prompt")


def findings(summary: Summary) -> list[str]:
    """One sentence a finding, the most general first; empty when nothing was measured."""
    several = len(summary.settings) > 1
    sentences = []
    for setting in summary.settings:
        own = [_of(setting, summary)]
        prefix = f"{summary.setting_name(setting)}: " if several else ""
        sentences += [prefix + text for lines in own for text in _of_setting(lines, summary)]
    return sentences


def _of(setting: Setting, summary: Summary) -> list[Line]:
    return [line for line in summary.lines if line.setting == setting and line.speeds]


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
    ranked = _having(lines, metric)
    one = [line for line in ranked if line.nodes == 1]
    several = [line for line in ranked if line.nodes > 1]
    name = metric.capitalize()
    if not several:
        return f"{name} on {one[0].what} runs at {_speed(one[0], metric)}."
    best, worst = several[0], several[-1]
    if not one:
        text = f"{name} is fastest on {_case(best)}, at {_speed(best, metric)}"
        slowest = f"and slowest on {_case(worst)}, at {_speed(worst, metric)}."
        return f"{text}, {slowest}" if worst is not best else f"{text}."
    single = f"{_speed(one[0], metric)} on one node"
    reach = f"{_speed(best, metric)} on {_case(best)}{_ratio(best, metric)}"
    if len(several) == 1:
        return f"{name}: {single}, {reach}."
    verdict = (
        f"no case of several nodes reaches the {single}: the best is {reach}"
        if best.speeds[metric].mean < one[0].speeds[metric].mean
        else f"{single}, at best {reach}"
    )
    return f"{name}: {verdict}, the slowest {_speed(worst, metric)} on {_case(worst)}" + (
        f"{_ratio(worst, metric)}."
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
        ends = sorted((rtt, line.speeds[metric].mean) for rtt, line in over if line.nodes == nodes)
        if len(ends) > 1:
            what = f"{metric.capitalize()} in {parallelism} on {plural(nodes, 'node')}"
            sentences.append(_change(what, metric, *ends[0], *ends[-1]))
    return sentences


def _change(what: str, metric: str, near: float, before: float, far: float, after: float) -> str:
    verb = "falls" if after < before else "does not fall but goes"
    text = (
        f"{what} {verb} from {figure(before)} to {figure(after)} tok/s ({percent(after / before)}) "
        f"as the measured round trip grows from {round_trip(near)} to {round_trip(far)}"
    )
    longer_us = 1e6 / after - 1e6 / before
    if metric != "decode" or after >= before:
        return f"{text}."
    added = figure(longer_us / (far - near))
    return f"{text}: a token takes {round_trip(longer_us)} longer, {added} times the added round trip."


def _speed(line: Line, metric: str) -> str:
    return f"{figure(line.speeds[metric].mean)} tok/s"


def _ratio(line: Line, metric: str) -> str:
    speed_up = line.speeds[metric].speed_up
    return f" ({times(speed_up)} one node)" if speed_up is not None else ""


def _case(line: Line) -> str:
    rtt = f", round trip {round_trip(line.rtt_us)}" if line.rtt_us is not None else ""
    return f"{plural(line.nodes, 'node')} ({line.parallelism} over {line.link}{rtt})"
