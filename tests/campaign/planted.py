"""Private texts planted in every free field of a record: what of them 'publish' lets through.

    python tests/campaign/planted.py

prints each that leaves, and how many of how many did.
"""

from __future__ import annotations

import copy
import json
import random
import re
import string
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from nixwulf.plugins import benchmarks, engines
from nixwulf.results import record
from nixwulf.results.publish.scrub import publication
from nixwulf.results.store import Entry, RunFolder
from record_factory import case, failed, plan

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "x": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
}
_CLUSTER = {
    "name": "desk",
    "nodes": [
        {"name": "kestrel", "ssh": "carol@kestrel.lan"},
        {"name": "kestrel-2", "ssh": "192.168.9.2"},
    ],
}
FIELDS: tuple[tuple[str | int, ...], ...] = (
    ("failure", "reason"),
    ("failure", "hint"),
    ("warnings", 0),
    ("nodes", 0, "log_tail"),
    ("nodes", 1, "facts", "cpu"),
    ("nodes", 0, "facts", "new", "deep", 0),
    ("nodes", 0, "facts", "KEY"),
    ("commands", 0, "argv", 1),
    ("commands", 0, "environment", "EXTRA_ARGS"),
    ("commands", 0, "environment", "KEY"),
    ("engine", "version"),
    ("engine", "origin"),
    ("case", "parameters", "extra"),
    ("model", "name"),
    ("gates", 0, "sentences", 0),
)


def texts(seed: int = 1) -> list[tuple[str, tuple[str, ...]]]:
    """Each text, with what of it may not be left."""
    rng = random.Random(seed)  # noqa: S311 - the same texts for the same seed
    groups = [each for name, each in _groups().items() if name != "stay"]
    return [_filled(rng, text, tuple(p)) for each in groups for text, p in each.items()]


def public() -> list[str]:
    """Texts like private ones that readers need."""
    return _groups()["stay"]["texts"]


def _groups() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("planted.toml").read_text("utf-8"))


def _filled(rng: random.Random, text: str, private: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    for mark in re.findall(r"<[axubd]\d+>", text):
        made = "".join(rng.choices(_ALPHABETS[mark[1]], k=int(mark[2:-1])))
        if mark[1] == "b":  # base64 of many bytes has all of its alphabet
            made = f"aZ9{made[3:]}"
        text = text.replace(mark, made, 1)
        private = tuple(p.replace(mark, made) for p in private)
    return text, private


def _base() -> dict[str, Any]:
    document = failed(case(2), "hang", reason="silent", hint="look", log_tail="last")
    document["cluster"] = {"name": "desk", "platforms": ["dgx-spark"], "lab": False}
    for node, name in zip(document["nodes"], ("kestrel", "kestrel-2"), strict=True):
        node |= {"name": name, "platform": "dgx-spark"}
        node["facts"]["new"] = {"deep": ["x"]}
    for command in document["commands"]:
        command["node"] = "kestrel"
        command["environment"] = {}
    for link in document.get("fabric", {}).get("links", ()):
        link |= {"from": "kestrel", "to": "kestrel-2"}
    document["warnings"] = ["mind"]
    document["gates"] = [
        {"gate": "clock", "node": "kestrel", "state": "waived", "sentences": ["It is late."]}
    ]
    return document


def planted(text: str, field: tuple[str | int, ...]) -> dict[str, Any]:
    """A record with a text in a field; KEY is a name that the text itself is."""
    document = copy.deepcopy(_base())
    target: Any = document
    for step in field[:-1]:
        target = target[step]
    if field[-1] == "KEY":
        target[text] = "up"
    else:
        target[field[-1]] = text
    return record.sealed(document)


def published(document: dict[str, Any]) -> str:
    """All that others would see of a record."""
    run = RunFolder(None, (Entry(None, document),), {**plan([]), "cluster": {"document": _CLUSTER}})  # type: ignore[arg-type]
    made = publication(run, (*engines.all_engines(), *benchmarks.all_benchmarks()))
    text = json.dumps(made.records, ensure_ascii=False) + made.readme() + made.name
    return text.lower()


def leaks(
    chosen: list[tuple[str, tuple[str, ...]]], fields: Any = FIELDS
) -> Iterator[tuple[str, str, str]]:
    """Each private part that is left: the field, the text, and the part."""
    for text, private in chosen:
        for field in fields:
            seen = published(planted(text, field))
            for part in private:
                if part.lower() in seen:
                    yield ".".join(map(str, field)), text, part
                    break


def main() -> int:
    """Plant all of them everywhere; 1 where one leaves."""
    every = texts()
    found = list(leaks(every))
    for place, text, part in found:
        print(f"{place}: {part!r} of {text!r}")
    print(f"{len(found)} of {len(every) * len(FIELDS)} left, {len(every)} texts")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
