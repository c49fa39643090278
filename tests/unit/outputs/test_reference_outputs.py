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

from nixwulf import outputs
from nixwulf.outputs import ParseError

if "NIXWULF_REFERENCE" not in os.environ:
    pytest.skip("NIXWULF_REFERENCE does not name the reference outputs", allow_module_level=True)

OUTPUTS = Path(os.environ["NIXWULF_REFERENCE"]) / "outputs"
INDEX = list(csv.DictReader((OUTPUTS / "INDEX.csv").open(encoding="utf-8")))
STATED = re.compile(r"([^\s=;][^=;]*?)=(-?[0-9.]+(?:e[-+]?[0-9]+)?)(?:±([0-9.]+))?(?=[\s;]|$)")
IN_WORDS = re.compile(
    r"([A-Za-z][\w/ -]*?) ([0-9]+(?:\.[0-9]+)?)(?: (?:ms|us|GB/s|Gbits/sec|tok/s))?"
)
FAILURE = re.compile(r"must be reported as failure|must not be reported as PASSED")
MOST_LINES = 60

LLAMA_BENCH = ("llama_bench",)
# no output: what an index states of published outputs
READERS = {
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
    "vllm bench serve": ("vllm.parse_serve",),
    "vllm bench serve (json; long arrays cut to 3)": ("vllm.parse_serve",),
    "vllm bench throughput (text)": ("vllm.parse_throughput",),
    "vllm bench throughput (json)": ("vllm.parse_throughput",),
    "sysfs thunderbolt link": ("thunderbolt",),
    "dmesg": ("thunderbolt.parse_log",),
    "ethtool": ("ethtool",),
    "iperf3(text)": ("iperf3",),
    "iperf3(text,-P4)": ("iperf3",),
    "iperf3(text,--bidir)": ("iperf3",),
    "xhpl": ("hpl",),
    "xhpl(full header)": ("hpl",),
    "xhpl(indented, truncated before residual)": ("hpl",),
    "ib_write_bw(--report_gbits,--run_infinitely)": ("perftest",),
    "ib_write_bw(two concurrent, interleaved)": ("perftest",),
    "perftest *_read_lat (warning line between header and row)": ("perftest",),
    "perftest *_lat (single-space columns)": ("perftest",),
    "perftest runner csv (first 34 columns)": ("perftest",),
    "nccl-tests all_gather_perf": ("nccl",),
    "nccl-tests all_reduce_perf (tail, NCCL INFO interleaved)": ("nccl",),
    "rccl-tests summary": ("nccl.parse_summary",),
}
"""A tool, as the index names it, and what reads its outputs: modules, or a function in one."""

MISSING: set[str] = set()
"""Modules that are not there yet: who adds one takes it out here, and its tools are checked."""

WITHOUT_REFERENCE = {"dllama", "exo", "mlx", "ping", "sockperf"}
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


def _vllm_serve(found):
    return {
        "output tok/s": found.output_throughput,
        "mean TTFT": found.mean_ttft_ms,
        "mean TPOT": found.mean_tpot_ms,
        "P99 TPOT": found.p99_tpot_ms,
        "successful": found.completed,
        "output_throughput": found.output_throughput,
        "mean_ttft_ms": found.mean_ttft_ms,
        "mean_tpot_ms": found.mean_tpot_ms,
    }


def _iperf3(flows):
    forward, reverse = flows["forward"], flows.get("reverse")
    found = {
        "sender": forward.sent_gbps,
        "SUM sender": forward.sent_gbps,
        "receiver": forward.received_gbps,
        "retr": forward.retransmits,
    }
    if reverse:
        found |= {"RX-C sender": reverse.sent_gbps, "RX-C receiver": reverse.received_gbps}
    return found


def _perftest(rows):
    first = rows[0]
    found = {"rows": len(rows), "bytes": first.bytes}
    for row in rows:
        if hasattr(row, "typical"):
            found.setdefault(f"typical {row.typical}", (row.average, row.p99))
    if hasattr(first, "typical"):
        return found | {
            "typical": first.typical,
            "avg": first.average,
            "p99": first.p99,
            "p99.9": first.p999,
        }
    return found | {"BW average": first.average_gbps, "BW peak": first.peak_gbps}


# no output: what an index states of published outputs
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
    "vllm.parse_serve": _vllm_serve,
    "vllm.parse_throughput": lambda results: {
        **{result.label: result.total_per_s for result in results},
        "tokens_per_second": round(results[0].total_per_s, 3),
    },
    "thunderbolt": lambda links: {
        f"{device} rx": (link.rx_gbps, link.rx_lanes) for device, link in links.items()
    },
    "thunderbolt.parse_log": lambda hosts: {
        device: (int(host.vendor, 16), int(host.device, 16)) for device, host in hosts.items()
    },
    "ethtool": lambda settings: {"Speed": settings.speed_gbps},
    "iperf3": _iperf3,
    "hpl": lambda solutions: {
        "N": solutions[0].n,
        "NB": solutions[0].nb,
        "P": solutions[0].p,
        "Q": solutions[0].q,
        "time": solutions[0].seconds,
        "Gflops": solutions[0].gflops,
    },
    "perftest": _perftest,
    "nccl": lambda table: {
        "avg busbw": table.average_gbs,
        "largest": (table.rows[-1].bytes, table.rows[-1].out_of_place_gbs),
    },
    "nccl.parse_summary": lambda lines: {
        f"{line.collective} {line.mode} rep1": line.repetitions[0] for line in lines
    },
}
"""For each reader the values that it found, by the names that the index and PROSE give them."""

# no output: what an index states of published outputs
PROSE = {
    "nvidia-ib_write_bw-spark-client1.txt": {"rows": 5, "BW average": 92.57, "BW peak": None},
    "nvidia-ib_write_bw-spark-client2.txt": {"rows": 6, "BW average": 97.28, "BW peak": None},
    "gb10blog-ib_write_bw-two-links-interleaved.txt": {"rows": 2, "BW average": 98.04},
    "hellas-perftest-rxe-tb0.csv.txt": {"rows": 84, "typical 65.28": (65.26, 68.24)},
    "hellas-perftest-rxe-ethernet.csv.txt": {"rows": 84, "typical 24.31": (28.41, 39.37)},
    "hellas-perftest-native4rail.csv.txt": {"rows": 186, "typical 6.94": (7.03, 8.82)},
    "gb10blog-nccl-all_gather_perf-2node.txt": {"largest": (2**34, 23.74)},
    "hellas-rccl-alltoall-4MiB.txt": {"alltoall fallback rep1": (1333.93, 1296.85)},
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
    "hellas-vllm-throughput-smoke.txt": {"single-node": 207.523586028, "Ray TP=2": 10.244564217},
    "hellas-thunderbolt-sysfs-linkspeed.txt": {"0-2 rx": (20.0, 2), "1-2 rx": (10.0, 2)},
    "hellas-dmesg-thunderbolt.txt": {"1-2": (0x1D6B, 0x4)},
    "hellas-ethtool-thunderbolt0.txt": {"Speed": 40.0},
    "hellas-iperf3-tbnet-1stream.txt": {"sender": 9.34, "retr": 0},
    "hellas-iperf3-tbnet-bidir.txt": {
        "sender": 4.17,
        "retr": 80,
        "RX-C sender": 2.40,
        "RX-C receiver": 2.39,
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
    ("hellas-vllm-throughput-smoke.txt", "single"): "the name of a part is in PROSE",
    ("hellas-vllm-throughput-smoke.txt", "Ray TP"): "the name of a part is in PROSE",
}
"""What the index knows of a run and its output does not say."""


def modules():
    """Every module of the package that parses a tool's output, by name."""
    found = {
        info.name: importlib.import_module(f"nixwulf.outputs.{info.name}")
        for info in pkgutil.iter_modules(outputs.__path__)
    }
    return {name: module for name, module in found.items() if hasattr(module, "recognises")}


def module_of(reader):
    return reader.partition(".")[0]


def text_of(entry):
    return (OUTPUTS / entry["file"]).read_text(encoding="utf-8")


def outcome(reader, text):
    """What a reader gives, or its own error."""
    name, _, function = reader.partition(".")
    try:
        return getattr(modules()[name], function or "parse")(text)
    except ParseError as error:
        return error


def of_file(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"] for entry in entries])


READ = [entry for entry in INDEX if module_of(READERS[entry["tool"]][0]) in modules()]
GOOD = [entry for entry in READ if not FAILURE.search(entry["expected"])]


def test_each_tool_of_the_index_has_a_reader():
    assert {entry["tool"] for entry in INDEX} == READERS.keys()


def test_each_module_is_there_or_known_to_be_missing_and_says_what_it_recognises():
    named = {module_of(reader) for readers in READERS.values() for reader in readers}
    assert modules().keys() == (named - MISSING) | WITHOUT_REFERENCE
    assert named >= MISSING
    names = {info.name for info in pkgutil.iter_modules(outputs.__path__) if not info.ispkg}
    assert names - modules().keys() == {"json_text", "last_words", "pipe_table"}


def stated(entry, reader):
    """The values that the index and PROSE state of a file and that its reader has to find."""
    expected = entry["expected"].replace("first row ", "")
    values = {
        name: (float(mean), float(deviation)) if deviation else float(mean)
        for name, mean, deviation in STATED.findall(expected)
    }
    for found in filter(None, map(IN_WORDS.fullmatch, expected.split("; "))):
        values[found[1]] = float(found[2])
    in_words = PROSE.get(entry["file"], {})
    values |= in_words.get(reader, in_words)
    return {k: v for k, v in values.items() if (entry["file"], k) not in NOT_IN_THE_TEXT}


@of_file(GOOD)
def test_a_file_holds_what_the_index_states(entry):
    for name in READERS[entry["tool"]]:
        found, wanted = VALUES[name](outcome(name, text_of(entry))), stated(entry, name)
        assert wanted
        for key, value in wanted.items():
            only_mean = isinstance(found[key], tuple) and not isinstance(value, tuple)
            assert (found[key][0] if only_mean else found[key]) == value, key


@of_file([entry for entry in READ if FAILURE.search(entry["expected"])])
def test_a_run_that_failed_is_reported_as_failure(entry):
    for name in READERS[entry["tool"]]:
        assert isinstance(outcome(name, text_of(entry)), ParseError)


@of_file(READ)
def test_a_file_cut_short_at_any_line_gives_a_result_or_a_parse_error(entry):
    lines = text_of(entry).splitlines(keepends=True)
    ends = range(len(lines) + 1)
    if len(lines) > MOST_LINES:
        ends = random.Random(1).sample(ends, MOST_LINES)  # noqa: S311 - the same ends every time
    for end in ends:
        for name in READERS[entry["tool"]]:
            outcome(name, "".join(lines[:end]))


@of_file(GOOD)
def test_a_file_is_recognised_by_its_own_modules_alone(entry):
    recognised = {name for name, module in modules().items() if module.recognises(text_of(entry))}
    assert recognised == {module_of(reader) for reader in READERS[entry["tool"]]}


@pytest.mark.parametrize("name", modules())
def test_a_parser_takes_every_output_of_every_tool_without_falling(name):
    readers = {reader for readers in READERS.values() for reader in readers}
    for path in sorted(path for path in OUTPUTS.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert modules()[name].recognises(text) in {True, False}
        for reader in readers | {name}:
            if module_of(reader) == name:
                outcome(reader, text)
