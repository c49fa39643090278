"""Measure how long nixwulf.load takes, and by_case after it, for growing numbers of records.

Usage: .venv/bin/python tools/measure_load.py [NUMBER...]      (1000 10000 100000)

Makes the records, 8 kB each as the lab's are, in a temporary folder ($TMPDIR; 1 GB for 100,000),
three repetitions of each case, and reads them in a process of its own. Limits for 100,000: 60 s and
2 GiB.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests", "tests/support"))

from nixwulf.results import record  # noqa: E402
from record_factory import case, ok  # noqa: E402

READ = """
import resource, sys, time
import nixwulf
from nixwulf.results.table import by_case
begin, cpu = time.perf_counter(), time.process_time()
table = nixwulf.load(sys.argv[1])
loaded, loaded_cpu = time.perf_counter() - begin, time.process_time() - cpu
begin = time.perf_counter()
cases = by_case(table)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f"{loaded:.1f} s ({loaded_cpu:.1f} s CPU), {len(table)} rows; "
      f"by_case {time.perf_counter() - begin:.1f} s, {len(cases)} rows; {peak:.2f} GiB at most")
"""
FACTS = {
    f"firmware_{number}": f"version 1.2.{number} of a part of the machine" for number in range(12)
}
TOKENS = list(range(1000, 1064))


def records() -> Iterator[record.Record]:
    """Records without end: every combination of coordinates, then longer prompts."""
    source = random.Random(1)  # noqa: S311 - no secrets
    links = [(1, "lan", "single"), *product((2, 4), ("lan", "far"), ("pipeline", "tensor"))]
    for step in count(1):
        for model, engine, link in product(range(60), ("llama.cpp", "vllm", "mlx"), links):
            of = case(*link, model=f"model-{model}", engine=engine, parameters={"n_prompt": step})
            for repetition in range(3):
                speeds = {
                    name: [typical * source.uniform(0.9, 1.1) for _ in range(5)]
                    for name, typical in (("prompt", 900.0), ("decode", 40.0))
                }
                yield filled(ok(of, speeds, repetition=repetition))


def filled(plain: record.Record) -> record.Record:
    """With what the records of the lab have besides: facts, a text, counters, an environment."""
    document: dict[str, Any] = json.loads(json.dumps(plain))
    for node in document["nodes"]:
        node["facts"] |= FACTS
    for command in document["commands"]:
        command["environment"] = {"LD_LIBRARY_PATH": "/nix/store/" + "x" * 200}
    names = [node["name"] for node in document["nodes"]]
    document["sanity"] = {
        "text": {"agrees": True, "expected": TOKENS, "observed": TOKENS},
        "transport": {"proved": True, "bytes": dict.fromkeys(names, 123456789)},
    }
    return record.sealed(document)


def write(folder: Path, number: int) -> float:
    """Write the first records, in run folders of a thousand; gives their mean size, kB."""
    size = 0
    for index, one in zip(range(number), records(), strict=False):
        file = folder / f"run-{index // 1000}" / "records" / f"{one['id']}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        size += file.write_text(json.dumps(one, indent=1) + "\n")
    return size / number / 1000


if __name__ == "__main__":
    for number in map(int, sys.argv[1:] or ("1000", "10000", "100000")):
        with tempfile.TemporaryDirectory() as folder:
            kilobytes = write(Path(folder), number)
            done = subprocess.run(
                [sys.executable, "-c", READ, folder], check=True, capture_output=True, text=True
            )
        print(f"load: {number} records of {kilobytes:.1f} kB: {done.stdout.strip()}", flush=True)
