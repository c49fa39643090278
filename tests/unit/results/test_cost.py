"""Speeds over watts and over US$, each with what it is computed from."""

from datetime import UTC, datetime

import pytest

from launch_plan import planned
from nixwulf.core.errors import InputError
from nixwulf.inventory.platforms import load_platform
from nixwulf.results import record
from nixwulf.results.cost import price, watts_by_metric
from nixwulf.results.table import by_case, tidy
from nixwulf.sweep.recording import Findings, record_of
from record_factory import case, machines, make_record, metric, ok, published

SPEEDS = {"decode": [20.0], "prompt": [200.0]}
SPARK = load_platform("dgx-spark")["price_usd"]


def watt(value, **conditions):
    return metric("power", [value], unit="W", conditions=conditions)


def speed(value, unit="tok/s", **conditions):
    return metric("decode", [value], unit=unit, conditions=conditions)


def row(records, name="decode"):
    table = tidy(records)
    (found,) = table[table["metric"] == name].to_dict("records")
    return found


def test_watts_beside_a_speed_make_tokens_a_watt_and_joules_a_token():
    found = row([published(case(), [speed(20.0), watt(100.0)])])
    assert (found["watts"], found["watts_source"]) == (100.0, "beside the speed")
    assert (found["per_watt"], found["joules_per_token"]) == (0.2, 5.0)


def test_the_source_of_the_watts_is_named():
    found = row([published(case(), [speed(20.0), watt(100.0, statistic="peak")])])
    assert found["watts_source"] == "beside the speed (statistic peak)"


def test_gigaflops_have_no_tokens():
    of = machines("hpl", 1, {"nb": 192})
    found = row([published(of, [speed(1000.0, "Gflop/s"), watt(200.0)])])
    assert found["per_watt"] == 5.0
    assert found["joules_per_token"] != found["joules_per_token"]


@pytest.mark.parametrize(
    "powers",
    [
        [],
        [watt(11.0, state="idle")],
        [watt(2.0, state="sleep")],
        [watt(180.0, bound="lower"), watt(187.0, bound="upper")],
        [watt(0.0)],
        [metric("temperature", [60.0], unit="W", conditions={})],
    ],
    ids=["none", "idle", "asleep", "two", "zero", "another"],
)
def test_watts_that_are_not_those_of_the_speed_make_nothing(powers):
    assert not watts_by_metric(published(case(), [speed(20.0), *powers]))


def test_of_several_watts_those_under_the_conditions_of_the_speed_count():
    metrics = [speed(20.0, load=1), speed(30.0, load=2), watt(100.0, load=1), watt(150.0, load=2)]
    found = watts_by_metric(published(case(), metrics))
    assert {index: cost.watts for index, cost in found.items()} == {0: 100.0, 1: 150.0}


def measured(*entries):
    efficiency = [
        {"metric": index, "name": "prompt", "source": source, "watts": watts, "unit": "tok/s/W"}
        | {"value": 2.0, "joules_per_token": 0.5}
        for index, source, watts in entries
    ]
    return record.sealed({**make_record(), "power": {"efficiency": efficiency}})


def test_a_run_gives_the_watts_of_its_fullest_source_as_it_computed_them():
    found = row([measured((0, "rapl", 40.0), (0, "wall", 100.0), (1, "wall", 90.0))], "prompt")
    assert (found["watts"], found["watts_source"]) == (100.0, "wall")
    assert (found["per_watt"], found["joules_per_token"]) == (2.0, 0.5)


def test_an_entry_of_power_that_is_about_no_metric_is_passed_over():
    odd = {"metric": 0, "name": "prompt", "value": 3.0}
    for entry in (odd, {**odd, "metric": 99, "source": "wall", "watts": 1.0, "unit": "tok/s/W"}):
        one = record.sealed({**make_record(), "power": {"efficiency": [entry]}})
        assert len(tidy([one])) == 2
        assert not watts_by_metric(one)


def test_a_price_is_that_of_the_record_before_that_of_the_platforms():
    one = published(case(2), SPEEDS, price_usd=10_000)
    assert price(one) == (10_000, "the source")
    assert row([one])["per_usd"] == 20.0 / 10_000
    run = record.sealed({**make_record(), "cluster": {**make_record()["cluster"], "price_usd": 5}})
    assert price(run) == (5, "the cluster file")


def test_else_it_is_that_of_the_platform_for_each_node_with_its_source():
    usd, source = price(published(case(2), SPEEDS))
    assert usd == 2 * SPARK["value"]
    assert source == f"platform facts: {SPARK['source']}"


@pytest.mark.parametrize(
    "platforms", [("lab",), ("unheard-of",), ("../dgx-spark",), ("dgx-spark", "framework-desktop")]
)
def test_without_a_price_of_every_node_there_is_none(platforms):
    assert price(published(case(2), SPEEDS, platforms=platforms)) is None


def test_of_a_run_it_is_known_which_node_is_of_which_platform():
    run = ok(case(3), SPEEDS)
    kinds = ["dgx-spark", "framework-desktop", "framework-desktop"]
    nodes = [{**node, "platform": kind} for node, kind in zip(run["nodes"], kinds, strict=True)]
    each = load_platform("framework-desktop")["price_usd"]["value"]
    assert price({**run, "nodes": nodes}).usd == SPARK["value"] + 2 * each


def test_a_failed_record_has_no_cost():
    table = tidy([ok(case(), SPEEDS), ok(machines("iperf3", 2, {}), [speed(9.0, "Gbit/s")])])
    assert table[["watts", "per_watt", "price_usd", "per_usd"]].isna().all(axis=None)
    assert set(table["watts_source"]) == set(table["price_source"]) == {""}


def test_by_case_has_the_means_over_the_runs_and_the_inputs():
    runs = [
        measured((0, "wall", 100.0)),
        record.sealed({**measured((0, "wall", 110.0)), "id": "other", "repetition": 1}),
    ]
    found = by_case(tidy(runs)).set_index("metric").loc["prompt"]
    assert (found["watts"], found["watts_source"], found["per_watt"]) == (105.0, "wall", 2.0)


CLUSTER = """
name = "desk"
[fabrics.lan]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "10.9.0.0/24"
"""
NODE = """
[[nodes]]
name = "n{0}"
platform = "generic-x86_64"
ssh = "n{0}"
fabrics.lan = {{ interface = "eth0", address = "10.9.0.{0}" }}
"""


def recorded(folder, *prices):
    nodes = [NODE.format(n) + (f"price_usd = {p}\n" if p else "") for n, p in enumerate(prices, 1)]
    (folder / "desk.toml").write_text(CLUSTER + "".join(nodes))
    matrix = {"nodes": [len(prices)], "fabric": ["lan"], "parallelism": ["pipeline"]}
    run = planned(folder, str(folder / "desk.toml"), {"path": "/m.gguf"}, matrix)
    found = Findings(outcome="failed", failure={"phase": "launch", "reason": "No."})
    return record_of(run, found, 0, datetime.now(UTC))


def test_the_cluster_file_s_prices_are_in_the_record_as_their_sum(tmp_path):
    document = recorded(tmp_path, 2000, 1999.5)
    assert document["cluster"]["price_usd"] == 3999.5


def test_a_node_without_a_price_leaves_the_sum_out(tmp_path):
    assert "price_usd" not in recorded(tmp_path, 2000, None)["cluster"]


@pytest.mark.parametrize("wrong", ["0", "-5", '"cheap"', "inf", "nan"])
def test_a_price_is_a_positive_number(tmp_path, wrong):
    with pytest.raises(InputError, match=r"desk\.toml"):
        recorded(tmp_path, wrong, wrong)
