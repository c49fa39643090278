"""Imports: the records of a tool's output, completed by its user where it lacks something."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nixwulf import __version__
from nixwulf.core.errors import InputError
from nixwulf.core.naming import fingerprint, slug
from nixwulf.core.registry import choose
from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.outputs import Found, ParseError, Tool, all_tools, documents, present
from nixwulf.outputs.forms import last_words
from nixwulf.outputs.without_result import kind_of
from nixwulf.results.record import SCHEMA_VERSION, Record, sealed, validate


def external_record(
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


MOST_BYTES = 64_000_000
_LONGEST_NAME = 40
_TOO_LONG = re.compile(r"\d{101}")
_OF_A_RECORD = ('"schema_version"', '"provenance"', '"digest"')
_APPLIES = {
    "fabric": "they are of one node",
    "transport": "they are of one node",
    "parallelism": "they are of one node, or measure the machines themselves",
    "engine": "they measure the machines themselves",
    "model": "they measure the machines themselves",
}


@dataclass(frozen=True)
class UserMetadata:
    """What the user reports about outputs; it may not contradict them.

    model and weights are names: they replace those that a tool has for the same thing.
    """

    platforms: tuple[str, ...]
    nodes: int | None = None
    fabric: str | None = None
    transport: str | None = None
    parallelism: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    weights: str | None = None
    cluster: str = "imported"


def records_of(path: Path, metadata: UserMetadata, tool: str | None = None) -> list[Record]:
    """The sealed records of a file, one for each case in it.

    Args:
        path: an output of a tool.
        metadata: what the user reports about it.
        tool: the tool's name; None: the content shows it.

    Raises:
        InputError: with the file's name, for what cannot be read.
    """
    content = _content(path)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        if digits := _TOO_LONG.search(text):
            line = text.count("\n", 0, digits.start()) + 1
            raise ParseError(f"line {line} has a number of more than 100 digits.")
        known = choose(all_tools(), tool, "tool", "--tool") if tool else _tool_of(text)
        cases = known.read(text)
        source = {
            "tool": known.name,
            "file": path.name,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        counts: Counter[str] = Counter()
        records = [
            _record(source, metadata, case, cases, counts) for case in _named(cases, metadata)
        ]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except ParseError as error:
        raise InputError(f"{path}: {error.format_message()}") from None
    for record in records:
        validate(record, str(path))
    return records


def require_use(metadata: UserMetadata, records: Sequence[Record]) -> None:
    """Raise InputError when an option applies to no record."""
    for key, why in _APPLIES.items():
        value = getattr(metadata, key)
        if value and not any(record["case"].get(key) == value for record in records):
            raise InputError(f"--{key} {value!r} applies to none of the outputs: {why}.")


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            what = "not a file" if path.exists() else "no such file"
            what = "a folder; name the files in it" if path.is_dir() else what
            raise InputError(f"{path}: {what}.")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{path}: {path.stat().st_size / 1e6:.0f} MB, and the largest output that is read "
                f"has {MOST_BYTES / 1e6:.0f} MB; keep the part with the results."
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}.") from None


def _tool_of(text: str) -> Tool:
    """The one tool whose output a text is; raises ParseError."""
    if text.startswith("{") and all(key in text for key in _OF_A_RECORD):
        raise ParseError("it is a record already, which 'nixwulf report' and the others take.")
    tools = all_tools()
    found = [tool for tool in tools.values() if tool.recognises(text)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(repr(tool.name) for tool in found)
        raise ParseError(f"it holds outputs of {names}; import each with --tool NAME.")
    if not text.strip():
        raise ParseError("it is empty; name the output of a benchmark.")
    if kind := kind_of(text):
        raise ParseError(
            f"it looks like {kind.name!r}, which has no benchmark's result; name the "
            "output of a benchmark."
        )
    raise ParseError(
        "it looks like no tool's output that is known; name the tool with --tool, one of: "
        f"{', '.join(tools)}{last_words(text)}"
    )


def _named(cases: Sequence[Found], metadata: UserMetadata) -> Sequence[Found]:
    """The cases, unless the user gave one name to several models."""
    names = sorted({str(case.model["name"]) for case in cases if case.model.get("name")})
    if metadata.model and len(names) > 1:
        raise ParseError(
            f"--model {metadata.model!r} is one model, and it holds {len(names)}: {names[0]!r}, "
            f"{names[1]!r}, ...; leave the option out."
        )
    return cases


def _record(
    source: Mapping[str, Any],
    metadata: UserMetadata,
    found: Found,
    others: Sequence[Found],
    counts: Counter[str],
) -> Record:
    """counts: how many cases of the file had each identity so far; this one is counted too."""
    nodes = _nodes(source["tool"], metadata, found, others)
    if len(metadata.platforms) > nodes:
        raise ParseError(
            f"--platform was given {len(metadata.platforms)} times for {nodes} node(s)."
        )
    engine, model = (
        ({}, {}) if found.machines else (_engine(metadata, found), _model(metadata, found))
    )
    case: dict[str, Any] = {
        "engine": engine.get("name"),
        "benchmark": found.benchmark,
        "model": model.get("name"),
        "nodes": nodes,
        "parameters": dict(found.parameters),
    }
    if not found.machines:
        case["parallelism"] = "single"
    if nodes > 1:
        case["fabric"] = _agreed("--fabric", metadata.fabric, found.fabric)
        case["transport"] = _agreed("--transport", metadata.transport, found.transport)
        if not found.machines:
            case["parallelism"] = _agreed("--parallelism", metadata.parallelism, found.parallelism)
            if case["parallelism"] == "single":
                raise ParseError(f"--parallelism 'single' is of one node, and {nodes} took part.")
    case = present(case) | {"parameters": case["parameters"]}
    identity = fingerprint([source["sha256"], case, engine, model])
    counts[identity] += 1
    number, again = counts[identity], ""
    if number > 1:
        # What distinguished them, such as the folder of a model or RPC servers, is in no record.
        identity = fingerprint([identity, number])
        again = f"case {number} of equal ones in the file"
    called = found.model.get("name")
    names = f"{source['tool']} calls the model {called!r}" if metadata.model and called else ""
    note = "; ".join(filter(None, (found.note, names, again)))
    return external_record(
        "imported",
        source=present({**source, "note": note}),
        case=case,
        cluster={
            "name": metadata.cluster,
            "platforms": list(metadata.platforms),
            "lab": LAB_PLATFORM in metadata.platforms,
        },
        metrics=documents(found.metrics),
        fabric=present({"name": case.get("fabric")}),
        engine=engine,
        model=model,
        warnings=found.warnings,
        name=f"{slug(source['tool'], _LONGEST_NAME)}-{identity[:8]}",
    )


def _nodes(tool: str, metadata: UserMetadata, found: Found, others: Sequence[Found]) -> int:
    """As the output states or, where it does not, as the user reports.

    What the user reports may be about another case of the output, which lacks it.
    """
    reported = found.nodes
    if metadata.nodes is None:
        if reported.reported is None:
            seen = f" ({reported.why})" if reported.why else ""
            raise ParseError(f"{tool} does not state the number of nodes{seen}; add --nodes N.")
        return reported.reported
    if reported.fits(metadata.nodes):
        return metadata.nodes
    if reported.reported is not None and any(case.nodes.reported is None for case in others):
        return reported.reported
    raise ParseError(
        f"--nodes {metadata.nodes} contradicts the output of {tool}, which has {reported.why}."
    )


def _engine(metadata: UserMetadata, found: Found) -> dict[str, Any]:
    name = _agreed("--engine", metadata.engine, found.engine.get("name"))
    version = metadata.engine_version
    if version and not name:
        raise ParseError(f"--engine-version {version!r} is of which engine? Add --engine NAME.")
    reported = {str(found.engine.get(key) or "") for key in ("version", "build_commit")} - {""}
    if version and reported and version not in reported:
        _agreed("--engine-version", version, " or ".join(sorted(reported)))
    if version and not reported:
        return present({**found.engine, "name": name, "version": version})
    return present({**found.engine, "name": name}) if name else {}


def _model(metadata: UserMetadata, found: Found) -> dict[str, Any]:
    """Without a name the model is unknown."""
    names = {"name": metadata.model or found.model.get("name")}
    names["weights"] = metadata.weights or found.model.get("weights")
    return present({**found.model, **names}) if names["name"] else {}


def _agreed(option: str, given: str | None, reported: str | None) -> str | None:
    if given and reported and given != reported:
        raise ParseError(f"{option} {given!r} contradicts the output, which has {reported!r}.")
    return given or reported
