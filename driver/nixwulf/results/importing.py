"""Imports: the records of a tool's output, completed by its user where it lacks something."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from nixwulf import __version__
from nixwulf.core.errors import InputError
from nixwulf.core.files import read_bytes, shipped_table
from nixwulf.core.registry import choose
from nixwulf.core.text import fingerprint, plural, slug
from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.inventory.fabrics import KINDS
from nixwulf.outputs import Found, ParseError, Tool, all_tools, documents, failure, present
from nixwulf.outputs.accounting import account, by_label
from nixwulf.outputs.described import kind_of
from nixwulf.outputs.runs import clipped, decoded, plain, read_runs
from nixwulf.results.record import (
    SCHEMA_VERSION,
    Record,
    RecordedCase,
    RecordedCluster,
    sealed,
    validate,
)


def external_record(
    kind: Literal["imported", "published"],
    *,
    source: Mapping[str, object],
    case: Mapping[str, object],
    cluster: RecordedCluster,
    metrics: Sequence[Mapping[str, object]],
    fabric: Mapping[str, object] | None = None,
    engine: Mapping[str, object] | None = None,
    model: Mapping[str, object] | None = None,
    warnings: Sequence[str] = (),
    name: str | None = None,
    failure: str = "",
) -> Record:
    """The sealed record of numbers that are no run, from documents as the record schema has them.

    The case's id is the hash of the case with its platforms, engine and model, so that runs of one
    case share it. The record's id, unless given, names its subject and ends in a hash of its source
    and conditions, not of the numbers: one that is corrected keeps its id.

    fabric: the network between the nodes; None on one. engine, model: name and version, weights and
    size; None where the machines are measured. name: the record's id; None: it is made. failure:
    why the run has no metrics; empty: it has.
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
        "outcome": "failed" if failure else "ok",
        "failure": {"phase": "measure", "reason": failure} if failure else {},
        "source": dict(source),
        "cluster": dict(cluster),
        "fabric": dict(fabric or {}),
        "engine": dict(engine or {}),
        "model": dict(model or {}),
        "metrics": [dict(metric) for metric in metrics],
        "warnings": list(warnings),
    }
    for key in ("fabric", "engine", "model", "warnings", "failure"):
        if not document[key]:
            del document[key]
    identity = {
        **{key: document.get(key) for key in ("kind", "case", "fabric", "engine", "model")},
        "source": _without(source, "note", "date"),
        "cluster": _without(cluster, "price_usd"),
    }
    words = _words(cluster["platforms"], document["case"])
    name = name or f"{words}-{fingerprint(identity)[:8]}"
    return sealed({"id": name, **document, "provenance": {"nixwulf": __version__}})


def _without(document: Mapping[str, object], *keys: str) -> dict[str, object]:
    return {name: value for name, value in document.items() if name not in keys}


def _words(platforms: Iterable[str], case: RecordedCase) -> str:
    """Platform, engine or benchmark, model and nodes, for the eyes: two records may share it."""
    names = [
        *platforms,
        case.get("engine") or case["benchmark"],
        case.get("model"),
        f"{case['nodes']}x" if case["nodes"] > 1 else None,
        case.get("transport"),
    ]
    return slug("-".join(filter(None, names)), 96, also="._")


MOST_BYTES = 64_000_000
_LONGEST_NAME = 40
_MOST_NAMED = 3
_MOST_LEFT = 6
_INFERRED = ": an inference, from "
_PRIVATE = re.compile(r"(?<![\w.])[/~](?:[\w.@+\[\]-]+/)+")
# In a difference of two texts a row of a table or of numbers, or a line that another replaces.
_CHANGED = re.compile(
    r"^(?:[-+] ?\||\+ ?(?=\w))(?=[^\n]{0,200}\w)(?:[^|\n]{0,400}\|){3}"
    r"|^[-+] ?\d+(?:[ \t]+[\d.]+){2,}[ \t]*$"
    r"|^-(?!-)(?=[^\n]{0,400}\d[^\n]*\n(?:-[^\n]*\n){0,99}\+(?!\+)[^\n]{0,400}\d)",
    re.MULTILINE,
)
_UNKNOWN = "no tool's output that is known"
_ASK = "https://github.com/nixwulf/nixwulf/issues"
_TOO_LONG = re.compile(r"\d{101}")
_OF_A_RECORD = ('"schema_version"', '"provenance"', '"digest"')
_APPLIES = {
    **dict.fromkeys(("fabric", "transport"), "they are of one node"),
    "parallelism": "they are of one node, or measure the machines themselves",
    **dict.fromkeys(("engine", "model"), "they measure the machines themselves"),
}


@dataclass(frozen=True)
class UserMetadata:
    """The user's report about outputs; it may not contradict them.

    models and weights are names: they replace those that a tool has for the same thing. models has
    one for each model of a file, in the order in which they come in it.
    """

    platforms: tuple[str, ...]
    nodes: int | None = None
    fabric: str | None = None
    fabric_kind: str | None = None
    transport: str | None = None
    parallelism: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    models: tuple[str, ...] = ()
    weights: str | None = None
    cluster: str = "imported"


@dataclass(frozen=True)
class Reading:
    """The import of a file: its records, and a sentence for each run that has none.

    text: without what people post around it; tools: those whose outputs it has.
    """

    path: Path
    text: str
    tools: tuple[Tool, ...]
    records: tuple[Record, ...]
    unread: tuple[str, ...]

    def sentences(self, *, explain: bool = False) -> Iterator[str]:
        """Say what it is taken for and what is left out; explain: all of that, and which lines."""
        found = account(partial(_answer, self.tools), self.text, explain=explain)
        rest = _left_out(by_label(found.left_out), whole=found.whole)
        reasons = [one["failure"]["reason"] for one in self.records if "failure" in one]
        yield f"{self.path}: {self._summary(len(reasons))}; {rest}."
        warnings = [one for record in self.records for one in record.get("warnings", ())]
        notes = [str(one["source"].get("note", "")).rpartition("; ")[2] for one in self.records]
        inferred = [f"{one}; --nodes N says how many." for one in notes if _INFERRED in one]
        for one in dict.fromkeys((*self.unread, *reasons, *warnings, *inferred)):
            yield f"{self.path}: {one}"
        if explain:
            for line, label, part in found.used:
                yield f"  line {line}: {label} -> {part}"
            yield from (f"  {one} -> left out" for one in by_label(found.left_out, each=True))

    def _summary(self, failures: int) -> str:
        names = " and ".join(dict.fromkeys(tool.name for tool in self.tools))
        failed = f" ({failures} failed)" if failures else ""
        metrics = (metric for record in self.records for metric in record["metrics"])
        values = sum(len(metric.get("samples", [0])) for metric in metrics)
        return f"{names}, {plural(len(self.records), 'run')}{failed}, {plural(values, 'value')}"


def _left_out(shown: Sequence[str], *, whole: bool) -> str:
    """The end of a sentence; whole: whether every number was looked at."""
    more = f"; and {len(shown) - _MOST_LEFT} more (--explain)" if len(shown) > _MOST_LEFT else ""
    rest = f"left out: {'; '.join(shown[:_MOST_LEFT])}{more}" if shown else "nothing left out"
    return rest if whole else f"{rest}; of a text this long not every number was looked at"


def reading_of(path: Path, metadata: UserMetadata, tool: str | None = None) -> Reading:
    """Read a file: a sealed record for each case of each run in it.

    tool: the tool's name; None: the content shows it, also where it has outputs of several.

    Raises InputError: with the file's name, for what cannot be read.
    """
    content = _content(path)
    source = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    try:
        text, cut = clipped(plain(decoded(content)))
        if digits := _TOO_LONG.search(text):
            line = text.count("\n", 0, digits.start()) + 1
            raise ParseError(f"line {line} has a number of more than 100 digits.")
        if changed := _CHANGED.search(text):
            line = text.count("\n", 0, changed.start()) + 1
            why = "is marked as removed or added; give the text of each side a file of its own"
            raise ParseError(f"line {line} {why}.")
        known = [choose(all_tools(), tool, "tool", "--tool")] if tool else _tools_of(text)
        tools, found, unread = _read(known, text)
        unread += _beside(text, tool) if tool else []
        if metadata.nodes is None:
            found = _with_nodes(found, unread)
        records = _records(source, metadata, found, alone=not unread)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except ParseError as error:
        raise InputError(f"{path}: {error.format_message()}") from None
    for record in records:
        validate(record, str(path))
    return Reading(path, text, tools, tuple(records), (*unread, *cut))


def _beside(text: str, tool: str) -> list[str]:
    """A sentence for each tool that a text is of beside the one that was asked for."""
    try:
        names = [one.name for one in _tools_of(text)]
    except ParseError:
        return []
    others = [name for name in names if name != tool] if tool in names else []
    return [f"{name} is in it too, and --tool {tool} leaves it out." for name in others]


def _with_nodes(
    found: Sequence[tuple[Tool, list[Found]]], unread: list[str]
) -> list[tuple[Tool, list[Found]]]:
    """Leave out failed runs whose nodes nobody states, and say so; raises ParseError for all."""
    every = [case for _, own in found for case in own]
    silent = [one for one in every if one.failure and one.nodes.reported is None]
    unread += [f"{one.failure} Add --nodes N to have it as a record." for one in silent]
    if len(silent) == len(every):
        raise ParseError(" ".join(unread))
    return [(of, [one for one in own if one not in silent]) for of, own in found]


def _records(
    source: Mapping[str, str],
    metadata: UserMetadata,
    found: Sequence[tuple[Tool, list[Found]]],
    *,
    alone: bool,
) -> list[Record]:
    """A record a case; alone: whether a single one is all there is, which then needs no line."""
    cases = [case for _, own in found for case in own]
    names = _names(cases, metadata)
    counts: Counter[str] = Counter()
    records = []
    for tool, own in found:
        apart = _apart(own, named=bool(metadata.models))
        if len(cases) == 1 and alone:
            apart = [replace(case, line=0) for case in apart]
        about = {"tool": tool.name, **source}
        records += [_record(about, metadata, one, apart, names, counts) for one in apart]
    return records


def _read(
    tools: Sequence[Tool], text: str
) -> tuple[tuple[Tool, ...], list[tuple[Tool, list[Found]]], list[str]]:
    """Return tools with a run, their cases, and what is unreadable; raises ParseError for none."""
    found: list[tuple[Tool, list[Found]]] = []
    unread: list[str] = []
    for tool in tools:
        try:
            cases, sentences = read_runs(tool, text)
        except ParseError as error:
            unread.append(error.format_message())
        else:
            found.append((tool, cases))
            unread += sentences
    if not found:
        raise ParseError(" ".join(unread))
    if len(found) > 1:
        # Clients of one family refuse each other's results by their names.
        unread = [one for one in unread if not any(f"--tool {tool.name}." in one for tool in tools)]
    return tuple(tool for tool, _ in found), found, unread


def _answer(tools: Sequence[Tool], text: str) -> dict[str, str]:
    """Read the tools' outputs, by metrics and cases; raises ParseError."""
    answer = {}
    for tool in tools:
        of = f" of {tool.name}" if len(tools) > 1 else ""
        cases, unread = read_runs(tool, text)
        answer[f"unread{of}"] = repr(unread)
        for number, case in enumerate(cases, 1):
            for index, metric in enumerate(documents(case.metrics)):
                answer[f"{metric['name']} of run {number}{of}{' ' * index}"] = repr(metric)
            answer[f"run {number}{of}"] = repr(replace(case, metrics=(), peer="", line=0))
    return answer


def require_use(metadata: UserMetadata, records: Sequence[Record]) -> None:
    """Raise InputError when an option applies to no record."""
    given = [(key, getattr(metadata, key)) for key in _APPLIES if key != "model"]
    for key, value in (*given, *(("model", name) for name in metadata.models)):
        if value and not any(record["case"].get(key) == value for record in records):
            raise InputError(f"--{key} {value!r} applies to none of the outputs: {_APPLIES[key]}.")
    kind = metadata.fabric_kind
    if kind and not any(record.get("fabric", {}).get("kind") == kind for record in records):
        raise InputError(
            f"--fabric-kind {kind!r} applies to none of the outputs: {_APPLIES['fabric']}."
        )


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
        return read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}.") from None


def _tools_of(text: str) -> list[Tool]:
    """The tools whose outputs a text has, at least one; raises ParseError."""
    if text.startswith("{") and all(key in text for key in _OF_A_RECORD):
        raise ParseError("it is a record already, which 'nixwulf report' and the others take.")
    tools = all_tools()
    if found := [tool for tool in tools.values() if tool.recognises(text)]:
        return found
    if not text.strip():
        raise ParseError("it is empty; name the output of a benchmark.")
    if kind := kind_of(text):
        raise ParseError(
            f"it looks like {kind.name!r}, which has no benchmark's result; name the "
            "output of a benchmark."
        )
    unread = shipped_table("outputs_unread").items()
    other = [f"{one!r}, which has no reader" for one, form in unread if re.search(form, text)]
    raise ParseError(
        f"it looks like {''.join(other[:1]) or _UNKNOWN}; docs/reference/imports.md lists what is "
        f"read, and {_ASK} takes a wish with its text{_shown(failure(text.splitlines(), 1)[1])}"
    )


def _shown(words: str) -> str:
    """A line that a tool printed, without keys, hosts, addresses and folders."""
    from nixwulf.results.publish.scrub import Scrubber

    return _PRIVATE.sub("", Scrubber().text(words))


def _names(cases: Sequence[Found], metadata: UserMetadata) -> dict[str, str]:
    """The user's names of the models by what the output has of each; raises ParseError."""
    found = {fingerprint(case.model): case for case in reversed(cases) if case.model}
    first = dict(reversed(found.items()))
    several = ", ".join(_described(case) for case in list(first.values())[:_MOST_NAMED])
    several += ", ..." if len(first) > _MOST_NAMED else ""
    if len(first) > 1 and metadata.weights:
        raise ParseError(
            f"--quant {metadata.weights!r} is of one model, and it holds {len(first)}: {several}; "
            "leave the option out, or keep one of them in the file."
        )
    if len(metadata.models) > 1 or (metadata.models and len(first) > 1):
        if len(metadata.models) != len(first):
            given = " ".join(f"--model {name!r}" for name in metadata.models[:_MOST_NAMED])
            if not first:
                raise ParseError(
                    f"{given}: nothing in it says which of its runs are of which model; give a "
                    "file of its own to each model."
                )
            raise ParseError(
                f"{given} names {len(metadata.models)} of the {len(first)} models that it holds: "
                f"{several}; give --model once for each, in this order, or "
                "leave it out."
            )
        return dict(zip(first, metadata.models, strict=True))
    return {fingerprint(case.model): name for name in metadata.models for case in cases}


def _described(case: Found) -> str:
    size = f" of {case.model['size']}" if case.model.get("size") else ""
    return f"{str(case.model.get('name', 'one without a name'))!r}{size} (line {case.line})"


def _apart(cases: Sequence[Found], *, named: bool) -> list[Found]:
    """The cases with parameters for what tells them apart and no other key of a record holds.

    Peers are numbered: no record has addresses. Of many models llama.cpp writes ?B for the size.
    """
    peers = list(dict.fromkeys(case.peer for case in cases if not case.failure))
    found = []
    for case in cases:
        numbered = len(peers) > 1 and not case.failure
        more: dict[str, object] = {"peer": peers.index(case.peer) + 1} if numbered else {}
        size = case.model.get("size")
        if size and not named and "?B" in str(case.model.get("name")):
            more["model_size"] = size
        found.append(replace(case, parameters={**case.parameters, **more}))
    return found


def _record(
    source: Mapping[str, str],
    metadata: UserMetadata,
    found: Found,
    others: Sequence[Found],
    names: Mapping[str, str],
    counts: Counter[str],
) -> Record:
    """counts: how many cases of the file had each identity so far; this one is counted too."""
    nodes = _nodes(source["tool"], metadata, found, others)
    if len(metadata.platforms) > nodes:
        raise ParseError(
            f"--platform was given {len(metadata.platforms)} times for {nodes} node(s)."
        )
    name = names.get(fingerprint(found.model))
    engine, model = (
        ({}, {}) if found.machines else (_engine(metadata, found), _model(metadata, found, name))
    )
    case: dict[str, object] = {
        "engine": engine.get("name"),
        "benchmark": found.benchmark,
        "model": model.get("name"),
        "nodes": nodes,
        "parameters": dict(found.parameters),
    }
    if not found.machines:
        case["parallelism"] = "single"
    kind = metadata.fabric_kind if nodes > 1 else None
    if nodes > 1:
        case["fabric"] = _agreed("--fabric", metadata.fabric, found.fabric) or kind
        case["transport"] = _agreed("--transport", metadata.transport, found.transport)
        if not found.machines:
            case["parallelism"] = _agreed("--parallelism", metadata.parallelism, found.parallelism)
            if case["parallelism"] == "single":
                raise ParseError(f"--parallelism 'single' is of one node, and {nodes} took part.")
        if kind and case["transport"] not in (None, *KINDS[kind].transports):
            raise ParseError(
                f"--fabric-kind {kind!r} is crossed by tcp alone, and the transport is "
                f"{case['transport']!r}."
            )
    case = present(case) | {"parameters": case["parameters"]}
    identity = fingerprint([source["sha256"], case, engine, model])
    counts[identity] += 1
    if counts[identity] > 1:
        # What distinguished them, such as the folder of a model or RPC servers, is in no record.
        identity = fingerprint([identity, counts[identity]])
    called = found.model.get("name")
    names_it = f"{source['tool']} calls the model {called!r}" if name and called else ""
    inferred = ""
    if metadata.nodes is None and found.nodes.least != found.nodes.most:
        inferred = f"{plural(nodes, 'node')}{_INFERRED}{found.nodes.why}"
    note = "; ".join(filter(None, (found.note, names_it, inferred)))
    return external_record(
        "imported",
        source=present({**source, "line": found.line or None, "note": note}),
        case=case,
        cluster={
            "name": metadata.cluster,
            "platforms": list(metadata.platforms),
            "lab": LAB_PLATFORM in metadata.platforms,
        },
        metrics=documents(found.metrics),
        fabric=present({"name": case.get("fabric"), "kind": kind}),
        engine=engine,
        model=model,
        warnings=found.warnings,
        failure=_shown(found.failure),
        name=f"{slug(source['tool'], _LONGEST_NAME)}-{identity[:8]}",
    )


def _nodes(tool: str, metadata: UserMetadata, found: Found, others: Sequence[Found]) -> int:
    """Return the nodes as the output states them, else as the user does, maybe of another case."""
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


def _engine(metadata: UserMetadata, found: Found) -> dict[str, object]:
    name = _agreed("--engine", metadata.engine, found.engine.get("name"))
    version = metadata.engine_version
    if version and not name:
        raise ParseError(f"--engine-version {version!r} is of which engine? Add --engine NAME.")
    reported = {str(found.engine.get(key) or "") for key in ("version", "build_commit")} - {""}
    if version and reported and version not in reported:
        _agreed("--engine-version", version, " or ".join(sorted(reported)))
    stated = {} if reported else {"version": version}
    return present({**found.engine, "name": name, **stated}) if name else {}


def _model(metadata: UserMetadata, found: Found, name: str | None) -> dict[str, object]:
    names = {"name": name or found.model.get("name")}
    names["weights"] = metadata.weights or found.model.get("weights")
    return present({**found.model, **names}) if names["name"] else {}


def _agreed(option: str, given: str | None, reported: str | None) -> str | None:
    if given and reported and given != reported:
        raise ParseError(f"{option} {given!r} contradicts the output, which has {reported!r}.")
    return given or reported
