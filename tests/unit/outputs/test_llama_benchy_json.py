"""llama-benchy's JSON gives what its table of the same numbers gives, with all samples."""

import json

import pytest

from nixwulf.outputs import ParseError, llama_benchy
from nixwulf.results.importing import UserMetadata
from tool_outputs import fixture

SAVED = json.loads(fixture("llama-benchy/cached.json"))
# Of one request at a time its table has the speeds twice, as those of the request and of all.
TWICE = {"throughput", "prompt_throughput", "peak_decode"}


def values(record):
    return {
        (one["name"], json.dumps(one["conditions"])): one["value"]
        for one in record["metrics"]
        if one["name"] not in TWICE or one["conditions"]["concurrency"] > 1
    }


def test_json_and_table_of_the_same_run_agree(records):
    user = UserMetadata(("generic-x86_64",), nodes=1)
    (one,) = records("llama-benchy/cached.json", user)
    (other,) = records("llama-benchy/cached.md", user)
    found, printed = values(one), values(other)
    assert found.keys() == printed.keys()
    assert len(found) == 45
    assert found == pytest.approx(printed, abs=0.0051)
    assert one["case"]["model"] == other["case"]["model"] == "tiny"
    assert one["source"]["note"] == "llama-benchy 0.4.0"


def test_json_among_lines_of_progress_has_a_sample_a_run(records):
    (record,) = records("llama-benchy/one-request.txt", UserMetadata(("lab",), nodes=1))
    found = {one["name"]: one for one in record["metrics"]}
    assert list(found) == ["prompt", "ttfr", "prompt_time", "ttft", "decode", "peak_throughput"]
    assert all(len(one["samples"]) == 2 for one in found.values())
    assert found["ttft"]["conditions"] == {"n_prompt": 64, "n_depth": 0, "concurrency": 1}
    assert found["decode"]["conditions"] == {"n_gen": 8, "n_depth": 0, "concurrency": 1}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("concurrency", True, "concurrency is 'True', expected a number"),
        ("prompt_size", -1, "prompt_size is '-1', expected a number"),
        ("ttfr", 3.0, r"ttfr is '3\.0', expected its mean, std and values"),
        ("ttfr", {"mean": 1.0, "values": []}, "expected its mean, std and values"),
        ("ttfr", {"mean": 1.0, "values": [10**400]}, "ttfr is "),
    ],
)
def test_what_json_got_wrong_is_one_sentence(key, value, words):
    test = {**SAVED["benchmarks"][0], key: value}
    with pytest.raises(ParseError, match=words):
        llama_benchy.read(json.dumps({**SAVED, "benchmarks": [test]}))


def test_json_without_a_test_is_one_sentence():
    text = json.dumps({"is_context_prefill_phase": 1})
    with pytest.raises(ParseError, match="benchmarks is 'None', expected objects"):
        llama_benchy.read(text)
    with pytest.raises(ParseError, match="no result in its benchmarks"):
        llama_benchy.read(json.dumps({"is_context_prefill_phase": 1, "benchmarks": []}))
