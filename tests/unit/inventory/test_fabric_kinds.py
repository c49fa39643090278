"""Kinds of fabrics: one file of data, whose names a cluster file may use."""

import json
from pathlib import Path

import pytest

from nixwulf.inventory.fabrics import KINDS, MAC_RDMA_KINDS, TRAINED_KINDS, kind_of

SCHEMA = Path("driver/nixwulf/data/schemas/cluster.json")


def test_the_schema_of_cluster_files_has_the_same_names():
    fabrics = json.loads(SCHEMA.read_text())["properties"]["fabrics"]
    assert set(fabrics["additionalProperties"]["properties"]["kind"]["enum"]) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_wire_is_of_the_kind_whose_facts_it_has(kind):
    assert kind_of(kind.medium, rdma=kind.rdma, macos=kind.macos) == kind.name


def test_a_wire_of_macs_without_rdma_is_of_the_kind_of_any_machine():
    assert kind_of("thunderbolt", rdma=False, macos=True) == "thunderbolt-net"
    assert kind_of("infiniband", rdma=False, macos=False) == "infiniband"


def test_linux_alone_shows_at_what_speed_a_cable_was_trained():
    assert set(TRAINED_KINDS) == {"thunderbolt-net", "usb4-rdma"}
    assert set(MAC_RDMA_KINDS) == {"thunderbolt5-rdma"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_that_rdma_crosses_has_which_gid_is_used_except_between_macs(kind):
    assert bool(kind.gid) == (kind.rdma and not kind.macos)
