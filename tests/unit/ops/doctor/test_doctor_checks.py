"""Doctor names what people had wrong, with its mend, and says nothing of machines that are well."""

import dataclasses
import re
import shutil
import subprocess
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.inventory.cluster import Node, load_cluster
from nixwulf.nodes.facts import NodeReading, _script
from nixwulf.nodes.interfaces import DOCTOR_FILES
from nixwulf.ops.doctor.examine import Examination, page, subject_of
from nixwulf.ops.doctor.findings import LOG, Finding, checks, faults, judge
from nixwulf.ops.doctor.machine import CHECKS
from tool_outputs import fixture

CLEAN = ("strix-halo", "dgx-spark", "mac-studio", "raspberry-pi-cm5", "pc-with-3090")
PLANTED = tomllib.loads(fixture("doctor/planted.toml"))["planted"]

# hand-made: a graphics card (form: https://docs.kernel.org/PCI/sysfs-pci.html)
CARD = "/proc/bus/pci/devices:0100\t{}\t10\n"
# hand-made: a line of an Arm processor (form: https://docs.kernel.org/arch/arm64/cpu-feature-registers.html)
ARM = "/proc/cpuinfo:CPU implementer\t: 0x41\n"


def reading(name):
    return fixture(f"doctor/{name}.txt")


def findings(text, node="n1", cluster=None):
    named = Node(node, "", node)
    if cluster is not None:
        named = next(one for one in cluster.nodes if one.name == node)
    subject = subject_of(named, NodeReading.of(text), cluster)
    return list(judge(subject, [subject], CHECKS))


def bad(found):
    return [(one.check, one.state, one.read) for one in found if one.state != "ok"]


def planted(row):
    text = reading(row["on"])
    for old, new in row["change"]:
        assert old in text, f"{row['name']}: {old!r} is not in the clean reading"
        text = text.replace(old, new)
    return text + "".join(f"{line}\n" for line in row.get("add", ()))


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_said_of_a_machine_that_is_well(name):
    found = findings(reading(name))
    assert bad(found) == []
    assert len(found) >= 4


@pytest.mark.parametrize(
    ("name", "add", "platform"),
    [
        ("strix-halo", "", "framework-desktop"),
        ("dgx-spark", ARM + CARD.format("10de2e12"), "dgx-spark"),
        ("mac-studio", "", "mac-studio-m3-ultra"),
        ("raspberry-pi-cm5", ARM, "generic-aarch64"),
        ("pc-with-3090", "", "generic-x86_64"),
        ("pc-with-3090", CARD.format("10de2204"), "rtx-3090"),
    ],
)
def test_a_host_by_name_is_of_the_platform_of_its_firmware_or_its_chip(name, add, platform):
    subject = subject_of(Node("n1", "", "n1"), NodeReading.of(reading(name) + add), None)
    assert subject.platform["name"] == platform


@pytest.mark.parametrize("row", PLANTED, ids=[row["name"] for row in PLANTED])
def test_a_mis_setup_that_was_posted_is_named_with_what_mends_it(row):
    found = [one for one in findings(planted(row)) if one.state != "ok"]
    (named,) = [one for one in found if one.check == row["check"]][:1] or [None]
    assert named is not None, bad(found)
    assert named.state == row["state"]
    assert row["mend"] in named.mend
    assert named.source.startswith("https://")
    assert named.read != named.expected


def test_a_planted_mis_setup_is_all_that_is_said():
    others = {
        row["name"]: [one for one in bad(findings(planted(row))) if one[0] != row["check"]]
        for row in PLANTED
    }
    # The first says what the second does too: fewer lanes are a slower port.
    assert {name: rest for name, rest in others.items() if rest} == {
        "second controller of a Spark wired x2": [
            ("pcie-rate", "warning", "PCIe carries 189 Gbit/s to enp1s0f0np0 and enP2p1s0f0np0")
        ]
    }


def test_there_are_at_least_fifty_and_each_check_has_one():
    assert len(PLANTED) >= 50
    assert len({row["name"] for row in PLANTED}) == len(PLANTED)
    of_clusters = {"carrier", "moved-interface"}
    assert set(checks()) - {row["check"] for row in PLANTED} == of_clusters | {
        "kernel-log",
        "tools",
    }


def test_every_check_is_a_text_or_a_function_and_has_a_source_with_a_day():
    texts = {name for name, check in checks().items() if check.pattern}
    assert set(checks()) - texts == set(CHECKS)
    for name, check in checks().items():
        assert check.source.startswith("https://"), name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", check.read), name
        assert check.state in {"wrong", "warning", "unknown"}, name
        assert bool(check.of) == bool(check.pattern), name


def test_patterns_of_the_kernel_s_log_mean_the_same_to_grep(tmp_path):
    lines = [line for row in PLANTED for line in row.get("add", ()) if line.startswith("@log:")]
    log = tmp_path / "log"
    log.write_text("\n".join([*lines, "usb 1-1: new high-speed USB device number 2"]))
    done = subprocess.run(
        ["grep", "-cE", faults(), log], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == len(lines) > 20
    assert all(re.search(faults(), line) for line in lines)


@pytest.mark.parametrize("shell", ["sh", "busybox sh", "bash", "zsh --emulate sh"])
def test_the_script_reads_this_machine_by_any_shell_and_in_one_go(shell):
    words = shell.split()
    if not shutil.which(words[0]):
        pytest.skip(f"this machine has no {words[0]}")
    script = [*words, "-c", _script(DOCTOR_FILES, faults())]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    found = findings(done.stdout)
    assert {"kernel-log", "shared-memory", "swap"} <= {one.check for one in found}
    assert done.stderr == ""


FRAMEWORK = load_cluster("framework-2")


def on_cluster(text):
    """Of the first node of framework-2, whose fabrics have these interfaces and addresses."""
    node = FRAMEWORK.nodes[0]
    cable, office = (node.fabrics[name] for name in ("cable", "office"))
    text = text.replace("thunderbolt0", cable.interface).replace("10.10.1.1", cable.address)
    text = text.replace("enp191s0f0np0", office.interface).replace("192.168.100.1", office.address)
    return text, cable, office


def test_a_fabric_whose_interface_has_no_link_is_named():
    text, cable, _ = on_cluster(reading("strix-halo"))
    before = f'"ifname":"{cable.interface}","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]'
    assert before in text
    found = findings(text.replace(before, before.replace(',"LOWER_UP"', "")), "fw1", FRAMEWORK)
    assert [one[:2] for one in bad(found) if one[0] == "carrier"] == [("carrier", "wrong")]


def test_an_interface_that_has_another_name_now_is_named_with_both():
    text, cable, _ = on_cluster(reading("strix-halo"))
    (named,) = [
        one
        for one in findings(text.replace(cable.interface, "thunderbolt7"), "fw1", FRAMEWORK)
        if one.check == "moved-interface" and one.state == "wrong"
    ]
    assert "'thunderbolt7'" in named.read
    assert cable.interface in named.expected
    assert ".link file" in named.mend


def test_a_port_that_is_slower_than_the_cluster_file_is_wrong():
    text, _, office = on_cluster(reading("strix-halo"))
    least = next(f.speed_gbps for name, f in FRAMEWORK.fabrics.items() if name == "office")
    slow = re.sub(rf"({office.interface}/speed):\d+", rf"\1:{least * 1000 / 2:.0f}", text)
    states = [one[:2] for one in bad(findings(slow, "fw1", FRAMEWORK))]
    assert ("port-rate", "wrong") in states


def test_error_correction_that_differs_between_both_ends_is_wrong():
    text, _, office = on_cluster(reading("strix-halo"))
    other = text.replace("Active FEC encoding: RS", "Active FEC encoding: BaseR")
    nodes = FRAMEWORK.nodes
    there = nodes[1].fabrics["office"].interface
    other = other.replace(office.interface, there)
    pair = [
        subject_of(node, NodeReading.of(one), FRAMEWORK)
        for node, one in zip(nodes, (text, other), strict=True)
    ]
    found = [one for one in judge(pair[0], pair, CHECKS) if one.check == "fec"]
    assert ("wrong", "'BaseR', as the other end") in [(one.state, one.expected) for one in found]


def test_an_idle_h200_is_well_by_what_its_driver_printed():
    row = fixture("nvidia-smi/doctor-h200.txt")
    # no output: what facts.sh puts around the row
    found = findings(f"--\n@nvidia:{row}")
    assert {one.check for one in found} >= {"gpu-clock", "gpu-power-limit", "gpu-memory-errors"}
    assert {one.state for one in found if one.check.startswith("gpu-")} == {"ok"}


# Bad input: what is not there is unknown or left out, and nothing breaks.


def test_a_user_who_may_not_read_the_log_is_told_once_and_no_text_of_it_is_ok():
    found = findings(reading("dgx-spark").replace("@log:\n", ""))
    assert [one[:2] for one in bad(found)] == [("kernel-log", "unknown")]
    assert not [one for one in found if checks()[one.check].of == LOG]
    assert "usermod -aG adm" in next(one.mend for one in found if one.check == "kernel-log")


def test_a_program_that_is_absent_is_named_once_with_what_it_would_tell():
    # no output: lines of facts.sh's own
    found = findings(reading("dgx-spark") + "@absent:ethtool\n@absent:ethtool\n")
    assert [one[:2] for one in bad(found)] == [("tools", "unknown")]
    assert "error correction" in bad(found)[0][2]


# no output: lines of facts.sh's own
@pytest.mark.parametrize("text", ["", "--\n", "--\nunlimited\nclock:\n@absent:ip\n@log:\n"])
def test_a_machine_that_says_next_to_nothing_has_nothing_wrong(text):
    assert {state for _, state, _ in bad(findings(text))} <= {"unknown"}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CLEAN), st.integers(0, 200), st.text(max_size=40))
def test_no_reading_breaks_a_check(name, place, rubbish):
    lines = reading(name).splitlines()
    place %= len(lines)
    head, colon, _ = lines[place].rpartition(":")
    lines[place] = f"{head}{colon}{rubbish}"
    findings("\n".join(lines))


def test_a_page_has_what_is_wrong_first_and_folds_what_nodes_share():
    one = Finding("n1", "cma", "wrong", "read", "expected", "mend", "https://x")
    rest = (
        dataclasses.replace(one, check="swap", state="warning"),
        one,
        dataclasses.replace(one, node="n2"),
        dataclasses.replace(one, check="fec", state="ok", mend=""),
    )
    found = Examination(("n1", "n2"), rest)
    lines = page(found).splitlines()
    assert lines[0] == "wrong    cma on n1, n2: read"
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "wrong",
        "warning",
        "ok",
        "2",
    ]
    assert not found.document()["passed"]
    assert found.document()["findings"][0]["mend"] == "mend"
