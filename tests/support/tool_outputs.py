"""Outputs of tools for the tests of their parsers: fixtures, and other people's where there are."""

import os
from pathlib import Path

import pytest

FIXTURES = Path("tests/fixtures")


def fixture(name):
    return (FIXTURES / name).read_text()


def reference(name):
    """An output that others published; it is not in the repository."""
    folder = os.environ.get("NIXWULF_REFERENCE")
    if not folder:
        pytest.skip("NIXWULF_REFERENCE names no folder with the published outputs")
    return Path(folder, "outputs", name).read_text(errors="replace")


def truncations(text):
    """The text cut after every line, and once in the middle of each."""
    lines = text.splitlines(keepends=True)
    for count, line in enumerate(lines):
        before = "".join(lines[:count])
        yield before
        yield before + line[: len(line) // 2]
    yield text


IPERF3 = fixture("iperf3/client.txt")
PERFTEST = fixture("perftest/read.txt")
# hand-made: no GPU for vLLM is at hand
# (form: https://github.com/vllm-project/vllm/blob/1a91bc2/vllm/benchmarks/serve.py)
VLLM = {
    "backend": "vllm",
    "model_id": "/home/alice/models/tiny",
    "max_concurrency": 2,
    "request_rate": "inf",
    "completed": 3,
    "failed": 1,
    "duration": 4.0,
    "total_input_tokens": 384,
    "total_output_tokens": 96,
    "request_throughput": 0.75,
    "output_throughput": 24.0,
    "mean_ttft_ms": 50.0,
    "median_ttft_ms": 49.0,
    "p95_ttft_ms": 59.0,
    "p99_ttft_ms": 60.0,
    "mean_tpot_ms": 40.0,
    "p99_tpot_ms": 44.0,
    "ttfts": [0.04, 0.05, 0.06],
    "itls": [[0.03, 0.05], [0.04, 0.04], [0.04, 0.04]],
}
# hand-made: no two GPUs are at hand
# (form: https://github.com/NVIDIA/nccl-tests/blob/d2d40cc/src/common.cu)
NCCL = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid   1 on  n1 device  0 [0f:01:00] GPU
#  Rank  1 Group  0 Pid   2 on  n2 device  0 [0f:01:00] GPU
n1:1:1 [0] NCCL INFO NET/IB : Using [0]device:1/RoCE
    1024    256   float   sum   -1   26.5   0.04   0.04   0   26.1   0.04   0.05   0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.045
"""
# hand-made: no Macs are at hand on which exo places a model
# (form: https://github.com/exo-explore/exo/blob/v1.0.71/bench/exo_bench.py)
EXO_ROW = {
    "elapsed_s": 2.5,
    "model_id": "mlx-community/Llama-3.3-70B-Instruct-4bit",
    "placement_sharding": "Tensor",
    "placement_instance_meta": "MlxJaccl",
    "placement_nodes": 2,
    "concurrency": 1,
    "stats": {
        "prompt_tokens": 512,
        "generation_tokens": 128,
        "prompt_tps": 700.5,
        "generation_tps": 14.25,
        "peak_memory_usage": {"inBytes": 40_000_000_000},
    },
}
