"""Forms of an output that people's tools and habits make of it: order, spacing, units, commas."""

import json

import pytest

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import by_name, fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)
TWO = UserMetadata(("dgx-spark",), nodes=2)
# hand-made: columns that somebody put in another order (form: stream.c of
# https://www.cs.virginia.edu/stream/FTP/Code/stream.c)
STREAM = """\
Function    Avg time     Best Rate MB/s  Max time     Min time
Copy:       0.014000     115000.0        0.014500     0.013913
Triad:      0.020400     118500.0        0.020900     0.020253
"""
# hand-made: the same without pipes at its ends, and without its times (form:
# https://github.com/ggml-org/llama.cpp/tree/master/tools/batched-bench)
BATCHED = """\
S_TG t/s | S_PP t/s | PP | TG | B | N_KV
---|---|---|---|---|---
50.00 | 1024.00 | 512 | 128 | 1 | 640
80.00 | 1024.00 | 512 | 128 | 2 | 1280
"""
# hand-made: a line of --output-format jsonl (form: batched-bench.cpp in the same folder)
BATCHED_JSON = (
    '{"n_kv_max": 8192, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "is_pp_shared": 1, '
    '"n_gpu_layers": 99, "n_threads": 8, "n_threads_batch": 8, "pp": 512, "tg": 128, "pl": 4, '
    '"n_kv": 1024, "t_pp": 0.5, "speed_pp": 1024.0, "t_tg": 4.0, "speed_tg": 125.0, "t": 4.5, '
    '"speed": 222.8}\n'
)
# hand-made: its columns in another order (form: testing/ptest/HPL_pdtest.c of https://www.netlib.org/benchmark/hpl)
HPL = """\
N  NB  P  Q  T/V  Gflops  Time
60000 192 2 4 WR11C2R4 1.5e+02 900.00
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   3.0e-03 ...... PASSED
"""
# hand-made: its columns in another order (form: src/common.cu of https://github.com/NVIDIA/nccl-tests)
NCCL = """\
# Collective test starting: all_gather_perf
#    type     redop    root       size         count        busbw   algbw    time  #wrong
    float      none      -1       8192          1024       0.16    0.33    25.00       0
# Avg bus bandwidth    : 0.16
"""
# hand-made: a warm-up, and the benchmark (form:
# https://github.com/sgl-project/sglang/blob/main/python/sglang/bench_one_batch.py)
ONE_BATCH = """\
Warmup ...
Prefill. latency: 0.30000 s, throughput:   6826.67 token/s
Decode.  median latency: 0.01600 s, median throughput:    400.00 token/s
Benchmark ...
Prefill. latency: 0.25600 s, throughput:   8000.00 token/s
Decode.  median latency: 0.01600 s, median throughput:    500.00 token/s
"""
# hand-made: what -f M prints (form: src/units.c of https://github.com/esnet/iperf)
IPERF = """\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec  2.19 GBytes  1124 MBytes/sec    0             sender
[  5]   0.00-2.00   sec  2.19 GBytes  1122 MBytes/sec                  receiver
"""
# hand-made: a locale with commas (form: the fixture iperf3/client.txt)
IPERF_COMMAS = """\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0,00-2,00   sec  2,19 GBytes  9,43 Gbits/sec    0             sender
[  5]   0,00-2,00   sec  2,19 GBytes  9,42 Gbits/sec                  receiver
"""
# hand-made: a locale with commas (form: ping/ping_common.c of https://github.com/iputils/iputils)
PING = """\
PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0,100 ms
64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=0,300 ms

--- 10.0.0.2 ping statistics ---
2 packets transmitted, 2 received, 0% packet loss, time 1001ms
rtt min/avg/max/mdev = 0,100/0,200/0,300/0,100 ms
"""
# hand-made: a task (form: https://github.com/EleutherAI/lm-evaluation-harness)
EVAL = """\
|Tasks|Value|Stderr|Metric|n-shot|
|---|---|---|---|---|
|gsm8k|0.8870|0.0087|exact_match|5|
"""
# hand-made: settings of ik_llama.cpp (form:
# https://github.com/ikawrakow/ik_llama.cpp/blob/8337e4c/examples/llama-bench/llama-bench.cpp)
IK = """\
| model | size | params | backend | ngl | mla | fmoe | test | t/s |
| ----- | ---: | -----: | ------- | --: | --: | ---: | ---: | --: |
| deepseek2 671B IQ2_K_R4 | 213.18 GiB | 672.05 B | CUDA | 63 | 3 | 1 | tg128 | 12.50 ± 0.05 |
"""
# hand-made: its CSV as a German Excel saves it (form: printer csv of
# https://github.com/ggml-org/llama.cpp/tree/master/tools/llama-bench)
EXCEL = """\
build_commit;backends;gpu_info;model_type;n_prompt;n_gen;avg_ts;stddev_ts
8cf6b42d;ROCm,RPC;"A, B";qwen3 4B Q8_0;512;0;1.600,50;5,25
8cf6b42d;ROCm,RPC;"A, B";qwen3 4B Q8_0;0;128;42,75;0,02
"""
# hand-made: a row of each side (form: perftest's fixtures, in `diff -u`)
DIFFERENCE = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
- 65536      5000             98.50             98.25              0.18
+ 65536      5000             108.50            108.25             0.206470
"""
# hand-made: what somebody kept of its columns (form: the fixture perftest/write-bw.txt)
FEWER = """\
 #bytes     #iterations    BW average[Gb/sec]
 4096       5000           60.25
"""


def test_columns_of_stream_go_by_their_names(records):
    (record,) = records(STREAM, ONE)
    assert [one["value"] for one in record["metrics"]] == [115.0, 118.5]
    assert record["metrics"][0]["observed"] == {"avg_s": 0.014, "max_s": 0.0145, "min_s": 0.013913}


def test_columns_of_hpl_and_of_nccl_go_by_their_names(records):
    found = by_name(records(HPL, ONE)[0])
    assert (found["gflops"]["value"], found["time"]["value"]) == (150.0, 900.0)
    assert found["gflops"]["conditions"]["n"] == 60000
    found = by_name(records(NCCL, TWO)[0])
    assert found["all_gather_time"]["value"] == 25.0
    assert found["all_gather_bandwidth"]["value"] == pytest.approx(1.28)


def test_a_table_of_sequences_at_once_is_of_one_program_whatever_its_columns(records):
    (record,) = records(BATCHED, ONE)
    assert record["case"]["benchmark"] == "llama-batched-bench"
    speeds = [one["value"] for one in record["metrics"] if one["name"] == "throughput"]
    assert speeds == [50.0, 80.0]


def test_lines_of_json_of_sequences_at_once_are_rows_of_one_run(records):
    text = BATCHED_JSON + BATCHED_JSON.replace('"pl": 4', '"pl": 8')
    for form in (text, text.replace('": ', '":').replace(", ", ",")):
        (record,) = records(form, ONE)
        rows = [one for one in record["metrics"] if one["name"] == "throughput"]
        assert [one["conditions"]["concurrency"] for one in rows] == [4, 8]
        told = {"n_prompt": 512, "n_gen": 128, "n_batch": 2048, "flash_attn": 1}
        assert rows[0]["conditions"].items() >= told.items()
        assert rows[0]["observed"]["prompt_s"] == 0.5


# no output: ways to lay out JSON
LAYOUTS = [{"indent": 2}, {"separators": (",", ":")}, {"indent": 1, "sort_keys": True}]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_json_of_fio_is_read_in_any_spacing_and_order(records, layout):
    text = fixture("machine-tools/fio.json")
    expected = [one["metrics"] for one in records(text, ONE)]
    found = records(json.dumps(json.loads(text), **layout) + "\n", ONE)
    key = json.dumps
    assert [sorted(map(key, one["metrics"])) for one in found] == [
        sorted(map(key, own)) for own in expected
    ]


# hand-made: answers of servers and results in JSON (form: docs/api.md of
# https://github.com/ollama/ollama; tools/server/README.md of https://github.com/ggml-org/llama.cpp;
# benchmark_latency.py and benchmark_throughput.py of https://github.com/vllm-project/vllm)
JSONS = [
    (
        {"model": "a", "prompt_eval_count": 26, "prompt_eval_duration": 2 * 10**9}
        | {"eval_count": 180, "eval_duration": 45 * 10**9, "context": [1, 2, 3]},
        {"prompt": 13.0, "decode": 4.0},
    ),
    (
        {
            "timings": {"prompt_n": 44, "prompt_per_second": 209.03, "predicted_n": 120}
            | {"predicted_ms": 1800.2, "predicted_per_second": 66.66},
            "model": "b",
        },
        {"prompt": 209.03, "decode": 66.66},
    ),
    ({"avg_latency": 2.5, "latencies": [2.5], "percentiles": {"50": 2.5}}, {"e2el": 2500.0}),
    (
        {"elapsed_time": 14.0, "num_requests": 10, "requests_per_second": 7.1}
        | {"tokens_per_second": 4656.0},
        {"duration": 14.0, "request_throughput": 7.1, "total_throughput": 4656.0},
    ),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("document", "values"), JSONS)
def test_json_of_servers_and_vllm_is_read_in_any_spacing_and_order(
    records, document, values, layout
):
    (record,) = records(json.dumps(document, **layout) + "\n", ONE)
    assert {name: one["value"] for name, one in by_name(record).items()} == values


def test_an_error_of_zero_in_json_is_no_failure(tmp_path):
    path = tmp_path / "some.json"
    # no output: an object of nobody
    path.write_text('{"error": 0, "of": "nothing"}')
    with pytest.raises(InputError, match="no tool") as caught:
        reading_of(path, ONE)
    assert "says" not in caught.value.format_message()


def test_a_warm_up_is_no_result_and_is_named(records, tmp_path):
    (record,) = records(ONE_BATCH, ONE)
    assert by_name(record)["throughput"]["value"] == 500.0
    said = _said(tmp_path, ONE_BATCH)
    assert "line 1 begins 'Warmup ...', which is left out" in said


@pytest.mark.parametrize(
    ("unit", "gbps"),
    [("MBytes", 1122 * 2**20 * 8 / 1e9), ("KBytes", 1122 * 2**10 * 8 / 1e9), ("Kbits", 0.001122)],
)
def test_rates_of_iperf_have_any_of_its_units(records, unit, gbps):
    (record,) = records(IPERF.replace("MBytes/", f"{unit}/"), TWO)
    assert by_name(record)["bandwidth"]["value"] == pytest.approx(gbps, abs=1e-6)


def test_decimal_commas_of_iperf_and_ping_are_points(records):
    assert by_name(records(IPERF_COMMAS, TWO)[0])["bandwidth"]["value"] == 9.42
    trips = by_name(records(PING, TWO)[0])["ping_round_trip"]
    assert trips["samples"] == [100.0, 300.0]
    summary = by_name(records(PING.partition("---")[2].partition("\n")[2], TWO)[0])
    assert summary["ping_round_trip"]["value"] == 200.0


def test_a_deviation_has_the_unit_of_its_score(records):
    (metric,) = records(EVAL, ONE)[0]["metrics"]
    assert (metric["value"], metric["unit"], metric["observed"]) == (88.7, "%", {"stderr": 0.87})


def test_settings_that_ik_llama_cpp_alone_has_show_the_engine(records):
    assert records(IK, ONE)[0]["engine"]["name"] == "ik_llama.cpp"


@pytest.mark.parametrize("apart", [";", "\t"])
def test_csv_that_a_spreadsheet_saved_with_commas_in_numbers_is_read(records, apart):
    (record,) = records(EXCEL.replace(";", apart), TWO)
    prompt, decode = record["metrics"]
    assert (prompt["value"], prompt["stddev"], decode["value"]) == (1600.5, 5.25, 42.75)
    assert record["engine"]["backends"] == "ROCm,RPC"


def test_a_difference_of_rows_of_numbers_is_refused_with_its_line(records):
    with pytest.raises(InputError, match="line 2 is marked as removed or added"):
        records(DIFFERENCE, TWO)


def test_a_trace_of_a_shell_is_no_difference(records):
    # no output: what a shell says of its commands
    text = "a list of 1\n+ ./stream 8\n" + STREAM
    assert records(text, ONE)[0]["case"]["benchmark"] == "stream"


def test_a_table_that_lacks_columns_is_refused_by_their_names(records):
    with pytest.raises(InputError, match=r"lacks 'BW peak\[Gb/sec\]' .*give the table with"):
        records(FEWER, TWO)


def test_a_tool_without_a_reader_is_called_by_its_name(tmp_path):
    path = tmp_path / "other.txt"
    # hand-made: its first line (form: https://github.com/NVIDIA/nvbandwidth)
    path.write_text("nvbandwidth Version: v0.8\n")
    with pytest.raises(InputError, match="'nvbandwidth', which has no reader; .*/issues"):
        reading_of(path, ONE)


def _said(tmp_path, text, *, explain=False, said=ONE):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return "\n".join(reading_of(path, said).sentences(explain=explain))
