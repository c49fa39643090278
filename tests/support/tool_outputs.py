"""Outputs of tools for the tests of their parsers: fixtures, and other people's where there are."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from nixwulf.results.importing import reading_of

FIXTURES = Path("tests/fixtures")
DESCRIBED = tomllib.loads(Path("tests/support/closing_lines.toml").read_text())


def fixture(name):
    return (FIXTURES / name).read_text()


def records_of(path, metadata, tool=None, on_unread=lambda sentence: None):
    """The records of a file; on_unread gets a sentence for each run that has none."""
    reading = reading_of(path, metadata, tool)
    for sentence in reading.unread:
        on_unread(f"{path}: {sentence}")
    return list(reading.records)


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


# hand-made: iperf 2 is no program of the driver
# (form: https://sourceforge.net/p/iperf2/code/ci/master/tree/doc/)
IPERF2 = """\
------------------------------------------------------------
Client connecting to 10.77.1.12, TCP port 5001
TCP window size: 85.0 KByte (default)
------------------------------------------------------------
[  3] local 10.77.1.11 port 41874 connected with 10.77.1.12 port 5001
[  4] local 10.77.1.11 port 41876 connected with 10.77.1.12 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 1.0 sec  0.54 GBytes  4.60 Gbits/sec
[  4]  0.0- 1.0 sec  0.55 GBytes  4.80 Gbits/sec
[SUM]  0.0- 1.0 sec  1.09 GBytes  9.40 Gbits/sec
[  3]  0.0-10.0 sec  5.40 GBytes  4.62 Gbits/sec
[  4]  0.0-10.0 sec  5.50 GBytes  4.74 Gbits/sec
[SUM]  0.0-10.0 sec  10.9 GBytes  9.36 Gbits/sec
"""
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
# hand-made: sglang wants a GPU (form: benchmark() in
# https://github.com/sgl-project/sglang/blob/0033168/python/sglang/bench_serving.py)
SGLANG = """\
benchmark_args=Namespace(backend='sglang', base_url=None, host='0.0.0.0', model='/models/tiny')

============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    4.0
Max request concurrency:                 not set
Successful requests:                     3
Benchmark duration (s):                  4.00
Total input tokens:                      384
Total generated tokens:                  96
Total generated tokens (retokenized):    95
Request throughput (req/s):              0.75
Input token throughput (tok/s):          96.00
Output token throughput (tok/s):         24.00
Total token throughput (tok/s):          120.00
Concurrency:                             1.50
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   2000.00
Median E2E Latency (ms):                 1990.00
---------------Time to First Token----------------
Mean TTFT (ms):                          50.00
Median TTFT (ms):                        49.00
P99 TTFT (ms):                           60.00
---------------Inter-Token Latency----------------
Mean ITL (ms):                           40.00
Median ITL (ms):                         39.00
P95 ITL (ms):                            43.00
P99 ITL (ms):                            44.00
Max ITL (ms):                            45.00
==================================================
"""
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
BATCHED = fixture("llama-cpp-tools/batched-bench.txt")
# hand-made: it wants a server, a tokenizer and a book from the network
# (form: https://github.com/eugr/llama-benchy/blob/2b506eb/README.md)
BENCHY = """| model | test         |            t/s |   peak t/s |       ttfr (ms) |
|:------|-------------:|---------------:|-----------:|----------------:|
| small | pp64 @ d4096 | 900.50 ± 10.25 |            |   153.26 ± 4.35 |
| small | tg8 @ d4096  |   46.47 ± 0.35 | 48.0 ± 0.0 |                 |

llama-benchy (0.3.1)
"""
# hand-made: a script of other people's that wants a server with speculation (form:
# https://github.com/kyuz0/amd-strix-halo-toolboxes, benchmark/results-mtp)
MTP = json.dumps(
    {
        "model": "small",
        "mode": "baseline",
        "spec_flags": "(none)",
        "results": [
            {
                "name": name,
                "wall_s": 3.0,
                "predicted_n": 20,
                "predicted_per_second": speed,
                "draft_n": 0,
                "draft_n_accepted": 0,
            }
            for name, speed in (("one", 6.0), ("two", 7.0))
        ],
    },
    indent=1,
)
# hand-made: its RDMA half wants two RDMA devices (form: https://github.com/kyuz0/
# amd-strix-halo-vllm-toolboxes/blob/345168f/rdma_cluster/setup_guide.md)
PATHS = """Path                 Latency      Bandwidth
-------------------------------------------
Ethernet (LAN)       0.074 ms     0.94 Gbps
RDMA (RoCE)          5.23 us      50.64 Gbps
"""
# hand-made: a script of other people's that wants two GPUs and is not published (form:
# https://github.com/hellas-ai/thunderbolt-ibverbs/blob/eca80ec/results/2026-05-25-therock-vllm-usb4-pytorch-smoke.md)
ALL_TO_ALL = "rank 0: all_to_all_single bytes=4096: 20.5 us/iter (3.20 Gb/s logical/rank)\n"
# hand-made: no Mac is at hand (form: ping(8) of macOS)
MACOS = """\
PING 10.77.1.12 (10.77.1.12): 56 data bytes
64 bytes from 10.77.1.12: icmp_seq=0 ttl=64 time=0.042 ms
Request timeout for icmp_seq 1
64 bytes from 10.77.1.12: icmp_seq=2 ttl=64 time=1.020 ms

--- 10.77.1.12 ping statistics ---
3 packets transmitted, 2 packets received, 33.3% packet loss
round-trip min/avg/max/stddev = 0.042/0.531/1.020/0.489 ms
"""


def by_name(record):
    """The metrics of a record, each the last of its name."""
    return {metric["name"]: metric for metric in record["metrics"]}
