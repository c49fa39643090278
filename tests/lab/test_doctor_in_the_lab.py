"""Doctor on nodes that are well, and on one into which mis-setups were bound, over real ssh."""

from dataclasses import replace

import pytest
from lab_under_test import cluster_of

from nixwulf.inventory.cluster import Node, Shape
from nixwulf.nodes.ssh import connect, connections
from nixwulf.ops.doctor.examine import doctor


@pytest.fixture(scope="module")
def lab(bring_up):
    running = bring_up(cluster_of(2, cable=Shape(), second=Shape()), "doctored")
    yield running.lab
    running.lab.down()


@pytest.fixture
def nodes(lab):
    found = connections(lab.cluster, lab.ssh_config)
    yield found
    for node in found.values():
        node.close()


def bad(found):
    return {(one.node, one.check): one.state for one in found.findings if one.state != "ok"}


def bound(node, path, text):
    """Let a node, and no other, read another text in a file of the kernel's."""
    script = 'printf "%s\\n" "$2" >"$3" && mount --bind "$3" "$1"'
    there = f"/tmp/{path.replace('/', '-')}-{node.node.name}"
    return node.run(["sh", "-c", script, "sh", path, text, there], timeout_s=20)


def test_nodes_that_are_well_have_nothing_wrong(lab, nodes):
    found = doctor(nodes, lab.cluster)
    # What this machine lacks, such as ethtool, is told of each node, and no more than that.
    assert set(bad(found).values()) <= {"unknown"}, bad(found)
    assert {check for _, check in bad(found)} <= {"tools", "kernel-log"}
    checks = {one.check for one in found.findings}
    assert {"ssh", "fabric", "path-mtu", "one-subnet", "swap", "carrier"} <= checks


def test_a_host_by_name_is_examined_without_a_cluster_file(lab):
    hosts = connect([Node("n1", "", "n1"), Node("n2", "", "n2")], lab.ssh_config)
    found = doctor(hosts, None)
    for host in hosts.values():
        host.close()
    assert found.of("wrong") == found.of("warning") == []
    assert {"ssh", "swap", "disk", "ports", "clock"} <= {one.check for one in found.findings}
    assert {one.node for one in found.findings} == {"n1", "n2"}


def test_what_is_planted_on_one_node_is_named_of_that_node_alone(lab, nodes):
    node, before = nodes["n1"], bad(doctor(nodes, lab.cluster))
    memory = "MemTotal: 4 kB\nMemAvailable: 4 kB\nCmaTotal: 32768 kB\nCmaFree: 9751756 kB"
    for path, text in (
        ("/proc/cmdline", "quiet amd_iommu=pt"),
        ("/proc/meminfo", memory),
        ("/proc/sys/vm/swappiness", "180"),
        ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8388604 0 -2"),
    ):
        assert bound(node, path, text).returncode == 0, path
    interface = (
        next(one for one in lab.cluster.nodes if one.name == "n1").fabrics["second"].interface
    )
    assert node.run(["ip", "addr", "add", "10.90.0.200/24", "dev", interface]).returncode == 0
    after = bad(doctor(nodes, lab.cluster))
    planted = {
        ("n1", "iommu-word"): "wrong",
        ("n1", "cma"): "wrong",
        ("n1", "swappiness"): "warning",
        ("n1", "one-subnet"): "wrong",
    }
    assert after == before | planted


def test_a_node_that_does_not_answer_is_wrong_and_the_other_is_examined(lab, nodes):
    options = ("-o", "ProxyCommand=false", "-o", "ControlPath=none", *nodes["n2"].options)
    found = doctor(nodes | {"n2": replace(nodes["n2"], options=options)}, lab.cluster)
    assert bad(found)["n2", "ssh"] == "wrong"
    assert {one.check for one in found.findings if one.node == "n2"} == {"ssh"}
    assert "carrier" in {one.check for one in found.findings if one.node == "n1"}


def test_a_load_judges_each_link_and_names_the_one_that_carries_too_little(lab, nodes):
    steps = []
    slow = ["tc", "qdisc", "replace", "dev", "cable", "root", "tbf", "rate", "600mbit"]
    slow += ["burst", "32kb", "latency", "400ms"]
    if nodes["n1"].run(slow, timeout_s=20).returncode != 0:
        pytest.skip("this kernel has no sch_tbf")
    found = doctor(nodes, lab.cluster, steps.append)
    rates = [one for one in found.findings if one.check == "link-rate"]
    assert len(steps) == len(rates) == 2
    states = {one.read.split()[0]: one.state for one in rates}
    assert states == {"'cable'": "wrong", "'second'": "ok"}
    assert all(one.node == "n1" and "'n2'" in one.read for one in rates)
    assert {one.check for one in found.findings} >= {"link-latency", "link-rate"}
