"""Hostile values, and ways to put them into documents and bytes: all by a random.Random."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

TEXTS = (
    *(
        "",
        " ",
        "a" * 300,
        "a" * 70_000,
        " " * 70_000,
        "1 " * 9_000,
        "../" * 40,
        "/dev/zero",
        "\x1b[31m",
        "\n",
        "\0",
        "é\u202e",
    ),
    *(
        "=1+1",
        "-rf",
        "--",
        "$(id)",
        "{{7*7}}",
        "<script>",
        "%s%n",
        "0.0.0.0",  # noqa: S104 - a value that is to be refused
        "224.0.0.1",
        "*",
        "|",
    ),
    *(
        "9" * 6000,
        "1e999",
        "nan",
        "0x" + "f" * 5000,
        "9999-99-99",
        "1:2:3:4",
        "null",
        "[",
        "{",
        "#",
    ),
)
NUMBERS = (
    *(0, -1, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 1e-320, 1e308, -1e308),
    *(0.1, 1e15, 65536, True, False),
)


def value(rng: random.Random, depth: int = 0) -> Any:
    """A value that no file should have in a place."""
    kind = rng.randrange(6 if depth < 3 else 4)
    if kind <= 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(TEXTS)
    if kind == 3:
        return None
    many = rng.choice((0, 1, 2, 2, 50))
    if kind == 4:
        return [value(rng, depth + 1) for _ in range(many)]
    return {str(rng.choice(TEXTS))[:99]: value(rng, depth + 1) for _ in range(many)}


def changed(rng: random.Random, document: Any) -> Any:
    """The document with some of its places removed, exchanged or given another value."""
    copy = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = list(places(copy))
        if not found:
            return value(rng)
        branch, key = rng.choice(found)
        what = rng.randrange(5)
        if what == 0:
            del branch[key]
        elif what == 1:
            other, place = rng.choice(found)
            branch[key] = json.loads(json.dumps(other[place]))
        elif what == 2 and isinstance(branch, dict):
            branch[str(rng.choice(TEXTS))] = branch.pop(key)
        else:
            branch[key] = value(rng)
    return copy


def alike(rng: random.Random, document: Any) -> Any:
    """The document with texts and numbers in the place of texts and numbers: most stay valid."""
    copy = json.loads(json.dumps(document))
    found = [(b, k) for b, k in places(copy) if isinstance(b[k], str | int | float)]
    for branch, key in rng.sample(found, min(len(found), rng.choice((1, 2, 4)))):
        old = branch[key]
        if isinstance(old, bool):
            branch[key] = not old
        elif isinstance(old, str):
            branch[key] = rng.choice(TEXTS)
        else:
            numbers = [one for one in NUMBERS if isinstance(one, type(old))]
            branch[key] = rng.choice(numbers)
    return copy


def places(tree: Any) -> Any:
    """Every place of a document: what it is in, and its key there."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from places(tree[key])


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes with some lost, doubled, exchanged, or others between them."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 40))
        what = rng.randrange(6)
        if what == 0:
            del data[at : at + length]
        elif what == 1:
            data[at:at] = data[at : at + length] * rng.choice((1, 2, 300))
        elif what == 2:
            data[at : at + length] = rng.randbytes(length)
        elif what == 3:
            number = rng.choice((0, 1, 8, 9, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
            form = rng.choice(("<I", "<Q", ">I", ">Q"))
            data[at : at + struct.calcsize(form)] = struct.pack(
                form, number % 2 ** (8 * struct.calcsize(form))
            )
        elif what == 4:
            data[at:at] = rng.choice(TEXTS).encode("utf-8", "replace")
        else:
            data = data[:at]
    return bytes(data)


def toml(document: Any) -> str:
    """A table as TOML, all below its keys inline; None is left out."""
    if isinstance(document, dict):
        pairs = (f"{json.dumps(k)} = {toml(v)}" for k, v in document.items() if v is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(document, list):
        return f"[{', '.join(toml(one) for one in document if one is not None)}]"
    return json.dumps(document).replace("\\u007f", "?") if document is not None else '""'
