"""Doctor on nodes that are well, and on one into which mis-setups were bound, over real ssh."""

from dataclasses import replace

import pytest
from lab_under_test import cluster_of

from nixwulf.inventory.cluster import Node, Shape
from nixwulf.nodes.ssh import connect
from nixwulf.ops.doctor import load
from nixwulf.ops.doctor.examine import doctor


@pytest.fixture(scope="module")
def lab(bring_up):
    running = bring_up(cluster_of(2, cable=Shape(), second=Shape()), "doctored")
    yield running.lab
    running.lab.down()


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


TREE = """
mkdir -p "$1" && mount --bind /sys/class "$1" && mount -t tmpfs planted /sys/class || exit 1
mkdir /sys/class/net && mount --bind "$1/net" /sys/class/net || exit 1
shift
while [ $# -gt 1 ]; do mkdir -p "${1%/*}"; echo "$2" >"$1"; shift 2; done
"""
GPU, DISK, CARD = (
    f"/sys/class/{name}"
    for name in ("drm/card1/device", "nvme/nvme0", "infiniband/rocep1s0f0/ports/1")
)


def test_a_tree_of_sysfs_that_is_bound_over_a_node_is_read_as_its_own(lab, nodes):
    before = bad(doctor(nodes, lab.cluster))
    files = {
        f"{GPU}/vendor": "0x1002",
        f"{GPU}/power_dpm_force_performance_level": "low",
        f"{GPU}/gpu_busy_percent": "98",
        f"{GPU}/pp_dpm_sclk": "0: 799Mhz *\n1: 2400Mhz",
        f"{DISK}/device/current_link_width": "2",
        f"{DISK}/device/max_link_width": "4",
        f"{DISK}/max_link_width": "4",
        f"{CARD}/state": "4: ACTIVE",
        f"{CARD}/link_layer": "Ethernet",
        f"{CARD}/gids/2": "0000:0000:0000:0000:0000:ffff:0a5a:000b",
        f"{CARD}/gid_attrs/types/2": "IB/RoCE v1",
        "/sys/class/hwmon/hwmon7/name": "amdgpu",
        "/sys/class/hwmon/hwmon7/power1_average": "14250000",
    }
    words = [word for pair in files.items() for word in pair]
    done = nodes["n2"].run(["sh", "-c", TREE, "sh", "/tmp/class-of-n2", *words], timeout_s=20)
    assert done.returncode == 0, done.stderr
    after = bad(doctor(nodes, lab.cluster))
    # The card brings one tool more to ask, which this machine may lack.
    after.pop(("n2", "tools"), None)
    before.pop(("n2", "tools"), None)
    assert after == before | {
        ("n2", "gpu-level-low"): "wrong",
        ("n2", "gpu-clock"): "wrong",
        ("n2", "pcie-lanes"): "wrong",
        ("n2", "roce-gid"): "warning",
    }
    assert load._watts(nodes["n2"])["amdgpu:hwmon7"] == pytest.approx(14.25)


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
    assert len(steps) == len(rates) + 1 == 3
    # Nothing is known of the speed of a lab's platform; without llama.cpp it is not loaded.
    (machine,) = [one for one in found.findings if one.check == "load-decode"]
    assert (machine.node, machine.state) in {("n1", "ok"), ("n1", "unknown")}
    states = {one.read.split()[0]: one.state for one in rates}
    assert states == {"'cable'": "wrong", "'second'": "ok"}
    assert all(one.node == "n1" and "'n2'" in one.read for one in rates)
    assert {one.check for one in found.findings} >= {"link-latency", "link-rate"}
