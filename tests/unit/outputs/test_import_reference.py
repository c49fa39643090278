"""Every reference output that is one of a benchmark comes in with the values its index states.

They are outputs of other people's runs and not in the repository, as in test_reference_outputs.py.
"""

from pathlib import Path

import pytest
import test_reference_outputs as reference

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata, records_of

NO_BENCHMARKS = {"llama-fit-params", "sysfs thunderbolt link", "dmesg", "ethtool"}
TWO_TOOLS = "llama-bench+batched-bench(md doc)"
IMPORTED = [entry for entry in reference.INDEX if entry["tool"] not in NO_BENCHMARKS]
GOOD = [entry for entry in IMPORTED if not reference.FAILURE.search(entry["expected"])]
BAD = [entry for entry in IMPORTED if entry not in GOOD]
NODES = {"sparkjp-llamabench-rpc2-qsfp-qwen3-235b.txt": 2}
"""Where the index knows of the nodes, and the output does not tell."""


def imported(entry, tool=None):
    """The records of a file; on one node where its output does not tell on how many."""
    path = reference.OUTPUTS / entry["file"]
    nodes = NODES.get(entry["file"])
    try:
        return records_of(path, UserMetadata(("generic-x86_64",), nodes), tool)
    except InputError as error:
        if "add --nodes" not in error.format_message():
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
        found[record["case"]["parameters"].get("label")] = value([record], "total_throughput")
    return found


def iperf3(records):
    by_direction = {m["conditions"]["direction"]: m["observed"] for m in metrics(records)}
    forward, reverse = by_direction["forward"], by_direction.get("reverse", {})
    return {
        "sender": forward["sent_gbps"],
        "SUM sender": forward["sent_gbps"],
        "receiver": forward["received_gbps"],
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


def nccl(records):
    (name,) = {m["name"] for m in metrics(records) if m["name"].endswith("_average_bandwidth")}
    bandwidths = metrics(records, name.replace("_average", ""))
    largest = [m for m in bandwidths if m["conditions"]["placement"] == "out-of-place"][-1]
    average = value(records, name) / 8
    return {
        "avg busbw": average,
        "largest": (largest["conditions"]["bytes"], largest["value"] / 8),
    }


def nccl_summary(records):
    found = {}
    for one in metrics(records):
        line = f"{one['name'].removesuffix('_time').replace('all_to_all', 'alltoall')}"
        key = f"{line} {one['conditions']['mode']} rep1"
        found[key] = (*found.get(key, ()), one["samples"][0])
    return found


def compare_eth_vs_rdma(records):
    return {
        record["fabric"]["name"]: tuple(one["value"] for one in record["metrics"])
        for record in records
    }


def torch_all_to_all(records):
    pairs = zip(metrics(records)[::2], metrics(records)[1::2], strict=True)
    return {
        f"bytes {time['conditions']['bytes']} at {time['value']} us": rate["value"]
        for time, rate in pairs
    }


# no output: the readers of each kind of file
VALUES = {
    "llama_bench": llama_bench,
    "llama_batched_bench": llama_batched_bench,
    "llama_benchy": llama_benchy,
    "mtp_bench": mtp_bench,
    "vllm.parse_serve": vllm_serve,
    "vllm.parse_throughput": vllm_throughput,
    "iperf3": iperf3,
    "hpl": hpl,
    "perftest": perftest,
    "nccl": nccl,
    "nccl.parse_summary": nccl_summary,
    "compare_eth_vs_rdma": compare_eth_vs_rdma,
    "torch_all_to_all": torch_all_to_all,
}


def of_file(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"] for entry in entries])


@of_file(GOOD)
def test_a_file_comes_in_with_the_values_that_its_index_states(entry):
    for reader in reference.READERS[entry["tool"]]:
        tool = reader.replace("_", "-") if entry["tool"] == TWO_TOOLS else None
        found, wanted = VALUES[reader](imported(entry, tool)), reference.stated(entry, reader)
        assert wanted
        for key, number in wanted.items():
            only_mean = isinstance(found[key], tuple) and not isinstance(number, tuple)
            assert (found[key][0] if only_mean else found[key]) == pytest.approx(number), key


@of_file(BAD)
def test_a_failed_output_is_one_sentence_that_names_the_file(entry):
    with pytest.raises(InputError) as refused:
        imported(entry)
    message = refused.value.format_message()
    assert Path(message.partition(":")[0]).name == entry["file"]
    assert "\n" not in message


@of_file([entry for entry in reference.INDEX if entry["tool"] in NO_BENCHMARKS])
def test_an_output_without_results_is_refused_by_what_it_is(entry):
    with pytest.raises(InputError, match="in which no benchmark's result stands"):
        imported(entry)


def test_of_a_document_of_two_tools_one_has_to_be_named():
    (entry,) = [entry for entry in reference.INDEX if entry["tool"] == TWO_TOOLS]
    with pytest.raises(InputError, match="'llama-batched-bench' and 'llama-bench'; import each"):
        imported(entry)
