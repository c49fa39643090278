"""Every file of the reference outputs parses to what its index states, or fails as it states.

They are outputs of other people's runs and not in the repository: NIXWULF_REFERENCE names the
folder that has outputs/INDEX.csv.
"""

import csv
import importlib
import os
import pkgutil
import random
import re
from pathlib import Path

import pytest

from nixwulf import parsers
from nixwulf.parsers import ParseError

if "NIXWULF_REFERENCE" not in os.environ:
    pytest.skip("NIXWULF_REFERENCE does not name the reference outputs", allow_module_level=True)

OUTPUTS = Path(os.environ["NIXWULF_REFERENCE"]) / "outputs"
INDEX = list(csv.DictReader((OUTPUTS / "INDEX.csv").open(encoding="utf-8")))
STATED = re.compile(r"([^\s=;][^=;]*?)=(-?[0-9.]+(?:e[-+]?[0-9]+)?)(?:±([0-9.]+))?(?=[\s;]|$)")
FAILURE = "must be reported as failure"
MOST_LINES = 60

LLAMA_BENCH = ("llama_bench",)
PARSERS = {
    "llama-bench(failed)": LLAMA_BENCH,
    "llama-bench(md)": LLAMA_BENCH,
    "llama-bench(md,rpc)": LLAMA_BENCH,
    "llama-bench(md, dev column)": LLAMA_BENCH,
    "llama-bench(md,rpc, dev column)": LLAMA_BENCH,
    "llama-bench(md,rpc, log lines between rows)": LLAMA_BENCH,
    "llama-batched-bench": ("llama_batched_bench",),
    "llama-bench+batched-bench(md doc)": ("llama_bench", "llama_batched_bench"),
    "llama-benchy(md)": ("llama_benchy",),
    "llama-fit-params": ("llama_fit_params",),
    "mtp-bench(json)": ("mtp_bench",),
    "compare_eth_vs_rdma.sh (ping+iperf3+perftest wrapper)": ("compare_eth_vs_rdma",),
    "torch all_to_all_single": ("torch_all_to_all",),
}
"""A tool, as the index names it, and the modules that read its outputs."""

MISSING = {
    "iperf3(text)",
    "iperf3(text,-P4)",
    "iperf3(text,--bidir)",
    "sysfs thunderbolt link",
    "ethtool",
    "dmesg",
    "perftest runner csv (first 34 columns)",
    "perftest *_read_lat (warning line between header and row)",
    "perftest *_lat (single-space columns)",
    "ib_write_bw(--report_gbits,--run_infinitely)",
    "ib_write_bw(two concurrent, interleaved)",
    "vllm bench throughput (text)",
    "vllm bench throughput (json)",
    "vllm bench serve",
    "vllm bench serve (json; long arrays cut to 3)",
    "rccl-tests summary",
    "nccl-tests all_gather_perf",
    "nccl-tests all_reduce_perf (tail, NCCL INFO interleaved)",
    "xhpl",
    "xhpl(full header)",
    "xhpl(indented, truncated before residual)",
}
"""Tools that no module reads yet."""

WITHOUT_REFERENCE: set[str] = set()
"""Modules whose tools have no output among the reference."""


def _llama_bench(rows):
    found = {row.test: (row.mean, row.deviation) for row in rows}
    servers = {row.rpc_servers for row in rows}
    return found | {"rows": len(rows), "nodes": None if servers == {None} else 1 + max(servers)}


def _batched_bench(tables):
    first = tables[0].rows[0]
    return {
        "rows": sum(len(table.rows) for table in tables),
        "PP": first.n_prompt,
        "TG": first.n_gen,
        "B": first.sequences,
        "S_PP": first.prompt,
        "S_TG": first.decode,
    }


VALUES = {
    "llama_bench": _llama_bench,
    "llama_batched_bench": _batched_bench,
    "llama_benchy": lambda found: {row.test: row.speed for row in found.rows},
    "llama_fit_params": lambda rows: {f"{row.device} self": row.own for row in rows},
    "mtp_bench": lambda found: {"avg_tok_s": round(found.decode, 1), "prompts": len(found.prompts)},
    "compare_eth_vs_rdma": lambda paths: {
        path.name: (path.latency_us, path.gbps) for path in paths
    },
    "torch_all_to_all": lambda results: {
        f"bytes {result.size} at {result.time_us} us": result.gbps for result in results
    },
}
"""For each module the values that it found, by the names that the index and PROSE give them."""

PROSE = {
    "kyuz0-mtpbench-qwen3.6-27b-baseline.json.txt": {"avg_tok_s": 6.5, "prompts": 9},
    "llamacpp-batchedbench-spark-gptoss20b.txt": {"rows": 18},
    "llamacpp-batchedbench-spark-qwen25coder7b.txt": {"rows": 18},
    "hellas-pytorch-alltoall.txt": {"bytes 262144 at 156.8 us": 13.37},
    "bridge-llama-fit-params-q8.txt": {"CUDA0 self": 58557, "Host self": 54087},
    "kyuz0-compare_eth_vs_rdma.txt": {
        "Ethernet (1G LAN)": (74.0, 0.94),
        "Ethernet (RoCE NIC)": (68.0, 55.70),
        "RDMA (RoCE)": (5.23, 50.64),
    },
    "llamacpp-nemotron-spark-md.txt": {
        "llama_bench": {"rows": 20, "pp2048": (2761.90, 19.31)},
        "llama_batched_bench": {"rows": 36, "S_PP": 468.05},
    },
}
"""What the index states in words, and of the document with two tools what each finds in it."""

NOT_IN_THE_TEXT = {
    ("sparkjp-llamabench-rpc2-qsfp-qwen3-235b.txt", "nodes"): "no line names an RPC server",
    ("hellas-pytorch-alltoall.txt", "e.g. bytes"): "one of several lines, in PROSE",
}
"""What the index knows of a run and its output does not say."""


def modules():
    """Every module of the package that parses a tool's output, by name."""
    found = {
        info.name: importlib.import_module(f"nixwulf.parsers.{info.name}")
        for info in pkgutil.iter_modules(parsers.__path__)
    }
    return {name: module for name, module in found.items() if hasattr(module, "parse")}


def text_of(entry):
    return (OUTPUTS / entry["file"]).read_text(encoding="utf-8")


def outcome(name, text):
    """What a module's parser gives, or its own error."""
    module = modules()[name]
    assert module.recognises(text) in {True, False}
    try:
        return module.parse(text)
    except ParseError as error:
        return error


def of_file(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"] for entry in entries])


READ = [entry for entry in INDEX if entry["tool"] in PARSERS]
GOOD = [entry for entry in READ if FAILURE not in entry["expected"]]


def test_each_tool_of_the_index_is_read_by_a_module_or_known_to_be_missing():
    assert {entry["tool"] for entry in INDEX} - PARSERS.keys() == MISSING
    assert not MISSING & PARSERS.keys()


def test_each_parser_module_is_named_here():
    named = {name for names in PARSERS.values() for name in names}
    assert modules().keys() == named | WITHOUT_REFERENCE
    assert VALUES.keys() == named


@of_file(GOOD)
def test_a_file_holds_what_the_index_states(entry):
    stated = {
        name: (float(mean), float(deviation)) if deviation else float(mean)
        for name, mean, deviation in STATED.findall(entry["expected"].replace("first row ", ""))
    }
    in_words = PROSE.get(entry["file"], {})
    assert stated or in_words
    for name in PARSERS[entry["tool"]]:
        found = VALUES[name](outcome(name, text_of(entry)))
        for key, value in {**stated, **in_words.get(name, in_words)}.items():
            if (entry["file"], key) not in NOT_IN_THE_TEXT:
                only_mean = isinstance(found[key], tuple) and not isinstance(value, tuple)
                assert (found[key][0] if only_mean else found[key]) == value, key


@of_file([entry for entry in READ if FAILURE in entry["expected"]])
def test_a_run_that_failed_is_reported_as_failure(entry):
    for name in PARSERS[entry["tool"]]:
        assert isinstance(outcome(name, text_of(entry)), ParseError)


@of_file(READ)
def test_a_file_cut_short_at_any_line_gives_a_result_or_a_parse_error(entry):
    lines = text_of(entry).splitlines(keepends=True)
    ends = range(len(lines) + 1)
    if len(lines) > MOST_LINES:
        ends = random.Random(1).sample(ends, MOST_LINES)  # noqa: S311 - the same ends every time
    for end in ends:
        for name in PARSERS[entry["tool"]]:
            outcome(name, "".join(lines[:end]))


@of_file(GOOD)
def test_a_file_is_recognised_by_its_own_modules_alone(entry):
    recognised = {name for name, module in modules().items() if module.recognises(text_of(entry))}
    assert recognised == set(PARSERS[entry["tool"]])


@pytest.mark.parametrize("name", modules())
def test_a_parser_takes_every_output_of_every_tool_without_falling(name):
    for path in sorted(OUTPUTS.rglob("*")):
        if path.is_file():
            outcome(name, path.read_text(encoding="utf-8", errors="replace"))
