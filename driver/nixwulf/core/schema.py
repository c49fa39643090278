"""JSON Schemas (draft 2020-12) of the files that Nixwulf reads and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import shipped_text
from nixwulf.core.secrets import cut
from nixwulf.core.text import did_you_mean, nearest

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import ValidationError

Kind = Literal[
    "cluster",
    "command-lines",
    "deployment",
    "event",
    "known-bad",
    "models",
    "node-models",
    "plan",
    "platform",
    "record",
    "sweep",
    "upstream",
]


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """The schema of a kind of file."""
    document: dict[str, Any] = json.loads(shipped_text(f"data/schemas/{kind}.json"))
    return document


@cache
def _chosen(kind: Kind, tolerant: bool) -> Any:
    return _opened(schema(kind)) if tolerant else schema(kind)


def _opened(part: object) -> object:
    """A schema that takes unknown keys and, where it lists texts, any text."""
    if isinstance(part, list):
        return [_opened(item) for item in part]
    if not isinstance(part, dict):
        return part
    closing = {"additionalProperties": False, "enum": part.get("enum")}
    # A kind of record says which keys it has: readers know none but the listed.
    kept = {
        key: value if key == "kind" else _opened(value)
        for key, value in part.items()
        if closing.get(key, key) != value
    }
    return kept | ({"type": "string"} if "enum" in part else {})


_MOST_PROBLEMS = 1000
_LARGE = 1 << 20
_MOST_TEXT = 200


@cache
def _validator(kind: Kind, tolerant: bool) -> Any:
    import jsonschema  # 60 ms, and most commands validate nothing

    extend: Any = jsonschema.validators.extend
    made = extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
    return made(_chosen(kind, tolerant))


def _pattern(
    _validator: object, pattern: str, instance: object, _schema: object
) -> Iterator[ValidationError]:
    """Match as ECMAScript does: no line's end may follow what `$` ends, as Python's lets one."""
    import jsonschema

    ended = re.sub(r"\$$", r"\\Z", pattern)
    if isinstance(instance, str) and not re.search(ended, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


@cache
def _fast_validator(kind: Kind, tolerant: bool) -> jsonschema_rs.Draft202012Validator:
    import jsonschema_rs  # a hundred times as fast, and its sentences are for programmers

    return jsonschema_rs.Draft202012Validator(_chosen(kind, tolerant))


def problems(document: object, kind: Kind, *, tolerant: bool = False) -> list[str]:
    """List the problems of a document, in sentences that name the key and what was expected.

    Where tolerant, keys and values of lists that the schema does not know are none.
    """
    errors = islice(_validator(kind, tolerant).iter_errors(document), _MOST_PROBLEMS)
    return [_sentence(error) for error in sorted(errors, key=_order)]


def check(document: object, kind: Kind, source: str) -> None:
    """Raise InputError for a document that breaks its schema, with the source and the first key."""
    _refuse(problems(document, kind), source)


def check_one_of_many(document: object, kind: Kind, source: str, *, tolerant: bool) -> None:
    """Check a document as check does, fast for a valid one from JSON; tolerant as in problems."""
    fast = _fast_validator(kind, tolerant)
    if not fast.is_valid(document):
        import orjson

        # The last resort is what only the fast one sees, and what the other takes minutes for.
        large = len(orjson.dumps(document)) > _LARGE
        found = [] if large else problems(document, kind, tolerant=tolerant)
        only = islice(fast.iter_errors(document), 1)
        _refuse(found or [f"{_where(e.instance_path)}: {_cut(e.message)}." for e in only], source)


def _refuse(found: list[str], source: str) -> None:
    if found:
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{source}: {found[0]}{more}")


def _where(path: Iterable[object]) -> str:
    return ".".join(_cut(str(key)) for key in path) or "the top level"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{cut(text, _MOST_TEXT)}..."


def _order(error: ValidationError) -> tuple[bool, list[str], bool]:
    """Sort by key, a misspelt one before what lacks it; last what another value asks for."""
    asked_for = {"then", "else"} & set(error.absolute_schema_path)
    known = error.validator != "additionalProperties"
    return bool(asked_for), list(map(str, error.absolute_path)), known


def _sentence(error: Any) -> str:
    where = _where(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        return f"unknown key {quoted(unknown[0])} in {where}; {did_you_mean(unknown[0], known)}"
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
        types = error.validator_value
        expected = types if isinstance(types, str) else " or ".join(types)
        return f"{where} is {quoted(error.instance)}, expected {expected}."
    if error.validator == "enum":
        expected = ", ".join(map(repr, error.validator_value))
        text = quoted(error.instance).strip("'")
        near = nearest(text, filter(None, map(str, error.validator_value)))
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"{where} is {quoted(error.instance)}, expected one of {expected}{hint}"
    if error.validator == "pattern":
        meaning = error.schema.get("description", f"text that matches {error.validator_value}")
        return f"{where} is {quoted(error.instance)}, expected {meaning}"
    # Its message begins with the whole value.
    return f"{where}: {error.message.replace(repr(error.instance), quoted(error.instance))}."
