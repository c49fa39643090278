"""A cluster file as TOML with comments: `tomllib` reads back the document that it was made of."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from nixwulf.core.text import clean
from nixwulf.ops.survey.draft import Draft, Place

_WIDTH = 118
_HEAD = (
    "What the machines reported to 'nixwulf cluster new'. Prices, meters and [deploy] are yours to "
    "add: docs/reference/cluster-file.md."
)


def render(draft: Draft) -> str:
    """The text of a cluster file, with a comment above what it is of."""
    document = draft.document
    lines = [*_comment([_HEAD]), f"name = {_value(document['name'])}", "", *_nothing(draft)]
    for name, fabric in document["fabrics"].items():
        lines += _comment(draft.notes.get(("fabrics", name), ()))
        lines += [f"[fabrics.{_key(name)}]", *_keys(fabric, ("fabrics", name), draft.notes), ""]
    for index, node in enumerate(document["nodes"]):
        place: Place = ("nodes", index)
        own = {key: value for key, value in node.items() if key != "fabrics"}
        lines += ["[[nodes]]", *_keys(own, place, draft.notes)]
        lines += _comment(draft.notes.get((*place, "disk"), ()), whole=True)
        for key, end in node.get("fabrics", {}).items():
            lines += _ends(f"fabrics.{_key(key)}", end)
        lines.append("")
    if draft.left_out:
        lines += [*_comment(["Left out, and why:"]), *_comment(draft.left_out)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _nothing(draft: Draft) -> list[str]:
    """The empty table of fabrics, which the file has to have."""
    if draft.document["fabrics"]:
        return []
    lines = _comment(["No two of these nodes reach each other on a wire: below is why."])
    return [*lines, "[fabrics]", ""]


def _keys(
    table: Mapping[str, Any], place: Place, notes: Mapping[Place, tuple[str, ...]]
) -> Iterable[str]:
    for key, value in table.items():
        yield from _comment(notes.get((*place, key), ()))
        yield f"{_key(key)} = {_value(value)}"


def _comment(texts: Iterable[str], *, whole: bool = False) -> list[str]:
    """Comments of texts, each on lines of its own; whole: a line is not broken, however long."""
    lines = []
    for text in texts:
        plain = " ".join(clean(text).split()) if not whole else clean(text).replace("\n", " ")
        parts = [plain] if whole else textwrap.wrap(plain, _WIDTH, break_on_hyphens=False)
        lines += [f"# {part}" for part in parts]
    return lines


def _ends(path: str, place: Mapping[str, Any]) -> list[str]:
    """A node's place on a network, or its end of each cable: a port, or a list of them."""
    if "links" not in place:
        return [f"{path} = {_inline(place)}"]
    lines = []
    for node, end in place["links"].items():
        to = f"{path}.links.{_key(node)}"
        if isinstance(end, list):
            lines += [f"{to} = [", *(f"  {_inline(port)}," for port in end), "]"]
        else:
            lines.append(f"{to} = {_inline(end)}")
    return lines


def _inline(table: Mapping[str, Any]) -> str:
    return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in table.items())} }}"


def _key(name: str) -> str:
    bare = name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return name if bare else _value(name)


def _value(value: Any) -> str:
    """A text, a number or a list of them: JSON's forms are TOML's but for one character."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
