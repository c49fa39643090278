"""Closing lines and tables of tools that data/outputs describes: each number where it belongs."""

import json

import pytest

from nixwulf.outputs import all_tools, documents
from nixwulf.outputs.described import TOOL
from nixwulf.outputs.runs import plain
from nixwulf.results.importing import UserMetadata
from tool_outputs import DESCRIBED, by_name, fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)
TWO = UserMetadata(("dgx-spark",), nodes=2)


def numbers(found):
    return [one["value"] for case in found for one in documents(case.metrics)]


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_numbers_of_a_tool_come_in_in_their_order(name):
    one = DESCRIBED[name]
    assert numbers(all_tools()[name].read(plain(one["text"]))) == pytest.approx(one["seen"])


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_tools_text_is_recognised_as_its_own(name):
    text = DESCRIBED[name]["text"]
    assert [one.name for one in all_tools().values() if one.recognises(text)] == [name]


def test_every_described_tool_has_a_text_or_a_fixture():
    made = {"fio", "fio-json", "sysbench", "stress-ng", "mbw", "llama-batched-bench"}
    made |= {"torch-all-to-all", "compare_eth_vs_rdma", "exo-bench", "guidellm"}
    assert {tool.name for tool in TOOL} <= DESCRIBED.keys() | made


def test_timings_of_a_chat_are_of_the_prompt_and_the_answer(records):
    (record,) = records("posted/llama-cli-timings.txt", TWO)
    prompt, decode = record["metrics"]
    assert (prompt["value"], prompt["conditions"]["n_prompt"]) == (10.04, 17)
    assert (decode["value"], decode["conditions"]["n_gen"]) == (1.22, 1023)


def test_a_servers_log_is_a_record_a_request(records):
    found = records("closing-lines/llama-server.txt", ONE)
    assert [[m["value"] for m in one["metrics"]] for one in found] == [
        [2241.59, 13.43],
        [6563.53, 1337.08],
    ]
    assert {one["case"]["model"] for one in found} == {"tiny.gguf"}


def test_generation_of_mlx_has_its_model_sizes_and_memory(records):
    (record,) = records("posted/mlx-generate.txt", UserMetadata(("mac-studio-m3-ultra",), nodes=1))
    found = by_name(record)
    assert record["case"]["model"] == "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit"
    assert (found["prompt"]["value"], found["decode"]["value"]) == (261.786, 23.146)
    assert found["decode"]["conditions"] == {"n_prompt": 32159, "n_gen": 1000}
    assert found["peak_memory"]["value"] == 13.523


def test_each_rate_of_ollama_is_a_run_of_the_model_above_it(records):
    found = records("posted/ollama-eval-rate.txt", UserMetadata(("raspberry-pi-cm5",), nodes=1))
    assert [one["metrics"][0]["value"] for one in found] == [5.61, 5.52, 5.52]
    assert {one["case"]["model"] for one in found} == {"llama3.2:3b"}


def test_osu_is_a_rate_or_a_time_a_size(records):
    (record,) = records("posted/osu-bw.txt", TWO)
    last = record["metrics"][-1]
    assert (last["value"], last["unit"]) == (pytest.approx(21307.34 * 8 / 1000), "Gbit/s")
    assert last["conditions"] == {"test": "MPI Bandwidth", "bytes": 4194304}
    assert record["source"]["note"] == "osu 5.7"


def test_json_of_fio_has_each_job_with_what_stands_above_all_of_them(records):
    said = UserMetadata(("generic-x86_64",))
    found = records("machine-tools/fio.json", said)
    document = json.loads(fixture("machine-tools/fio.json"))
    assert len(found) == len(document["jobs"]) == 2
    for record, job, direction in zip(found, document["jobs"], ("read", "write"), strict=True):
        rates = by_name(record)
        bandwidth, requests = rates["storage_bandwidth"], rates["requests"]
        assert bandwidth["value"] == pytest.approx(job[direction]["bw_bytes"] / 1e9)
        assert requests["value"] == pytest.approx(job[direction]["iops"])
        assert rates["storage_latency"]["value"] == pytest.approx(
            job[direction]["lat_ns"]["mean"] / 1000
        )
        told = bandwidth["conditions"]
        assert (told["job"], told["direction"]) == (job["jobname"], direction)
        assert (told["block"], told["engine"]) == ("64k", "psync")
        assert told.get("io_depth") == (2 if direction == "write" else None)


def test_programs_of_one_machine_need_no_number_of_nodes(records):
    said = UserMetadata(("generic-x86_64",))
    fio = records("machine-tools/fio.txt", said)[0]["metrics"]
    directions = {one["conditions"]["direction"] for one in fio}
    assert (directions, len(fio)) == ({"read", "write"}, 6)
    (memory,) = records("machine-tools/sysbench-memory.txt", said)
    assert by_name(memory)["memory_bandwidth"]["conditions"]["threads"] == 2
    copies = by_name(records("machine-tools/mbw.txt", said)[0])["memory_bandwidth"]
    assert len(copies["samples"]) == 2
    (stressors,) = records("machine-tools/stress-ng.txt", said)
    assert {m["conditions"]["stressor"] for m in stressors["metrics"]} == {"matrix", "vm"}


def test_an_answer_of_a_servers_api_has_its_timings(records):
    # hand-made: fields of an answer (form: tools/server/README.md of
    # https://github.com/ggml-org/llama.cpp, timings; docs/api.md of https://github.com/ollama/ollama)
    answer = {
        "model": "qwen3-30b",
        "choices": [{"message": {"content": "word " * 2000}}],
        "timings": {"prompt_n": 44, "prompt_ms": 210.5, "prompt_per_second": 209.03}
        | {"predicted_n": 120, "predicted_ms": 1800.2, "predicted_per_second": 66.66},
    }
    (record,) = records(json.dumps(answer) + "\n", ONE)
    found = by_name(record)
    assert (found["prompt"]["value"], found["decode"]["value"]) == (209.03, 66.66)
    assert found["decode"]["conditions"] == {"n_prompt": 44, "n_gen": 120}
    assert record["case"]["model"] == "qwen3-30b"
    answer = {"model": "llama3.1:70b", "prompt_eval_count": 26, "prompt_eval_duration": 2 * 10**9}
    answer |= {"eval_count": 180, "eval_duration": 45 * 10**9}
    (record,) = records(json.dumps(answer) + "\n", ONE)
    found = by_name(record)
    assert (found["prompt"]["value"], found["decode"]["value"]) == (13.0, 4.0)
    assert found["decode"]["conditions"] == {"n_prompt": 26, "n_gen": 180}


def test_the_title_of_a_test_may_have_a_stroke_in_it(records):
    # hand-made: no MPI is at hand (form: osu_mbw_mr.c of https://mvapich.cse.ohio-state.edu/benchmarks/)
    title = "# OSU MPI Multiple Bandwidth / Message Rate Test v7.0\n"
    (record,) = records(
        # hand-made: as above (form: the same file)
        title + "# [ pairs: 4 ]\n# Size   MB/s   Messages/s\n1024   8000.50   7812988.28\n",
        TWO,
    )
    (metric,) = record["metrics"]
    assert metric["conditions"]["test"] == "MPI Multiple Bandwidth / Message Rate"
    assert record["source"]["note"] == "osu 7.0"
