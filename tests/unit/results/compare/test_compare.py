"""Two sets of records: equal conditions only, what differs, and whether a difference is shown."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.record import sealed
from nixwulf.sweep.plan import load_sweep, make_plan, save_plan
from record_factory import case, failed, machines, metric, ok, write_run

FAST = [[100.0, 101.0, 99.0], [102.0, 101.0, 100.0], [99.0, 100.0, 101.0]]
SLOW = [[80.0, 81.0, 79.0], [82.0, 81.0, 80.0], [79.0, 80.0, 81.0]]


def runs(of, samples, **changes):
    """A record for each list of samples of decode, with keys of the document changed."""
    records = (ok(of, {"decode": run}, repetition=i) for i, run in enumerate(samples))
    return [sealed({**record, **changes}) for record in records]


def compare(tmp_path, a, b, *options):
    """Exit code and output of a comparison of two lists of records."""
    for name, records in (("a", a), ("b", b)):
        write_run(tmp_path / name, records)
    return command(tmp_path / "a", tmp_path / "b", *options)


def command(*arguments):
    done = CliRunner().invoke(cli, ["compare", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def as_json(tmp_path, a, b, *options):
    code, output = compare(tmp_path, a, b, "--format", "json", *options)
    assert code == 0, output
    return json.loads(output)


def test_equal_cases_are_compared_and_the_ratio_has_an_interval(tmp_path):
    (pair,) = as_json(tmp_path, runs(case(2), FAST), runs(case(2), SLOW))["pairs"]
    assert pair["ratio"] == pytest.approx(0.8, abs=0.01)
    low, high = pair["interval"]
    assert 0.7 < low < 0.8 < high < 0.9
    assert (pair["b_is"], pair["for_the"]) == ("slower", "worse")
    assert pair["a"] == {"value": pytest.approx(100.33, abs=0.01), "n_samples": 9, "n_runs": 3}


def test_where_the_interval_holds_1_no_difference_is_shown(tmp_path):
    code, output = compare(tmp_path, runs(case(2), FAST), runs(case(2), FAST[::-1]))
    assert code == 0
    assert "no difference shown" in output


@pytest.mark.slow
def test_the_same_records_always_give_the_same_output(tmp_path):
    records = [*runs(case(2), FAST), *runs(case(2, "cable"), SLOW), *runs(case(4), SLOW)]
    write_run(tmp_path / "a", records)
    write_run(tmp_path / "b", [*runs(case(2), SLOW), failed(case(2, "cable"))])
    arguments = [
        sys.executable,
        "-m",
        "nixwulf",
        "compare",
        tmp_path / "a",
        tmp_path / "b",
    ]
    outputs = {
        subprocess.run(
            arguments, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("unit", "more", "less", "better"),
    [
        ("tok/s", "faster", "slower", "faster"),
        ("Gbit/s", "faster", "slower", "faster"),
        ("ms", "slower", "faster", "faster"),
        ("J/token", "more", "less", "less"),
        ("tok/s/W", "more", "less", "more"),
        ("W", "more", "less", None),
        ("kB", "more", "less", None),
    ],
)
def test_the_unit_says_which_direction_is_better(tmp_path, unit, more, less, better):
    small, large = (
        [ok(case(), [metric("thing", samples, unit=unit)])]
        for samples in ([10.0, 10.1, 9.9], [12.0, 12.1, 11.9])
    )
    (up,) = as_json(tmp_path / "up", small, large)["pairs"]
    (down,) = as_json(tmp_path / "down", large, small)["pairs"]
    assert (up["b_is"], down["b_is"]) == (more, less)
    judgements = {more: up.get("for_the"), less: down.get("for_the")}
    assert judgements == (
        {more: None, less: None}
        if better is None
        else {word: "better" if word == better else "worse" for word in (more, less)}
    )


def test_a_time_is_compared_by_its_median(tmp_path):
    def latencies(long):
        return [ok(case(), [metric("ttft", [10.0, 11.0, 12.0, 13.0, long], unit="ms",
                                   distribution=True)])]  # fmt: skip

    (pair,) = as_json(tmp_path, latencies(14.0), latencies(500.0))["pairs"]
    assert (pair["a"]["value"], pair["ratio"]) == (12.0, 1.0)


def test_what_differs_around_equal_cases_is_listed(tmp_path):
    engine = {"name": "llama.cpp", "version": "b2", "build_commit": "def456"}
    code, output = compare(
        tmp_path, runs(case(2), FAST), runs(case(2), SLOW, engine=engine), "--format", "md"
    )
    assert code == 0
    assert "engine version b1 -\\> b2; engine build abc123 -\\> def456" in output


def test_cases_without_a_partner_are_counted_and_named(tmp_path):
    a = [*runs(case(2), FAST), *runs(case(4), FAST)]
    b = [*runs(case(2), SLOW), *runs(case(2, "cable"), FAST)]
    found = as_json(tmp_path, a, b)
    assert len(found["pairs"]) == 1
    assert [(one["why"], one["case"]["nodes"], one["case"]["fabric"], one["case"]["metric"])
            for one in found["not_compared"]] == [
        ("only in A", 4, "lan", "decode"),
        ("only in B", 2, "cable", "decode"),
    ]  # fmt: skip
    _, output = command(tmp_path / "a", tmp_path / "b")
    assert "Not compared, only in A: 1 metric of 4 nodes, tensor, lan (decode)." in output


@pytest.mark.parametrize(
    "other",
    [
        {"parameters": {"n_prompt": 128, "n_gen": 32, "depth": 8192}},
        {"model": "large"},
        {"transport": "rdma"},
        {"parallelism": "pipeline"},
    ],
)
def test_other_conditions_are_never_compared(tmp_path, other):
    b = [*runs(case(2, **other), SLOW), *runs(case(1), FAST)]
    found = as_json(tmp_path, [*runs(case(2), FAST), *runs(case(1), FAST)], b)
    assert [pair["case"]["nodes"] for pair in found["pairs"]] == [1]
    assert len(found["not_compared"]) == 2


def test_conditions_of_a_metric_have_to_be_equal_too(tmp_path):
    a, b = ([ok(case(), [metric("decode", FAST[0], depth)])] for depth in (0, 4096))
    code, output = compare(tmp_path, a, b)
    assert code == 2
    assert output == (
        "Error: Nothing pairs: the nearest differ in n_depth (0 -> 4096); to compare over that, "
        "give --over n_depth.\n"
    )


def test_what_differs_in_a_condition_only_is_named_by_it(tmp_path):
    a = [ok(case(), [metric("decode", FAST[0], depth) for depth in (0, 4096)])]
    b = [ok(case(), [metric("decode", FAST[0])])]
    _, output = compare(tmp_path, a, b)
    assert "Not compared, only in A: 1 metric of one node, n_depth 4096 (decode)." in output


def test_over_compares_what_differs_in_that_alone(tmp_path):
    sides = runs(case(2), FAST), runs(case(2, "cable"), SLOW)
    code, output = compare(tmp_path, *sides)
    assert code == 2
    assert "differ in fabric (lan -> cable); to compare over that, give --over fabric." in output
    found = as_json(tmp_path, *sides, "--over", "fabric")
    assert len(found["pairs"]) == 1
    assert found["differences"] == [{"what": "fabric", "a": ["lan"], "b": ["cable"]}]


def test_over_what_a_side_has_several_of_is_refused(tmp_path):
    a = [*runs(case(2), FAST), *runs(case(2, "cable"), FAST)]
    code, output = compare(tmp_path, a, runs(case(2, "far"), SLOW), "--over", "fabric")
    assert code == 2
    assert "has several values of fabric for each condition: choose one by a query" in output


def test_over_an_unknown_key_is_refused_with_those_that_are_known(tmp_path):
    code, output = compare(tmp_path, runs(case(2), FAST), runs(case(2), SLOW), "--over", "colour")
    assert code == 2
    assert "Unknown key 'colour' of --over; known: benchmark, conditions, depth, engine" in output


def test_nodes_are_compared_by_their_place_whatever_they_are_called(tmp_path):
    def exchange(worker):
        record = ok(
            machines("latency", 2, {}),
            [metric("round_trip", FAST[0], unit="us", conditions={"worker": worker})],
        )
        nodes = [record["nodes"][0], {**record["nodes"][1], "name": worker}]
        return [sealed({**record, "nodes": nodes})]

    assert len(as_json(tmp_path, exchange("n2"), exchange("bob"))["pairs"]) == 1


def test_a_case_that_failed_only_in_b_is_reported_and_counts_as_below(tmp_path):
    sides = runs(case(2), FAST), [failed(case(2), "hang")]
    code, output = compare(tmp_path, *sides, "--fail-below", "0.95")
    assert code == 1
    assert "A ended ok, B ended hang." in " ".join(output.split())
    assert "Not compared" not in output
    code, _ = command(tmp_path / "b", tmp_path / "a", "--fail-below", "0.95")
    assert code == 2  # nothing has two numbers, and a failure that is gone is no reason to fail


def test_one_hang_among_runs_that_ended_ok_counts_as_below(tmp_path):
    b = [*runs(case(2), FAST), failed(case(2), "hang", repetition=3)]
    code, output = compare(tmp_path, runs(case(2), FAST), b, "--fail-below", "0.95")
    assert code == 1
    assert "B ended hang (1), ok (3)" in output


@pytest.mark.parametrize(
    ("b", "limit", "code"),
    [
        (SLOW, "0.95", 1),
        (SLOW, "0.5", 0),
        (FAST, "0.95", 0),
        ([[60.0, 120.0, 90.0], [50.0, 140.0, 80.0], [110.0, 70.0, 90.0]], "0.95", 0),
    ],
    ids=["shown to be below", "below 1 but not so far", "the same", "low, and too noisy to say"],
)
def test_fail_below_fails_only_for_what_is_shown(tmp_path, b, limit, code):
    found, output = compare(tmp_path, runs(case(2), FAST), runs(case(2), b), "--fail-below", limit)
    assert (found, "None of 1 judged pair is shown" in output) == (code, code == 0)


def test_one_run_on_a_side_is_never_judged_for_a_run_has_its_luck(tmp_path):
    code, output = compare(
        tmp_path, runs(case(2), FAST), runs(case(2), SLOW[:1]), "--fail-below", "0.95"
    )
    assert code == 2
    assert "1 pair with one run on a side" in output
    assert "can judge none of the 1 pairs" in output


def test_numbers_without_samples_have_a_ratio_alone(tmp_path):
    def source(value):
        record = ok(case(), {"decode": [value]})
        kept = {"name", "unit", "value", "conditions", "state"}
        metrics = [{k: v for k, v in record["metrics"][0].items() if k in kept}]
        return [sealed({**record, "schema_version": "1.2", "kind": "published",
                        "source": {"name": "them", "url": "https://example.com/"},
                        "metrics": metrics})]  # fmt: skip

    found = as_json(tmp_path, source(80.0), source(60.0))
    (pair,) = found["pairs"]
    assert pair["ratio"] == 0.75
    assert "interval" not in pair
    assert "b_is" not in pair
    _, output = command(tmp_path / "a", tmp_path / "b")
    assert "1 pair without an interval" in output


def test_two_samples_have_no_interval(tmp_path):
    (pair,) = as_json(tmp_path, runs(case(), [[1.0, 2.0]]), runs(case(), [[3.0, 4.0]]))["pairs"]
    assert "interval" not in pair


def test_queries_choose_from_a_folder(tmp_path):
    write_run(tmp_path / "all", [*runs(case(2), FAST), *runs(case(2, "cable"), SLOW)])
    options = ("--in", tmp_path / "all", "--over", "fabric")
    code, output = command("fabric=lan metric=decode", "fabric=c*", *options)
    assert code == 0
    assert "fabric lan -> cable" in output
    code, output = command("fabric=lan", "fabric=usb", *options)
    assert code == 2
    assert "it has fabric cable, lan." in output
    code, output = command("fabric=lan", "colour=red", *options)
    assert (code, "Unknown key 'colour'" in output) == (2, True)


@pytest.mark.parametrize(
    ("side", "words"),
    [("nowhere", "does not exist; name a record"), ("a=b", "no folder")],
)
def test_what_is_neither_a_path_nor_a_query_is_refused(tmp_path, side, words):
    code, output = command(side, side, "--in", tmp_path / "none")
    assert (code, words in output, output.count("\n")) == (2, True, 1)


def test_a_side_without_a_run_that_ended_ok_is_refused(tmp_path):
    code, output = compare(tmp_path, [failed(case(2))], runs(case(4), FAST))
    assert code == 2
    assert "has no number: no run ended ok." in output


def test_names_cannot_become_markup_or_move_the_cursor(tmp_path):
    of = case(2, "<b>lan</b>", model="x|y\x1b[2J")
    _, output = compare(tmp_path, runs(of, FAST), runs(of, SLOW), "--format", "md")
    assert "x\\|y" in output
    assert "<b>" not in output
    _, output = command(tmp_path / "a", tmp_path / "b")
    assert "\x1b" not in output


def test_bench_ends_with_a_comparison_with_its_baseline(tmp_path):
    sweep = tmp_path / "mine.yaml"
    sweep.write_text(
        "name: mine\nmodels: {tiny: {random: {}}}\nrepetitions: 3\n"
        "matrix: {model: [tiny], nodes: [1], parallelism: [single]}\n"
    )
    plan = make_plan(load_sweep(sweep), load_cluster("lab"))
    of = plan.cases[0].document()
    for name, samples in (("before", FAST), ("after", SLOW)):
        write_run(tmp_path / name, runs(of, samples))
        save_plan(plan, tmp_path / name / "plan.json")
    arguments = ["bench", "--resume", tmp_path / "after", "--baseline", tmp_path / "before"]
    done = CliRunner().invoke(cli, list(map(str, arguments)))
    assert (done.exit_code, "slower" in done.output) == (0, True)
    done = CliRunner().invoke(cli, [*map(str, arguments), "--fail-below", "0.95"])
    assert (done.exit_code, "Below 0.95 of A: one node (decode)." in done.output) == (1, True)


def test_bench_compares_cases_that_it_ran_in_turn_without_a_session_effect(tmp_path):
    sweep = tmp_path / "mine.yaml"
    sweep.write_text(
        "name: mine\nmodels: {tiny: {random: {}}}\nrepetitions: 3\n"
        "matrix: {model: [tiny], nodes: [1], parallelism: [single],"
        " parameters: {threads: [1, 2]}}\n"
    )
    plan = make_plan(load_sweep(sweep), load_cluster("lab"))
    records = []
    for minute, (of, repetition) in enumerate(plan.runs()):
        samples = (FAST if of.parameters["threads"] == 1 else SLOW)[repetition]
        record = ok(of.document(), {"decode": samples}, repetition=repetition)
        records.append(sealed({**record, "started": f"2026-01-02T03:{minute:02}:00.000Z"}))
    write_run(tmp_path / "run", records)
    save_plan(plan, tmp_path / "run" / "plan.json")
    arguments = ["bench", "--resume", str(tmp_path / "run"), "--baseline", "threads=1"]
    done = CliRunner().invoke(cli, [*arguments, "--fail-below", "0.95"])
    words = " ".join(done.output.split())
    assert (done.exit_code, "Below 0.95 of A: one node (decode)." in words) == (1, True)
    assert "1 pair without a session effect: both sides were run in turn." in words
    done = CliRunner().invoke(cli, [*arguments[:-1], "threads=3"])
    assert (done.exit_code, "0 of the sweep's 2 cases are so" in done.output) == (2, True)


def on(day, records):
    """The records, of one day, a minute after the other."""
    return [
        sealed({**record, "started": f"{day}T03:{minute:02}:00.000Z"})
        for minute, record in enumerate(records)
    ]


def test_what_one_side_measured_before_the_other_is_of_another_session(tmp_path):
    both = on("2026-01-02", [*runs(case(2), FAST), *runs(case(2), SLOW)])
    (pair,) = as_json(tmp_path, both[:3], both[3:])["pairs"]
    assert pair["session_effect"] == {
        "basis": "assumed",
        "stddev": pytest.approx(0.02 * 2**0.5),
        "assumed_stddev_of_a_session": 0.02,
    }


def test_repeated_sessions_give_the_session_effect_and_the_output_says_so(tmp_path):
    for shift, (side, samples) in enumerate({"a": FAST, "b": SLOW}.items()):
        for day in (1, 3, 5):
            date = f"2026-01-0{day + shift}"
            write_run(tmp_path / side / date, on(date, runs(case(2), samples)))
    _, output = command(tmp_path / "a", tmp_path / "b", "--format", "json")
    (pair,) = json.loads(output)["pairs"]
    assert pair["session_effect"]["basis"] == "repeated"
    assert pair["session_effect"]["stddev"] < 0.02
    _, output = command(tmp_path / "a", tmp_path / "b")
    assert "with the session effect that repeated sessions show" in " ".join(output.split())


@pytest.mark.parametrize("limit", ["nan", "inf", "0", "-1", "most"])
@pytest.mark.parametrize("arguments", [("compare", "a", "b"), ("bench", "--baseline", "a")])
def test_a_limit_that_is_no_ratio_is_refused(arguments, limit):
    done = CliRunner().invoke(cli, [*arguments, "--fail-below", limit])
    assert (done.exit_code, "'--fail-below'" in done.output) == (2, True)


def test_bench_reads_the_baseline_before_it_runs_anything(tmp_path):
    done = CliRunner().invoke(cli, ["bench", "--baseline", str(tmp_path / "none")])
    assert (done.exit_code, "does not exist" in done.output) == (2, True)
    done = CliRunner().invoke(cli, ["bench", "--fail-below", "0.9"])
    assert (done.exit_code, "name it with --baseline" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arguments", "--swa-full"),
        ("environment", "GGML_VK_DISABLE_F16=1"),
        ("draft", "ngram"),
        ("text", "code"),
    ],
)
def test_runs_that_differ_in_one_argument_pair_only_over_that(tmp_path, key, value):
    one, other = case(2), case(2)
    other = {**other, "parameters": {**other["parameters"], key: value}}
    code, output = compare(tmp_path, runs(one, FAST), runs(other, SLOW))
    assert code == 2, output
    assert f"--over {key}" in output
    (pair,) = as_json(tmp_path, runs(one, FAST), runs(other, SLOW), "--over", key)["pairs"]
    assert pair["ratio"] == pytest.approx(0.8, abs=0.01)


def test_where_no_model_is_stated_it_may_be_another_on_each_side(tmp_path):
    # hand-made: the closing line of a client (form: llama.cpp, common/sampling.cpp)
    line = (
        "llama_perf_context_print: eval time = 1000.00 ms / {} runs "
        "( 10 ms per token, {}.00 tokens per second)"
    )
    for name, speed in (("a", 100), ("b", 50)):
        path = tmp_path / f"{name}.txt"
        path.write_text(line.format(speed, speed) + "\n")
        about = ["--nodes", "1", "--platform", "framework-desktop", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(cli, ["import", str(path), *about])
        assert done.exit_code == 0, done.output
    code, output = command(tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "--model" in output
