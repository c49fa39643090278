"""llama-benchy: speeds and times of any OpenAI-compatible endpoint, by concurrency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.outputs import llama_benchy as parser
from nixwulf.outputs.importers import Found, Tool, metric, model_of, told_apart
from nixwulf.outputs.llama_benchy import LlamaBenchyRow

_MS = {"ttfr (ms)": "ttfr", "est_ppt (ms)": "prompt_time", "e2e_ttft (ms)": "ttft"}
# By what a test measures: of all requests together, and of each.
_SPEEDS = {
    "prompt": {
        "t/s (total)": "prompt_throughput",
        "t/s (req)": "prompt",
        "t/s": "prompt",
        "peak t/s": "peak_prompt_throughput",
        "peak t/s (req)": "peak_prompt",
    },
    "decode": {
        "t/s (total)": "throughput",
        "t/s (req)": "decode",
        "t/s": "decode",
        "peak t/s": "peak_throughput",
        "peak t/s (req)": "peak_decode",
    },
}


def _read(text: str) -> list[Found]:
    found = parser.parse(text)
    rows: dict[str, list[LlamaBenchyRow]] = {}
    for row in found.rows:
        rows.setdefault(row.model, []).append(row)
    note = f"llama-benchy {found.version}" if found.version else ""
    return [
        Found(
            "llama-benchy",
            told_apart(one for row in own for one in _metrics(row)),
            model=model_of(model),
            note=note,
        )
        for model, own in rows.items()
    ]


TOOL = Tool("llama-benchy", parser, _read)


def _metrics(row: LlamaBenchyRow) -> Iterator[Mapping[str, Any]]:
    conditions = {
        "n_prompt" if row.metric == "prompt" else "n_gen": row.tokens,
        "n_depth": row.depth,
        "concurrency": row.concurrency,
        "context": True if row.test.startswith("ctx_") else None,
    }
    speeds = _SPEEDS[row.metric]
    for column, (mean, deviation) in row.columns.items():
        name = speeds.get(column) or _MS.get(column)
        if name:
            unit = "tok/s" if column in speeds else "ms"
            yield metric(name, unit, mean, stddev=deviation, conditions=conditions)
