"""JSON Schemas (draft 2020-12) of the files that Nixwulf reads and writes."""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib import resources
from typing import Any, Literal

from nixwulf.errors import InputError

Kind = Literal["cluster", "platform", "sweep", "plan", "record", "known-bad"]


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """The schema of a kind of file."""
    text = (resources.files("nixwulf") / "data" / "schemas" / f"{kind}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _validator(kind: Kind) -> Any:
    import jsonschema  # 60 ms, and most commands validate nothing

    return jsonschema.Draft202012Validator(schema(kind))


def problems(document: Any, kind: Kind) -> list[str]:
    """Every problem of a document, each a sentence that names the key and what was expected."""
    errors = sorted(
        _validator(kind).iter_errors(document), key=lambda error: list(map(str, error.path))
    )
    return [_sentence(error) for error in errors]


def check(document: Any, kind: Kind, source: str) -> None:
    """Raise InputError, naming the source and the first key that is wrong."""
    found = problems(document, kind)
    if found:
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{source}: {found[0]}{more}")


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error.absolute_path) or "the top level"
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        nearest = difflib.get_close_matches(unknown[0], known, n=1) if unknown else []
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}."
        return f"unknown key {unknown[0]!r} in {where}{hint}"
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return f"{where} lacks the key {missing[0]!r}."
    if error.validator == "type":
        return f"{where} is {error.instance!r}, expected {_named(error.validator_value)}."
    if error.validator == "enum":
        expected = ", ".join(map(repr, error.validator_value))
        return f"{where} is {error.instance!r}, expected one of {expected}."
    if error.validator == "pattern":
        meaning = error.schema.get("description", f"text that matches {error.validator_value}")
        return f"{where} is {error.instance!r}, expected {meaning}"
    return f"{where}: {error.message}."


def _named(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)
