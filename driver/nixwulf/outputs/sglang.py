"""sglang's bench_serving: a pass of requests, as its JSON lines and as printed.

https://github.com/sgl-project/sglang/blob/main/python/sglang/bench_serving.py
"""

import re
from dataclasses import replace

from nixwulf.outputs import Found, ParseError, Tool, vllm

ENGINE = "sglang"
_BACKEND = re.compile(r"^ *Backend: +(\S+)", re.MULTILINE)


def recognises(text: str) -> bool:
    """The end-to-end latency, which it has by a name of its own."""
    return any(mark in text for mark in vllm.SGLANG)


def read(text: str) -> list[Found]:
    """The pass; its backend shows whether the server was sglang's too."""
    if not recognises(text):
        raise ParseError("it is a result of vLLM's client; add --tool vllm-bench.")
    found, backend = vllm.parse_serve(text, cut=True), _BACKEND.search(text)
    if backend and not found.backend:
        found = replace(found, backend=backend[1])
    engines = (ENGINE, vllm.ENGINE)
    return [vllm.served(text, found, "sglang-bench", "sglang.bench_serving", engines)]


TOOL = Tool("sglang-bench", recognises, read, failed=Found("sglang-bench", ()))
