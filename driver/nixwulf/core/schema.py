"""JSON Schemas (draft 2020-12) of the files that Nixwulf reads and writes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, Literal

from nixwulf.core.errors import InputError, quoted

Kind = Literal[
    "cluster",
    "deployment",
    "known-bad",
    "models",
    "plan",
    "platform",
    "record",
    "sweep",
    "upstream",
]


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """The schema of a kind of file."""
    text = (resources.files("nixwulf") / "data" / "schemas" / f"{kind}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _chosen(kind: Kind, tolerant: bool) -> Any:
    return _opened(schema(kind)) if tolerant else schema(kind)


def _opened(part: Any) -> Any:
    """A schema that takes unknown keys and, where it lists texts, any text."""
    if isinstance(part, list):
        return [_opened(item) for item in part]
    if not isinstance(part, dict):
        return part
    closing = {"additionalProperties": False, "enum": part.get("enum")}
    kept = {key: _opened(value) for key, value in part.items() if closing.get(key, key) != value}
    return kept | ({"type": "string"} if "enum" in part else {})


@cache
def _validator(kind: Kind, tolerant: bool) -> Any:
    import jsonschema  # 60 ms, and most commands validate nothing

    return jsonschema.Draft202012Validator(_chosen(kind, tolerant))


@cache
def _fast_validator(kind: Kind, tolerant: bool) -> Any:
    import jsonschema_rs  # a hundred times as fast, and its sentences are for programmers

    return jsonschema_rs.Draft202012Validator(_chosen(kind, tolerant))


def problems(document: Any, kind: Kind, *, tolerant: bool = False) -> list[str]:
    """Every problem of a document, each a sentence that names the key and what was expected.

    Args:
        document: of YAML, TOML or JSON.
        kind: which schema.
        tolerant: it may have keys that the schema does not know, and other values of its lists.
    """
    errors = sorted(_validator(kind, tolerant).iter_errors(document), key=_order)
    return [_sentence(error) for error in errors]


def check(document: Any, kind: Kind, source: str) -> None:
    """Hold a document against its schema.

    Args:
        document: of YAML, TOML or JSON.
        kind: which schema.
        source: its file, for the message.

    Raises:
        InputError: with the source and the first key that is wrong.
    """
    _refuse(problems(document, kind), source)


def check_one_of_many(document: Any, kind: Kind, source: str, *, tolerant: bool) -> None:
    """As check, but fast for a valid document that came from JSON.

    Args:
        document: of JSON.
        kind: which schema.
        source: its file, for the message.
        tolerant: it may have keys that the schema does not know, and other values of its lists.

    Raises:
        InputError: with the source and the first key that is wrong.
    """
    fast = _fast_validator(kind, tolerant)
    if not fast.is_valid(document):
        # The last resort is what only the fast one sees: NaN, or a line's end after a pattern.
        found = problems(document, kind, tolerant=tolerant)
        only = (f"{_where(e.instance_path)}: {e.message}." for e in fast.iter_errors(document))
        _refuse(found or list(only), source)


def _refuse(found: list[str], source: str) -> None:
    if found:
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{source}: {found[0]}{more}")


def _where(path: Iterable[object]) -> str:
    return ".".join(map(str, path)) or "the top level"


def _order(error: Any) -> tuple[bool, list[str]]:
    """By key; last what is asked for because of the value of another key, which may be wrong."""
    asked_for = {"then", "else"} & set(error.absolute_schema_path)
    return bool(asked_for), list(map(str, error.absolute_path))


def _sentence(error: Any) -> str:
    where = _where(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        nearest = difflib.get_close_matches(unknown[0], known, n=1) if unknown else []
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}."
        return f"unknown key {unknown[0]!r} in {where}{hint}"
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return f"{where} lacks the key {missing[0]!r}."
    if error.validator == "dependentRequired":
        pairs = [(key, other) for key, others in error.validator_value.items() for other in others]
        key, other = next(
            pair for pair in pairs if pair[0] in error.instance and pair[1] not in error.instance
        )
        return f"{where} has the key {key!r} and lacks {other!r}, which belongs to it."
    if error.validator == "type":
        return f"{where} is {quoted(error.instance)}, expected {_named(error.validator_value)}."
    if error.validator == "enum":
        expected = ", ".join(map(repr, error.validator_value))
        nearest = difflib.get_close_matches(str(error.instance), error.validator_value, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        return f"{where} is {quoted(error.instance)}, expected one of {expected}{hint}"
    if error.validator == "pattern":
        meaning = error.schema.get("description", f"text that matches {error.validator_value}")
        return f"{where} is {quoted(error.instance)}, expected {meaning}"
    # Its message begins with the whole value.
    return f"{where}: {error.message.replace(repr(error.instance), quoted(error.instance))}."


def _named(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)
