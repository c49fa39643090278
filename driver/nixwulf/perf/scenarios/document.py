"""Predictions as JSON, with all their numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nixwulf.perf.predict import Prediction
from nixwulf.perf.scenarios.bar import shares
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Question
from nixwulf.perf.scenarios.forecast import Forecast, ScenarioForecast

KIND = "prediction"
"""Of the document; no record has it, and record.validate refuses it."""


def to_json(
    question: Question,
    answers: Sequence[ScenarioForecast],
    left_out: Sequence[LeftOut[Candidate]],
    what_ifs: Sequence[str],
) -> str:
    """Predictions with all their numbers; times are seconds a token."""
    document = {
        "kind": KIND,
        "cluster": question.cluster.name,
        "engine": question.engine,
        "model": {
            "name": question.model.name,
            "parameters": round(question.model.facts.parameters),
            "active_parameters": round(question.model.facts.active),
            "weight_bytes": round(question.model.facts.weight_bytes),
        },
        "conditions": {
            "n_prompt": question.n_prompt,
            "n_gen": question.n_gen,
            "depth": question.depth,
            "batch": question.batch,
        },
        "what_if": list(what_ifs),
        "ways": [_way(one) for one in answers],
        "left_out": [_place(one.what) | {"why": one.reason} for one in left_out],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _way(one: ScenarioForecast) -> dict[str, Any]:
    document = _place(one.candidate) | _forecast(one.plain)
    if one.changed:
        document["what_if"] = _forecast(one.changed)
    return document


def _place(candidate: Candidate) -> dict[str, Any]:
    document: dict[str, Any] = {
        "nodes": len(candidate.nodes),
        "platforms": [node.platform for node in candidate.nodes],
        "parallelism": candidate.parallelism,
    }
    if candidate.fabric:
        document |= {"fabric": candidate.fabric.name, "transport": candidate.transport}
    return document


def _forecast(forecast: Forecast) -> dict[str, Any]:
    memory: dict[str, Any] = {"needs_gib": forecast.room.needs_gib}
    if forecast.room.has_gib:
        memory |= {"has_gib": forecast.room.has_gib, "fits": forecast.room.fits}
    document: dict[str, Any] = {"memory": memory, "decode": _prediction(forecast.decode)}
    if forecast.prompt:
        document["prompt"] = _prediction(forecast.prompt)
    return document | {"assumptions": list(forecast.assumptions)}


def _prediction(one: Prediction) -> dict[str, Any]:
    return {
        "unit": "tok/s",
        "predicted": one.value,
        "low": one.low,
        "high": one.high,
        "seconds": dict(one.parts),
        "shares": shares(one.parts),
    }
