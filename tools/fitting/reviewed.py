"""Rows of results/published/numbers.csv in the words that published.py reads.

There a row has columns of its own for what the first table had in its note: parameters, conditions
and what was observed, each as key=value;key=value.
"""

from __future__ import annotations

from collections.abc import Mapping

_METRICS = {"decode": "tg", "prompt": "pp", "tpot": "tpot_ms", "gflops": "hpl_gflops"}
_WORDS = {
    "concurrency": "concurrency {}",
    "requests": "num_prompts={}",
    "n_ubatch": "ub={}",
    "speculative": "speculative {}",
    "drafts": "num_spec={}",
    "acceptance_percent": "acceptance {}%",
    "eager": "eager",
    "graphs": "graphs",
    "all_reduce": "{}",
}


def plain(row: Mapping[str, str]) -> dict[str, str]:
    """A row with the columns and the words of the first table; one that has them stays as it is."""
    if "machine" not in row:
        return dict(row)
    words = [row["note"]]
    for column in ("parameters", "conditions", "observed"):
        for pair in filter(None, (row.get(column) or "").split(";")):
            key, _, value = pair.partition("=")
            if key in _WORDS and value not in {"off", "no"}:
                words.append(_WORDS[key].format(value))
            if (key, value.lower()) in {("device", "cpu"), ("backend", "cpu")}:
                words.append("on CPU")
    if row.get("n_depth") not in {"", "0", None}:
        words.append(f"depth={row['n_depth']}")
    metric = _METRICS.get(row["metric"], row["metric"])
    if metric in {"throughput", "total_throughput"}:
        # A whole run's, but llama.cpp's batched bench and llama-benchy count decoding alone.
        words += ["output tok/s"] if row.get("benchmark") == "generation" else []
        words += ["total"] if metric == "total_throughput" else []
        metric = "tput_agg"
    return dict(row) | {"platform": row["machine"], "metric": metric, "note": "; ".join(words)}
