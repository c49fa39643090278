"""vllm bench serve and vllm bench throughput, as JSON and as printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.outputs import ParseError
from nixwulf.outputs import vllm as parser
from nixwulf.outputs.importers import ANY, ONE, Found, Tool, metric, model_of
from nixwulf.outputs.vllm import ServeResult, Throughput

_MS_A_SECOND = 1000.0
_ONE_NODE = re.compile(r"(single|one)[ -]node", re.IGNORECASE)


def _read(text: str) -> list[Found]:
    found = parser.parse(text)
    if isinstance(found, ServeResult):
        return [_serve(found)]
    return [_throughput(one) for one in found]


TOOL = Tool("vllm-bench", parser, _read)


def _serve(found: ServeResult) -> Found:
    """The client of any server: only its own backend's name tells that the server is vLLM."""
    if not found.completed:
        raise ParseError(f"vllm bench serve completed no request, and {found.failed} failed.")
    failed = (f"Of {found.completed + found.failed} requests {found.failed} failed.",)
    return Found(
        "vllm-bench",
        list(_metrics(found)),
        engine={"name": "vllm"} if found.backend == "vllm" else {},
        model=model_of(found.model),
        warnings=failed if found.failed else (),
    )


def _metrics(found: ServeResult) -> Iterator[Mapping[str, Any]]:
    conditions = {
        "requests": found.completed + found.failed,
        "concurrency": found.concurrency,
        "request_rate": found.request_rate,
    }
    seen = {"input_tokens": found.input_tokens, "output_tokens": found.output_tokens}
    samples = {
        "ttft": found.ttfts_ms if len(found.ttfts_ms) == found.completed else (),
        "itl": [gap for answer in found.itls_ms for gap in answer]
        if len(found.itls_ms) == found.completed
        else (),
    }
    for name in sorted({*found.times_ms, *(name for name, own in samples.items() if own)}):
        kept, times = samples.get(name, ()), found.times_ms.get(name, {})
        spread = {key: times[key] for key in ("p50", "p95", "p99") if key in times}
        yield metric(
            name,
            "ms",
            None if kept else times["mean"],
            samples=kept,
            spread=True,
            percentiles=spread if not kept and len(spread) == 3 else None,  # noqa: PLR2004
            conditions=conditions,
            observed={f"{key}_ms": value for key, value in spread.items() if key == "p99"},
        )
    if found.mean_tpot_ms > 0:
        decode = _MS_A_SECOND / found.mean_tpot_ms
        yield metric("decode", "tok/s", decode, conditions=conditions)
    throughput, rate = found.output_throughput, found.request_throughput
    yield metric("throughput", "tok/s", throughput, conditions=conditions, observed=seen)
    yield metric("request_throughput", "req/s", rate, conditions=conditions)


def _throughput(found: Throughput) -> Found:
    """Its tokens are those of prompts too, which is no speed of decoding."""
    return Found(
        "vllm-bench-throughput",
        [
            metric("total_throughput", "tok/s", found.total_per_s, conditions={}),
            metric("request_throughput", "req/s", found.requests_per_s, conditions={}),
            metric("duration", "s", found.elapsed_s, conditions={}),
        ],
        nodes=ONE if _ONE_NODE.search(found.label) else ANY,
        parameters={"label": found.label} if found.label else {},
        engine={"name": "vllm"},
    )
