"""llama-bench: prompt processing and decode speed of llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.outputs.llama_bench import LlamaBenchRow, metric, parse
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.plugins.runtime.run import Run, RunFailure, failure_of

_CONDITIONS = frozenset({"n_batch", "n_ubatch", "n_threads", "type_k", "type_v"})


class LlamaBench(Benchmark):
    """llama-bench with its JSON lines, which keep the finished rows when it crashes.

    `prompt` and `decode` (tok/s), `samples` repetitions of each in one process, which warms up once
    by itself.
    """

    name = "llama-bench"
    parameters: ClassVar = parameters_of("llama-bench")
    engines = (ENGINE.name,)

    def measure(self, run: Run) -> list[Metric]:
        """Run it once with all samples; raises RunFailure or ParseError without both."""
        case, values = run.case, run.case.parameters
        argv = [run.program("llama-bench"), *ENGINE.bench_arguments(run)]
        argv += ["-p", str(values["n_prompt"]), "-n", str(values["n_gen"])]
        argv += ["-d", str(values["depth"]), "-r", str(case.samples)]
        argv += ["-o", "jsonl", "--progress", *([] if case.warm_up else ["--no-warmup"])]
        environment = ENGINE.environment(run, run.head)
        process = run.execute(run.head, "llama-bench", argv, environment)
        if process.returncode != 0:
            raise failure_of(process, "llama-bench")
        rows = parse(process.output)
        if rows[0].build_commit:
            run.engine_facts["build_commit"] = rows[0].build_commit
        wanted = (values["n_prompt"] > 0) + (values["n_gen"] > 0)
        if len(rows) != wanted:
            raise RunFailure(f"llama-bench gave {len(rows)} results, expected {wanted}.")
        for row in rows:
            ENGINE.require_devices(run, row.details)
        began = run_times(process.errors, process.stderr_times)
        state = "warm" if case.warm_up else "cold"
        return [
            replace(
                metric(row, _CONDITIONS, state), windows=windows(row, began.get(row.metric, ()))
            )
            for row in rows
        ]


BENCHMARK = LlamaBench()


def run_times(text: str, times: Sequence[float]) -> dict[str, list[float]]:
    """When each sample began, by metric: --progress has a line at that moment."""
    began: dict[str, list[float]] = {"prompt": [], "decode": []}
    for line, moment in zip(text.splitlines(), times, strict=False):
        match = re.search(r"benchmark \d+/\d+: (prompt|generation) run \d+/\d+", line)
        if match:
            began["prompt" if match[1] == "prompt" else "decode"].append(moment)
    return began


def windows(row: LlamaBenchRow, began: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """When each sample was measured; none where not all that is known of every one."""
    took = row.details.get("samples_ns")
    if not isinstance(took, list) or len(began) != len(took):
        return ()
    ends = (begin + nanoseconds / 1e9 for begin, nanoseconds in zip(began, took, strict=True))
    return tuple(zip(began, ends, strict=True))
