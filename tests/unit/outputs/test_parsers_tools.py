"""The parsers of llama.cpp's other tools and of other people's scripts."""

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import (
    ParseError,
    compare_eth_vs_rdma,
    llama_batched_bench,
    llama_benchy,
    llama_fit_params,
    mtp_bench,
    torch_all_to_all,
)
from tool_outputs import fixture

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
FIT = fixture("llama-cpp-tools/fit-params.txt")
EXAMPLES = {
    llama_batched_bench: BATCHED,
    llama_benchy: BENCHY,
    mtp_bench: MTP,
    compare_eth_vs_rdma: PATHS,
    torch_all_to_all: ALL_TO_ALL,
    llama_fit_params: FIT,
}


def test_batched_bench_gives_its_rows_and_the_options_it_states():
    (run,) = llama_batched_bench.parse(BATCHED)
    assert run.options["n_kv_max"] == 1024
    assert run.options["n_gpu_layers"] == -1
    assert [(row.sequences, row.n_prompt, row.n_gen, row.n_kv) for row in run.rows] == [
        (1, 100, 20, 120),
        (2, 100, 20, 240),
    ]
    for row in run.rows:
        assert row.prompt_s == pytest.approx(100 * row.sequences / row.prompt, abs=0.00051)
        assert row.decode_s == pytest.approx(20 * row.sequences / row.decode, abs=0.00051)
        assert row.total_s == pytest.approx(row.prompt_s + row.decode_s, abs=0.002)


def test_two_runs_of_batched_bench_in_one_document_stay_apart():
    assert [len(run.rows) for run in llama_batched_bench.parse(BATCHED * 2)] == [2, 2]


def test_benchy_without_concurrencies_is_of_one_request():
    found = llama_benchy.parse(BENCHY)
    assert found.version == "0.3.1"
    prompt, decode = found.rows
    assert (prompt.metric, prompt.tokens, prompt.depth, prompt.concurrency) == (
        *("prompt", 64, 4096, 1),
    )
    assert prompt.columns["ttfr (ms)"] == (153.26, 4.35)
    assert (decode.metric, decode.speed) == ("decode", (46.47, 0.35))


def test_mtp_bench_gives_the_mean_over_its_prompts():
    found = mtp_bench.parse(MTP)
    assert (found.model, found.mode, found.decode) == ("small", "baseline", 6.5)


def test_paths_have_their_latency_in_microseconds():
    ethernet, rdma = compare_eth_vs_rdma.parse(PATHS)
    assert (ethernet.name, ethernet.latency_us, ethernet.gbps) == ("Ethernet (LAN)", 74.0, 0.94)
    assert (rdma.latency_us, rdma.gbps) == (5.23, 50.64)


def test_a_path_whose_tool_failed_is_refused_by_its_line():
    with pytest.raises(ParseError, match=r"line 3: 'Ethernet \(LAN\)       N/A"):
        compare_eth_vs_rdma.parse(PATHS.replace("0.074 ms", "N/A     "))


def test_all_to_all_gives_time_and_rate():
    (found,) = torch_all_to_all.parse(ALL_TO_ALL)
    assert (found.size, found.time_us, found.gbps) == (4096, 20.5, 3.2)


def test_a_memory_breakdown_tells_the_host_from_devices():
    gpu, host = llama_fit_params.parse(FIT)
    assert (gpu.device, gpu.description[:14]) == ("Vulkan0", "llvmpipe (LLVM")
    assert gpu.description.endswith(" bits)"), "a name may have parentheses"
    projected = re.search(r"projected to use (\d+) MiB .* vs\. (\d+) MiB", FIT)
    assert (gpu.own, gpu.free) == tuple(map(int, projected.groups()))
    assert gpu.own == pytest.approx(gpu.model + gpu.context + gpu.compute, abs=2)
    assert gpu.total > gpu.free
    assert host.own == pytest.approx(host.model + host.context + host.compute, abs=2)
    assert (host.device, host.total) == ("Host", None)


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__.split(".")[-1])
def test_a_parser_recognises_its_own_tool_and_no_other(module):
    assert [text for text in EXAMPLES.values() if module.recognises(text)] == [EXAMPLES[module]]


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__.split(".")[-1])
def test_an_output_that_failed_gives_the_line_that_says_why(module):
    for name in ("batched-bench", "fit-params"):
        with pytest.raises(ParseError) as raised:
            module.parse(fixture(f"llama-cpp-tools/{name}-no-model.txt"))
        if module in {llama_batched_bench, llama_fit_params}:
            assert "line 1 says" in raised.value.message
            assert "failed to open GGUF file 'm/none.gguf'" in raised.value.message


@given(
    module=st.sampled_from(list(EXAMPLES)), text=st.text(), at=st.floats(0, 1), to=st.floats(0, 1)
)
def test_any_text_gives_a_result_or_a_parse_error(module, text, at, to):
    whole = EXAMPLES[module]
    cut, end = sorted((int(len(whole) * at), int(len(whole) * to)))
    for damaged in (text, whole[:cut], whole[:cut] + text + whole[end:]):
        module.recognises(damaged)
        with contextlib.suppress(ParseError):
            assert module.parse(damaged)
