"""Gates on real nodes: what is set wrong on one is refused, and a waived gate is in the record."""

import dataclasses
from contextlib import contextmanager

import pytest
from lab_under_test import Silent, cluster_of
from test_runs import plan_for

from nixwulf.inventory.cluster import Shape
from nixwulf.ops.preflight import preflight
from nixwulf.results.record import load, save
from nixwulf.sweep import session as bench

MATRIX = {"fabric": ["cable"]}


@pytest.fixture(scope="module")
def cluster():
    return cluster_of(2, cable=Shape())


@pytest.fixture(scope="module")
def session(cluster):
    with bench.session(plan_for(cluster, matrix=MATRIX), Silent()) as connected:
        yield connected


@pytest.fixture
def changed(session):
    """A change of a node that is taken back."""

    @contextmanager
    def change(node, there, back):
        session.nodes[node].script(there)
        try:
            yield
        finally:
            session.nodes[node].script(back)

    return change


@pytest.fixture
def found(session, cluster):
    """The results of a preflight that are neither ok nor without concern, by gate and node."""

    def hold(**options):
        results = preflight(cluster, session.nodes, **options).results
        assert {r.node for r in results} == {"n1", "n2"}
        return {(r.gate, r.node): r for r in results if r.state not in {"ok", "not applicable"}}

    return hold


WRONG_MTU = ("n2", "ip link set cable mtu 1400", "ip link set cable mtu 1500")


def test_nothing_is_wrong_with_a_lab(found):
    assert found() == {}


def test_an_mtu_that_is_wrong_at_one_end_is_refused_there(changed, found):
    with changed(*WRONG_MTU):
        results = found()
    assert "has MTU 1400 on 'cable'" in results["fabric", "n2"].sentences[0]
    assert "Not asked, because gate 'fabric' refuses 'n2'" in results["path-mtu", "n1"].sentences[0]
    asked = {"path-mtu", "clock", "disk", "ports", "versions"}
    assert {gate for gate, _ in results} == {"fabric", *asked}


def test_an_mtu_that_does_not_pass_is_refused_though_both_ends_have_it(changed, found, cluster):
    address = cluster.nodes[1].fabrics["cable"].address
    route = f"{address}/32 dev cable"
    with changed("n1", f"ip route add {route} mtu lock 1200", f"ip route del {route}"):
        results = found()
    assert results.keys() == {("path-mtu", "n1")}
    assert f"try 'ping -M do -s 1472 {address}'" in results["path-mtu", "n1"].sentences[0]


def test_a_dead_path_and_one_that_is_too_narrow_are_distinguished(changed, found, cluster):
    address = cluster.nodes[0].fabrics["cable"].address
    route = f"blackhole {address}/32"
    with changed("n2", f"ip route add {route}", f"ip route del {route}"):
        results = found(gates=["path-mtu"])
    assert "No packet came back from 'n2' to 'n1'" in results["path-mtu", "n2"].sentences[0]


def test_a_port_that_is_taken_is_refused(changed, found):
    listen = "iperf3 -s -D -p 50052 -I /tmp/taken"
    with changed("n1", listen, "kill $(tr -d '\\0' </tmp/taken)"):
        results = found()
    assert results.keys() == {("ports", "n1")}
    assert ":50052', which llama.cpp needs" in results["ports", "n1"].sentences[0]


def test_a_program_that_is_missing_is_refused(changed, found):
    hide = 'mount --bind /dev/null "$(command -v iperf3)"'
    with changed("n2", hide, 'umount "$(ls /usr/bin/iperf3 /usr/local/bin/iperf3 2>/dev/null)"'):
        results = found(gates=["programs"])
    assert "Node 'n2' lacks 'iperf3' on PATH" in results["programs", "n2"].sentences[0]


def test_a_refusal_skips_the_run_and_a_waived_one_is_in_its_record(
    changed, session, cluster, tmp_path
):
    def run(waived):
        plan = dataclasses.replace(plan_for(cluster, matrix=MATRIX), waived=waived)
        record = bench.run_one(session, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
        save(record, tmp_path / "record.json")
        return load(tmp_path / "record.json")

    with changed(*WRONG_MTU):
        refused, waived = run(()), run(("fabric", "path-mtu"))
    assert refused["outcome"] == "skipped"
    assert refused["failure"]["reason"].startswith("Gate 'fabric': Node 'n2' has MTU 1400")
    assert "waived" not in refused
    assert waived["outcome"] == "ok", waived.get("failure")
    assert waived["waived"] == ["fabric", "path-mtu"]
    said = {(result["gate"], result["node"], result["state"]) for result in waived["gates"]}
    assert {("fabric", "n2", "waived"), ("path-mtu", "n1", "waived")} <= said
