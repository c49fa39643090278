"""The flake and the driver read the same cluster files and see the same in them."""

from pathlib import Path

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import flake_platforms, load_platform

CLUSTERS = sorted((Path(__file__).parents[2] / "clusters").glob("*.toml"))


@pytest.fixture(scope="module")
def inventories(flake):
    return flake.value("lib.inventories")


def test_the_flake_knows_every_cluster_file(inventories):
    assert sorted(inventories) == [path.stem for path in CLUSTERS]


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_both_see_the_same_nodes_addresses_and_fabrics(inventories, path):
    seen = inventories[path.stem]
    cluster = load_cluster(path)
    assert seen["name"] == cluster.name == path.stem
    assert {
        name: (fabric["kind"], fabric["speed_gbps"], fabric["mtu"], fabric["subnet"])
        for name, fabric in seen["fabrics"].items()
    } == {
        name: (fabric.kind, fabric.speed_gbps, fabric.mtu, str(fabric.subnet))
        for name, fabric in cluster.fabrics.items()
    }
    # A lab's nodes are made by the driver when it is up, from a number.
    nodes = () if "lab" in cluster.document else cluster.nodes
    assert [
        (node["name"], node["platform"], node["ssh"], node["disk"], node["host_key"])
        for node in seen["nodes"]
    ] == [(node.name, node.platform, node.ssh, node.disk, node.host_key) for node in nodes]
    assert [
        [
            (fabric, other, port["interface"], port["address"], *_rdma(port))
            for fabric, place in sorted(node["fabrics"].items())
            for other, end in sorted(place.get("links", {"": place}).items())
            for port in (end if isinstance(end, list) else [end])
        ]
        for node in seen["nodes"]
    ] == [
        [
            (fabric, other, port.interface, port.address, port.rdma_device, port.gid_index)
            for fabric in sorted(node.fabric_names)
            for other, end in sorted(_ends(node, fabric).items())
            for port in end.ports
        ]
        for node in nodes
    ]


def _rdma(port):
    return port.get("rdma_device"), port.get("gid_index")


def _ends(node, fabric):
    return node.links.get(fabric) or {"": node.fabrics[fabric]}


def test_both_know_the_same_platforms(flake):
    seen = flake.value("lib.platforms")
    assert seen == {name: load_platform(name) for name in flake_platforms()}
