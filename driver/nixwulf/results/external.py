"""Records of numbers that are no runs of this driver: imported, or published by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nixwulf import __version__
from nixwulf.core.naming import fingerprint, slug
from nixwulf.results.record import SCHEMA_VERSION, Record, sealed


def foreign_record(
    kind: Literal["imported", "published"],
    *,
    source: Mapping[str, Any],
    case: Mapping[str, Any],
    cluster: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    fabric: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    name: str | None = None,
) -> Record:
    """The sealed record of numbers that are no run, from documents as the record schema has them.

    The case's id is the hash of the case with its platforms, engine and model, so that runs of one
    case share it. The record's id, unless given, names its subject and ends in a hash of its source
    and conditions, not of the numbers: one that is corrected keeps its id.

    Args:
        kind: imported or published.
        source: the file and tool, or who published it.
        case: without its id.
        cluster: name, platforms and machine.
        metrics: what was measured.
        fabric: the network between the nodes; None on one node.
        engine: name and version; None where the machines are measured.
        model: name, weights and size; None where the machines are measured.
        warnings: sentences for readers of the numbers.
        name: the record's id; None: it is made.
    """
    coordinates = {
        **case,
        "platforms": cluster["platforms"],
        "engine_document": engine or {},
        "model_document": model or {},
    }
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "case": {"id": fingerprint(coordinates)[:12], **case},
        "outcome": "ok",
        "source": dict(source),
        "cluster": dict(cluster),
        "fabric": dict(fabric or {}),
        "engine": dict(engine or {}),
        "model": dict(model or {}),
        "metrics": [dict(metric) for metric in metrics],
        "warnings": list(warnings),
    }
    for key in ("fabric", "engine", "model", "warnings"):
        if not document[key]:
            del document[key]
    name = name or f"{_words(document)}-{fingerprint(_identity(document))[:8]}"
    return sealed({"id": name, **document, "provenance": {"nixwulf": __version__}})


def _identity(document: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("kind", "case", "fabric", "engine", "model")
    return {
        **{key: document.get(key) for key in kept},
        "source": _without(document["source"], "note"),
        "cluster": _without(document["cluster"], "price_usd"),
    }


def _without(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def _words(document: Mapping[str, Any]) -> str:
    """Platform, engine or benchmark, model and nodes, for the eyes: two records may share it."""
    case = document["case"]
    names = [
        *document["cluster"]["platforms"],
        case.get("engine") or case["benchmark"],
        case.get("model"),
        f"{case['nodes']}x" if case["nodes"] > 1 else None,
        case.get("transport"),
    ]
    return slug("-".join(filter(None, names)), 96, also="._")
