import shlex
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import load_cluster, parse_cluster, with_lab_nodes

MINE = """
name = "mine"
[fabrics.tb]
kind = "thunderbolt-net"
speed_gbps = 20
mtu = 9000
subnet = "10.10.0.0/24"
[[nodes]]
name = "a"
platform = "framework-desktop"
ssh = "root@192.168.1.21"
fabrics.tb = { interface = "thunderbolt0", address = "10.10.0.1" }
[[nodes]]
name = "b"
platform = "framework-desktop"
ssh = "root@192.168.1.22"
fabrics.tb = { interface = "thunderbolt0", address = "10.10.0.2" }
"""


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.message
    return caught.value.message.replace(str(path), "FILE")


def test_nodes_keep_the_order_of_the_file(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(MINE)
    cluster = load_cluster(path)
    assert [node.name for node in cluster.nodes] == ["a", "b"]
    assert cluster.nodes[0].fabrics["tb"].address == "10.10.0.1"
    assert not cluster.is_lab


@pytest.mark.parametrize(
    "path", sorted(Path("clusters").glob("*.toml")), ids=lambda path: path.stem
)
def test_every_cluster_in_the_repository_works_as_it_stands(path):
    assert load_cluster(path).nodes


def test_the_lab_can_have_as_many_nodes_as_asked():
    cluster = with_lab_nodes(load_cluster("lab"), 16)
    addresses = {node.fabrics["gbe5"].address for node in cluster.nodes}
    assert len(addresses) == 16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mtu = 9000", "mtu = 9000\nspeed = 1", "unknown key 'speed' in fabrics.tb"),
        ("mtu = 9000", 'mtu = "9000"', "fabrics.tb.mtu is '9000', expected integer"),
        ("mtu = 9000\n", "", "fabrics.tb lacks the key 'mtu'"),
        (
            "10.10.0.2",
            "10.10.0.1",
            "nodes 'a' and 'b' both have the address '10.10.0.1'",
        ),
        ("192.168.1.22", "192.168.1.21", "both have the address '192.168.1.21'"),
        ("10.10.0.2", "10.11.0.2", "outside its subnet 10.10.0.0/24"),
        ("10.10.0.2", "10.10.0.900", "10.10.0.900"),
        ('name = "b"', 'name = "a"', "two nodes have the name 'a'"),
        (
            'name = "b"',
            'name = "b; rm -rf x"',
            "nodes.1.name is 'b; rm -rf x', expected a name of",
        ),
        ("root@192.168.1.22", "-oProxyCommand=x", "nodes.1.ssh is '-oProxyCommand=x'"),
        ("root@192.168.1.22", "h$(id)", "nodes.1.ssh is 'h$(id)'"),
        (
            'interface = "thunderbolt0", address = "10.10.0.2"',
            'address = "10.10.0.2"',
            "'interface'",
        ),
        (
            '"framework-desktop"',
            '"framework-laptop"',
            "unknown platform 'framework-laptop'",
        ),
        (
            "fabrics.tb = {",
            "fabrics.usb = {",
            "on the fabric 'usb', which is not among",
        ),
        (
            "mtu = 9000",
            'mtu = 9000\ngateway = "10.11.0.1"',
            "fabrics.tb.gateway is '10.11.0.1', outside its subnet 10.10.0.0/24",
        ),
        ("mtu = 9000", 'mtu = 9000\ngateway = "10.10.0.2"', "'10.10.0.2', the address of 'b'"),
        ("mtu = 9000", 'mtu = 9000\ngateway = "10.10.0.1\\n"', "fabrics.tb.gateway is"),
        ("mtu = 9000", 'mtu = 9000\ndns = ["9.9.9.999"]', "fabrics.tb: "),
        ("mtu = 9000", "mtu = 9000\ndns = []", "fabrics.tb.dns"),
        ("[fabrics.tb]", "[fabrics.tb", "not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path, old, new, message):
    assert message in refusal(tmp_path, MINE.replace(old, new))


@pytest.mark.parametrize("name", ["nowhere.toml", "nowhere", "my clusters/nowhere.toml"])
def test_a_file_that_is_not_there_is_named_with_the_command_that_writes_one(name):
    missing = {"nowhere": "clusters/nowhere.toml"}.get(name, name)
    with pytest.raises(InputError) as caught:
        load_cluster(name)
    assert caught.value.message.startswith(f"No {missing}; known: dgx-spark-2, ")
    command = f"'nixwulf cluster new HOST... --output {shlex.quote(missing)}'."
    assert caught.value.message.endswith(f", pi-cm5-4. Write your own by {command}")


def test_a_node_has_one_default_route(tmp_path):
    routed = 'gateway = "10.10.0.254"\ndns = ["10.10.0.254", "9.9.9.9"]\n[[nodes]]'
    text = MINE.replace("[[nodes]]", routed, 1)
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    assert load_cluster(path).fabrics["tb"].transports
    office = (
        '[fabrics.office]\nkind = "ethernet"\nspeed_gbps = 1\nmtu = 1500\n'
        'subnet = "10.20.0.0/24"\ngateway = "10.20.0.254"\n'
    )
    place = 'fabrics.office = { interface = "eth0", address = "10.20.0.1" }\n'
    first = text.replace("[fabrics.tb]", f"{office}[fabrics.tb]", 1)
    both = first.replace("fabrics.tb = {", f"{place}fabrics.tb = {{", 1)
    said = refusal(tmp_path, both)
    assert "node 'a' has a gateway on 'office' and on 'tb'" in said


def test_a_cable_has_no_gateway():
    end = {"interface": "thunderbolt0", "address": "10.10.0.1"}
    fabric = {
        "kind": "thunderbolt-net",
        "speed_gbps": 20,
        "mtu": 9000,
        "subnet": "10.10.0.0/24",
        "link_prefix": 30,
        "gateway": "10.10.0.5",
    }
    nodes = [
        {
            "name": name,
            "platform": "framework-desktop",
            "ssh": f"root@{name}",
            "fabrics": {"tb": {"links": {other: {**end, "address": address}}}},
        }
        for name, other, address in (("a", "b", "10.10.0.1"), ("b", "a", "10.10.0.2"))
    ]
    with pytest.raises(InputError, match="gateway: cables lead to no router; leave it out"):
        parse_cluster({"name": "mine", "fabrics": {"tb": fabric}, "nodes": nodes}, "FILE")


def test_a_small_subnet_is_refused_for_lab_nodes():
    document = {
        "name": "tight",
        "lab": {"nodes": 8},
        "fabrics": {
            "eth": {
                "kind": "ethernet",
                "speed_gbps": 1,
                "mtu": 1500,
                "subnet": "10.1.0.0/28",
            }
        },
    }
    check(document, "cluster", "tight.toml")
    with pytest.raises(InputError, match="too small for lab node 5; use a /24"):
        parse_cluster(document, "tight.toml")
