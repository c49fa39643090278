"""Records: the validated JSON that a run leaves, whatever its outcome."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict, TypeVar, cast

from nixwulf.core import files
from nixwulf.core.errors import InputError
from nixwulf.core.schema import check_one_of_many

SCHEMA_VERSION = "1.5"
_MAJOR = SCHEMA_VERSION.partition(".")[0]


class RecordedCase(TypedDict, total=False):
    """A case; engine and model are absent where machines are measured, fabric on one node."""

    id: Required[str]
    benchmark: Required[str]
    nodes: Required[int]
    parameters: Required[Mapping[str, Any]]
    engine: str
    model: str
    fabric: str
    transport: str
    parallelism: str


class RecordedMetric(TypedDict, total=False):
    """A metric, with its samples where they are known."""

    name: Required[str]
    unit: Required[str]
    value: Required[float]
    conditions: Required[Mapping[str, Any]]
    samples: Sequence[float]
    stddev: float
    state: str
    observed: Mapping[str, Any]
    percentiles: Mapping[str, float]


class RecordedCluster(TypedDict, total=False):
    """The machines of a case; price_usd is of all together."""

    name: Required[str]
    platforms: Required[list[str]]
    lab: Required[bool]
    machine: str
    price_usd: float


class RecordedFabric(TypedDict, total=False):
    """A fabric, empty on one node; its links have what was measured on each of them."""

    name: str
    kind: str
    speed_gbps: float
    mtu: int
    stack: str
    shaped_by: str
    asked: Mapping[str, float]
    links: Sequence[Mapping[str, Any]]


class RecordedModel(TypedDict, total=False):
    """A model as the engine or the source describes it; empty where machines are measured."""

    name: str
    random_weights: bool
    file: str
    hub: str
    served: str
    architecture: str
    bytes: int
    parameters: int
    size: str
    params: str
    active_parameters: int
    weights: str


class RecordedCommand(TypedDict, total=False):
    """A command that ran on a node."""

    node: Required[str]
    argv: Required[list[str]]
    environment: Mapping[str, str]


class RecordedNode(TypedDict, total=False):
    """A node of a run: its facts as they were read, and of a failed run the end of its log."""

    name: Required[str]
    platform: Required[str]
    role: Required[str]
    facts: Mapping[str, Any]
    log_tail: str


class RecordedEfficiency(TypedDict, total=False):
    """A speed over the watts of one source; metric is an index into the record's."""

    metric: Required[int]
    name: Required[str]
    source: str
    watts: float
    unit: str
    value: float
    joules_per_token: float
    absent: str


class RecordedPower(TypedDict, total=False):
    """Watts by node and meter, what slowed nodes down, and speeds over watts; or why not."""

    absent: str
    nodes: Mapping[str, Mapping[str, Any]]
    meters: Sequence[Mapping[str, Any]]
    throttled: Sequence[Mapping[str, Any]]
    efficiency: Sequence[RecordedEfficiency]


class Record(TypedDict, total=False):
    """A document that passed the schema: the keys that readers ask for, here and above."""

    schema_version: Required[str]
    kind: Required[str]
    id: Required[str]
    case: Required[Any]  # a RecordedCase: sweep/reproduce takes keys of it by a variable
    outcome: Required[str]
    cluster: Required[RecordedCluster]
    metrics: Required[list[RecordedMetric]]
    provenance: Required[Mapping[str, Any]]
    digest: Required[str]
    repetition: int
    failure: Mapping[str, str]
    started: str
    finished: str
    phases: Mapping[str, float]
    source: Mapping[str, Any]
    scrubbed: Mapping[str, int]
    nodes: Sequence[RecordedNode]
    fabric: RecordedFabric
    engine: Mapping[str, str]
    model: RecordedModel
    commands: Sequence[RecordedCommand]
    sanity: Mapping[str, Any]
    power: RecordedPower
    warnings: Sequence[str]
    gates: Sequence[Mapping[str, Any]]
    waived: Sequence[str]
    raw: Sequence[str]


class PlanDocument(TypedDict, total=False):
    """A plan that passed its schema: the cases of a sweep on a cluster, and what is no case."""

    schema_version: Required[str]
    sweep: Required[Mapping[str, Any]]
    cluster: Required[Mapping[str, Any]]
    only: str
    waived: Sequence[str]
    repetitions: Required[int]
    cases: Required[Sequence[RecordedCase]]
    left_out: Required[Sequence[Mapping[str, Any]]]
    digest: Required[str]


Document = TypeVar("Document", bound=Mapping[str, object])


def digest(document: Mapping[str, object]) -> str:
    """sha256 of a document without its digest, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(document: Document | Mapping[str, object]) -> Document:
    """Add the digest; nothing else makes a Record or a plan of what the driver wrote."""
    return cast(Document, {**document, "digest": digest(document)})


def validate(document: object, source: str) -> None:
    """Raise InputError when a record is of another version, breaks the schema, or was edited.

    A later minor version may have keys, and values of lists, that this schema does not know.
    """
    given = document if isinstance(document, dict) else {}
    if given.get("kind") == "prediction":
        raise InputError(
            f"{source}: kind is 'prediction': nothing was measured, so it is no record; "
            "'nixwulf bench' makes one."
        )
    version = given.get("schema_version")
    if isinstance(version, str) and version.partition(".")[0] != _MAJOR:
        raise InputError(
            f"{source}: schema_version is {version!r}, and this nixwulf reads "
            f"{_MAJOR}.x; use the nixwulf that wrote it."
        )
    try:
        check_one_of_many(document, "record", source, tolerant=_is_later(version))
        found = digest(given)
    except (ValueError, TypeError, RecursionError) as error:  # NaN, half of a character, nesting
        raise InputError(f"{source}: no record can hold a value of it: {error}.") from None
    if given["digest"] != found:
        raise InputError(
            f"{source}: digest is {given['digest'][:12]!r}, but the content gives "
            f"{found[:12]!r}: the record was edited after the run; restore it, or run "
            "the case again with 'nixwulf bench --resume'."
        )


def _is_later(version: object) -> bool:
    """Tell whether a version of this major number has a higher minor one: '1.10' after '1.9'."""
    minor = str(version).partition(".")[2]
    return minor.isdecimal() and int(minor) > int(SCHEMA_VERSION.partition(".")[2])


def text_of(document: Record, source: str) -> str:
    """A sealed record as its file has it; raises InputError when it could not be read back."""
    # Half of a character and numbers beyond 64 bits are in Python's JSON and in no other.
    validate(document, source)
    files.require_shallow(document, source)
    text = files.as_json(document)
    validate(files.parse_json(text, source), source)
    return text


def save(document: Record, path: Path, remedy: str = files.ELSEWHERE) -> None:
    """Write a sealed record atomically; raises InputError where that, or reading it back, fails."""
    files.write_atomically(path, text_of(document, str(path)), remedy)


def load(path: Path) -> Record:
    """Read and validate a record."""
    document: Record = files.read_json(path)
    validate(document, str(path))
    return document
