"""Results as llama-benchy's table and Spark Arena's CSV."""

import csv
import io

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.outputs import all_tools, cells, documents
from nixwulf.report.posted import to_csv, to_table
from nixwulf.results.importing import UserMetadata
from record_factory import case, make_record, metric, ok, write_run
from tool_outputs import FIXTURES, fixture, records_of

USER = UserMetadata(("generic-x86_64",), nodes=1)


def rows(text):
    return sorted(found for line in text.splitlines() if (found := cells(line)))


@pytest.fixture(scope="module")
def cached():
    return records_of(FIXTURES / "llama-benchy/cached.json", USER)


def test_our_table_of_its_numbers_is_its_own_table(cached):
    assert rows(to_table(cached, "x")) == rows(fixture("llama-benchy/cached.md"))


def test_our_csv_of_its_numbers_is_its_own_csv(cached):
    def read(text):
        return sorted(csv.reader(io.StringIO(text)))

    ours, theirs = read(to_csv(cached, "x")), read(fixture("llama-benchy/cached.csv"))
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one[0] != "model":
            numbers, expected = ([float(n or -1) for n in row[2:]] for row in (one, other))
            assert numbers == pytest.approx(expected)
    assert ours[0] == theirs[0]


def test_our_table_read_again_gives_the_same_numbers(cached, tmp_path):
    def values(found):
        return {
            (one["name"], str(one["conditions"])): (round(one["value"], 2), one.get("stddev", 0))
            for one in found
        }

    tool = all_tools()["llama-benchy"]
    (first,) = tool.read(to_table(cached, "x"))
    path = tmp_path / "again.md"
    path.write_text(to_table(cached, "x"))
    (second,) = tool.read(to_table(records_of(path, USER), "x"))
    assert values(documents(first.metrics)) == values(documents(second.metrics))
    known = {(one["name"], str(one["conditions"])) for one in cached[0]["metrics"]}
    assert known <= set(values(documents(first.metrics)))


# no output: parameters of a case
BENCHY = {"n_prompt": 64, "n_gen": 8, "depth": 0, "concurrency": 1, "prefix_caching": "off"}


def run_of(speed, nodes=1, repetition=0, **changes):
    of = case(nodes, benchmark="llama-benchy", parameters={**BENCHY, **changes})
    conditions = {"n_gen": 8, "n_depth": 0, "concurrency": 1}
    return ok(of, [metric("decode", speed, conditions=conditions)], repetition=repetition)


def test_repetitions_are_pooled_and_configurations_are_tables_of_their_own():
    records = [run_of([10.0], repetition=0), run_of([14.0], repetition=1), run_of([20.0], nodes=2)]
    text = to_table(records, "x")
    assert [row[:3] for row in rows(text) if row[0] == "tiny"] == [
        ["tiny", "tg8", "12.00 ± 2.00"],
        ["tiny", "tg8", "20.00 ± 0.00"],
    ]
    heads = [line for line in text.splitlines() if line.startswith("###")]
    assert heads == ["### llama.cpp, tiny, 2 nodes, tensor, lan", "### llama.cpp, tiny, one node"]


def test_rows_of_serve_have_what_means_the_same_and_nothing_else():
    parameters = {"concurrency": 1, "requests": 2, "n_prompt": 16, "n_gen": 4, "api": "chat"}
    of = case(1, benchmark="serve", parameters=parameters)
    found = [
        metric("ttft", [5.0, 7.0], unit="ms", conditions=parameters),
        metric("decode", [30.0, 30.0], conditions=parameters),
        metric("throughput", [25.0], conditions=parameters),
        metric("itl", [33.0], unit="ms", conditions=parameters),
    ]
    text = to_table([ok(of, found)], "x")
    assert [row for row in rows(text) if row[0] == "tiny"] == [
        ["tiny", "pp16", "", "", "", "", "6.00 ± 1.00"],
        ["tiny", "tg4", "30.00 ± 0.00", "", "", "", ""],
    ]
    assert "Measured by serve, not by llama-benchy." in text


def test_of_several_requests_at_once_serve_measures_another_load():
    parameters = {"concurrency": 2, "requests": 2, "n_prompt": 16, "n_gen": 4, "api": "chat"}
    of = case(1, benchmark="serve", parameters=parameters)
    records = [ok(of, [metric("decode", [30.0], conditions=parameters)]), run_of([9.0])]
    assert [row[1] for row in rows(to_table(records, "x")) if row[0] == "tiny"] == ["tg8"]


def test_rows_of_llama_bench_have_its_speeds():
    text = to_table([make_record()], "x")
    names = [row[1] for row in rows(text) if row[0] == "tiny"]
    assert names == ["pp128", "tg32"]


def test_a_run_that_failed_is_in_no_table(tmp_path):
    failed = {**run_of([10.0]), "outcome": "gibberish"}
    assert rows(to_table([failed, run_of([11.0], nodes=2)], "x"))[-1][2] == "11.00 ± 0.00"


def test_a_folder_without_such_runs_is_one_sentence(tmp_path):
    folder = write_run(tmp_path / "run", [make_record()])
    done = CliRunner().invoke(cli, ["report", str(folder), "--format", "spark-arena"])
    assert done.exit_code == 2
    assert "has no run of llama-benchy that ended ok; 'nixwulf bench' makes one" in done.output


def test_a_submission_is_of_one_configuration(tmp_path):
    folder = write_run(tmp_path / "run", [run_of([10.0]), run_of([20.0], nodes=2)])
    done = CliRunner().invoke(cli, ["report", str(folder), "--format", "spark-arena"])
    assert done.exit_code == 2
    assert "has 2 configurations (llama.cpp, tiny, 2 nodes, tensor, lan; llama" in done.output
    done = CliRunner().invoke(cli, ["report", str(folder), "--format", "llama-benchy"])
    assert done.exit_code == 0
    assert done.output.count(" tg8 |") == 2
