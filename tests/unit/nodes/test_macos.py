"""Macs, without one: the driver's own scripts and parsers on what macOS's programs print."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macos_tools import (
    HARDWARE_PORTS,
    IFCONFIG,
    NETSTAT,
    PRINTED,
    RDMA_PORTS,
    SYSCTL,
    THUNDERBOLT,
    VM_STAT,
    on_a_mac,
)
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import counters, facts, link, macos
from nixwulf.nodes.interfaces import Cable, RdmaPort
from nixwulf.plugins.gates import Crossing, GateContext, all_gates, result_of
from nixwulf.plugins.gates.fabric import _PROBE
from stand_in import put

MACS = load_cluster("mac-studio-4")
A, B = MACS.nodes[:2]
CABLE, OFFICE = MACS.fabrics["mesh"], MACS.fabrics["office"]
FREE = (28_000_000 + 1_500_000 + 500) * 16384


def facts_of_a_mac(folder, printed=PRINTED):
    return facts.parse_facts(
        on_a_mac(facts._SCRIPT, folder, *("ping", "iperf3", "no-such"), printed=printed)
    )


def test_facts_of_a_mac_come_from_its_programs(tmp_path):
    found = facts_of_a_mac(tmp_path)
    assert (found.system, found.kernel, found.os) == (
        "Darwin",
        "Darwin 25.2.0",
        "macOS 26.2 (25C56)",
    )
    assert (found.cpu, found.cpus, found.memory_total) == ("Apple M3 Ultra", 32, 512 * 2**30)
    assert found.programs.keys() == {"ping", "iperf3"}
    assert found.memlock is not None
    assert (found.mtus["en3"], found.mtus["lo0"]) == (1500, 16384)
    assert {"192.168.1.51", "10.50.12.1", "fe80::10aa:1bff:fe5c:77"} <= found.addresses
    document = found.document()
    assert document["product"] == "Mac15,14"
    assert document["iogpu.wired_limit_mb"] == "507904"
    assert "command_line" not in document
    assert "mac-a" not in str(document)


def test_what_a_mac_does_not_print_is_absent_and_the_rest_is_there(tmp_path):
    found = facts_of_a_mac(tmp_path, PRINTED | {"vm_stat": "", "ifconfig": "", "netstat": ""})
    assert (found.kernel, found.memory_available, found.mtus) == ("Darwin 25.2.0", 0, {})


def test_free_memory_is_what_is_free_repeats_files_or_may_be_thrown_away():
    assert macos.memory_available(VM_STAT.splitlines()) == FREE
    without = [line for line in VM_STAT.splitlines() if "File-backed" not in line]
    assert macos.memory_available(without) == 0


def test_a_link_without_an_address_has_one_column_less():
    assert macos.carried(NETSTAT.splitlines()) == {
        "lo0": (466453111, 466453111),
        "gif0": (0, 0),
        "en0": (23308376472, 26102435913),
        "en3": (5000, 300),
        "utun0": (700, 900),
    }


def test_older_macos_has_narrower_columns():
    old = (
        # hand-made: no Mac is at hand (form: netstat(1) of macOS 10.15,
        # https://github.com/shirou/gopsutil/blob/b5ffc22/net/net_darwin.go)
        "Name  Mtu   Network       Address            Ipkts Ierrs     Ibytes    Opkts Oerrs\n"
        "lo0   16384 <Link#1>                        869107     0  169411755   869107     0"
        "  169411755     0\n"
        "en0   1500  <Link#4>    02:00:5e:00:53:10  7823954     3 7652848826  4682219     1"
        " 1893524532     0\n"
    )
    assert macos.carried(old.splitlines()) == {
        "lo0": (169411755, 169411755),
        "en0": (7652848826, 1893524532),
    }


@pytest.mark.parametrize("row", [r for r in NETSTAT.splitlines() if "<Link#" in r])
def test_a_row_that_was_cut_is_never_read_as_another(row):
    (whole,) = macos.carried([row]).items()
    for cut in range(len(row.rstrip())):
        assert not macos.carried([row[:cut]]), row[:cut]
    assert dict([whole]) == macos.carried([row])


def test_counters_of_a_mac_know_the_interface_of_the_address_that_ssh_reached(tmp_path):
    for address in ("192.168.1.51", "fe80::10aa:1bff:fe5c:77%en0", "::ffff:192.168.1.51"):
        connection = f"192.168.1.9 5000 {address} 22"
        found = counters.parse(on_a_mac(counters._SCRIPT, tmp_path, SSH_CONNECTION=connection))
        assert found.management == "en0"
    assert found.interfaces["en3"] == 5300
    assert found.interfaces["en0"] == 23308376472 + 26102435913
    assert (found.rdma, found.counts_rdma) == ({}, False)


@given(st.sampled_from(sorted(PRINTED)), st.integers(0, 2500))
def test_outputs_cut_short_anywhere_are_read_as_far_as_they_go(name, cut):
    texts = PRINTED | {name: PRINTED[name][:cut]}
    # no output: the frame that our own script prints
    found = facts.parse_facts("--\nunlimited\nclock:\n" + "\n".join(texts.values()))
    assert found.memory_available in {0, FREE}
    assert found.mtus.keys() <= {"lo0", "gif0", "en0", "en3", "utun0"}
    # no output: the frame that our own script prints
    told = counters.parse("management:192.168.1.51\nsystem:Darwin\n" + "\n".join(texts.values()))
    assert told.interfaces.get("en3", 5300) == 5300
    assert told.management in {None, "en0"}


@given(st.text())
def test_any_text_of_a_mac_is_understood_or_left_out(text):
    # no output: a line of SYSCTL and any text
    facts.parse_facts(f"--\nkern.ostype: Darwin\n{text}")
    # no output: a line of our own script and any text
    counters.parse(f"system:Darwin\n{text}")


def test_a_linux_node_is_asked_nothing_of_a_mac(tmp_path):
    # no output: what must not be asked for here
    printed = dict.fromkeys(PRINTED, "kern.ostype: Darwin\nsystem:Darwin\n")
    found = facts.parse_facts(on_a_mac(facts._SCRIPT, tmp_path, printed=printed, linux=True))
    assert (found.system, found.memory_available > 0) == ("Linux", True)
    told = on_a_mac(counters._SCRIPT, tmp_path, printed=printed, linux=True, SSH_CONNECTION="")
    assert "Darwin" not in told
    assert counters.parse(told).counts_rdma
    assert "lo" in counters.parse(told).interfaces


def test_ping_of_macos_is_not_faster_than_a_user_may_and_waits_in_milliseconds():
    assert link.ping_arguments("10.50.12.2", 30, 64, "Darwin") == [
        *("ping", "-n", "-c", "30", "-i", "0.1", "-W", "1000", "-s", "56", "10.50.12.2")
    ]
    assert link.ping_arguments("10.50.12.2", 30, 64, "Linux")[4:8] == ["-i", "0.01", "-W", "1"]


def test_the_path_of_a_mac_is_probed_by_its_own_options(tmp_path):
    ping = r'case "$*" in *-D*1472*|*-D\ 10*|"-n -q -c 1 -W 1000 10.0.0.2") exit 0;; esac; exit 1'
    # no output: what our own script prints
    for options, expected in (
        (ping, "10.0.0.2 passes\n"),
        (ping.replace("-D*1472", "-D*9"), "10.0.0.2 small\n"),
        (ping.replace("-D", "-M"), "10.0.0.2 unasked\n"),
    ):
        on_a_mac("", tmp_path)
        put(tmp_path, "ping", options)
        assert on_a_mac(_PROBE, tmp_path, "1472", "10.0.0.2") == expected


def context(found, fabric, rdma=False, **changes):
    """Two Macs with the same facts, but for their addresses and names."""
    at_b = {
        A.fabrics[name].address: B.fabrics[name].address for name in A.fabrics.keys() & B.fabrics
    }
    second = dataclasses.replace(
        found, addresses=frozenset(at_b.get(a, a) for a in found.addresses)
    )
    nodes = {A.name: found, B.name: second}
    return GateContext((A, B), nodes, (Crossing(fabric, rdma),), **changes)


def held(gate, against):
    return result_of(all_gates()[gate], against, A, ())


@pytest.mark.parametrize("rdma", [False, True])
def test_no_gate_refuses_a_mac_that_is_as_its_cluster_file_says(tmp_path, rdma):
    answers = {
        "clock": "1800000000.N",
        "disk": "/dev/disk3s5  482797652 193000000 289797652      40% /System/Volumes/Data",
        "path-mtu": f"{B.end_to('mesh', A.name).address} passes",
    }
    against = context(
        facts_of_a_mac(tmp_path),
        CABLE,
        rdma,
        asked=(1800000000.0, 1800000000.1),
        answers={gate: {A.name: text, B.name: text} for gate, text in answers.items()},
    )
    found = {gate: held(gate, against) for gate in all_gates()}
    states = {
        state: {g for g, r in found.items() if r.state == state} for state in ("ok", "unknown")
    }
    assert not [r for r in found.values() if r.state == "refused"]
    assert states["ok"] >= {"clock", "disk", "fabric", "path-mtu"}
    assert states["unknown"] >= ({"gid", "memlock", "rdma-vendor"} if rdma else {"governor"})


def test_a_program_that_ssh_does_not_find_on_a_mac_may_be_there(tmp_path):
    found = dataclasses.replace(facts_of_a_mac(tmp_path), programs={"ping": "/sbin/ping"})
    assert held("programs", context(found, CABLE)).sentences == (
        "Node 'mac-a' lacks 'iperf3' on PATH (ssh sees the PATH of ~/.zshenv), which measures the "
        "link; deploy it or install it.",
    )


def test_a_clock_of_whole_seconds_refuses_only_what_is_certain(tmp_path):
    found = facts_of_a_mac(tmp_path)
    for theirs, state in (("1800000002.N", "ok"), ("1800000003.N", "refused")):
        answers = {"clock": {A.name: theirs, B.name: "1800000000.N"}}
        against = context(found, CABLE, answers=answers, asked=(1800000000.5, 1800000000.5))
        assert held("clock", dataclasses.replace(against, nodes=(B, A))).state == state


def test_a_mac_without_its_address_or_mtu_is_refused_with_what_to_run_there(tmp_path):
    other = IFCONFIG.replace("10.50.12.1 ", "169.254.7.7 ")
    found = facts_of_a_mac(tmp_path, PRINTED | {"ifconfig": other})
    (sentence,) = held("fabric", context(found, CABLE)).sentences
    assert sentence == "Node 'mac-a' does not have the address '10.50.12.1'; see 'ifconfig' there."
    jumbo = dataclasses.replace(CABLE, mtu=9000)
    (sentence,) = held("fabric", context(facts_of_a_mac(tmp_path), jumbo)).sentences
    assert sentence.endswith("run 'sudo networksetup -setMTU en3 9000' there.")


def test_another_system_is_no_mac():
    found = facts.parse_facts("--\n" + SYSCTL.replace("Darwin", "FreeBSD"))
    assert (found.system, found.kernel) == ("", "")


def test_a_macs_interfaces_are_distinguished_by_its_programs():
    found = {
        one.name: one for one in macos.interfaces(IFCONFIG, HARDWARE_PORTS, THUNDERBOLT, RDMA_PORTS)
    }
    assert found.keys() == {"gif0", "en0", "en3", "utun0"}
    assert {name: one.medium for name, one in found.items()} == {
        "gif0": "tunnel",
        "en0": "ethernet",
        "en3": "thunderbolt",
        "utun0": "tunnel",
    }
    office, cable = found["en0"], found["en3"]
    assert (office.speed_gbps, office.rdma, office.cable) == (10, (), None)
    assert [str(one) for one in office.addresses] == ["192.168.1.51/24"]
    assert [str(one) for one in cable.addresses] == ["10.50.12.1/30"]
    assert (cable.speed_gbps, cable.carrier, cable.mac) == (80, True, "02:00:5e:00:53:13")
    assert cable.rdma == (RdmaPort("rdma_en3", "ACTIVE"),)
    ours, theirs = (f"00000004-0000-4000-8000-00000000000{end}" for end in "ab")
    assert cable.cable == Cable(ours, theirs, "Mac15,14")


def test_a_thunderbolt_bridge_is_known_by_its_members():
    # hand-made: no Mac is at hand (form: ifconfig(8))
    bridge = """\
bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500
	inet 10.0.0.1 netmask 0xffffff00 broadcast 10.0.0.255
	member: en2 flags=3<LEARNING,DISCOVER>
	member: en3 flags=3<LEARNING,DISCOVER>
	status: active
bridge100: flags=8a63<UP,BROADCAST,SMART,RUNNING,ALLMULTI,SIMPLEX,MULTICAST> mtu 1500
	inet 192.168.64.1 netmask 0xffffff00 broadcast 192.168.64.255
	member: vmenet0 flags=3<LEARNING,DISCOVER>
	status: active
"""
    found = macos.interfaces(bridge, HARDWARE_PORTS, "", "")
    assert [one.medium for one in found] == ["thunderbolt", "virtual"]


@given(st.text(), st.text(), st.text(), st.text())
def test_no_output_of_a_mac_breaks_the_reader_of_its_interfaces(ifconfig, listed, cables, rdma):
    macos.interfaces(ifconfig + IFCONFIG, HARDWARE_PORTS + listed, cables, RDMA_PORTS + rdma)


# hand-made: no Mac is at hand (form: netstat -anv -p tcp of macOS 15, columns by netstat(1),
# https://github.com/apple-oss-distributions/network_cmds/blob/main/netstat.tproj/inet.c)
CONNECTIONS = """\
Active Internet connections (including servers)
Proto Recv-Q Send-Q  Local Address          Foreign Address        (state)      rxbytes      txbytes  rhiwat  shiwat    process:pid    state
tcp4       0      0  192.168.1.51.22        192.168.1.9.50000      ESTABLISHED     7000      1300000  131072  131072    sshd:4001   00102
tcp4       0      0  192.168.1.51.22        192.168.1.9.50001      ESTABLISHED        5            6  131072  131072    sshd:4002   00102
tcp4       0      0  *.22                   *.*                    LISTEN             0            0  131072  131072    launchd:1   00180
"""  # noqa: E501 - as wide as netstat makes it


def test_the_drivers_own_connection_is_known_by_its_two_ports():
    lines = CONNECTIONS.splitlines()
    assert macos.connection(lines, ["50000", "22"]) == 1_307_000
    assert macos.connection(lines, ["50002", "22"]) == 0
    assert macos.connection(lines, []) == 0


def test_a_netstat_that_counts_no_bytes_gives_none_and_not_the_sizes_of_buffers():
    older = [line.replace("rxbytes", "rhiwat") for line in CONNECTIONS.splitlines()]
    assert macos.connection(older, ["50000", "22"]) == 0


def test_what_the_driver_fetched_is_no_bulk_that_speaks_against_rdma(tmp_path):
    # no output: the frame that our own script prints
    text = f"management:192.168.1.51\nports:50000 22\nsystem:Darwin\n{IFCONFIG}{CONNECTIONS}"
    assert counters.parse(text).own == 1_307_000
