"""Interfaces of a Linux machine: as a node with decoys printed them, and hardware not at hand."""

import json

from hypothesis import given
from hypothesis import strategies as st

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.interfaces import Cable, Interface, RdmaPort, parse_hardware, parse_interfaces
from nixwulf.ops.survey.machines import parse
from tool_outputs import fixture

SURVEYED = parse(Node("n1", "", "n1"), fixture("linux/survey.txt"))
# hand-made: no machine with such cards is at hand (form: 'ip -j -d address', linux/survey.txt)
ETHERNET = {
    "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
    "mtu": 9000,
    "link_type": "ether",
    "address": "02:00:5E:00:53:01",
    "addr_info": [{"family": "inet", "local": "10.1.0.1", "prefixlen": 24}],
}
# hand-made: no machine with Thunderbolt, RDMA or Wi-Fi is at hand
# (form: https://docs.kernel.org/admin-guide/abi-stable.html of sysfs-class-infiniband, and
# https://docs.kernel.org/admin-guide/abi-testing.html of sysfs-bus-thunderbolt and sysfs-class-net)
FILES = """\
/sys/class/net/enp1s0/speed:100000
/sys/class/net/enp1s0/phys_port_name:p0
/sys/class/infiniband/mlx5_0/sys_image_guid:0200:5e03:0000:5300
/sys/class/net/wlp2s0/uevent:DEVTYPE=wlan
/sys/class/net/thunderbolt0/speed:4294967295
/sys/bus/thunderbolt/devices/1-0/unique_id:AAAA-1
/sys/bus/thunderbolt/devices/1-3/unique_id:BBBB-2
/sys/bus/thunderbolt/devices/1-3/device_name:fw2
/sys/bus/thunderbolt/devices/1-3/rx_speed:20.0 Gb/s
/sys/bus/thunderbolt/devices/1-3/rx_lanes:2
/sys/bus/thunderbolt/devices/1-3/tx_speed:20.0 Gb/s
/sys/bus/thunderbolt/devices/1-3/tx_lanes:1
/sys/class/infiniband/mlx5_0/device/vendor:0x15b3
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/gids/0:fe80:0000:0000:0000:0000:5eff:fe00:5301
/sys/class/infiniband/mlx5_0/ports/1/gids/2:0000:0000:0000:0000:0000:ffff:0a01:0001
/sys/class/infiniband/mlx5_0/ports/1/gids/3:0000:0000:0000:0000:0000:ffff:0a01:0001
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0:IB/RoCE v1
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2:IB/RoCE v1
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3:RoCE v2
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0:enp1s0
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2:enp1s0
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3:enp1s0
/sys/class/infiniband/mlx5_1/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_1/ports/1/rate:200 Gb/sec (4X HDR)
/sys/class/infiniband/rxe0/parent:enp1s0
/sys/class/infiniband/rxe0/ports/1/state:4: ACTIVE
/sys/class/infiniband/rxe0/ports/1/gids/1:0000:0000:0000:0000:0000:ffff:0a01:0001
/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1:RoCE v2
/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1:enp1s0
"""
FOLDERS = (
    "../../devices/pci0000:00/0000:00:0d.3/domain1/1-0/1-3/1-3.0/net/thunderbolt0",
    "../../devices/pci0000:00/0000:01:00.0/net/enp1s0",
    "/sys/class/infiniband/mlx5_1/device/net/ib0",
)


def interfaces(**entries):
    lines: dict[str, list[str]] = {}
    for line in FILES.splitlines():
        path, _, content = line.partition(":")
        lines.setdefault(path, []).append(content)
    text = json.dumps([{"ifname": name, **entry} for name, entry in entries.items()])
    found = parse_interfaces(text, lines, parse_hardware(lines), FOLDERS)
    return {one.name: one for one in found}


def test_a_wire_and_what_is_none_are_distinguished_on_a_linux_machine():
    found = {one.name: one for one in SURVEYED.interfaces}
    assert "lo" not in found
    assert {name: one.medium for name, one in found.items()} == {
        "eth1": "ethernet",
        "docker0": "virtual",
        "container0": "ethernet",
        "container1": "ethernet",
        "unplugged0": "ethernet",
        "unplugged1": "ethernet",
        "tun0": "tunnel",
        "ifb0": "virtual",
    }
    wire = found["eth1"]
    assert (wire.carrier, wire.mtu, wire.speed_gbps) == (True, 1500, 10)
    assert [str(one) for one in wire.addresses] == ["10.77.1.11/24", "10.99.0.1/24"]
    assert not found["unplugged0"].carrier
    assert SURVEYED.reached_at == "10.77.1.11"
    assert SURVEYED.machine.system == "x86_64-linux"
    assert (wire.name, wire.mac) in {(name, mac) for _, name, mac in SURVEYED.identity}


def test_a_bridge_with_a_port_of_the_machine_is_the_wire_of_that_port():
    bridge = {**ETHERNET, "linkinfo": {"info_kind": "bridge"}}
    port = {**ETHERNET, "master": "br0", "addr_info": []}
    assert interfaces(br0=bridge, enp1s0=port)["br0"].medium == "ethernet"
    end = {**port, "linkinfo": {"info_kind": "veth"}}
    assert interfaces(br0=bridge, veth1=end)["br0"].medium == "virtual"
    assert interfaces(br0=bridge)["br0"].medium == "virtual"


def test_wifi_is_no_ethernet():
    assert interfaces(wlp2s0=ETHERNET)["wlp2s0"].medium == "wifi"


def test_a_thunderbolt_cable_has_its_speed_as_trained_and_both_ends():
    cable = interfaces(thunderbolt0=ETHERNET)["thunderbolt0"]
    assert cable.medium == "thunderbolt"
    assert cable.speed_gbps == 20
    assert cable.cable == Cable("aaaa-1", "bbbb-2", "fw2")


def test_an_rdma_device_is_on_the_interface_of_its_gids_and_only_roce_v2_counts():
    card = interfaces(enp1s0=ETHERNET)["enp1s0"]
    assert card.rdma == (
        RdmaPort("mlx5_0", "ACTIVE", {3: "10.1.0.1"}),
        RdmaPort("rxe0", "ACTIVE", {1: "10.1.0.1"}, software=True),
    )
    assert card.mac == "02:00:5e:00:53:01"


def test_interfaces_of_one_port_of_one_card_are_known_by_its_guid_and_the_name_of_the_port():
    card = interfaces(enp1s0=ETHERNET)["enp1s0"]
    assert card.physical_port == "0200:5e03:0000:5300 p0"
    assert {one.physical_port for one in SURVEYED.interfaces} == {""}


def test_an_infiniband_interface_has_its_devices_speed():
    port = interfaces(ib0={**ETHERNET, "link_type": "infiniband"})["ib0"]
    assert (port.medium, port.speed_gbps) == ("infiniband", 200)
    assert port.rdma == (RdmaPort("mlx5_1", "ACTIVE"),)


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5))
def test_no_form_of_an_entry_breaks_the_reader(value):
    for key in ("ifname", "mtu", "flags", "address", "addr_info", "linkinfo", "link_type"):
        interfaces(enp1s0={**ETHERNET, key: value})
    assert all(
        isinstance(one, Interface)
        for one in parse_interfaces(json.dumps(value), {}, parse_hardware({}), ())
    )
