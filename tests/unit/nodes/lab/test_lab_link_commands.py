"""How a lab's links are shaped: the choice, and the exact commands."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Cluster, Shape, parse_cluster
from nixwulf.nodes.lab import links
from nixwulf.nodes.lab.links import LabPort

PORT = LabPort(node="n2", fabric=1, number=2)
UP, DOWN = "v1n2", "f1n2"
ATTACH = ["ip", "link", "set", "f1n2", "master", "u1n2"]


def cluster(nodes: int = 2, subnet: str = "10.5.0.0/24", mtu: int = 9000) -> Cluster:
    fabric = {"kind": "ethernet", "speed_gbps": 10, "mtu": mtu, "subnet": subnet}
    document = {"name": "c", "lab": {"nodes": nodes}, "fabrics": {"eth": fabric}}
    return parse_cluster(document, "c.toml")


def qdisc(link: str, words: str) -> list[str]:
    return ["tc", "qdisc", "replace", "dev", link, "root", *words.split()]


@pytest.mark.parametrize(
    ("shape", "with_netem", "without"),
    [
        (Shape(), "none", "none"),
        (Shape(rate_gbps=10), "tbf", "tbf"),
        (Shape(delay_us=50), "netem", "switch"),
        (Shape(loss_percent=1, rate_gbps=10), "netem", "switch"),
        (Shape(delay_us=50, rate_gbps=10), "netem", "switch"),
    ],
)
def test_the_kernel_shapes_what_it_can_and_the_switch_the_rest(
    shape: Shape, with_netem: str, without: str
) -> None:
    assert links.choose(shape, kernel_has_netem=True) == with_netem
    assert links.choose(shape, kernel_has_netem=False) == without


def test_an_unshaped_port_has_no_queue() -> None:
    commands = links.shape_port(PORT, Shape(), "none")
    assert commands == [qdisc(UP, "noqueue"), qdisc(DOWN, "noqueue"), ATTACH]


@pytest.mark.parametrize(
    ("gbps", "words"),
    [
        (1, "tbf rate 1000000kbit burst 256000 limit 1256000"),
        (2.5, "tbf rate 2500000kbit burst 500000 limit 2062500"),
        (10, "tbf rate 10000000kbit burst 2000000 limit 8250000"),
    ],
)
def test_a_rate_alone_is_a_token_bucket_both_ways(gbps: float, words: str) -> None:
    commands = links.shape_port(PORT, Shape(rate_gbps=gbps), "tbf")
    assert commands == [qdisc(UP, words), qdisc(DOWN, words), ATTACH]


def test_netem_delays_and_loses_once_and_limits_the_rate_both_ways() -> None:
    shape = Shape(delay_us=120, rate_gbps=9.4, loss_percent=0.5)
    assert links.shape_port(PORT, shape, "netem") == [
        qdisc(UP, "netem limit 100000 delay 120us loss 0.5% rate 9400000kbit"),
        qdisc(DOWN, "netem limit 100000 rate 9400000kbit"),
        ATTACH,
    ]


def test_netem_without_a_rate_only_delays() -> None:
    assert links.shape_port(PORT, Shape(delay_us=0.5), "netem") == [
        qdisc(UP, "netem limit 100000 delay 0.5us"),
        qdisc(DOWN, "netem limit 100000"),
        ATTACH,
    ]


def test_the_switch_takes_the_port_out_of_the_bridge() -> None:
    commands = links.shape_port(PORT, Shape(delay_us=1), "switch")
    assert commands == [["ip", "link", "set", "f1n2", "nomaster"]]


@given(
    st.builds(
        Shape,
        delay_us=st.floats(0, 1e6),
        rate_gbps=st.none() | st.floats(0.001, 1000),
        loss_percent=st.floats(0, 100),
    ),
    st.booleans(),
)
def test_no_change_of_shape_touches_the_nodes_own_interface(shape: Shape, netem: bool) -> None:
    shaping = links.choose(shape, kernel_has_netem=netem)
    for argv in links.shape_port(PORT, shape, shaping):
        assert argv[0] in ("ip", "tc")
        assert {"f1n2", "v1n2"} & set(argv)
        assert "eth" not in argv


def test_the_nodes_ends_are_made_in_the_nodes_with_name_and_mtu() -> None:
    subnet = ipaddress.IPv4Network("10.77.0.0/24")
    networks = {"n1": "/proc/7/ns/net", "n2": "/proc/9/ns/net"}
    commands = [" ".join(c) for c in links.hub_links(cluster(), subnet, networks)]
    assert (
        "link add f0n2 mtu 9000 type veth peer name eth mtu 9000 netns /proc/9/ns/net" in commands
    )
    assert "link add m1 type veth peer name mgmt0 netns /proc/7/ns/net" in commands
    assert "addr add 10.77.0.254/24 dev mgmt" in commands


def test_a_node_gets_its_management_address_and_one_on_each_fabric() -> None:
    commands = links.node_links(cluster(), ipaddress.IPv4Network("10.77.0.0/24"), 2)
    assert [" ".join(c) for c in commands] == [
        "link set lo up",
        "addr add 10.77.0.2/24 dev mgmt0",
        "link set mgmt0 up",
        "addr add 10.5.0.12/24 dev eth",
        "link set eth up",
    ]


@pytest.mark.parametrize(
    ("fabric", "management"),
    [
        ("10.5.0.0/24", "10.77.0.0/24"),
        ("10.77.1.0/24", "10.77.0.0/24"),
        ("10.77.0.0/24", "10.78.0.0/24"),
        ("10.64.0.0/10", "10.128.0.0/24"),
    ],
)
def test_the_management_network_is_none_of_the_fabrics(fabric: str, management: str) -> None:
    assert str(links.management_subnet(cluster(subnet=fabric))) == management


def test_fabrics_that_leave_no_management_network_are_refused() -> None:
    with pytest.raises(InputError, match="smaller subnets"):
        links.management_subnet(cluster(subnet="10.0.0.0/8"))
