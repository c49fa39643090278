"""Goals: what the best strategy is best at, and which metric of a record measures it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log, sqrt
from typing import Any

from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.scenarios.forecast import Forecast
from nixwulf.plugins import engines
from nixwulf.results.cost import fullest

SERVE = "serve"
_MEETING = 0.5  # chosen: of a first token's time, by how requests meet at a server
_LEAST_DEVIATION = 0.02  # of a mean of samples: runs of one strategy differ by as much


@dataclass(frozen=True)
class Goal:
    """A goal by its name; metric is that of records, words what it is called.

    loaded: whether it is of many requests at once; of_time: whether less of its metric is better.
    """

    name: str
    metric: str
    words: str
    unit: str = "tok/s"
    loaded: bool = False
    of_time: bool = False


GOALS: Mapping[str, Goal] = {
    one.name: one
    for one in (
        Goal("decode", "decode", "decoding one sequence"),
        Goal("prompt", "prompt", "reading a prompt"),
        Goal("throughput", "throughput", "tokens of all requests", loaded=True),
        Goal("ttft", "ttft", "time to the first token", "ms", loaded=True, of_time=True),
        Goal("efficiency", "decode", "decoding one sequence, a watt", "tok/s/W"),
    )
}


@dataclass(frozen=True)
class PredictedTime:
    """A time as it is predicted: seconds a token by part, and the deviation of its logarithm."""

    parts: Mapping[str, float]
    deviation: float


@dataclass(frozen=True)
class Measurement:
    """A measured speed, the deviation of its logarithm, and the watts of all nodes or 0.

    speed: tok/s; of a time its reciprocal, 1/s.
    """

    speed: float
    deviation: float
    watts: float = 0.0


def predicted_time(
    goal: Goal, forecast: Forecast, n_prompt: int, n_gen: int, slots: Sequence[int]
) -> PredictedTime | None:
    """The predicted time of a goal; None where the reading of prompts is not predicted.

    Of throughput: a token that is generated costs its step, and its share of the prompts
    (nixwulf.perf.predict.total). The time to the first token is of requests that come together to
    a server, which reads their prompts one after the other: that of the middle one.

    Args:
        n_prompt: tokens of a prompt.
        n_gen: tokens generated after it.
    """
    decode, prompt = forecast.decode, forecast.prompt
    deviation = log(decode.high / decode.value) / QUANTILE_80
    if goal.metric == "decode":
        return PredictedTime(decode.parts, deviation)
    if prompt is None:
        return None
    if goal.metric == "prompt":
        return PredictedTime(prompt.parts, log(prompt.high / prompt.value) / QUANTILE_80)
    if goal.of_time:
        servers = sum(count > 0 for count in slots)
        tokens = n_prompt * servers * (max(slots) + 1) / 2
        deviation = hypot(log(prompt.high / prompt.value) / QUANTILE_80, _MEETING)
        return PredictedTime({n: tokens * part for n, part in prompt.parts.items()}, deviation)
    share = n_prompt / n_gen
    names = {*decode.parts, *prompt.parts}
    parts = {n: decode.parts.get(n, 0.0) + share * prompt.parts.get(n, 0.0) for n in names}
    return PredictedTime(parts, deviation)


def benchmark(goal: Goal, engine: str, *, alone: bool) -> str:
    """The benchmark that measures an engine for a goal.

    Args:
        alone: whether it is the only engine; numbers of several come from one benchmark.
    """
    if goal.loaded or (goal.metric == "decode" and not alone):
        return SERVE
    return engines.find(engine).native_benchmark or SERVE


def unmeasured(goal: Goal, engine: str) -> str | None:
    """Why no benchmark measures a goal for an engine, or None."""
    native = engines.find(engine, "--engine").native_benchmark
    if goal.metric == "prompt" and not native:
        return f"no benchmark measures the reading of prompts of {engine} by itself"
    return None


def measurement_of(goal: Goal, record: Mapping[str, Any]) -> Measurement | None:
    """The measurement of a goal in a record that ended ok; None where it has no such metric."""
    for index, metric in enumerate(record["metrics"]):
        unit = "ms" if goal.of_time else "tok/s"
        if metric["name"] == goal.metric and metric["unit"] == unit and metric["value"] > 0:
            spread = metric.get("stddev", 0.0) / metric["value"] / sqrt(len(metric["samples"]))
            entries = [one for one in fullest(dict(record)) if one["metric"] == index]
            watts = float(entries[0]["watts"]) if entries else 0.0
            speed = 1000 / metric["value"] if goal.of_time else metric["value"]
            return Measurement(speed, max(_LEAST_DEVIATION, spread), watts)
    return None


def no_watts(record: Mapping[str, Any]) -> str:
    """Why a record has no efficiency, as a sentence."""
    power = record.get("power", {})
    reasons = [power.get("absent", "")]
    reasons += [entry.get("absent", "") for entry in power.get("efficiency", ())]
    return next(filter(None, reasons), "Its records have no watts.")
