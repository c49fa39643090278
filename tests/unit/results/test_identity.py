"""The same conditions: one list, and what each view may leave out of it."""

import pytest

from nixwulf.results.identity import (
    DRAWN_APART,
    OF_ONE_CLUSTER,
    OVER_FABRICS,
    OVER_NODES,
    OVER_OWNERS,
    WORK,
    Key,
    case_id,
    identity,
    record_key,
    record_setting,
    same,
)
from record_factory import case, ok
from site_records import foreign, value

ROW = {
    "kind": "run", "cluster": "c", "machine": "m", "platform": "p", "benchmark": "b",
    "engine": "e", "engine_version": "1", "model": "m", "weights": "q4", "nodes": 2,
    "parallelism": "tensor", "fabric": "lan", "transport": "tcp", "metric": "decode",
    "unit": "tok/s", "state": "warm", "parameters": '{"n_gen": 32}', "conditions": '{"depth": 0}',
}  # fmt: skip
CHANGES = dict.fromkeys(ROW, "other") | {
    "nodes": 4,
    "parameters": '{"n_gen": 64}',
    "conditions": '{"depth": 512}',
}


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize(
    "without", [frozenset(), OVER_NODES, OVER_FABRICS, OVER_OWNERS, OF_ONE_CLUSTER, DRAWN_APART]
)
def test_a_difference_counts_unless_a_view_leaves_it_out(name, without):
    other = {**ROW, name: CHANGES[name]}
    assert (same(ROW, without=without) == same(other, without=without)) == (name in without)
    equal = identity(ROW, without=without) == identity(other, without=without)
    assert equal == (name in without)


def test_a_condition_has_one_name_whichever_tool_named_it():
    assert same({**ROW, "conditions": '{"n_depth": 0}'}) == same(ROW)
    assert Key("conditions", "n_depth") in identity({**ROW, "conditions": '{"n_depth": 0}'})


def test_a_chart_may_mix_conditions_that_are_no_work():
    threads = {**ROW, "conditions": '{"depth": 0, "threads": 8, "n_prompt": 0}'}
    assert same(threads) != same(ROW)
    assert same(threads, conditions=WORK) == same(ROW, conditions=WORK)
    deeper = {**ROW, "conditions": '{"depth": 512}'}
    assert same(deeper, conditions=WORK) != same(ROW, conditions=WORK)


def test_ids_of_runs_come_again_and_those_of_others_do_not():
    run, other = ok(case(2), {"decode": [1.0]}), foreign("one", [value("decode", 1.0)])
    assert record_key(run) == (run["id"], run["started"])
    assert record_key(other) == ("one", "")
    assert case_id(run) == run["case"]["id"]
    assert case_id(other) == "one"
    assert record_setting(other).cluster == "Somebody: dgx-spark"
    assert record_setting(run).cluster == run["cluster"]["name"]
