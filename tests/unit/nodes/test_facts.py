import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.nodes.facts import parse_facts
from nixwulf.nodes.interfaces import Link, link_of
from tool_outputs import fixture

OUTPUT = fixture("linux/facts.txt")
# hand-made: no machine with USB4 and a GPU is at hand
# (form: https://docs.kernel.org/admin-guide/thunderbolt.html and
# https://docs.kernel.org/gpu/amdgpu/driver-misc.html)
HARDWARE = """\
/sys/class/drm/card1/device/mem_info_gtt_total:133143986176
/sys/bus/thunderbolt/devices/0-2/rx_speed:20.0 Gb/s
/sys/class/net/thunderbolt0/mtu:9000
"""
# hand-made: control groups of both versions are on no one machine
# (form: https://docs.kernel.org/admin-guide/cgroup-v2.html and
# https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)
LIMITS = """\
--
8192
/sys/devices/system/cpu/online:0-3
/proc/self/status:Cpus_allowed_list:\t0-0
"""


def printed(path):
    return re.search(rf"^{re.escape(path)}:(.*)$", OUTPUT, re.MULTILINE)[1]


def test_facts_are_read_from_what_the_script_printed_on_a_linux_machine():
    facts = parse_facts(OUTPUT)
    assert facts.hostname == "n1"
    assert facts.kernel == printed("/proc/sys/kernel/osrelease")
    total = re.search(r"MemTotal: +(\d+) kB", OUTPUT)[1]
    assert facts.memory_total == int(total) * 1024
    assert 0 < facts.memory_available < facts.memory_total
    # no output: the beginning of a line that is counted
    assert facts.cpus == OUTPUT.count("/proc/cpuinfo:processor")
    assert facts.cpu == re.search(r"model name\s*: (.*)", OUTPUT)[1]
    assert facts.os == printed("/etc/os-release").removeprefix("PRETTY_NAME=").strip('"')
    assert facts.programs == {"ping": "/usr/bin/ping", "iperf3": "/usr/bin/iperf3"}
    assert facts.mtus == {"eth1": 1500, "lo": 65536}
    assert facts.addresses == {"10.77.1.11", "127.0.0.1", "127.0.0.0"}
    assert facts.system == "Linux"


def test_facts_of_hardware_have_its_place_in_their_name():
    facts = parse_facts(OUTPUT + HARDWARE)
    assert facts.mtus["thunderbolt0"] == 9000
    assert facts.other["thunderbolt 0-2 rx_speed"] == "20.0 Gb/s"
    assert facts.other["card1 mem_info_gtt_total"] == "133143986176"


def test_a_boot_and_a_system_of_nixos_are_known_by_the_beginning_of_their_names():
    # hand-made: no NixOS with a known closure is at hand
    # (form: https://docs.kernel.org/admin-guide/sysctl/kernel.html#random)
    facts = parse_facts(
        OUTPUT + "closure:/nix/store/0zq1v7y5p0bq1n0c3zhx9a6x3w8k2m4d-nixos-system-n1-26.05\n"
        "/proc/sys/kernel/random/boot_id:92A89bfd-a249-4889-89d0-066d1728667b\n"
    )
    kept = facts.document()
    assert (kept["boot"], kept["closure"]) == ("92a89bfd", "0zq1v7y5p0bq")
    assert "boot" not in parse_facts(OUTPUT + "closure:/etc\n").document()


@pytest.mark.parametrize(
    ("quotas", "cpus"),
    [
        (["max 100000"], None),
        (["-1 100000"], None),
        (["50000 100000"], 0.5),
        (["max 100000", "400000 100000", "150000 100000"], 1.5),
        (["50000 0"], None),
    ],
)
def test_the_least_quota_of_a_login_s_control_groups_limits_it(quotas, cpus):
    facts = parse_facts("\n".join([LIMITS, *(f"quota:{quota}" for quota in quotas)]))
    assert facts.cpu_quota == cpus
    assert facts.document().get("cpu_quota") == cpus


def test_fewer_cpus_than_there_are_is_a_fact_and_all_of_them_is_none():
    facts = parse_facts(LIMITS)
    assert (facts.cpus, facts.cpus_allowed, facts.document()["cpus_allowed"]) == (4, 1, 1)
    facts = parse_facts(LIMITS.replace("0-0", "0-3"))
    assert facts.cpus_allowed == 4
    assert "cpus_allowed" not in facts.document()


def test_the_size_of_the_last_level_cache_is_a_fact_as_the_kernel_writes_it():
    # hand-made: one line of the many that grep prints
    # (form: https://docs.kernel.org/admin-guide/abi-testing.html)
    line = "\n/sys/devices/system/cpu/cpu0/cache/index3/size:32768K\n"
    assert parse_facts(LIMITS + line).document()["cpu_cache"] == "32768K"
    assert "cpu_cache" not in parse_facts(LIMITS).document()


@given(st.text())
def test_no_output_of_a_node_breaks_the_parser(text):
    parse_facts(text)


def test_a_device_without_one_of_its_files_is_no_link():
    files = {"tx_speed": "20.0 Gb/s", "rx_speed": "20.0 Gb/s", "tx_lanes": "2", "rx_lanes": "2"}
    assert link_of(files) == Link("", 20.0, 2, 20.0, 2)
    assert all(link_of({k: v for k, v in files.items() if k != gone}) is None for gone in files)
