"""What outputs of tools become: the names, units and conditions of this driver's benchmarks."""

import json
import re
import statistics

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs import ParseError
from nixwulf.outputs.importers import all_tools, metric
from nixwulf.results.importing import UserMetadata, records_of
from tool_outputs import EXO_ROW, FIXTURES, IPERF3, NCCL, PERFTEST, VLLM, fixture

SAID = UserMetadata(("generic-x86_64",))
(COMMIT,) = re.findall(r"commit (\w+)", fixture("llama-bench/version.txt"))


def rates(text):
    """Gbit/s of each of its lines."""
    return [int(rate) / 1e6 for rate in re.findall(r"(\d+) Kbits/sec", text)]


@pytest.fixture
def records(tmp_path):
    """The records of a text, or of one of our fixtures by its name."""

    def read(text, said=SAID, tool=None):
        path = FIXTURES / text
        if "\n" in text or text.startswith("{"):
            path = tmp_path / "output.txt"
            path.write_text(text)
        return records_of(path, said, tool)

    return read


def by_name(record):
    return {metric["name"]: metric for metric in record["metrics"]}


def test_each_parser_of_a_benchmark_has_its_import():
    assert all_tools().keys() == {
        *("compare_eth_vs_rdma", "distributed-llama", "exo-bench", "hpl", "iperf3"),
        *("llama-batched-bench", "llama-bench", "llama-benchy", "mlx_lm.benchmark", "mtp-bench"),
        *("nccl-tests", "perftest", "ping", "sockperf", "torch-all-to-all", "vllm-bench"),
    }


@pytest.mark.parametrize("form", ["md", "csv", "json", "jsonl", "sql"])
def test_llama_bench_in_any_form_is_four_metrics_with_the_conditions_of_the_benchmark(
    records, form
):
    (record,) = records(f"llama-bench/two-depths.{form}")
    case = record["case"]
    assert (case["engine"], case["benchmark"]) == ("llama.cpp", "llama-bench")
    assert (case["nodes"], case["parallelism"], case["parameters"]) == (1, "single", {})
    assert record["engine"] == {
        "name": "llama.cpp",
        "build_commit": COMMIT,
        "backends": "CPU",
    }
    assert record["model"]["name"] == "llama ?B F16"
    assert record["model"]["weights"] == "F16"
    told = [(m["name"], m["unit"], m["conditions"]["n_depth"]) for m in record["metrics"]]
    assert told == [
        ("prompt", "tok/s", 0),
        ("decode", "tok/s", 0),
        ("prompt", "tok/s", 32),
        ("decode", "tok/s", 32),
    ]
    assert record["metrics"][0]["conditions"]["n_prompt"] == 16
    assert record["metrics"][0]["conditions"]["n_threads"] == 1
    assert "stddev" in record["metrics"][0]
    assert ("samples" in record["metrics"][0]) == (form in {"json", "jsonl"})


def test_llama_bench_says_what_its_json_alone_knows(records):
    (record,) = records("llama-bench/two-depths.json")
    assert record["model"] == {
        "name": "llama ?B F16",
        "file": "tiny.gguf",
        "bytes": 11804160,
        "parameters": 5506944,
        "architecture": "llama",
        "weights": "F16",
    }
    samples = json.loads(fixture("llama-bench/two-depths.json"))[0]["samples_ts"]
    assert record["metrics"][0]["samples"] == samples
    assert record["metrics"][0]["value"] == pytest.approx(sum(samples) / 2)


def test_rows_of_other_settings_or_of_another_number_of_servers_are_told_apart(records):
    # hand-made: no machine with CUDA is at hand, and columns are what differs here
    # (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/tools/llama-bench/README.md)
    head = "| model | size | params | backend | fa | dev | test | t/s |\n"
    # hand-made: as above (form: the same README)
    row = "| llama 7B Q4_0 | 3.56 GiB | 6.74 B | {} | {} | {} | tg32 | {} ± 0.1 |\n"
    text = head + row.format("CUDA,RPC", 0, "CUDA0", 50) + row.format("CUDA,RPC", 1, "CUDA0", 55)
    text += row.format("CUDA,RPC", 1, "CUDA0/RPC0", 40)
    (two,) = [r for r in records(text, UserMetadata(("dgx-spark",), 1)) if r["case"]["nodes"] == 2]
    assert (two["case"]["parallelism"], two["metrics"][0]["value"]) == ("pipeline", 40.0)
    (one,) = [r for r in records(text, UserMetadata(("dgx-spark",), 1)) if r["case"]["nodes"] == 1]
    speeds = {m["conditions"]["flash_attn"]: m["value"] for m in one["metrics"]}
    assert speeds == {0: 50.0, 1: 55.0}


def test_a_setting_that_differs_between_rows_of_json_is_a_condition(records):
    line = fixture("llama-bench/two-depths.jsonl").splitlines()[0]
    other = line.replace('"poll": 50', '"poll": 0')
    # no output: two lines of a fixture
    (record,) = records(f"{line}\n{other}\n")
    assert [m["conditions"].get("poll") for m in record["metrics"]] == [50, 0]
    (record,) = records(f"{line}\n")
    assert "poll" not in record["metrics"][0]["conditions"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -3.0, 0.0])
def test_no_number_that_is_none_gets_into_a_metric(number):
    with pytest.raises(ParseError, match=r"^decode is .* tok/s, expected a "):
        metric("decode", "tok/s", number, conditions={})
    with pytest.raises(ParseError):
        metric("decode", "tok/s", samples=[5.0, number], conditions={})
    if number:
        with pytest.raises(ParseError):
            metric("decode", "tok/s", 5.0, stddev=number, conditions={})


def test_of_very_many_samples_a_thousand_are_kept_evenly():
    found = metric("round_trip", "us", samples=range(1, 100_001), spread=True, conditions={})
    assert len(found["samples"]) == 1000
    assert (found["samples"][0], found["samples"][-1]) == (1, 99_901)
    assert found["percentiles"]["p50"] == pytest.approx(50_000, rel=0.01)


def test_equal_rows_are_passes_and_not_lost(records):
    *head, row, _, _ = fixture("llama-bench/two-servers.md").splitlines(keepends=True)
    (record,) = records(
        "".join([*head, row, row]), UserMetadata(("lab",), nodes=2, transport="tcp")
    )
    assert [m["conditions"].get("pass") for m in record["metrics"]] == [None, 2]


def test_what_was_printed_before_a_crash_is_told_of(records):
    said = UserMetadata(("lab",), nodes=2, transport="tcp")
    (record,) = records("llama-bench/rpc-server-killed.json", said)
    assert record["warnings"] == ["llama-bench ended before its end, after these results."]
    assert record["cluster"]["lab"]
    (record,) = records("mlx/mlx.ring2.killed.r0.txt", UserMetadata(("lab",), nodes=2))
    assert "ended before all trials" in record["warnings"][0]


def test_iperf3_of_several_streams_tells_them_and_what_arrived(records):
    (record,) = records("iperf3/4-streams.json")
    case = record["case"]
    assert (case["nodes"], case["transport"]) == (2, "tcp")
    assert case["parameters"] == {"streams": 4, "direction": "forward", "seconds": 2}
    (metric,) = record["metrics"]
    assert (metric["name"], metric["unit"], metric["state"]) == ("bandwidth", "Gbit/s", "cold")
    end = json.loads(fixture("iperf3/4-streams.json"))["end"]
    received, sent = (end[f"sum_{it}"]["bits_per_second"] / 1e9 for it in ("received", "sent"))
    observed = metric["observed"]
    assert (observed["received_gbps"], observed["sent_gbps"]) == pytest.approx(
        (received, sent), abs=1e-6
    )
    sums = [
        interval["sum"] for interval in json.loads(fixture("iperf3/4-streams.json"))["intervals"]
    ]
    mean = statistics.fmean(each["bits_per_second"] / 1e9 for each in sums)
    # The sender's intervals are no samples where more than 1 % of them was still in buffers.
    in_buffers = abs(mean - received) > 0.01 * received
    assert ("samples" in metric) is not in_buffers
    assert metric["value"] == pytest.approx(received if in_buffers else mean, abs=1e-6)


def test_iperf3_both_ways_is_a_metric_each_way_with_its_intervals(records):
    (record,) = records("iperf3/both-ways.json")
    directions = {m["conditions"]["direction"]: m for m in record["metrics"]}
    assert directions.keys() == {"forward", "reverse"}
    # Beside an omitted interval, iperf3 3.12 may print one of milliseconds.
    lasted = [
        interval["sum"]["seconds"]
        for interval in json.loads(fixture("iperf3/both-ways.json"))["intervals"]
        if not interval["sum"]["omitted"]
    ]
    whole = [seconds for seconds in lasted if seconds > 0.25]
    assert len(directions["reverse"]["samples"]) == len(whole) > 2
    assert record["case"]["parameters"]["direction"] == "bidir"


def test_text_of_iperf3_tells_as_much_as_its_json(records):
    (record,) = records(IPERF3)
    assert record["case"]["parameters"] == {"streams": 1, "direction": "forward", "seconds": 2}
    (metric,) = record["metrics"]
    first, second, sent, received = rates(IPERF3)
    assert metric["samples"] == [first, second]
    assert metric["conditions"] == {"direction": "forward", "interval_s": 1.0}
    (retransmits,) = re.findall(r"(\d+) +sender", IPERF3)
    assert metric["observed"] == {
        "sent_gbps": sent,
        "received_gbps": received,
        "retransmits": int(retransmits),
    }


def test_intervals_with_one_left_out_are_no_samples(records):
    whole = re.sub(r"0\.00-2\.0\d", "0.00-3.00", IPERF3)
    (record,) = records(whole.replace("1.00-2.00", "2.00-3.00"))
    (metric,) = record["metrics"]
    received = rates(IPERF3)[-1]
    assert (metric["value"], "samples" in metric) == (received, False)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("to-itself", "connected a machine to itself"), ("udp", "was of UDP")],
)
def test_iperf3_of_one_machine_or_of_udp_is_refused(records, name, sentence):
    with pytest.raises(InputError, match=sentence):
        records(f"iperf3/{name}.txt")


def test_round_trips_keep_their_samples_and_percentiles(records):
    (ping,) = records("ping/replies.txt")
    metric = by_name(ping)["ping_round_trip"]
    assert ping["case"]["benchmark"] == "latency"
    assert metric["conditions"] == {"bytes": 64}
    assert (len(metric["samples"]), metric["percentiles"]["p99"]) == (20, max(metric["samples"]))
    (sockperf,) = records("sockperf/tcp.txt")
    metric = by_name(sockperf)["tcp_round_trip"]
    logged = len(re.findall(r"^\d+, ", fixture("sockperf/tcp.txt"), re.MULTILINE))
    assert (metric["state"], metric["observed"]) == ("warm", {"observations": logged})
    assert sockperf["case"]["transport"] == "tcp"


@pytest.mark.parametrize(("file", "nodes"), [("one-node", 1), ("two-nodes", 2), ("four-nodes", 4)])
def test_distributed_llama_tells_its_nodes(records, file, nodes):
    (record,) = records(f"dllama/{file}.txt")
    case = record["case"]
    assert (case["engine"], case["benchmark"], case["nodes"]) == (
        "distributed-llama",
        "dllama",
        nodes,
    )
    assert case["parallelism"] == ("tensor" if nodes > 1 else "single")
    assert case["parameters"].keys() == {"n_prompt", "n_gen"}
    assert {"prompt", "decode"} <= by_name(record).keys()
    assert ("sync_share" in by_name(record)) == (nodes > 1)


def test_mlx_launch_tells_nodes_transport_parallelism_and_model(records):
    (record,) = records("mlx/mlx.launch.ring2.txt")
    case = record["case"]
    assert (case["nodes"], case["transport"], case["parallelism"]) == (2, "tcp", "tensor")
    assert case["model"] == "m/llama"
    assert case["parameters"] == {"n_prompt": 32, "n_gen": 32}
    printed = re.findall(r"Trial .*generation_tps=([\d.]+)", fixture("mlx/mlx.launch.ring2.txt"))
    assert by_name(record)["decode"]["samples"] == list(map(float, printed))
    assert by_name(record)["peak_memory"]["unit"] == "GB"


def test_mlx_of_one_rank_says_nothing_of_nodes(records):
    with pytest.raises(InputError, match="does not say on how many nodes it ran; add --nodes N"):
        records("mlx/mlx.single.llama.txt")


def test_hpcc_tells_its_program_and_at_most_how_many_nodes(records):
    (record,) = records("hpl/one-problem.txt", UserMetadata(("lab",), nodes=2))
    gflops = by_name(record)["gflops"]
    assert gflops["unit"] == "Gflop/s"
    assert gflops["conditions"]["program"] == "hpcc"
    assert gflops["conditions"].keys() == {"n", "nb", "p", "q", "program"}
    with pytest.raises(InputError, match="--nodes 3 contradicts .* which has 2 processes"):
        records("hpl/one-problem.txt", UserMetadata(("lab",), nodes=3))


def test_exo_tells_everything(records):
    (record,) = records(json.dumps({"runs": [EXO_ROW, EXO_ROW]}))
    case = record["case"]
    assert (case["engine"], case["nodes"]) == ("exo", EXO_ROW["placement_nodes"])
    assert len(by_name(record)["decode"]["samples"]) == 2
    assert by_name(record)["decode"]["conditions"].keys() == {"n_prompt", "n_gen", "concurrency"}


def test_vllm_bench_serve_keeps_the_times_of_requests(records):
    (record,) = records(json.dumps(VLLM), UserMetadata(("dgx-spark",), nodes=1))
    found = by_name(record)
    assert record["case"]["model"] == "tiny"
    assert record["engine"] == {"name": "vllm"}
    assert found["ttft"]["samples"] == pytest.approx([40.0, 50.0, 60.0])
    assert found["itl"]["samples"] == pytest.approx([30, 50, 40, 40, 40, 40])
    assert found["decode"]["value"] == 25.0
    assert found["throughput"]["observed"] == {"input_tokens": 384, "output_tokens": 96}
    assert found["throughput"]["conditions"] == {"requests": 4, "concurrency": 2}
    assert record["warnings"] == ["Of 4 requests 1 failed."]


def test_vllm_bench_without_the_times_of_requests_has_their_percentiles(records):
    short = {key: value for key, value in VLLM.items() if key not in {"ttfts", "itls"}}
    (record,) = records(json.dumps(short), UserMetadata(("dgx-spark",), nodes=1))
    found = by_name(record)
    assert found["ttft"]["percentiles"] == {"p50": 49.0, "p95": 59.0, "p99": 60.0}
    assert (found["ttft"]["value"], "samples" in found["ttft"]) == (50.0, False)
    assert "percentiles" not in found["tpot"]
    assert found["tpot"]["observed"] == {"p99_ms": 44.0}


def test_of_another_server_vllm_bench_knows_no_engine(records):
    text = json.dumps({**VLLM, "backend": "openai-chat"})
    (record,) = records(text, UserMetadata(("dgx-spark",), nodes=1))
    assert "engine" not in record
    said = UserMetadata(("dgx-spark",), nodes=1, engine="sglang", engine_version="0.5")
    assert records(text, said)[0]["engine"] == {"name": "sglang", "version": "0.5"}


def test_nccl_tests_tell_collective_hosts_and_transport(records):
    (record,) = records(NCCL)
    case = record["case"]
    assert (case["benchmark"], case["nodes"], case["transport"]) == ("collectives", 2, "rdma")
    times = [m for m in record["metrics"] if m["name"] == "all_reduce_time"]
    assert {m["conditions"]["placement"]: m["value"] for m in times} == {
        "out-of-place": 26.5,
        "in-place": 26.1,
    }
    assert by_name(record)["all_reduce_average_bandwidth"]["value"] == pytest.approx(0.36)
    (cut,) = records(NCCL.split("\n", 4)[4], UserMetadata(("dgx-spark",), nodes=2))
    assert "collective_time" in by_name(cut)


def test_perftest_tells_its_operation(records):
    (record,) = records(PERFTEST)
    (metric,) = record["metrics"]
    assert (metric["name"], metric["value"]) == ("rdma_latency", 2.0)
    assert metric["conditions"] == {"operation": "read", "qps": 1, "bytes": 64}
    assert (metric["observed"]["p99_us"], record["case"]["transport"]) == (2.49, "rdma")


def test_no_address_and_no_folder_of_an_output_gets_into_a_record(records):
    lab = ("iperf3/4-streams.json", "ping/replies.txt", "sockperf/tcp.txt")
    for name, address in {
        **dict.fromkeys(lab, "10.77"),
        "dllama/two-nodes.txt": "127.0.0.1",
    }.items():
        assert address in fixture(name)
        assert address not in json.dumps(records(name))
    assert "alice" not in json.dumps(
        records(json.dumps(VLLM), UserMetadata(("dgx-spark",), nodes=1))
    )
