"""Outputs that strangers posted, each with the values that it states and no other."""

import pytest

from nixwulf.results.importing import UserMetadata
from tool_outputs import by_name

ONE = UserMetadata(("dgx-spark",), nodes=1)
TWO = UserMetadata(("dgx-spark",), nodes=2)


def test_rows_that_lost_their_last_pipe_are_two_runs(records):
    found = records("posted/llama-bench-row-without-last-pipe.txt", TWO)
    assert [[m["value"] for m in one["metrics"]] for one in found] == [[44.66], [20.10]]
    assert [one["case"]["nodes"] for one in found] == [1, 2]
    assert [one["metrics"][0]["stddev"] for one in found] == [0.17, 0.20]


def test_two_sizes_of_one_name_are_two_models(records):
    found = records("posted/llama-bench-csv-sizes.csv", ONE)
    assert [(one["model"]["bytes"], one["model"]["parameters"]) for one in found] == [
        (138_000_000_000, 228_690_000_000),
        (84_600_000_000, 138_800_000_000),
    ]
    assert len({one["case"]["id"] for one in found}) == 2


def test_a_block_that_ends_early_keeps_what_it_has_and_says_so(records):
    said = UserMetadata(("dgx-spark",), nodes=1, models=("inkling-small",))
    (record,) = records("posted/sglang-cut-off.txt", said)
    found = by_name(record)
    speeds = ("throughput", "peak_throughput", "prompt_throughput", "total_throughput")
    assert [found[name]["value"] for name in speeds] == [62.86, 76.00, 44.07, 106.93]
    assert found["ttft"]["observed"]["p50_ms"] == 607.40
    assert found["e2el"]["observed"]["p90_ms"] == 56060.61
    assert {m["conditions"]["concurrency"] for m in record["metrics"]} == {4}
    assert "cut off" in record["warnings"][0]


def test_medians_of_a_default_run_stand_beside_means_and_tails(records):
    (record,) = records("posted/vllm-median-without-p95.txt", TWO)
    found = by_name(record)
    times = {
        name: (found[name]["value"], *found[name]["observed"].values())
        for name in ("ttft", "tpot", "itl")
    }
    assert {name: sorted(one) for name, one in times.items()} == {
        "ttft": [9459.70, 9626.13, 12666.73],
        "tpot": [48.84, 77.86, 211.21],
        "itl": [25.44, 38.13, 214.35],
    }
    assert all("concurrency" not in m["conditions"] for m in record["metrics"])


def test_each_size_of_osu_is_a_rate(records):
    (record,) = records("posted/osu-bw.txt", TWO)
    assert [m["value"] / 0.008 for m in record["metrics"]] == pytest.approx(
        [1.78, 3.55, 7.06, 14.18, 21307.34]
    )
