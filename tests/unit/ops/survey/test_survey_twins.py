"""Cards whose physical ports are two interfaces each, as a DGX Spark's: in rings and in pairs."""

import copy

import pytest

from nixwulf.inventory.cluster import load_cluster, parse_cluster
from nixwulf.nodes.interfaces import RdmaPort
from nixwulf.ops.survey.draft import additions, differences, render
from survey_factory import attachments, interface, loaded, machine, surveyed

# Port 0 of a card is the first two interfaces, port 1 the others.
PORTS = (("enp1s0f0np0", "enP2p1s0f0np0"), ("enp1s0f1np1", "enP2p1s0f1np1"))
RING = (("spark1", 0, "spark2", 1), ("spark1", 1, "spark3", 0), ("spark2", 0, "spark3", 1))


def sparks(cables, *, prefix=24, known=True, mtu=9000):
    """Sparks, what their wires join, and a network of all: with /24 as NVIDIA's playbook has them.

    cables: a node, its port, another node and its port; known: whether the kernel names the ports.
    """
    names = sorted({node for one, _, other, _ in cables for node in (one, other)})
    found = {
        name: [interface("enP7s7", f"10.20.0.{number}/24")]
        for number, name in enumerate(names, start=1)
    }
    wired = [{(name, "enP7s7") for name in names}]
    for number, (one, port, other, peer) in enumerate(cables):
        for twin in range(2):
            ends = {(one, PORTS[port][twin]), (other, PORTS[peer][twin])}
            for end, (node, at) in enumerate(((one, port), (other, peer)), start=1):
                name = PORTS[at][twin]
                address = f"192.168.{2 * number + twin}.{end}"
                device = RdmaPort(name.replace("en", "roce")[:-3], "ACTIVE", {3: address})
                found[node].append(
                    interface(
                        name,
                        f"{address}/{prefix}",
                        mtu=mtu,
                        speed_gbps=200.0,
                        rdma=(device,),
                        physical_port=f"card of {node} p{at}" if known else "",
                    )
                )
            wired.append(ends)
    return [machine(name, *found[name]) for name in names], wired


def test_a_ring_of_sparks_is_one_fabric_of_cables_with_two_ports_as_the_example_has_it():
    machines, wired = sparks(RING)
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    ours, example = loaded(found), load_cluster("dgx-spark-3")
    ring, theirs = ours.fabrics["mesh"], example.fabrics["ring"]
    assert list(ours.fabrics) == ["mesh", "lan"]
    assert (ring.kind, ring.speed_gbps, ring.mtu) == (theirs.kind, theirs.speed_gbps, theirs.mtu)
    assert (ring.subnet, ring.link_prefix, ring.control) == (theirs.subnet, 24, "lan")
    for node, other in zip(ours.nodes, example.nodes, strict=True):
        assert {peer: end.ports for peer, end in node.links["mesh"].items()} == {
            peer: end.ports for peer, end in other.links["ring"].items()
        }
    assert (
        # no output: what the driver itself writes
        "# 3 cables between each two of spark1, spark2, spark3, of 2 ports each.\n[fabrics.mesh]\n"
    ) in render(found)


def test_both_ports_of_the_cable_of_two_sparks_are_fabrics_that_share_its_speed():
    machines, wired = sparks(RING[:1])
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    ours, example = loaded(found), load_cluster("dgx-spark-2")
    ports = [fabric for fabric in ours.fabrics.values() if fabric.kind == "roce"]
    assert [fabric.speed_gbps for fabric in ports] == [100, 100]
    assert [fabric.speed_gbps for fabric in example.fabrics.values()] == [100, 100]
    assert (
        render(found).count("# It is one of 2 fabrics of the same physical ports; they share") == 2
    )


def test_both_interfaces_of_ports_on_a_switch_share_their_speed():
    names = ("spark1", "spark2", "spark3")
    machines, wired = [], [{(name, twin) for name in names} for twin in PORTS[0]]
    for number, name in enumerate(names, start=1):
        card = {"speed_gbps": 200.0, "physical_port": f"card of {name} p0"}
        rdma = [(RdmaPort(f"mlx5_{twin}", "ACTIVE"),) for twin in range(2)]
        machines.append(
            machine(
                name,
                *(
                    interface(port, f"10.{twin}.0.{number}/24", rdma=rdma[twin], **card)
                    for twin, port in enumerate(PORTS[0])
                ),
            )
        )
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    assert [fabric.speed_gbps for fabric in loaded(found).fabrics.values()] == [100, 100]


def test_two_cables_between_two_sparks_are_four_fabrics():
    machines, wired = sparks([("spark1", 0, "spark2", 0), ("spark1", 1, "spark2", 1)])
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    speeds = [fabric.speed_gbps for fabric in loaded(found).fabrics.values()]
    assert speeds == [100, 100, 100, 100, 10]


@pytest.mark.parametrize("prefix", [24, 30])
def test_ports_that_the_kernel_does_not_name_are_of_two_fabrics_with_a_comment(prefix):
    machines, wired = sparks(RING, prefix=prefix, known=False)
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    cluster = loaded(found)
    assert [fabric.link_prefix for fabric in cluster.fabrics.values()] == [prefix, prefix, None]
    assert [fabric.speed_gbps for fabric in cluster.fabrics.values()] == [200, 200, 10]
    why = "Other interfaces join the same nodes; whether they are ports of the same cables is not"
    assert render(found).count(why) == 2


def test_ports_whose_ends_are_on_different_physical_ports_are_no_cable():
    machines, wired = sparks([("spark1", 0, "spark2", 0)])
    crossed = sparks([("spark1", 0, "spark2", 1)])[0][1]
    mixed = [*machines[1].interfaces[:2], crossed.interfaces[2]]
    machines[1] = machine("spark2", *mixed)
    wired[2] = {("spark1", "enP2p1s0f0np0"), ("spark2", "enP2p1s0f1np1")}
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    assert [fabric.speed_gbps for fabric in loaded(found).fabrics.values()] == [200, 200, 10]


def compared(cables, change=lambda document: None, wired=None):
    """What is found different in the file of what was there, after a change to it."""
    machines, wires = sparks(cables)
    written = surveyed(machines, wires).document
    document = copy.deepcopy(written)
    change(document)
    real = parse_cluster(surveyed(machines, wired or wires).document, "there")
    ours = parse_cluster(document, "mine.toml")
    return differences(ours, machines, real), additions(ours, real)


def second_port(**values):
    def change(document):
        document["nodes"][0]["fabrics"]["mesh"]["links"]["spark2"][1].update(values)

    return change


def test_a_file_that_was_just_written_differs_in_no_port():
    assert compared(RING) == compared(RING[:1]) == ([], [])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            second_port(rdma_device="mlx5_9"),
            "fabrics.mesh (the cable of spark1 and spark2, port 2): rdma_device of spark1 is "
            "'mlx5_9' in the file, and 'roceP2p1s0f0' there.",
        ),
        (second_port(gid_index=1), "port 2): gid_index of spark1 is 1 in the file, and 3 there."),
        (
            second_port(address="192.168.1.9"),
            "fabrics.mesh (the cable of spark1 and spark2, port 2): spark1 and the other nodes do",
        ),
    ],
)
def test_the_second_port_of_a_cable_is_compared_too(change, sentence):
    (found,), more = compared(RING, change)
    assert sentence in found
    assert more == []


def test_a_second_port_that_carries_nothing_is_named():
    _, wires = sparks(RING)
    (found,), _ = compared(RING, wired=[wires[0], wires[1], *wires[3:]])
    assert found.startswith("fabrics.mesh (the cable of spark1 and spark2, port 2): ")


def test_a_second_port_that_the_file_lacks_is_an_addition():
    def first_only(document):
        for node in document["nodes"]:
            links = node["fabrics"]["mesh"]["links"]
            links.update({other: ports[0] for other, ports in links.items()})

    different, more = compared(RING, first_only)
    assert different == []
    assert "a wire of spark1 (enP2p1s0f0np0), spark2 (enP2p1s0f1np1)." in more[0]
    assert len(more) == 3
