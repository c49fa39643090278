"""Addresses and names of nodes that no machine of a network can have."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster

CLUSTER = """
name = "pair"
[fabrics.lan]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "{subnet}"
[[nodes]]
name = "{name}"
platform = "dgx-spark"
ssh = "bench@192.0.2.1"
fabrics.lan = {{ interface = "eth0", address = "{address}" }}
[[nodes]]
name = "other"
platform = "dgx-spark"
ssh = "bench@192.0.2.2"
"""


def load(tmp_path, subnet="10.0.0.0/24", address="10.0.0.1", name="one"):
    path = tmp_path / "c.toml"
    path.write_text(CLUSTER.format(subnet=subnet, address=address, name=name), encoding="utf-8")
    return load_cluster(path)


@pytest.mark.parametrize(
    ("subnet", "address"),
    [
        ("0.0.0.0/0", "0.0.0.0"),  # noqa: S104
        ("0.0.0.0/0", "10.0.0.1"),
        ("0.0.0.0/8", "0.0.0.1"),
        ("127.0.0.0/8", "127.0.0.1"),
        ("224.0.0.0/4", "224.0.0.1"),
        ("240.0.0.0/4", "255.255.255.255"),
        ("10.0.0.0/24", "10.0.0.0"),
        ("10.0.0.0/24", "10.0.0.255"),
        ("10.0.0.0/30", "10.0.0.3"),
    ],
)
def test_an_address_that_is_no_machines_is_refused(tmp_path, subnet, address):
    with pytest.raises(InputError, match=r"no machine of a network has|is no node's"):
        load(tmp_path, subnet, address)


@pytest.mark.parametrize(
    ("subnet", "address"),
    [("10.0.0.0/31", "10.0.0.0"), ("10.0.0.0/31", "10.0.0.1"), ("169.254.0.0/16", "169.254.9.1")],
)
def test_both_addresses_of_a_pair_and_link_local_ones_are_machines(tmp_path, subnet, address):
    assert load(tmp_path, subnet, address).nodes[0].fabrics["lan"].address == address


@pytest.mark.parametrize("name", ["other", "Other", "OTHER"])
def test_names_that_differ_in_capitals_alone_are_one_name(tmp_path, name):
    with pytest.raises(InputError, match="two nodes have the name"):
        load(tmp_path, name=name)


@pytest.mark.parametrize("name", ["one\\n", "one\\nx"])
def test_no_line_end_passes_after_a_pattern(tmp_path, name):
    with pytest.raises(InputError, match="name is"):
        load(tmp_path, name=name)


@pytest.mark.parametrize("speed", ["1e-320", "1e300"])
def test_a_speed_that_no_fabric_has_is_refused(tmp_path, speed):
    path = tmp_path / "c.toml"
    text = CLUSTER.format(subnet="10.0.0.0/24", address="10.0.0.1", name="one")
    path.write_text(text.replace("= 10\n", f"= {speed}\n"), encoding="utf-8")
    with pytest.raises(InputError, match="speed_gbps"):
        load_cluster(path)
