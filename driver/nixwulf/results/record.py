"""Records: the validated JSON that a run leaves, whatever its outcome."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from nixwulf.core import files
from nixwulf.core.errors import InputError
from nixwulf.core.schema import check_one_of_many

SCHEMA_VERSION = "1.5"
_MAJOR = SCHEMA_VERSION.partition(".")[0]

Record = dict[str, Any]


def digest(document: Record) -> str:
    """sha256 of a document without its digest, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(document: Record) -> Record:
    """The document with its digest."""
    return {**document, "digest": digest(document)}


def validate(document: Any, source: str) -> None:
    """Raise InputError when a record is of another version, breaks the schema, or was edited.

    A later minor version may have keys, and values of lists, that this schema does not know.
    """
    if isinstance(document, dict) and document.get("kind") == "prediction":
        raise InputError(
            f"{source}: kind is 'prediction': nothing was measured, so it is no record; "
            "'nixwulf bench' makes one."
        )
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, str) and version.partition(".")[0] != _MAJOR:
        raise InputError(
            f"{source}: schema_version is {version!r}, and this nixwulf reads "
            f"{_MAJOR}.x; use the nixwulf that wrote it."
        )
    try:
        check_one_of_many(document, "record", source, tolerant=_is_later(version))
        found = digest(document)
    except (ValueError, TypeError, RecursionError) as error:  # NaN, half of a character, nesting
        raise InputError(f"{source}: no record can hold a value of it: {error}.") from None
    if document["digest"] != found:
        raise InputError(
            f"{source}: digest is {document['digest'][:12]!r}, but the content gives "
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
    """Write a sealed record atomically.

    remedy: what to do where the file cannot be written.

    Raises InputError: it could not be read back, or the file cannot be written.
    """
    files.write_atomically(path, text_of(document, str(path)), remedy)


def load(path: Path) -> Record:
    """One validated record."""
    document: Record = files.read_json(path)
    validate(document, str(path))
    return document
