import csv
import io
import json
import statistics

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.report.render import to_csv, to_json
from nixwulf.results.record import sealed
from nixwulf.results.table import (
    CASE_KEYS,
    METRIC_KEYS,
    OF_CASE_COLUMNS,
    TIDY_COLUMNS,
    by_case,
    fabrics_of,
    record_rtt_us,
    tidy,
)
from record_factory import case, failed, link, machines, metric, ok, published

ONE = case(1)
TWO = case(2)
SAMPLES = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=5)


def row(frame, **conditions):
    for column, value in conditions.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_a_record_has_one_row_for_each_metric():
    table = tidy([ok(TWO, {"prompt": [100.0, 110.0], "decode": [20.0]}, rtt_us=300.0, gbps=2.3)])
    assert list(table.columns) == list(TIDY_COLUMNS)
    prompt = row(table, metric="prompt")
    assert (prompt["value"], prompt["unit"], prompt["n_samples"]) == (105.0, "tok/s", 2)
    assert prompt["n_prompt"] == 128
    assert (prompt["rtt_us"], prompt["bandwidth_gbps"]) == (300.0, 2.3)
    assert row(table, metric="decode")[["n_gen", "depth"]].tolist() == [32, 0]


@settings(max_examples=25)
@given(runs=st.lists(SAMPLES, min_size=1, max_size=4))
def test_a_mean_and_deviation_are_over_all_samples_of_all_repetitions(runs):
    records = [
        ok(of, {"prompt": [7.0, 8.0], "decode": values}, repetition=i)
        for i, values in enumerate(runs)
        for of in (TWO, case(4))
    ]
    table = by_case(tidy(records))
    assert set(table[table["metric"] == "prompt"]["mean"]) == {7.5}
    found = row(table, metric="decode", nodes=2)
    pooled = [value for values in runs for value in values]
    assert found["mean"] == pytest.approx(statistics.fmean(pooled))
    assert (found["n_samples"], found["n_runs"]) == (len(pooled), len(runs))
    if len(pooled) > 1:
        assert found["stddev"] == pytest.approx(statistics.stdev(pooled))


MIXED = [
    *(ok(ONE, {"decode": [100.0 + run]}, repetition=run) for run in range(3)),
    *(ok(TWO, {"decode": [30.0 + run, 31.0]}, repetition=run) for run in range(3)),
    *(failed(case(4), repetition=run) for run in range(2)),
]


@pytest.fixture(scope="module")
def in_order():
    """The tables of records in the order in which they were made."""
    return to_csv(MIXED), by_case(tidy(MIXED))


@settings(max_examples=25)
@given(shuffled=st.permutations(MIXED))
def test_the_order_of_records_does_not_matter(in_order, shuffled):
    assert to_csv(shuffled) == in_order[0]
    assert by_case(tidy(shuffled)).equals(in_order[1])


def test_efficiency_is_the_speed_over_that_of_as_many_single_nodes():
    records = [ok(ONE, {"decode": [90.0, 110.0]}), ok(TWO, {"decode": [50.0]})]
    found = row(by_case(tidy(records)), nodes=2)
    assert (found["one_node"], found["speed_up"], found["efficiency"]) == (100.0, 0.5, 0.25)


@pytest.mark.parametrize(
    "other",
    [
        case(1, model="other"),
        case(1, engine="other"),
        case(1, parameters={"n_prompt": 512, "n_gen": 32, "depth": 0}),
    ],
    ids=["model", "engine", "parameters"],
)
def test_one_node_of_something_else_is_no_baseline(other):
    found = row(
        by_case(tidy([ok(other, {"decode": [90.0]}), ok(TWO, {"decode": [50.0]})])), nodes=2
    )
    assert found.isna()[["one_node", "speed_up", "efficiency"]].all()


def test_a_baseline_of_another_metric_does_not_count():
    found = by_case(tidy([ok(ONE, {"prompt": [90.0]}), ok(TWO, {"decode": [50.0]})]))
    assert row(found, nodes=2).isna()["speed_up"]


@pytest.mark.parametrize("unit", ["ms", "us", "Gbit/s", "GB/s", "W", "%", "tok/s/W", "J/token"])
def test_what_nodes_do_not_add_up_to_has_no_speed_up(unit):
    samples = [metric("load", [9.0], unit=unit)]
    found = row(by_case(tidy([ok(ONE, samples), ok(TWO, samples)])), nodes=2)
    assert found.isna()[["one_node", "speed_up", "efficiency"]].all()


def test_work_of_any_unit_is_compared_with_one_node():
    one, two = (machines("hpl", nodes, {"nb": 192}) for nodes in (1, 2))
    records = [
        ok(one, [metric("performance", [100.0], unit="Gflop/s")]),
        ok(two, [metric("performance", [150.0], unit="Gflop/s")]),
    ]
    assert row(by_case(tidy(records)), nodes=2)["efficiency"] == 0.75


@settings(max_examples=25)
@given(runs=st.lists(SAMPLES, min_size=1, max_size=4))
def test_percentiles_of_a_distribution_are_of_all_samples_of_all_repetitions(runs):
    case_ = machines("latency", 2, {"bytes": 64})
    records = [
        ok(case_, [metric("round_trip", values, unit="us", distribution=True)], repetition=i)
        for i, values in enumerate(runs)
    ]
    found = row(by_case(tidy(records)), metric="round_trip")
    pooled = sorted(value for values in runs for value in values)
    assert found["p50"] == pooled[(len(pooled) + 1) // 2 - 1]
    assert found["p99"] == max(pooled)


def test_a_distribution_is_compared_by_its_median():
    one, two = (
        ok(of, [metric("decode", values, distribution=True)])
        for of, values in ((ONE, [10.0, 10.0, 400.0]), (TWO, [15.0, 15.0, 16.0]))
    )
    assert row(by_case(tidy([one, two])), nodes=2)["speed_up"] == 1.5


def test_a_metric_that_is_no_distribution_has_no_percentiles():
    table = tidy([ok(ONE, {"decode": [1.0, 2.0]})])
    assert table[["p50", "p95", "p99"]].isna().all(axis=None)


def test_of_cables_the_round_trip_is_that_of_the_slowest():
    record = ok(case(3), {"decode": [1.0]})
    fast, slow, last = link(50.0, 9.0), link(300.0, 2.0), link(60.0, 9.0)
    links = [fast, slow, {**last, "from": "another"}]
    changed = {**record, "fabric": {**record["fabric"], "links": links}}
    assert record_rtt_us(changed) == 300.0
    ((stats,),) = fabrics_of([changed]).values()
    assert set(stats.rtts_us) == {300.0}


def test_a_round_trip_is_the_median_over_links_of_those_before_and_after():
    record = ok(case(3), {"decode": [1.0]})
    slow = link(100.0, 1.0)
    slow["rtt_after"] = {**slow["rtt_after"], "median": 300.0}
    changed = {**record, "fabric": {**record["fabric"], "links": [link(200.0, 9.0), slow]}}
    assert record_rtt_us(changed) == 200.0
    assert row(tidy([changed]), metric="decode")["bandwidth_gbps"] == 1.0


def test_a_failed_run_is_a_row_with_its_reason_and_no_speed():
    found = tidy([failed(TWO, "hang", reason="No output for 60 s.", hint="Look.", rtt_us=250.0)])
    only = found.iloc[0]
    assert (only["outcome"], only["phase"], only["reason"], only["hint"]) == (
        *("hang", "measure"),
        *("No output for 60 s.", "Look."),
    )
    assert only["rtt_us"] == 250.0
    assert found[["value", "stddev", "n_samples"]].isna().all(axis=None)


def test_a_speed_that_a_failed_record_smuggles_in_is_not_read():
    record = failed(TWO)
    smuggled = {**record, "metrics": ok(TWO, {"decode": [999.0]})["metrics"]}
    assert "999" not in to_csv([smuggled])
    assert by_case(tidy([smuggled])).empty


def test_no_records_make_empty_tables_with_all_columns():
    assert tidy([]).empty
    assert by_case(tidy([])).empty
    for records in ([], [ok(ONE, {"decode": [1.0]})]):
        assert list(tidy(records)) == list(TIDY_COLUMNS)
        assert list(by_case(tidy(records))) == [*CASE_KEYS, *METRIC_KEYS, *OF_CASE_COLUMNS]


def test_csv_has_a_unit_in_each_row_and_every_sample():
    text = to_csv([ok(TWO, {"decode": [20.0, 22.0]}), failed(ONE)])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {"value", "unit", "rtt_us", "bandwidth_gbps"} <= rows[0].keys()
    measured = next(found for found in rows if found["outcome"] == "ok")
    assert json.loads(measured["samples"]) == [20.0, 22.0]
    assert (measured["nodes"], measured["n_gen"], measured["unit"]) == ("2", "32", "tok/s")


def test_json_says_what_each_column_holds_and_leaves_out_what_has_no_value():
    document = json.loads(to_json([ok(ONE, {"decode": [20.0]}), failed(TWO, hint="")]))
    assert document["columns"] == TIDY_COLUMNS
    measured, lost = sorted(document["rows"], key=lambda found: found["nodes"])
    assert measured["samples"] == [20.0]
    assert not {"fabric", "rtt_us", "stddev", "reason"} & measured.keys()
    assert not {"value", "metric", "hint"} & lost.keys()


def test_one_node_of_the_same_source_is_a_baseline_of_published_numbers():
    records = [published(ONE, {"decode": [20.0]}), published(TWO, {"decode": [30.0]})]
    found = row(by_case(tidy(records)), nodes=2)
    assert (found["one_node"], found["efficiency"]) == (20.0, 0.75)


def differing(**changes):
    one = published(ONE, {"decode": [20.0]})
    return sealed({**one, **changes})


@pytest.mark.parametrize(
    "other",
    [
        differing(cluster={"name": "Somebody else", "platforms": ["dgx-spark"], "lab": False}),
        differing(cluster={"name": "Somebody", "platforms": ["lab"], "lab": False}),
        differing(engine={"name": "llama.cpp", "version": "b2"}),
        differing(model={"name": "tiny", "weights": "q4_0"}),
        differing(metrics=[{**metric("decode", [20.0], depth=512), "unit": "tok/s"}]),
        ok(ONE, {"decode": [20.0]}),
    ],
    ids=["source", "platform", "version", "weights", "conditions", "run"],
)
def test_one_node_of_another_source_or_under_other_conditions_is_none(other):
    found = by_case(tidy([other, published(TWO, {"decode": [30.0]})]))
    assert row(found, nodes=2).isna()["efficiency"]


def test_numbers_without_samples_stand_as_they_are():
    of = [{"name": "decode", "unit": "tok/s", "value": 9.5, "stddev": 0.5, "conditions": {}}]
    found = row(by_case(tidy([published(ONE, of)])), nodes=1)
    assert (found["mean"], found["stddev"], found["n_runs"]) == (9.5, 0.5, 1)
    assert found[["n_samples"]].isna().all()


def test_samples_count_and_not_the_numbers_of_those_that_have_none():
    """Two imports of one case, of which only one says its samples, are one line in a table."""
    with_samples, without = (
        tidy([ok(ONE, {"decode": [10.0, 20.0]}, repetition=n)]) for n in (0, 1)
    )
    without = without.assign(samples=[()], n_samples=None, value=99.0)
    found = row(by_case(pd.concat([with_samples, without])), nodes=1)
    assert (found["mean"], found["n_samples"], found["n_runs"]) == (15.0, 2, 2)
