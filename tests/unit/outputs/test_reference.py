"""Every reference output comes in with the values its index states, or failed as it states.

They are outputs of other people's runs and not in the repository: NIXWULF_REFERENCE names the
folder that has outputs/INDEX.csv.
"""

import csv
import os
import random
import re
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs import ParseError, all_tools, documents
from nixwulf.outputs.described import kind_of
from nixwulf.results.importing import UserMetadata
from tool_outputs import records_of

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

# no output: what an index states of published outputs
PROSE = {
    "nvidia-ib_write_bw-spark-client1.txt": {"rows": 5, "BW average": 92.57, "BW peak": None},
    "nvidia-ib_write_bw-spark-client2.txt": {"rows": 6, "BW average": 97.28, "BW peak": None},
    "gb10blog-ib_write_bw-two-links-interleaved.txt": {"rows": 2, "BW average": 98.04},
    "hellas-perftest-rxe-tb0.csv.txt": {"rows": 84, "typical 65.28": (65.26, 68.24)},
    "hellas-perftest-rxe-ethernet.csv.txt": {"rows": 84, "typical 24.31": (28.41, 39.37)},
    "hellas-perftest-native4rail.csv.txt": {"rows": 186, "typical 6.94": (7.03, 8.82)},
    "gb10blog-nccl-all_gather_perf-2node.txt": {"rows": 6, "largest": (2**34, 23.74)},
    "nccl-allreduce-roce-pod.txt": {"rows": 6, "largest": (2**31, 2.84)},
    "hellas-rccl-alltoall-4MiB.txt": {"alltoall fallback rep1": (1333.93, 1296.85)},
    "kyuz0-mtpbench-qwen3.6-27b-baseline.json.txt": {"avg_tok_s": 6.5, "prompts": 9},
    "llamacpp-batchedbench-spark-gptoss20b.txt": {"rows": 18},
    "llamacpp-batchedbench-spark-qwen25coder7b.txt": {"rows": 18},
    "hellas-pytorch-alltoall.txt": {"bytes 262144 at 156.8 us": 13.37},
    "kyuz0-compare_eth_vs_rdma.txt": {
        "Ethernet (1G LAN)": (74.0, 0.94),
        "Ethernet (RoCE NIC)": (68.0, 55.70),
        "RDMA (RoCE)": (5.23, 50.64),
    },
    "hellas-vllm-throughput-smoke.txt": {"single-node": 207.523586028, "Ray TP=2": 10.244564217},
    "hellas-iperf3-tbnet-1stream.txt": {"sender": 9.34, "retr": 0, "intervals": 3},
    "hellas-iperf3-tbnet-bidir.txt": {
        "sender": 4.17,
        "retr": 80,
        "RX-C sender": 2.40,
        "RX-C receiver": 2.39,
        "intervals": 3,
    },
    "llamacpp-nemotron-spark-md.txt": {
        "llama-bench": {"rows": 20, "pp2048": (2761.90, 19.31)},
        "llama-batched-bench": {"rows": 36, "S_PP": 468.05},
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

NODES = {"sparkjp-llamabench-rpc2-qsfp-qwen3-235b.txt": 2}
"""Where the index knows of the nodes, and the output does not tell."""


def text_of(entry):
    return (OUTPUTS / entry["file"]).read_text(encoding="utf-8")


def tools_of(entry):
    return [name for name, tool in all_tools().items() if tool.recognises(text_of(entry))]


def outcome(name, text):
    """What a tool's reader gives, or its own error."""
    try:
        return [documents(case.metrics) for case in all_tools()[name].read(text)]
    except ParseError as error:
        return error


def imported(entry, tool=None):
    """The records of a file; on one node where its output does not tell on how many."""
    path = OUTPUTS / entry["file"]
    nodes = NODES.get(entry["file"])
    try:
        return records_of(path, UserMetadata(("generic-x86_64",), nodes), tool)
    except InputError as error:
        if "add --nodes" not in error.format_message().lower():
            raise
        return records_of(path, UserMetadata(("generic-x86_64",), 1), tool)


def metrics(records, name=""):
    return [m for record in records for m in record["metrics"] if name in {"", m["name"]}]


def value(records, name):
    (found,) = metrics(records, name)
    return found["value"]


def llama_bench(records):
    found = {"rows": len(metrics(records)), "nodes": records[0]["case"]["nodes"]}
    for one in metrics(records):
        told = one["conditions"]
        test = f"pp{told['n_prompt']}" if told["n_prompt"] else f"tg{told['n_gen']}"
        depth = f" @ d{told['n_depth']}" if told["n_depth"] else ""
        found[test + depth] = (one["value"], one.get("stddev"))
    return found


def llama_batched_bench(records):
    prompts, decodes = metrics(records, "prompt_throughput"), metrics(records, "throughput")
    told = prompts[0]["conditions"]
    sizes = {"PP": told["n_prompt"], "TG": told["n_gen"], "B": told["concurrency"]}
    speeds = {"S_PP": prompts[0]["value"], "S_TG": decodes[0]["value"]}
    return {"rows": len(prompts), **sizes, **speeds}


def llama_benchy(records):
    return {
        f"{'pp' if 'n_prompt' in told else 'tg'}{told.get('n_prompt', told.get('n_gen'))} "
        f"(c{told['concurrency']})": (one["value"], one["stddev"])
        for name in ("prompt_throughput", "throughput")
        for one in metrics(records, name)
        if (told := one["conditions"])
    }


def mtp_bench(records):
    (decode,) = metrics(records, "decode")
    return {"avg_tok_s": round(decode["value"], 1), "prompts": len(decode["samples"])}


def vllm_serve(records):
    (tpot,) = metrics(records, "tpot")
    output, ttft = value(records, "throughput"), value(records, "ttft")
    return {
        "output tok/s": output,
        "output_throughput": output,
        "mean TTFT": ttft,
        "mean_ttft_ms": ttft,
        "mean TPOT": tpot["value"],
        "mean_tpot_ms": tpot["value"],
        "P99 TPOT": tpot["percentiles"]["p99"],
        "successful": tpot["conditions"]["requests"],
    }


def vllm_throughput(records):
    found = {"tokens_per_second": round(metrics(records, "total_throughput")[0]["value"], 3)}
    for record in records:
        found[metrics([record])[0]["conditions"].get("label")] = value([record], "total_throughput")
    return found


def iperf3(records):
    by_direction = {m["conditions"]["direction"]: m["observed"] for m in metrics(records)}
    forward, reverse = by_direction["forward"], by_direction.get("reverse", {})
    return {
        "sender": forward["sent_gbps"],
        "SUM sender": forward["sent_gbps"],
        "receiver": forward["received_gbps"],
        "intervals": len(metrics(records)[0].get("samples", ())),
        "retr": forward.get("retransmits"),
        "RX-C sender": reverse.get("sent_gbps"),
        "RX-C receiver": reverse.get("received_gbps"),
    }


def hpl(records):
    (gflops,) = metrics(records, "gflops")
    told = {key.upper(): number for key, number in gflops["conditions"].items()}
    return {**told, "time": value(records, "time"), "Gflops": gflops["value"]}


def perftest(records):
    found = {"rows": sum(len(one["samples"]) for one in metrics(records))}
    for one in metrics(records, "rdma_bandwidth"):
        seen = {
            "BW average": one["samples"][0],
            "BW peak": one.get("observed", {}).get("peak_gbps"),
        }
        found = {**seen, **found}
    for one in metrics(records, "rdma_latency"):
        seen = one["observed"]
        average, p99, p999 = seen["average_us"], seen["p99_us"], seen["p999_us"]
        first = {"bytes": one["conditions"]["bytes"], "typical": one["value"]}
        found = {**first, "avg": average, "p99": p99, "p99.9": p999, **found}
        found.setdefault(f"typical {one['value']}", (average, p99))
    return found


def collectives(records):
    found = {}
    for one in metrics(records):
        told = one["conditions"]
        if "mode" in told:
            line = one["name"].removesuffix("_time").replace("all_to_all", "alltoall")
            key = f"{line} {told['mode']} rep1"
            found[key] = (*found.get(key, ()), one["samples"][0])
        elif one["name"].endswith("_average_bandwidth"):
            found["avg busbw"] = one["value"] / 8
        elif one["name"].endswith("_algorithm_bandwidth"):
            continue
        elif one["name"].endswith("_bandwidth") and told["placement"] == "out-of-place":
            found["largest"] = (told["bytes"], one["value"] / 8)
            found["rows"] = found.get("rows", 0) + 1
    return found


def compare_eth_vs_rdma(records):
    return {
        record["fabric"]["name"]: tuple(one["value"] for one in record["metrics"])
        for record in records
    }


def torch_all_to_all(records):
    pairs = zip(metrics(records)[::2], metrics(records)[1::2], strict=True)
    return {
        f"bytes {times['conditions']['bytes']} at {time} us": rate
        for times, rates in pairs
        for time, rate in zip(times["samples"], rates["samples"], strict=True)
    }


# no output: what reads the values of each benchmark from its records
VALUES = {
    "compare_eth_vs_rdma": compare_eth_vs_rdma,
    "collectives": collectives,
    "hpl": hpl,
    "iperf3": iperf3,
    "llama-batched-bench": llama_batched_bench,
    "llama-bench": llama_bench,
    "llama-benchy": llama_benchy,
    "mtp-bench": mtp_bench,
    "perftest": perftest,
    "torch-all-to-all": torch_all_to_all,
    "vllm-bench": vllm_serve,
    "vllm-bench-throughput": vllm_throughput,
}
"""The values of records by the names that the index and PROSE give them, by benchmark."""


def stated(entry, tool):
    """The values that the index and PROSE state of a file and that its tool has to find."""
    expected = entry["expected"].replace("first row ", "")
    values = {
        name: (float(mean), float(deviation)) if deviation else float(mean)
        for name, mean, deviation in STATED.findall(expected)
    }
    for found in filter(None, map(IN_WORDS.fullmatch, expected.split("; "))):
        values[found[1]] = float(found[2])
    in_words = PROSE.get(entry["file"], {})
    values |= in_words.get(tool, in_words)
    return {k: v for k, v in values.items() if (entry["file"], k) not in NOT_IN_THE_TEXT}


def of_file(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"] for entry in entries])


WITHOUT_RESULT = [entry for entry in INDEX if kind_of(text_of(entry)) and not tools_of(entry)]
OF_TOOLS = [entry for entry in INDEX if entry not in WITHOUT_RESULT]
GOOD = [entry for entry in OF_TOOLS if not FAILURE.search(entry["expected"])]
BAD = [entry for entry in OF_TOOLS if entry not in GOOD]
SILENT = [entry for entry in BAD if not tools_of(entry) or "hpl" in tools_of(entry)]
(TWO_TOOLS,) = [entry for entry in GOOD if len(tools_of(entry)) > 1]


@of_file(GOOD)
def test_a_file_comes_in_with_the_values_that_its_index_states(entry):
    assert tools_of(entry)
    for tool in tools_of(entry):
        records, wanted = imported(entry, tool), stated(entry, tool)
        found = VALUES[records[0]["case"]["benchmark"]](records)
        assert wanted
        for key, number in wanted.items():
            only_mean = isinstance(found[key], tuple) and not isinstance(number, tuple)
            assert (found[key][0] if only_mean else found[key]) == pytest.approx(number), key


@of_file(BAD)
def test_a_failed_output_is_a_failed_record_or_one_sentence_that_names_the_file(entry):
    """A record where its tool says that it failed, which a table cut off and a container do not."""
    try:
        (record,) = imported(entry)
    except InputError as error:
        assert entry in SILENT
        message = error.format_message()
        assert Path(message.partition(":")[0]).name == entry["file"]
        assert "\n" not in message
        return
    assert entry not in SILENT
    assert (record["outcome"], record["metrics"]) == ("failed", [])
    assert re.search(r"crashed|DeviceLostError", record["failure"]["reason"])


@of_file(WITHOUT_RESULT)
def test_an_output_without_results_is_refused_by_what_it_is(entry):
    with pytest.raises(InputError, match="which has no benchmark's result"):
        imported(entry)


def test_of_a_document_of_two_tools_both_come_in():
    tools = {one["source"]["tool"] for one in imported(TWO_TOOLS)}
    assert tools == {"llama-batched-bench", "llama-bench"}


@pytest.mark.slow
@of_file(INDEX)
def test_a_file_cut_short_at_any_line_gives_a_result_or_a_parse_error(entry):
    lines = text_of(entry).splitlines(keepends=True)
    ends = range(len(lines) + 1)
    if len(lines) > MOST_LINES:
        ends = random.Random(1).sample(ends, MOST_LINES)  # noqa: S311 - the same ends every time
    for end in ends:
        for name in tools_of(entry):
            outcome(name, "".join(lines[:end]))


@of_file([entry for entry in GOOD if entry != TWO_TOOLS])
def test_a_file_is_recognised_by_its_own_tool_alone(entry):
    assert len(tools_of(entry)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", all_tools())
def test_a_reader_takes_every_output_of_every_tool_without_falling(name):
    for path in sorted(path for path in OUTPUTS.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert all_tools()[name].recognises(text) in {True, False}
        outcome(name, text)
