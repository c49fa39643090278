"""Several runs in one output: each comes in with its line, or is named with it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.outputs import ParseError, all_tools
from nixwulf.outputs.runs import plain, read_runs
from nixwulf.results.importing import UserMetadata
from tool_outputs import (
    ALL_TO_ALL,
    BATCHED,
    BENCHY,
    DESCRIBED,
    EXO_ROW,
    FIXTURES,
    IPERF2,
    IPERF3,
    MACOS,
    MTP,
    NCCL,
    PATHS,
    PERFTEST,
    SGLANG,
    VLLM,
    by_name,
    fixture,
    records_of,
)

ONE = UserMetadata(("dgx-spark",), nodes=1)
WRITTEN = [ALL_TO_ALL, BATCHED, BENCHY, IPERF2, IPERF3, MACOS, MTP, NCCL, PATHS, PERFTEST, SGLANG]
WRITTEN += [json.dumps(VLLM, indent=1), json.dumps(VLLM), json.dumps({"runs": [EXO_ROW]}, indent=1)]
WRITTEN += [one["text"] for one in DESCRIBED.values()]
TEXTS = [path.read_text() for path in sorted(FIXTURES.rglob("*")) if path.is_file()] + WRITTEN


def counted(tool, text):
    """Cases with a result and measurements of a text; none where it is refused."""
    try:
        found, unread = read_runs(tool, text)
    except ParseError:
        return 0, 0
    assert not unread
    found = [case for case in found if case.metrics]
    return len(found), sum(len(one.samples) or 1 for case in found for one in case.metrics)


GOOD = {
    tool.name: [text for text in TEXTS if tool.recognises(text) and counted(tool, text)[0]]
    for tool in all_tools().values()
}
# Rows that nothing stands before or after: one that is there again is another pass of its case.
WITHOUT_HEADS = {
    "llama-bench",
    "torch-all-to-all",
    "vllm-log",
    "sglang-log",
    "exo-bench-log",
    "mbw",
}


@given(st.data())
def test_files_of_a_tool_one_after_another_have_as_many_runs_as_each_alone(data):
    tool = all_tools()[data.draw(st.sampled_from(sorted(GOOD)))]
    texts = data.draw(st.lists(st.sampled_from(GOOD[tool.name]), min_size=1, max_size=4))
    runs, metrics = counted(tool, "".join(text.rstrip("\n") + "\n" for text in texts))
    alone = [counted(tool, text) for text in texts]
    assert metrics == sum(each[1] for each in alone)
    assert runs == sum(each[0] for each in alone) or tool.name in WITHOUT_HEADS


@pytest.mark.parametrize("name", sorted(GOOD.keys() - WITHOUT_HEADS))
def test_each_run_of_a_file_is_a_record_with_the_line_in_which_it_begins(name, tmp_path):
    tool, (text, *_) = all_tools()[name], GOOD[name]
    path = tmp_path / "output.txt"
    path.write_text(f"{text.rstrip()}\n" * 3)
    found = records_of(path, UserMetadata(("lab",), _nodes(tool, text)), name)
    cases, lines = counted(tool, text)[0], text.rstrip().count("\n") + 1
    assert len({one["id"] for one in found}) == 3 * cases
    first, second, third = (one["source"]["line"] for one in found[::cases])
    assert third - second == lines
    assert lines <= second - first <= lines + 2


def _nodes(tool, text):
    return None if tool.read(text)[0].nodes.reported else 2


def sweep(rates, namespace=True):
    """Runs of `vllm bench serve` as in a log of a loop, each with another rate and throughput."""
    table = fixture("vllm/bench-serve-0.33.0.txt")
    for rate in rates:
        # hand-made: newer ones print their options first (form: args of
        # https://github.com/vllm-project/vllm/blob/1a91bc2/vllm/benchmarks/serve.py)
        options = f"Namespace(backend='vllm', model='/m/tiny', request_rate={rate})\n"
        yield (options if namespace else "") + table.replace("14675.85", f"{rate}000.5")


def test_each_rate_of_a_sweep_comes_in_with_the_model_that_its_options_name(records):
    found = records("".join(sweep([1, 2, 4, 8, 16])), ONE)
    speeds = [by_name(one)["throughput"] for one in found]
    assert [one["value"] for one in speeds] == [1000.5, 2000.5, 4000.5, 8000.5, 16000.5]
    assert [one["conditions"]["request_rate"] for one in speeds] == [1, 2, 4, 8, 16]
    assert {one["case"]["model"] for one in found} == {"tiny"}
    assert found[0]["engine"] == {"name": "vllm"}
    text = "".join(
        # no output: the lines before a table and in it that state the rate and the limit
        one.replace("rate: inf", f"rate: {at}").replace(f"{word}2", f"{word}{at}")
        for at, one in enumerate(sweep([1, 2, 4], namespace=False), 1)
        for word in re.findall("Maximum request concurrency: +", one)[-1:]
    )
    found = [by_name(one)["throughput"]["conditions"] for one in records(text, ONE)]
    assert [one["request_rate"] for one in found] == [1, 2, 3]
    assert [one["concurrency"] for one in found] == [1, 2, 3]


def test_a_run_that_cannot_be_read_is_named_and_the_others_come_in(tmp_path):
    first, second, third = sweep([1, 2, 3])
    path, unread = tmp_path / "output.txt", []
    none = second.replace("requests:                     4", "requests: 0")
    path.write_text(first + none + third)
    failed = records_of(path, ONE)[1]
    assert (failed["outcome"], failed["source"]["line"]) == ("failed", first.count("\n") + 1)
    path.write_text(first + second.replace("2000.5", "-2000.5") + third)
    found = records_of(path, ONE, None, unread.append)
    assert [by_name(one)["throughput"]["value"] for one in found] == [1000.5, 3000.5]
    (sentence,) = unread
    begin = first.count("\n") + 1
    assert sentence.startswith(f"{path}: the run that begins in line {begin} is left out: vllm")


def test_a_result_that_no_head_shows_the_run_of_is_refused_with_both_lines(records):
    later = IPERF3.partition("0.00-1.00")[2].partition("\n")[2].replace("[ ID]", "")
    with pytest.raises(InputError, match="lines 8 and 15 are of two runs, and no line between"):
        records(IPERF3 + later)


def test_what_is_left_of_a_table_is_a_record_that_says_what_it_lacks(records, tmp_path):
    table = fixture("vllm/bench-serve-0.33.0.txt")
    path, unread = tmp_path / "output.txt", []
    path.write_text(table + table[table.index("-----") :].replace("5.03", "7.03"))
    found, cut = records_of(path, ONE, None, unread.append)
    assert found["metrics"] == records(table, ONE)[0]["metrics"]
    assert by_name(cut)["ttft"]["value"] == 7.03
    assert cut["warnings"][0].startswith("The result is cut off: it lacks 'Successful requests', ")
    assert unread == []


@pytest.mark.parametrize(
    ("failed", "good"),
    [
        ("iperf3/refused.txt", "iperf3/client.txt"),
        ("sockperf/refused.txt", "sockperf/tcp.txt"),
        ("nccl-tests/no-gpu.txt", "nccl-tests/decode.txt"),
        ("hpl/residual-failed.txt", "hpl/one-problem.txt"),
        ("dllama/no-worker.txt", "dllama/two-nodes.txt"),
        ("dllama/killed-worker.txt", "dllama/two-nodes.txt"),
        ("ping/no-answer.txt", "ping/replies.txt"),
    ],
)
def test_a_run_that_failed_takes_no_other_with_it(tmp_path, failed, good):
    path, unread = tmp_path / "output.txt", []
    path.write_text("\n".join((fixture(good), fixture(failed), fixture(good))))
    first, bad, last = records_of(path, UserMetadata(("lab",), 2), None, unread.append)
    assert (unread, bad["outcome"]) == ([], "failed")
    assert first["metrics"] == last["metrics"] != []
    assert first["case"] == last["case"]


def test_a_failed_run_of_which_nobody_says_the_nodes_is_named_beside_the_others(tmp_path):
    path, unread = tmp_path / "output.txt", []
    path.write_text(fixture("dllama/two-nodes.txt") + fixture("dllama/no-worker.txt"))
    (record,) = records_of(path, UserMetadata(("lab",)), None, unread.append)
    assert record["outcome"] == "ok"
    assert "Cannot connect" in unread[0]
    assert "--nodes" in unread[0]


def test_the_line_that_a_sentence_names_is_one_of_the_file(tmp_path):
    good = fixture("mlx/mlx.single.llama.txt")
    path, unread = tmp_path / "output.txt", []
    path.write_text(good + re.sub(r"prompt_tps=[0-9.]+", "prompt_tps=fast", good, count=1))
    assert len(records_of(path, ONE, None, unread.append)) == 1
    line = path.read_text().split("fast")[0].count("\n") + 1
    assert f"line {line}: expected prompt_tps=NUMBER" in unread[0]


# no output: what stands around objects in a file
@pytest.mark.parametrize(
    ("before", "between", "after"),
    [("", "\n", "\n"), ("[", ",\n ", "]"), ("", "", ""), ("# 1\n", "\n# 2\n", "\ndone\n")],
    ids=["lines", "list", "nothing between", "log"],
)
@pytest.mark.parametrize("indent", [None, 0, 1])
def test_every_object_of_a_file_is_a_run(records, before, between, after, indent):
    values = [{**VLLM, "output_throughput": speed} for speed in (10.0, 20.0, 30.0)]
    text = before + between.join(json.dumps(one, indent=indent) for one in values) + after
    found = records(text + ("" if "\n" in text else "\n"), ONE, "vllm-bench")
    assert [by_name(one)["throughput"]["value"] for one in found] == [10.0, 20.0, 30.0]


def test_an_object_that_ends_too_early_is_named(tmp_path):
    whole = json.dumps(VLLM, indent=1)
    path, unread = tmp_path / "output.txt", []
    path.write_text("\n".join((whole, whole[:-40], whole)))
    assert len(records_of(path, ONE, None, unread.append)) == 2
    assert f"begins in line {whole.count(chr(10)) + 2} is left out: vllm bench serve" in unread[0]


def test_vllms_two_benchmarks_in_one_file_both_come_in(records):
    # hand-made: no GPU for vLLM is at hand
    # (form: https://github.com/vllm-project/vllm/blob/1a91bc2/vllm/benchmarks/throughput.py)
    offline = "Throughput: 7.15 requests/s, 4656.00 total tokens/s, 1830.83 output tokens/s\n"
    # hand-made: as above (form: the same file)
    written = '{"elapsed_time": 2.0, "requests_per_second": 5.0, "tokens_per_second": 50.0}\n'
    serve = fixture("vllm/bench-serve-0.33.0.txt")
    for text in (offline + serve, serve + offline, json.dumps(VLLM) + "\n" + written):
        found = records(text, ONE)
        assert {one["case"]["benchmark"] for one in found} == {
            "vllm-bench",
            "vllm-bench-throughput",
        }
    (alone,) = records(offline, ONE)
    values = {name: metric["value"] for name, metric in by_name(alone).items()}
    assert values == {
        "total_throughput": 4656.0,
        "request_throughput": 7.15,
        "throughput": 1830.83,
    }


def test_sglangs_client_is_a_tool_of_its_own_with_the_latency_of_whole_requests(records):
    (record,) = records(SGLANG, ONE)
    found = by_name(record)
    assert (record["source"]["tool"], record["case"]["benchmark"]) == ("sglang-bench",) * 2
    assert (record["engine"], record["case"]["model"]) == ({"name": "sglang"}, "tiny")
    assert (found["e2el"]["value"], found["ttft"]["value"]) == (2000.0, 50.0)
    assert found["throughput"]["conditions"] == {"requests": 3, "request_rate": 4.0}
    assert "decode" not in found
    latency = {"mean_e2e_latency_ms": 2000.0, "p99_e2e_latency_ms": 2100.0}
    (record,) = records(json.dumps({**VLLM, "backend": "sglang-oai", **latency}), ONE)
    assert by_name(record)["e2el"]["observed"] == {"p99_ms": 2100.0}
    assert by_name(record)["decode"]["value"] == 25.0


def test_of_vllm_and_sglang_in_one_file_both_come_in_or_the_one_that_is_named(tmp_path):
    path = tmp_path / "output.txt"
    path.write_text(SGLANG + fixture("vllm/bench-serve-0.33.0.txt"))
    unread = []
    both = records_of(path, ONE, None, unread.append)
    assert ([one["source"]["tool"] for one in both], unread) == (["sglang-bench", "vllm-bench"], [])
    for tool, other in (("sglang-bench", "vLLM"), ("vllm-bench", "sglang")):
        unread = []
        assert len(records_of(path, ONE, tool, unread.append)) == 1
        assert f"is left out: it is a result of {other}'s" in unread[0]


def test_runs_to_different_peers_are_told_apart_without_their_addresses(records):
    text = fixture("ping/replies.txt")
    other = re.sub(r"time=0\.", "time=1.", text.replace("10.77.1.12", "10.77.1.13"))
    found = records(text + other + text)
    assert [one["case"]["parameters"]["peer"] for one in found] == [1, 2, 1]
    near, far, again = (by_name(one)["ping_round_trip"]["value"] for one in found)
    assert near == again < far / 10
    assert "10.77" not in json.dumps(found)
    assert "peer" not in records(text + text)[0]["case"]["parameters"]
    other = IPERF3.replace("10.77.1.12", "10.77.1.13")
    assert [one["case"]["parameters"]["peer"] for one in records(IPERF3 + other)] == [1, 2]


def test_what_the_server_printed_of_the_same_test_is_no_run(records):
    (alone,) = records(IPERF3)
    # no output: what --get-server-output adds, of another test
    server = "\nServer output:\n" + fixture("iperf3/server-both-ways.txt")
    text = IPERF3.replace("\niperf Done.", server + "\niperf Done.")
    assert text != IPERF3
    (record,) = records(text)
    assert record["metrics"] == alone["metrics"]
    assert len(records(text + IPERF3)) == 2


def test_what_mpirun_puts_before_each_line_and_indentation_are_passed_over(records):
    wanted = records(NCCL)[0]["metrics"]
    # hand-made: no two GPUs are at hand (form: -tag-output of mpirun, as in
    # https://github.com/aws-samples/awsome-distributed-training, nccl-tests)
    for mark in ("[1,0]<stdout>:", "[1,0]<stdout>: ", "    [1,0]<stdout>:", "   ", "\t"):
        text = "".join(mark + line for line in NCCL.splitlines(keepends=True))
        assert records(text)[0]["metrics"] == wanted
    assert plain("[prterun-n1-12@1,3]<stderr>: a") == "a"


def test_sockperf_without_its_log_is_the_mean_round_trip(records):
    text = fixture("sockperf/summary.txt")
    (record,) = records(text)
    metric = by_name(record)["tcp_round_trip"]
    (half,) = re.findall(r"Summary: Latency is ([\d.]+) usec", text)
    assert metric["value"] == pytest.approx(2 * float(half))
    assert metric["observed"].keys() == {"p50_us", "p99_us", "round_trips", "seconds"}
    assert "samples" not in metric
    (whole,) = records(text.replace("Summary: Latency is", "Summary: Round trip is"))
    assert by_name(whole)["tcp_round_trip"]["value"] == pytest.approx(float(half))


def test_a_file_name_that_is_a_list_is_read_as_a_text():
    row = {"model_filename": ["a"], "n_prompt": 512, "n_gen": 0, "avg_ts": 10.0, "stddev_ts": 0.1}
    found, _ = read_runs(all_tools()["llama-bench"], json.dumps([row, row]))
    assert len(found) == 1


@pytest.mark.parametrize("cut", [0.3, 0.9])
@pytest.mark.parametrize("first", [True, False], ids=["the first", "the last"])
@pytest.mark.parametrize("name", ["iperf3/4-streams.json", "vllm/bench-serve-0.33.0.json"])
def test_an_object_that_is_cut_short_is_named_beside_a_whole_one(tmp_path, name, first, cut):
    whole = fixture(name)
    part = whole[: int(len(whole) * cut)]
    path = tmp_path / "two.json"
    path.write_text("\n".join([part, whole] if first else [whole, part]), encoding="utf-8")
    unread: list[str] = []
    metadata = UserMetadata(("dgx-spark",), nodes=None if "iperf3" in name else 1)
    assert len(records_of(path, metadata, on_unread=unread.append)) == 1
    line = 1 if first else whole.count("\n") + 2
    assert len(unread) == 1
    assert f"the run that begins in line {line} is left out" in unread[0]


def test_a_row_of_llama_bench_that_is_cut_short_leaves_a_warning(tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_text(fixture("llama-bench/two-depths.jsonl")[:-40], encoding="utf-8")
    (record,) = records_of(path, ONE)
    assert record["warnings"] == ["llama-bench ended before its end, after these results."]


def test_replies_of_two_machines_that_are_mixed_are_no_round_trip(tmp_path):
    one = fixture("ping/replies.txt").splitlines()
    other = fixture("ping/replies.txt").replace("10.77.1.12", "10.77.1.13").splitlines()
    path = tmp_path / "ping.txt"
    path.write_text("\n".join(line for two in zip(one, other, strict=True) for line in two))
    unread = []
    (second,) = records_of(path, UserMetadata(("dgx-spark",)), None, unread.append)
    assert "replies of 2 machines, mixed; give each" in unread[0]
    # What is left of the second is its own summary.
    assert "samples" not in second["metrics"][0]


def test_how_many_asked_at_once_is_of_the_block_below_it(records):
    block = fixture("posted/vllm-median-without-p95.txt").partition("\n")[2]
    # no output: what people write between blocks
    text = f"concurrency=1\n{block}\nConcurrency: 8\n{block}"
    found = records(text, UserMetadata(("dgx-spark",), nodes=1))
    assert [one["metrics"][0]["conditions"]["concurrency"] for one in found] == [1, 8]
    assert not any("warnings" in one for one in found)


def test_a_result_that_was_made_a_table_comes_in(records):
    # hand-made: the client's labels as a table of somebody's page
    # (form: tests/fixtures/posted/vllm-median-without-p95.txt)
    text = (
        "| Metric | Value |\n|---|---|\n| **Output token throughput (tok/s)** | 418.3 |\n"
        "| Mean TTFT (ms) | 733.2 |\n"
    )
    (record,) = records(text, UserMetadata(("dgx-spark",), nodes=1))
    assert [(m["name"], m["value"]) for m in record["metrics"]] == [
        ("ttft", 733.2),
        ("throughput", 418.3),
    ]
