"""Records that measured a link and no model are judged beside what such a link carries."""

import pytest

from nixwulf.perf.explain.diagnostics import judged
from nixwulf.perf.explain.measured import measured_in


def record(name, value, platform="dgx-spark", **more):
    unit = "us" if name.endswith(("latency", "trip")) else "Gbit/s"
    metric = {"name": name, "unit": unit, "value": value, "conditions": more.pop("conditions", {})}
    case = {"id": "a", "benchmark": "perftest", "nodes": 2, "parameters": {}}
    return {
        "outcome": "ok",
        "case": case,
        "metrics": [metric],
        "cluster": {"name": "imported", "platforms": [platform]},
        **more,
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (record("rdma_bandwidth", 13.23), ["13.2 Gbit/s, where 97.3", "unplug the power supply"]),
        (record("bandwidth", 12.86), ["12.9 Gbit/s, where 92.6", "unplug the power supply"]),
        (record("rdma_bandwidth", 60.1), ["wired PCIe x2", "fwupdmgr"]),
        (record("all_gather_bandwidth", 24.0), ["NCCL_IB_HCA to both"]),
        (record("all_gather_bandwidth", 98.0), ["NCCL_IB_MERGE_NICS=1"]),
        (record("rdma_bandwidth", 24.9, "framework-desktop"), ["lanes and generation"]),
        (record("rdma_latency", 65.0, "framework-desktop"), ["not an rxe"]),
    ],
)
def test_a_link_that_carries_too_little_has_its_known_cause_and_source(found, words):
    sentence = judged(found)
    assert all(word in sentence for word in words), sentence
    assert "Known from https://" in sentence


@pytest.mark.parametrize(
    "found",
    [
        record("rdma_bandwidth", 92.57),
        record("bandwidth", 92.57),
        record("all_gather_bandwidth", 185.6),
        record("rdma_bandwidth", 50.64, "framework-desktop"),
        record("rdma_latency", 5.23, "framework-desktop"),
        record("rdma_latency", 15.2, "x", fabric={"name": "f", "kind": "usb4-rdma"}),
    ],
)
def test_a_link_that_is_well_is_said_to_be(found):
    assert judged(found).endswith(": as it should be.")


def test_a_link_of_a_fabric_is_judged_by_its_kind():
    fabric = {"name": "office", "kind": "ethernet", "speed_gbps": 5}
    assert "See cable, MTU and PCIe" in judged(record("bandwidth", 0.9, "x", fabric=fabric))
    assert judged(record("bandwidth", 4.6, "x", fabric=fabric)).endswith("as it should be.")


@pytest.mark.parametrize("name", ["ping_round_trip", "tcp_round_trip"])
def test_a_round_trip_over_a_cable_is_judged_by_its_kind(name):
    cable = {"name": "cable", "kind": "thunderbolt-net"}
    assert "power saving of both ends" in judged(record(name, 1380.0, "x", fabric=cable))
    assert judged(record(name, 238.0, "x", fabric=cable)).endswith("as it should be.")


@pytest.mark.parametrize(
    "found",
    [
        record("bandwidth", 3.0, "generic-x86_64"),
        record("rdma_bandwidth", 0.01, conditions={"bytes": 2}),
        record("bandwidth", 0.1, "x", fabric={"name": "f", "kind": "ethernet", "shaped_by": "tbf"}),
        record("bandwidth", 0.1, "x", fabric={"name": "f", "kind": "carrier-pigeon"}),
    ],
)
def test_nothing_is_said_where_nothing_is_known_or_messages_are_small(found):
    assert judged(found) == ""
    _, (rest,) = measured_in([found])
    assert rest.why == "It measured no prompt and no decode in tok/s."
