"""Who is to have a model, over which fabric, and from whom each node receives it."""

import pytest

from nixwulf.core.errors import GateError, InputError
from nixwulf.inventory.cluster import load_cluster, parse_cluster
from nixwulf.ops.models import push
from nixwulf.ops.models.push import _faults, route

NETWORKS = {"lan": 2.5, "fast": 25}


def cluster(**where):
    """Nodes by name, each on the networks named."""
    fabrics = {
        name: {"kind": "ethernet", "speed_gbps": speed, "mtu": 1500, "subnet": f"10.1.{i}.0/24"}
        for i, (name, speed) in enumerate(NETWORKS.items())
    }
    nodes = [
        {
            "name": name,
            "platform": "generic-x86_64",
            "ssh": name,
            "fabrics": {
                network: {
                    "interface": network,
                    "address": f"10.1.{list(NETWORKS).index(network)}.{number + 1}",
                }
                for network in networks.split()
            },
        }
        for number, (name, networks) in enumerate(where.items())
    ]
    return parse_cluster({"name": "c", "fabrics": fabrics, "nodes": nodes}, "c.toml")


def test_a_chain_goes_along_the_nodes_so_that_none_sends_twice():
    found = cluster(a="fast", b="fast", c="fast", d="fast")
    assert route(found.fabrics["fast"], found.nodes) == {"b": "a", "c": "b", "d": "c"}


def test_cables_are_followed_and_a_chain_branches_where_none_leads_on():
    star = load_cluster("lab")
    fabric = star.fabrics["rdma-like"]
    ends = {("a", "b"), ("b", "c"), ("b", "d")}

    class Cabled:
        def __init__(self, name):
            self.name = name

        def end_to(self, fabric, other):
            return (self.name, other) in ends or (other, self.name) in ends

    nodes = [Cabled(name) for name in "acdb"]
    assert route(fabric, nodes) == {"b": "a", "c": "b", "d": "b"}
    assert route(fabric, [*nodes, Cabled("e")]) is None


def test_the_fastest_fabric_that_all_share_is_crossed():
    found = cluster(a="lan fast", b="lan fast", c="lan")
    assert push._fabric(found, found.nodes[:2], None).name == "fast"
    assert push._fabric(found, found.nodes, None).name == "lan"
    assert push._fabric(found, found.nodes[:2], "lan").name == "lan"
    assert push._fabric(found, found.nodes[:1], None).name == "fast"


def test_nodes_without_a_fabric_in_common_are_named():
    found = cluster(a="lan", b="fast")
    with pytest.raises(InputError, match="Nodes a, b share no fabric; choose nodes that do"):
        push._fabric(found, found.nodes, None)
    with pytest.raises(InputError, match="Nodes a, b share no fabric 'lan'"):
        push._fabric(found, found.nodes, "lan")
    nowhere = cluster(a="")
    assert push._fabric(nowhere, nowhere.nodes, None) is None


def test_what_reads_a_model_gets_it():
    found = cluster(a="lan", b="lan")
    assert push.readers(found, "big.gguf", None) == ["a"]
    assert push.readers(found, "board.m", None) == ["a"]
    assert push.readers(found, "Qwen3-8B", None) == ["a", "b"]
    assert push.readers(found, "big.gguf", "mesh-llm") == ["a", "b"]
    with pytest.raises(InputError, match="--engine: "):
        push.readers(found, "big.gguf", "abacus")


def test_a_node_without_room_or_without_a_folder_is_refused_before_anything_is_sent():
    listing = {"free": 2**30, "writable": True, "models": []}
    push._require_room("a", "/models", listing, 2**30)
    with pytest.raises(
        GateError, match=r"'a' has 1.00 GiB free in '/models' and the model needs 2"
    ):
        push._require_room("a", "/models", listing, 2**31)
    with pytest.raises(GateError, match="cannot write to '/models'"):
        push._require_room("a", "/models", {**listing, "writable": False}, 1)


def test_wrong_data_are_blamed_on_who_sent_them_and_a_lost_connection_on_nobody():
    failures = {"b": ("Refusal", "full"), "c": ("Lost", "ended"), "d": ("Wrong", "chunk 1")}
    assert _faults({"b": "a", "c": "b", "d": "e"}, failures) == {"b": "full", "e": "chunk 1"}
