"""Goals: what the best strategy is best at, and which metric of a record measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.scenarios.forecast import Forecast
from nixwulf.plugins import engines
from nixwulf.results.cost import fullest

SERVE = "serve"
_LEAST_DEVIATION = 0.02  # of a mean of samples: runs of one strategy differ by as much


@dataclass(frozen=True)
class Goal:
    """A goal by its name; metric is that of records, words what it is called."""

    name: str
    metric: str
    words: str
    unit: str = "tok/s"


GOALS: Mapping[str, Goal] = {
    one.name: one
    for one in (
        Goal("decode", "decode", "decoding one sequence"),
        Goal("prompt", "prompt", "reading a prompt"),
        Goal("throughput", "throughput", "tokens of all requests"),
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
    """A measured speed, tok/s, the deviation of its logarithm, and the watts of all nodes or 0."""

    speed: float
    deviation: float
    watts: float = 0.0


def predicted_time(
    goal: Goal, forecast: Forecast, n_prompt: int, n_gen: int
) -> PredictedTime | None:
    """The predicted time of a goal; None where the reading of prompts is not predicted.

    Of throughput: a token that is generated costs its step, and its share of the prompts
    (nixwulf.perf.predict.total).

    Args:
        goal: what the best strategy is best at.
        forecast: the prediction of a strategy.
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
    share = n_prompt / n_gen
    names = {*decode.parts, *prompt.parts}
    parts = {n: decode.parts.get(n, 0.0) + share * prompt.parts.get(n, 0.0) for n in names}
    return PredictedTime(parts, deviation)


def benchmark(goal: Goal, engine: str, *, alone: bool) -> str:
    """The benchmark that measures an engine for a goal.

    Args:
        goal: what the best strategy is best at.
        engine: its name.
        alone: whether it is the only engine; numbers of several come from one benchmark.
    """
    if goal.metric == "throughput" or (goal.metric == "decode" and not alone):
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
        if metric["name"] == goal.metric and metric["unit"] == "tok/s" and metric["value"] > 0:
            spread = metric.get("stddev", 0.0) / metric["value"] / sqrt(len(metric["samples"]))
            entries = [one for one in fullest(dict(record)) if one["metric"] == index]
            watts = float(entries[0]["watts"]) if entries else 0.0
            return Measurement(metric["value"], max(_LEAST_DEVIATION, spread), watts)
    return None


def no_watts(record: Mapping[str, Any]) -> str:
    """Why a record has no efficiency, as a sentence."""
    power = record.get("power", {})
    reasons = [power.get("absent", "")]
    reasons += [entry.get("absent", "") for entry in power.get("efficiency", ())]
    return next(filter(None, reasons), "Its records have no watts.")
