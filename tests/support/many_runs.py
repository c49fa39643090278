"""Run folders of thousands of runs: the demo's own records, varied; their numbers mean nothing."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from nixwulf.results import record
from nixwulf.results.record import Record

_DEMO = Path(__file__).parents[2] / "examples" / "demo" / "records"
_LENGTHS = (16, 32, 64, 128, 256, 512)


def many_runs(runs: int, repetitions: int = 5, models: int = 4) -> Iterator[Record]:
    """Sealed records: each case on the demo's nodes and fabrics, with a depth of its own.

    Args:
        repetitions: runs of each case; every tenth run failed, each third of those in its own way.
        models: of how many models they are, each a setting of a report.
    """
    known = [json.loads(path.read_text()) for path in sorted(_DEMO.glob("*.json"))]
    for number in range(runs):
        case, repetition = divmod(number, repetitions)
        one = copy.deepcopy(known[case % len(known)])
        variant = case // len(known)
        one["case"]["model"] = one["model"]["name"] = f"model-{variant % models}"
        lengths = {"n_gen": _LENGTHS[variant % len(_LENGTHS)], "depth": variant // len(_LENGTHS)}
        one["case"]["parameters"] |= lengths
        content = {key: value for key, value in one["case"].items() if key != "id"}
        text = json.dumps(content, sort_keys=True)
        one["case"]["id"] = hashlib.sha256(text.encode()).hexdigest()[:12]
        one["id"], one["repetition"] = f"{one['case']['id']}-r{repetition}", repetition
        one["raw"] = [f"raw/{one['id']}/llama-bench.jsonl"]
        for metric in one["metrics"]:
            metric["conditions"]["n_depth"] = lengths["depth"]
            if metric["name"] == "decode":
                metric["conditions"]["n_gen"] = lengths["n_gen"]
        if number % 10 == 9:
            reason = f"llama-bench ended with {number % 30 and number}."
            one |= {"outcome": "failed", "failure": {"phase": "measure", "reason": reason}}
            one["metrics"] = []
        yield record.sealed({key: value for key, value in one.items() if key != "digest"})


def write_many(folder: Path, runs: int, repetitions: int = 5, models: int = 4) -> Path:
    """A run folder of them, without a plan."""
    (folder / "records").mkdir(parents=True)
    for one in many_runs(runs, repetitions, models):
        (folder / "records" / f"{one['id']}.json").write_text(json.dumps(one))
    return folder


if __name__ == "__main__":
    write_many(Path(sys.argv[1]), *map(int, sys.argv[2:]))
