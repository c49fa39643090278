"""Fabrics of cables: both ends agree, and cases take nodes that are cabled each to each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import (
    Cluster,
    joins_all,
    load_cluster,
    parse_cluster,
    with_lab_nodes,
)

Document = dict[str, Any]
NAMES = "abcdef"


def document(pairs: list[tuple[str, str]], names: str = "abc") -> Document:
    """A cluster with an office network and a cable for each pair, of which one end is .1."""
    nodes = []
    for number, name in enumerate(names, start=1):
        office = {"interface": "en0", "address": f"192.168.1.{number}"}
        links = {
            next(iter({*pair} - {name})): {
                "interface": f"en{index + 3}",
                "address": f"10.50.{index}.{1 + pair.index(name)}",
                "rdma_device": f"rdma_en{index + 3}",
            }
            for index, pair in enumerate(pairs)
            if name in pair
        }
        nodes.append(
            {
                "name": name,
                "platform": "mac-studio-m3-ultra",
                "ssh": f"admin@{name}.local",
                "fabrics": {"office": office, **({"mesh": {"links": links}} if links else {})},
            }
        )
    common = {"speed_gbps": 10, "mtu": 1500}
    cables = {"subnet": "10.50.0.0/16", "link_prefix": 30, "control": "office"}
    return {
        "name": "macs",
        "fabrics": {
            "office": {"kind": "ethernet", "subnet": "192.168.1.0/24", **common},
            "mesh": {"kind": "thunderbolt5-rdma", **common, **cables},
        },
        "nodes": nodes,
    }


def cluster_of(pairs: list[tuple[str, str]], names: str = "abc") -> Cluster:
    return checked(document(pairs, names))


def checked(made: Document) -> Cluster:
    check(made, "cluster", "FILE")
    return parse_cluster(made, "FILE")


ALL = list(combinations("abc", 2))


def test_each_end_is_found_by_the_node_at_the_other_end() -> None:
    first, second, third = cluster_of(ALL).nodes
    assert [end.address for end in first.ends("mesh")] == ["10.50.0.1", "10.50.1.1"]
    to_first = third.end_to("mesh", "a")
    assert to_first is not None
    assert (to_first.interface, to_first.rdma_device) == ("en4", "rdma_en4")
    assert second.end_to("mesh", "b") is None
    assert second.end_to("office", "c") == second.fabrics["office"]


def test_a_list_of_devices_begins_with_that_of_the_address() -> None:
    made = document(ALL)
    made["nodes"][0]["fabrics"]["mesh"]["links"]["b"]["rdma_device"] = ["mlx5_0", "mlx5_2"]
    end = checked(made).nodes[0].links["mesh"]["b"]
    assert (end.rdma_devices, end.rdma_device) == (("mlx5_0", "mlx5_2"), "mlx5_0")


def test_a_cable_may_be_several_ports_each_with_a_subnet_of_its_own() -> None:
    first, second, _ = load_cluster("dgx-spark-3").nodes
    end = first.end_to("ring", "spark2")
    assert end is not None
    assert [port.interface for port in end.ports] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert [port.rdma_device for port in end.ports] == ["rocep1s0f0", "roceP2p1s0f0"]
    assert [port.address for port in second.ends("ring", ["spark1"])] == [
        "192.168.0.2",
        "192.168.1.2",
    ]
    assert len(first.ends("ring")) == 4


def test_of_a_chain_two_nodes_are_joined() -> None:
    chain = cluster_of([("a", "b"), ("b", "c")])
    assert [node.name for node in chain.joined("mesh", 2)] == ["a", "b"]
    assert chain.joined("mesh", 3) == ()
    assert len(chain.joined("office", 3)) == 3


def test_nodes_that_are_not_first_are_taken_where_the_first_are_not_cabled() -> None:
    star = cluster_of([("a", "c"), ("b", "c")])
    assert [node.name for node in star.joined("mesh", 2)] == ["a", "c"]


@given(st.sets(st.sampled_from(list(combinations(NAMES, 2))), min_size=1), st.integers(1, 6))
def test_joined_nodes_are_cabled_each_to_each_or_else_in_a_ring(
    pairs: set[tuple[str, str]], count: int
) -> None:
    cluster = cluster_of(sorted(pairs), NAMES)
    nodes = cluster.joined("mesh", count)
    cabled = pairs | {(other, one) for one, other in pairs}
    on_it = sorted({name for pair in pairs for name in pair})
    if joins_all("mesh", nodes):
        assert all((a.name, b.name) in cabled for a, b in combinations(nodes, 2))
    else:
        assert all(
            (a.name, b.name) in cabled for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True)
        )
    complete = any(
        cabled.issuperset(combinations(group, 2)) for group in combinations(on_it, count)
    )
    ring = count > 3 and any(
        cabled.issuperset(zip(group, group[1:] + group[:1], strict=True))
        for group in permutations(on_it, count)
    )
    assert bool(nodes) == (complete or ring)
    assert not complete or joins_all("mesh", nodes)


def test_lab_nodes_have_a_cable_between_each_two() -> None:
    made: Document = {"name": "lab", "lab": {"nodes": 3}, "fabrics": document(ALL)["fabrics"]}
    cluster = checked(made)
    assert [node.name for node in cluster.joined("mesh", 3)] == ["n1", "n2", "n3"]
    assert sorted(cluster.nodes[0].links["mesh"]) == ["n2", "n3"]
    assert len({end.address for node in cluster.nodes for end in node.ends("mesh")}) == 6
    assert len(with_lab_nodes(cluster, 16).joined("mesh", 16)) == 16


def _small(made: Document) -> None:
    made.update(fabrics={"mesh": {**made["fabrics"]["mesh"], "subnet": "10.50.0.0/29"}})
    del made["fabrics"]["mesh"]["control"], made["nodes"]
    made["lab"] = {"nodes": 3}


def _link(made: Document, node: int, other: str) -> Document:
    end: Document = made["nodes"][node]["fabrics"]["mesh"]["links"][other]
    return end


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: made["nodes"][1]["fabrics"]["mesh"]["links"].pop("a"),
            "node 'a' has a cable to 'b', and 'b' has none to 'a'; add links.a to 'b'",
        ),
        (
            lambda made: _link(made, 0, "b").update(address="10.50.9.1"),
            "are '10.50.9.1' and '10.50.0.2', not in one subnet with a prefix of 30",
        ),
        (
            lambda made: _link(made, 0, "b").update(address="10.50.0.3"),
            "node 'a' has the address '10.50.0.3', which in 10.50.0.0/30 is no node's",
        ),
        (
            lambda made: _link(made, 0, "b").update(address="10.51.0.1"),
            "node 'a' has the address '10.51.0.1' on 'mesh', outside its subnet 10.50.0.0/16",
        ),
        (
            lambda made: _link(made, 0, "b").update(interface="en4"),
            "node 'a' has two cables on the interface 'en4'",
        ),
        (
            lambda made: made["fabrics"]["mesh"].update(link_prefix=22),
            "the cables of 'a' and 'b' and of 'a' and 'c' are both in 10.50.0.0/22; give each",
        ),
        (
            lambda made: made["fabrics"]["mesh"].update(link_prefix=16),
            "link_prefix is 16, and the subnet 10.50.0.0/16 has no room",
        ),
        (
            lambda made: made["fabrics"]["mesh"].pop("link_prefix"),
            "'links' of a node and 'link_prefix' of [fabrics.mesh] belong together",
        ),
        (
            lambda made: made["nodes"][0]["fabrics"].pop("office"),
            "fabrics.mesh.control is 'office', expected, on a fabric of cables, a network that",
        ),
        (
            lambda made: made["nodes"][0]["fabrics"]["mesh"].update(address="10.50.0.1"),
            "unknown key 'address' in nodes.0.fabrics.mesh; known: links.",
        ),
        (
            lambda made: made["nodes"][0]["fabrics"]["office"].pop("interface"),
            "nodes.0.fabrics.office lacks the key 'interface'",
        ),
        (
            lambda made: made["nodes"][0]["fabrics"]["mesh"]["links"].update(
                b=[_link(made, 0, "b"), {"interface": "en9", "address": "10.50.9.1"}]
            ),
            "the cable of 'a' and 'b' has 2 ports at one end and 1 at the other",
        ),
        (
            lambda made: [
                made["nodes"][node]["fabrics"]["mesh"]["links"].update(
                    {
                        other: [
                            _link(made, node, other),
                            {**_link(made, node, other), "interface": "en9"},
                        ]
                    }
                )
                for node, other in ((0, "b"), (1, "a"))
            ],
            "the cables of 'a' and 'b' and of 'a' and 'b' are both in 10.50.0.0/30; give each",
        ),
        (_small, "fabrics.mesh.subnet is '10.50.0.0/29', too small for a cable between each two"),
    ],
)
def test_what_is_wrong_with_a_cable_is_named(
    change: Callable[[Document], object], message: str
) -> None:
    made = copy.deepcopy(document(ALL))
    change(made)
    with pytest.raises(InputError) as caught:
        checked(made)
    assert message in caught.value.message
