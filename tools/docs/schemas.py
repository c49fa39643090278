"""The files: every key that their schemas know, with what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markdown import code, codes, table

from nixwulf.core.schema import Kind, schema

_PAGES: dict[Kind, tuple[str, str]] = {
    "cluster": ("cluster-file.md", "Cluster file"),
    "sweep": ("sweep-file.md", "Sweep file"),
    "record": ("record.md", "Record"),
    "models": ("models-file.md", "Facts of a model"),
    "platform": ("platform-file.md", "Facts of a platform"),
}
_SCHEMAS = "../../driver/nixwulf/data/schemas"
_KEY = "KEY"
_NAMES = {"fabrics": "FABRIC", "links": "NODE", "models": "MODEL"}


def pages() -> dict[str, str]:
    """A page for each kind of file that somebody writes or reads."""
    return {name: _page(kind, title) for kind, (name, title) in _PAGES.items()}


def _page(kind: Kind, title: str) -> str:
    document = schema(kind)
    rows = _keys(document, document, "")
    note = (
        f"{document['title']}. {document.get('description', '')}\n\n"
        f"`nixwulf validate` checks such a file by [{kind}.json]({_SCHEMAS}/{kind}.json).\n\n"
    )
    return f"# {title}\n\n{note}" + table(["key", "value", "default", ""], rows)


def _keys(root: Mapping[str, Any], part: Mapping[str, Any], path: str) -> Iterator[list[str]]:
    """A row for each key below a part, in the schema's order."""
    required = set(part.get("required", ()))
    for name, raw in part.get("properties", {}).items():
        if raw is False:
            continue
        own = _resolved(root, raw)
        where = f"{path}{name}"
        default = code(json.dumps(own["default"])) if "default" in own else ""
        if name in required:
            default = "required"
        yield [code(where), _values(root, own), default, own.get("description", "")]
        yield from _inside(root, own, where, name)
    for choice in part.get("oneOf", ()):
        if "type" in choice:
            yield from _keys(root, choice, path)


def _inside(
    root: Mapping[str, Any], part: Mapping[str, Any], where: str, name: str
) -> Iterator[list[str]]:
    if part.get("type") == "array":
        items = _resolved(root, part.get("items", {}))
        yield from _keys(root, items, f"{where}[].")
    else:
        yield from _keys(root, part, f"{where}.")
    more = part.get("additionalProperties")
    if isinstance(more, dict):
        key = _NAMES.get(name, _KEY)
        yield from _keys(root, _resolved(root, more), f"{where}.{key}.")


def _resolved(root: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A part with what it refers to below what it says itself."""
    found = dict(part)
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        found = {**root["$defs"][name], **found}
    return found


def _values(root: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    if "const" in part:
        return code(part["const"])
    if "enum" in part:
        return codes(part["enum"])
    kind = part.get("type", "")
    if kind == "array":
        items = _resolved(root, part.get("items", {}))
        return f"list of {_values(root, items) or 'tables'}"
    if kind == "object":
        return ""
    text = " or ".join(kind) if isinstance(kind, list) else kind
    return text + _range(part)


def _range(part: Mapping[str, Any]) -> str:
    least, most = part.get("minimum"), part.get("maximum")
    if "exclusiveMinimum" in part:
        return f" above {part['exclusiveMinimum']}"
    # A bound that only keeps out what is no number is no news.
    if most is not None and most <= 10**6 and least is not None:
        return f" {least} to {most}"
    return f" from {least}" if least is not None else ""
