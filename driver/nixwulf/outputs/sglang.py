"""sglang's bench_serving: a pass of requests, as its JSON lines and as printed.

https://github.com/sgl-project/sglang/blob/main/python/sglang/bench_serving.py
"""

from __future__ import annotations

import re
from dataclasses import replace

from nixwulf.outputs import Found, ParseError, Tool, vllm
from nixwulf.outputs.vllm import HEADS, RESULTS, SGLANG, parse_serve, served

ENGINE = "sglang"
_TOOL = "sglang.bench_serving"
_BACKEND = re.compile(r"^ *Backend: +(\S+)", re.MULTILINE)


def recognises(text: str) -> bool:
    """The end-to-end latency, which it has by a name of its own."""
    return any(mark in text for mark in SGLANG)


def read(text: str) -> list[Found]:
    """The pass; its backend shows whether the server was sglang's too."""
    if not recognises(text):
        raise ParseError("it is a result of vLLM's client; add --tool vllm-bench.")
    found = parse_serve(text, cut=True)
    backend = _BACKEND.search(text)
    if backend and not found.backend:
        found = replace(found, backend=backend[1])
    return [served(text, found, "sglang-bench", _TOOL, (ENGINE, vllm.ENGINE))]


_FAILED = Found("sglang-bench", ())
TOOL = Tool("sglang-bench", recognises, read, heads=HEADS, results=RESULTS, failed=_FAILED)
