"""A load of links: a stream beside what the fabric's kind carries, and one that does not end."""

from types import SimpleNamespace

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import link
from nixwulf.ops.doctor.examine import load_links

FRAMEWORK = load_cluster("framework-2")
NODES = {node.name: SimpleNamespace(node=node) for node in FRAMEWORK.nodes}


def loaded(monkeypatch, gbps, trip_us=150.0):
    """What is found where streams carry so much, or end so, and trips take so long."""

    def stream(source, target, fabric, folder):
        if isinstance(gbps, Exception):
            raise gbps
        return link.Bandwidth(gbps, 0)

    monkeypatch.setattr(link, "bandwidth", stream)
    monkeypatch.setattr(link, "round_trips", lambda ours, to: link.RoundTrips((trip_us,), 0))
    steps = []
    return list(load_links(NODES, FRAMEWORK, steps.append)), steps


def states(found, check):
    return {one.read.split("'")[1]: one.state for one in found if one.check == check}


def test_a_link_as_its_kind_is_ok_and_each_is_told_before(monkeypatch):
    found, steps = loaded(monkeypatch, 9.3)
    assert set(states(found, "link-rate").values()) == {"ok"}
    assert len(steps) == len(FRAMEWORK.fabrics) == len(states(found, "link-rate"))
    assert all(one.mend == "" for one in found)


@pytest.mark.parametrize(("gbps", "trip_us"), [(0.4, 150.0), (9.3, 5000.0)])
def test_a_link_that_is_slow_or_late_is_named_with_its_mend(monkeypatch, gbps, trip_us):
    found, _ = loaded(monkeypatch, gbps, trip_us)
    slow = gbps < 1
    assert set(states(found, "link-rate").values()) == {"wrong" if slow else "ok"}
    assert set(states(found, "link-latency").values()) == {"ok" if slow else "warning"}
    assert all("both ends" in one.mend for one in found if one.state != "ok")


def test_a_stream_that_does_not_end_is_wrong(monkeypatch):
    found, _ = loaded(monkeypatch, NixwulfError("iperf3 did not carry 375 MB 'in 15 s'."))
    assert {(one.check, one.state) for one in found} == {("link-rate", "wrong")}
