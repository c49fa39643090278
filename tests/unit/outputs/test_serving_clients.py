"""Clients that ask a server and print a table: AIPerf, GenAI-Perf, GuideLLM."""

import json

import pytest

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata
from tool_outputs import by_name, fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)


def test_aiperf_has_its_times_and_speeds_under_the_names_of_other_clients(records):
    (record,) = records("serving/aiperf.txt", ONE)
    found = by_name(record)
    text = fixture("serving/aiperf.txt")
    rows = {
        cells[0].strip().partition(" (")[0]: float(cells[1].replace(",", ""))
        for cells in (line.strip("│").split("│") for line in text.splitlines())
        if len(cells) > 7 and cells[1].strip()[:1].isdigit()
    }
    assert found["ttft"]["value"] == rows["Time to First Token"]
    assert found["itl"]["value"] == rows["Inter Token Latency"]
    assert found["e2el"]["value"] == rows["Request Latency"]
    assert found["decode"]["value"] == rows["Output Token Throughput Per User"]
    assert found["throughput"]["value"] == rows["Output Token Throughput"]
    assert found["request_throughput"]["value"] == rows["Request Throughput"]
    told = found["ttft"]["conditions"]
    assert told == {"n_prompt": 117, "n_gen": 32, "requests": 20, "concurrency": 4}
    assert {"min_ms", "max_ms", "p50_ms", "p90_ms", "p99_ms", "std_ms"} <= found["ttft"][
        "observed"
    ].keys()
    assert record["case"]["model"] == "tiny"
    assert not record.get("warnings")


# hand-made: rows of profile_export_aiperf.csv (form: https://github.com/ai-dynamo/aiperf,
# metrics_csv_exporter.py)
CSV = """\
Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Input Sequence Length (tokens),128.00,128.00,128.00,1280.00,128.00,128.00,128.00,128.00,128.00,128.00,128.00,128.00,128.00,0.00
Output Sequence Length (tokens),31.60,30.00,32.00,316.00,30.00,30.00,30.00,31.00,32.00,32.00,32.00,32.00,32.00,0.70
Time to First Token (ms),26.92,8.52,112.73,538.39,8.79,9.87,10.51,12.08,13.67,15.85,68.94,94.11,109.01,29.57

Metric,Value
Output Token Throughput (tokens/sec),919.35
Request Count,10.00
"""  # noqa: E501


def test_csv_of_aiperf_has_its_columns_by_name(records):
    (record,) = records(CSV, ONE)
    ttft, throughput = record["metrics"]
    assert (ttft["value"], ttft["observed"]["p99_ms"], ttft["observed"]["p5_ms"]) == (
        26.92,
        109.01,
        9.87,
    )
    assert throughput["value"] == 919.35
    assert throughput["conditions"] == {"n_prompt": 128, "requests": 10}
    assert throughput["observed"]["mean_output_tokens"] == 31.6


def test_json_of_aiperf_has_the_command_that_it_names(records):
    # hand-made: keys of its JSON (form: https://github.com/ai-dynamo/aiperf)
    document = {
        "aiperf_version": "0.13.0",
        "request_throughput": {"unit": "requests/sec", "avg": 28.5},
        "time_to_first_token": {"unit": "ms", "avg": 26.5, "p50": 13.5, "p99": 109.0, "std": 29.5},
        "input_config": {"models": {"items": [{"name": "tiny"}]}},
        "run_info": {"cli_command": "aiperf profile --model 'tiny' --concurrency 4"},
    }
    (record,) = records(json.dumps(document, indent=2) + "\n", ONE)
    found = by_name(record)
    assert found["ttft"]["value"] == 26.5
    assert found["ttft"]["observed"] == {"p50_ms": 13.5, "p99_ms": 109.0, "std_ms": 29.5}
    assert found["request_throughput"]["conditions"] == {"concurrency": 4}
    assert record["case"]["model"] == "tiny"


def test_two_tables_of_aiperf_are_two_runs_each_with_its_own_command(records):
    text = fixture("serving/aiperf.txt")
    other = text.replace("--concurrency 4", "--concurrency 8").replace("'tiny'", "'other'")
    found = records(text + other, ONE)
    assert [one["case"]["model"] for one in found] == ["tiny", "other"]
    told = [{m["conditions"]["concurrency"] for m in one["metrics"]} for one in found]
    assert told == [{4}, {8}]


@pytest.mark.parametrize("name", ["0.3.1", "0.8.1"])
def test_guidellm_has_a_run_a_strategy_with_its_row_of_each_table(records, name):
    found = records(f"serving/guidellm-{name}.txt", ONE)
    told = [one["metrics"][0]["conditions"] for one in found]
    assert [(one["strategy"], one["concurrency"], one["requests"]) for one in told] == [
        ("concurrent", 1, 12),
        ("concurrent", 4, 12),
    ]
    names = {"ttft", "itl", "tpot", "e2el", "throughput", "total_throughput", "request_throughput"}
    for record in found:
        assert names <= by_name(record).keys()
        assert {one["conditions"]["n_gen"] for one in record["metrics"]} == {32}
        assert record["case"]["model"] == "tiny"
        assert not record.get("warnings")


def test_rates_of_guidellm_are_of_the_strategies_that_have_one(records):
    found = records("serving/guidellm-0.3.1-sweep.txt", ONE)
    told = [one["metrics"][0]["conditions"] for one in found]
    assert [one["strategy"] for one in told] == ["synchronous", "throughput", "constant"]
    assert ["request_rate" in one for one in told] == [False, False, True]
    assert not any("concurrency" in one for one in told)


def test_a_strategy_without_its_number_has_no_concurrency_but_the_measured_one(records):
    found = records("serving/guidellm-0.5.0.txt", ONE)
    told = [one["metrics"][0]["conditions"] for one in found]
    assert not any("concurrency" in one for one in told)
    assert told[0]["measured_concurrency"] < told[1]["measured_concurrency"]
    ttft = by_name(found[0])["ttft"]
    assert ttft["value"] == ttft["observed"]["p50_ms"]


def test_json_of_guidellm_has_an_object_a_strategy(records):
    # hand-made: keys of benchmarks.json (form: https://github.com/vllm-project/guidellm,
    # src/guidellm/schemas)
    percentiles = {"p50": 12.5, "p75": 19.5, "p90": 29.0, "p95": 29.25, "p99": 29.5}
    times = {"mean": 17.5, "median": 12.5, "percentiles": percentiles, "std_dev": 7.5}
    metrics = {
        "time_to_first_token_ms": {"successful": times},
        "output_tokens_per_second": {"total": {"mean": 973.5}},
        "request_totals": {"successful": 8, "errored": 1},
    }
    runs = [
        {
            "type_": "generative_benchmark",
            "config": {
                "strategy": {"type_": "concurrent", "streams": streams},
                "backend": {"model": "tiny"},
            },
            "metrics": metrics,
        }
        for streams in (1, 4)
    ]
    document = {"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": runs}
    found = records(json.dumps(document) + "\n", ONE)
    assert [one["metrics"][0]["conditions"]["concurrency"] for one in found] == [1, 4]
    ttft = by_name(found[1])["ttft"]
    assert (ttft["value"], ttft["observed"]["p99_ms"]) == (17.5, 29.5)
    assert by_name(found[1])["throughput"]["value"] == 973.5
    assert ttft["conditions"]["requests"] == 8


@pytest.mark.parametrize("name", ["aiperf", "guidellm-0.3.1", "guidellm-0.5.0"])
def test_a_table_that_is_cut_off_says_so(records, name):
    text = fixture(f"serving/{name}.txt")
    end = text.rindex("└" if name == "aiperf" else "| concurrent |" if "5" in name else "\n====")
    for record in records(text[:end], ONE):
        assert record["warnings"][0].startswith("It ends before its line ")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # hand-made: the first lines (form: https://github.com/HewlettPackard/netperf)
        (
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 () port 0 AF_INET to a () port 0\n",
            "netperf",
        ),
        # hand-made: the first line (form: https://github.com/ROCm/rocm_bandwidth_test)
        ("          RocmBandwidthTest Version: 2.6.0\n", "rocm-bandwidth-test"),
        # hand-made: the first lines (form: https://github.com/hpcg-benchmark/hpcg)
        ("HPCG-Benchmark\nversion=3.1\n", "HPCG"),
        # hand-made: the first line (form: the same)
        ("HPCG-Benchmark version: 3.0\n", "HPCG"),
        # hand-made: the first line (form: https://github.com/triton-inference-server/perf_analyzer)
        ("Metric,avg,min,max,p99,p95,p90,p75,p50,p25\n", "GenAI-Perf's CSV or JSON"),
    ],
)
def test_benchmarks_without_a_reader_are_recognised_by_their_first_lines(records, text, name):
    with pytest.raises(InputError) as raised:
        records(text, ONE)
    assert f"{name!r}, which has no reader" in str(raised.value) or f'"{name}"' in str(raised.value)
