"""Run folders that somebody else changed and sealed again: their digests are right.

An input is the text of a plan and of its records; FOLDERS are what they are made of. Most are JSON
with a digest that is right; some are no such text at all.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

from fuzz_running import ROOT, command
from fuzz_values import alike, changed, places

from nixwulf.core.errors import NixwulfError
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import load_cluster, parse_cluster
from nixwulf.results.record import sealed
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep
from record_factory import failed, metric, ok

FOLDERS = (
    ("smoke", "lab"), ("endpoint", "lab"), ("lab/delays", "lab"), ("lab/session", "lab"),
    ("hpl", "framework-2"), ("llama-options", "framework-4"), ("serve", "framework-2"),
    ("vllm", "dgx-spark-2"), ("links", "dgx-spark-3"), ("mlx", "mac-studio-4"),
    ("quality", "fa-ex9-2"), ("speculative", "ms-s1-max-4"), ("session", "mini-3"),
    ("distributed-llama", "pi-cm5-4"), ("seeds/framework-4", "framework-4"),
    ("seeds/ms-s1-max-4", "ms-s1-max-4"),
)  # fmt: skip
_RECORDS = 3
_KNOWN = 0.4
_LATER = 0.3
READERS = (
    ("validate", "run"), ("report", "run"), ("report", "run", "--format", "md"),
    ("report", "run", "--format", "csv"), ("explain", "run"), ("compare", "run", "run"),
    ("site", "run", "--out", "site"),
    ("publish", "run", "--lab", "--out", "public"),
    ("bench", "--resume", "run", "--dry-run"), ("reproduce", "--resume", "run", "--dry-run"),
    ("reproduce", "run", "--cluster", str(ROOT / "clusters/lab.toml"), "--dry-run"),
)  # fmt: skip
_READ = 4
"""Of the readers, for each input."""
# What no writer of JSON makes: it stands in the place of a value of a text that is sealed.
_RAW = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 6000, b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000, b'"\\ud800"', b'"\xff\xfe"', b'"\x00"', b"",
    b"01", b"0x1", b"'a'", b"\xef\xbb\xbf1", b"// a\n1", b"1,",
)  # fmt: skip
_PLACEHOLDER = "put-it-here-3b9d"
# Keys of a cluster that were found to matter, and what is put there; None: the key is taken away.
_OF_A_CLUSTER: tuple[tuple[str, Any], ...] = (
    *(("lab", {"nodes": count}) for count in (0, 1, 257, 65537, 200_000_000, 2**63 - 1)),
    *((key, None) for key in ("name", "mtu", "kind", "subnet", "address", "interface", "platform")),
    *((key, []) for key in ("nodes", "fabrics", "name", "ssh", "lab")),
    *((key, value) for key in ("mtu", "speed_gbps") for value in (0, -1, 2**63 - 1, 1e308, "9k")),
    *(("subnet", text) for text in ("0.0.0.0/0", "::/0", "10.0.0.0/99", "10.0.0.1", "", "é")),
    *(("address", text) for text in ("10.0.0.0/8", "::1", "", "é", "9" * 400)),
)  # fmt: skip

Documents = list[bytes]
"""The text of a plan, and of its records after it."""


def seal_again(document: Any) -> Any:
    """The document with the digest of what it has become; as it is where it can have none."""
    if not isinstance(document, Mapping):
        return document
    return sealed({key: value for key, value in document.items() if key != "digest"})


@cache
def _whole(sweep: str, cluster: str) -> str:
    path = str(ROOT / f"sweeps/{sweep}.yaml")
    plan = make_plan(load_sweep(path), load_cluster(str(ROOT / f"clusters/{cluster}.toml")))
    cases = [case.document() for case in plan.cases[:_RECORDS]]
    ends = [
        failed(case, log_tail="a line\n" * 3)
        if number == _RECORDS - 1
        else ok(case, [metric("prompt", [2600.0, 2650.0]), metric("decode", [410.0, 420.0])])
        for number, case in enumerate(cases)
    ]
    return json.dumps([plan.document(), *ends])


def make(rng: random.Random) -> Documents:
    """A run folder of which one document is another, with digests that are right."""
    sweep, cluster = rng.choice(FOLDERS)
    made: list[Any] = json.loads(_whole(sweep, cluster))
    change: Callable[[random.Random, Any], Any] = rng.choice((alike, alike, changed, _raw))
    which = rng.choice((0, 0, 0, *range(1, len(made))))
    part = rng.choice(("sweep", "cluster", "", "")) if which == 0 else ""
    if not part:
        made[which] = change(rng, made[which])
    else:
        change = _of_a_cluster if part == "cluster" and rng.random() < _KNOWN else change
        made[0][part]["document"] = change(rng, made[0][part]["document"])
        made[0] = _planned_again(made[0])
    for document in made[1:]:  # of a later version lists of texts have any
        if isinstance(document, dict) and rng.random() < _LATER:
            document["schema_version"] = "1.9"
    texts = [json.dumps(seal_again(document)).encode() for document in made]
    raw = rng.choice(_RAW)
    return [text.replace(json.dumps(_PLACEHOLDER).encode(), raw) for text in texts]


def _raw(rng: random.Random, document: Any) -> Any:
    """The document with a mark in the place of a value, for what no writer of JSON makes."""
    copy = json.loads(json.dumps(document))
    branch, key = rng.choice(list(places(copy)))
    branch[key] = _PLACEHOLDER
    return copy


def _of_a_cluster(rng: random.Random, document: Any) -> Any:
    """The cluster with another value wherever a key stands, or at its top."""
    key, value = rng.choice(_OF_A_CLUSTER)
    copy = json.loads(json.dumps(document))
    there = [branch for branch, name in places(copy) if name == key] or [copy]
    for branch in rng.choice((there, [rng.choice(there)])):
        if value is None:
            branch.pop(key, None)
        else:
            branch[key] = value
    return copy


def _planned_again(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan with the cases that follow from what it is made of, where there are any.

    What is no such fault is left for the readers to find.
    """
    with suppress(Exception):
        sweep = parse_sweep(plan["sweep"]["document"], plan["sweep"]["source"])
        with suppress(NixwulfError):
            # As who reads a file does: of what has no bound this process itself would be filled.
            check(plan["cluster"]["document"], "cluster", "")
            cluster = parse_cluster(plan["cluster"]["document"], plan["cluster"]["source"])
            return make_plan(sweep, cluster).document()
    return plan


def run(documents: Documents, folder: Path) -> None:
    """Give the folder to some of the readers, the same for the same input."""
    records = folder / "run" / "records"
    records.mkdir(parents=True)
    plan, *ends = documents
    (folder / "run" / "plan.json").write_bytes(plan)
    for number, record in enumerate(ends):
        (records / f"{number:012}-r0.json").write_bytes(record)
    for arguments in random.Random(b"".join(documents)).sample(READERS, _READ):  # noqa: S311
        command(folder, *arguments)
