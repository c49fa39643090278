"""Counters tell which network carried a run."""

import pytest

from nixwulf.inventory.fabrics import Attachment
from nixwulf.nodes import counters
from nixwulf.nodes.counters import Counters, RdmaCounters
from nixwulf.plugins.benchmarks import all_benchmarks
from nixwulf.plugins.engines import all_engines
from nixwulf.sweep import transport
from nixwulf.sweep.transport import CHATTER_BYTES, Traffic
from tool_outputs import fixture

DATA = Attachment("eth1", "10.0.0.1")
RDMA = Attachment("eth1", "10.0.0.1", ("mlx5_0",), 3)
MB = 1_000_000

LINUX = fixture("linux/counters.txt")
# hand-made: no RDMA device is at hand, and this kernel has no soft RoCE
# (form: https://github.com/torvalds/linux/blob/55b0245/Documentation/ABI/stable/sysfs-class-infiniband)
ANSWER = f"""\
{LINUX}\
/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:250
/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:1000
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence:7
/sys/class/infiniband/mlx5_0/device/uevent:DRIVER=mlx5_core
/sys/class/infiniband/mlx5_0/device/uevent:PCI_ID=15B3:1017
/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts:30
/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:20
/sys/class/infiniband/rxe0/ports/1/hw_counters/duplicate_request:1
/sys/class/infiniband/rxe0/parent:eth0
"""


def test_the_management_interface_is_the_one_that_has_the_address_ssh_reached():
    assert counters.parse(ANSWER).management == "eth1"
    mapped = ANSWER.replace("management:10.77.1.11", "management:::ffff:10.77.1.11")
    assert counters.parse(mapped).management == "eth1"


@pytest.mark.parametrize("address", ["", "UNKNOWN", "172.16.0.9"])
def test_a_management_address_on_no_interface_is_unknown(address):
    text = ANSWER.replace("management:10.77.1.11", f"management:{address}")
    assert counters.parse(text).management is None


def test_interfaces_count_bytes_both_ways():
    _, _, _, *rows = [line for line in LINUX.splitlines() if "/proc/net/dev" in line]
    received, sent = (int(rows[0].split(":")[2].split()[at]) for at in (0, 8))
    assert counters.parse(ANSWER).interfaces == {"lo": 0, "eth1": received + sent}
    assert min(received, sent) >= 3 * 1028, "three packets of ping with 1000 bytes went both ways"


def test_port_data_is_counted_in_words_of_four_bytes():
    assert counters.parse(ANSWER).rdma["mlx5_0"] == RdmaCounters("mlx5_core", 5000, None)


def test_soft_roce_is_known_by_its_interface_and_counts_packets():
    assert counters.parse(ANSWER).rdma["rxe0"] == RdmaCounters("rdma_rxe", None, 50)


def test_irdma_counts_octets_of_its_own():
    # hand-made: no irdma is at hand
    # (form: https://github.com/torvalds/linux/blob/b5630b0/drivers/infiniband/hw/irdma/hw.c)
    names = {"ip4InOctets": 10, "ip6OutOctets": 5, "ip4InPkts": 2, "cnpHandled": 9}
    text = "".join(
        # no output: the line of each name above
        f"/sys/class/infiniband/irdma0/ports/1/hw_counters/{name}:{value}\n"
        for name, value in names.items()
    )
    # hand-made: as above (form: uevent of sysfs, https://docs.kernel.org/core-api/kobject.html)
    text += "/sys/class/infiniband/irdma0/device/uevent:DRIVER=ice\n"
    assert counters.parse(text).rdma["irdma0"] == RdmaCounters("ice", 15, 2)


def test_a_usb4_device_is_counted_by_the_frames_of_its_debugfs_file():
    text = (
        # hand-made: no USB4 is at hand
        # (form: https://github.com/hellas-ai/thunderbolt-ibverbs, its debugfs file summary)
        "/sys/class/infiniband/usb4_rdma0/device/uevent:DRIVER=thunderbolt_ibverbs\n"
        "/sys/kernel/debug/thunderbolt_ibverbs/summary:data_tx_completed: 30\n"
        "/sys/kernel/debug/thunderbolt_ibverbs/summary:data_tx_errors: 2\n"
        "/sys/kernel/debug/thunderbolt_ibverbs/summary:data_rx_completed: 12\n"
    )
    assert counters.parse(text).rdma["usb4_rdma0"] == RdmaCounters("thunderbolt_ibverbs", None, 42)


def test_any_text_at_all_gives_counters():
    lines = ANSWER.splitlines()
    for cut in range(len(ANSWER)):
        counters.parse(ANSWER[:cut])
    assert counters.parse("\n".join(reversed(lines))).management == "eth1"


def reading(data, management, rdma=None, names=("eth1", "eth0")):
    devices = {} if rdma is None else {"mlx5_0": rdma}
    return Counters({names[0]: data, names[1]: management}, names[1], devices)


def moved(attachment, before, after):
    return {"n1": transport.traffic([attachment], before, after)}


def test_tcp_is_proved_by_the_interface_of_the_fabric():
    nodes = moved(DATA, reading(5, 5), reading(5 + 20 * MB, 5 + CHATTER_BYTES // 2))
    assert transport.problem("lan", "tcp", nodes, 10_000) is None
    document = transport.document("tcp", nodes, None)
    assert document["proved"]
    assert document["bytes"] == {"n1": 20 * MB}
    assert document["counters"]["n1"] == {
        "fabric": {"interface": "eth1", "bytes": 20 * MB},
        "management": {"interface": "eth0", "bytes": CHATTER_BYTES // 2},
    }
    assert "note" not in document


def test_tcp_over_the_management_network_names_it():
    nodes = moved(DATA, reading(0, 0), reading(500, 20 * MB))
    assert transport.problem("lan", "tcp", nodes, 10_000) == (
        "The fabric 'lan' carried only 500 bytes of node 'n1' while measuring: the traffic crossed "
        "another network, or none (the management interface 'eth0' carried 20000000)."
    )


def test_tcp_whose_bulk_crosses_the_management_network_is_refused_though_the_fabric_moved():
    nodes = moved(DATA, reading(0, 0), reading(15 * MB, 20 * MB))
    assert transport.problem("lan", "tcp", nodes, 10_000) == (
        "The management interface 'eth0' of node 'n1' carried 20000000 bytes while measuring, and "
        "the fabric 15000000: the bulk crossed the wrong network."
    )


def test_the_drivers_own_words_are_never_the_bulk():
    nodes = moved(DATA, reading(0, 0), reading(20_000, CHATTER_BYTES))
    assert transport.problem("lan", "tcp", nodes, 10_000) is None


def test_one_interface_for_data_and_management_leaves_no_proof_and_the_record_has_why():
    one = Attachment("eth0", "192.168.1.5")
    nodes = moved(one, reading(0, 0), reading(0, 20 * MB))
    assert transport.problem("lan", "tcp", nodes, 10_000) is None
    assert "cannot tell them apart" in transport.document("tcp", nodes, None)["note"]


def test_an_unknown_management_interface_is_noted():
    before, after = (Counters({"eth1": count}, None, {}) for count in (0, 20 * MB))
    nodes = moved(DATA, before, after)
    assert transport.problem("lan", "tcp", nodes, 10_000) is None
    assert transport.document("tcp", nodes, None)["note"] == (
        "the management interface of n1 could not be read"
    )


def rdma(driver, data, device_bytes=None, packets=None, management=0):
    return moved(
        RDMA,
        reading(0, 0, RdmaCounters(driver, 0 if device_bytes is not None else None, 0)),
        reading(data, management, RdmaCounters(driver, device_bytes, packets or 0)),
    )


def test_rdma_is_proved_by_the_device_and_an_interface_that_stayed_quiet():
    nodes = rdma("mlx5_core", 20_000, 20 * MB)
    assert transport.problem("lan", "rdma", nodes, 10_000) is None
    counted = transport.document("rdma", nodes, None)
    assert counted["bytes"] == {"n1": 20 * MB}
    assert counted["counters"]["n1"]["rdma"]["driver"] == "mlx5_core"


def test_rdma_that_fell_back_to_tcp_is_refused():
    problem = transport.problem("lan", "rdma", rdma("mlx5_core", 20 * MB, 0), 10_000)
    assert problem is not None
    assert problem.endswith("and the interface 'eth1' 20000000: the traffic did not cross rdma.")


def test_ip_over_infiniband_moves_the_devices_counters_too_and_is_still_tcp():
    problem = transport.problem("ib", "rdma", rdma("mlx5_core", 20 * MB, 21 * MB), 10_000)
    assert problem is not None
    assert problem.endswith("carried 20000000 bytes while measuring, and its RDMA device 'mlx5_0' "
                            "21000000: the bulk crossed tcp.")  # fmt: skip


def test_soft_roce_passes_its_interface_and_is_still_rdma():
    nodes = rdma("rdma_rxe", 20 * MB, packets=6000)
    assert transport.problem("lan", "rdma", nodes, 10_000) is None


def test_a_device_that_counts_packets_has_to_move_enough_of_them():
    assert transport.problem("lan", "rdma", rdma("usb4", 0, packets=3), 10_000) is None
    problem = transport.problem("lan", "rdma", rdma("usb4", 0, packets=2), 10_000)
    assert problem is not None
    assert "carried at most 8192 bytes" in problem


def test_rdma_without_a_device_or_a_counter_is_not_proved():
    nodes = moved(DATA, reading(0, 0), reading(20 * MB, 0))
    assert "has no rdma_device" in (transport.problem("lan", "rdma", nodes, 10_000) or "")
    nodes = moved(RDMA, reading(0, 0), reading(20 * MB, 0))
    assert "has no counter that can be read" in (
        transport.problem("lan", "rdma", nodes, 10_000) or ""
    )


def test_what_several_ports_carried_is_summed():
    ends = [Attachment(f"eth{n}", f"10.0.{n}.1", (f"mlx5_{n}",)) for n in (1, 2)]
    before, after = (
        Counters(
            {"eth1": 0, "eth2": 0, "eth0": 0},
            "eth0",
            {f"mlx5_{n}": RdmaCounters("mlx5_core", moved * n, None) for n in (1, 2)},
        )
        for moved in (0, 10 * MB)
    )
    nodes = {"n1": transport.traffic(ends, before, after)}
    assert nodes["n1"].carried("rdma") == 30 * MB
    assert transport.problem("ring", "rdma", nodes, 25 * MB) is None
    counters = transport.document("rdma", nodes, None)["counters"]["n1"]
    assert counters["rdma"]["device"] == "mlx5_1, mlx5_2"
    assert counters["fabric"]["interface"] == "eth1, eth2"


def test_a_counter_that_was_reset_has_carried_nothing():
    nodes = moved(DATA, reading(9 * MB, 0), reading(500, 0))
    assert nodes["n1"] == Traffic(("eth1",), 0, "eth0", 0)


def test_the_drivers_own_connection_is_counted_with_its_headers():
    # Six packets: two sent, four received.
    assert counters.parse(ANSWER + fixture("linux/ss.txt")).own == 5000 + 1000 + 6 * 66
    assert counters.parse(ANSWER).own == 0


def test_what_the_driver_itself_sent_and_fetched_is_no_bulk_of_the_run():
    before, after = (
        Counters({"eth1": 0, "eth0": 0}, "eth0", {}),
        Counters({"eth1": MB, "eth0": 9 * MB}, "eth0", {}, own=8 * MB),
    )
    nodes = moved(DATA, before, after)
    assert nodes["n1"].management_bytes == MB
    assert transport.problem("lan", "tcp", nodes, 10_000) is None
    one = Attachment("eth0", "192.168.1.5")
    assert moved(one, before, after)["n1"].interface_bytes == MB, "nor any of its fabric"


def elsewhere(fabric_bytes, other_bytes, **options):
    before, after = (
        Counters(
            {"eth1": data, "eth2": other, "eth0": 0, "lo": 90 * MB * data}, "eth0", {}, **options
        )
        for data, other in ((0, 0), (fabric_bytes, other_bytes))
    )
    return moved(DATA, before, after)


def test_bulk_on_a_fabric_that_was_not_asked_for_is_refused_though_the_fabric_moved():
    # As exo's ring in the lab: gossip crossed the fabric, the tensors another one.
    assert transport.problem("lan", "tcp", elsewhere(1_095_809, 5 * MB), 10_000) == (
        "The interface 'eth2' of node 'n1', which is not on the fabric 'lan', carried 5000000 "
        "bytes while measuring, and the fabric 1095809: the bulk crossed another network."
    )
    rdma_too = transport.problem("lan", "rdma", rdma("mlx5_core", 20_000, 20 * MB), 10_000)
    assert rdma_too is None


@pytest.mark.parametrize(
    ("fabric_bytes", "other_bytes"),
    [(20 * MB, 21 * MB), (20 * MB, 40 * MB), (20_000, MB), (200 * MB, 150 * MB)],
    ids=["the device below a VLAN", "with ssh on another VLAN", "chatter", "less than the fabric"],
)
def test_an_interface_that_counts_the_fabric_again_or_little_else_is_no_other_network(
    fabric_bytes, other_bytes
):
    assert transport.problem("lan", "tcp", elsewhere(fabric_bytes, other_bytes), 10_000) is None


KNOWN = "the engine says so"


def on_macs(carried, own=0):
    """Two Macs: en3 is the fabric, en0 management, en4 another cable; RDMA is not counted."""
    none = {"en3": 0, "en0": 0, "en4": 0, "lo0": 0}
    before = Counters(none, "en0", {}, counts_rdma=False)
    after = Counters(none | carried, "en0", {}, counts_rdma=False, own=own)
    at = Attachment("en3", "10.50.12.1", ("rdma_en3",))
    return {name: transport.traffic([at], before, after) for name in ("mac-a", "mac-b")}


def test_tcp_between_macs_is_proved_like_any_other():
    nodes = on_macs({"en3": 20 * MB})
    assert transport.problem("cable", "tcp", nodes, 10_000) is None
    assert transport.uncounted("tcp", nodes, None) is None
    document = transport.document("tcp", nodes, None)
    assert (document["proved"], document["bytes"]["mac-b"]) == (True, 20 * MB)
    wrong = transport.problem("cable", "tcp", on_macs({"en0": 20 * MB}), 10_000)
    assert wrong is not None
    assert "the management interface 'en0' carried 20000000" in wrong


def test_rdma_that_nothing_counts_is_no_proof_and_says_what_it_rests_on():
    nodes = on_macs({"en3": 4000, "lo0": 90 * MB})
    assert transport.problem("cable", "rdma", nodes, 10_000, KNOWN) is None
    unproved = transport.uncounted("rdma", nodes, KNOWN)
    assert unproved == (
        "macOS has no counters of RDMA devices, so none shows rdma on mac-a, mac-b: that it was "
        "used is known only because the engine says so, and because no interface carried more "
        "than 1 MB"
    )
    document = transport.document("rdma", nodes, None, unproved)
    assert (document["proved"], document["bytes"], document["note"]) == (False, {}, unproved)


def test_rdma_that_nothing_counts_and_no_engine_shows_is_refused():
    problem = transport.problem("cable", "rdma", on_macs({}), 10_000)
    assert problem == (
        "Node 'mac-a' runs macOS, which has no counters of RDMA devices, and the engine does not "
        "tell what it used, so nothing proves rdma; take transport: [tcp]."
    )


@pytest.mark.parametrize("interface", ["en3", "en4"])
def test_bulk_on_any_interface_of_a_mac_speaks_against_rdma(interface):
    problem = transport.problem("cable", "rdma", on_macs({interface: 2 * MB}), 10_000, KNOWN)
    assert problem == (
        f"The interface '{interface}' of node 'mac-a' carried 2000000 bytes while measuring, and "
        "RDMA passes none: the bulk crossed tcp."
    )


def test_a_stream_of_tokens_to_the_driver_does_not_speak_against_rdma():
    nodes = on_macs({"en0": 3 * MB}, own=3 * MB - 40_000)
    assert transport.problem("cable", "rdma", nodes, 10_000, KNOWN) is None
    assert transport.problem("cable", "rdma", on_macs({"en0": 3 * MB}), 10_000, KNOWN)


def test_only_what_shows_rdma_by_itself_may_do_without_counters():
    plugins = (*all_engines().values(), *all_benchmarks().values())
    shows = {plugin.name for plugin in plugins if plugin.rdma_known_by}
    assert shows == {"llama.cpp", "mlx", "exo", "perftest"}
