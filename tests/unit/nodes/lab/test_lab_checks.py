"""What a lab refuses, each in one sentence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Cluster, Shape, load_cluster, with_lab_nodes
from nixwulf.inventory.fabrics import Attachment
from nixwulf.nodes.lab.state import check_cluster, check_name, check_shape


def with_interfaces(*names: str) -> Cluster:
    cluster = with_lab_nodes(load_cluster("lab"), 2)
    attachments = [Attachment(name, f"10.0.{i}.1") for i, name in enumerate(names)]
    first = replace(cluster.nodes[0], fabrics=dict(zip(cluster.fabrics, attachments, strict=False)))
    return replace(cluster, nodes=(first, cluster.nodes[1]))


@pytest.mark.parametrize("name", ["lab", "a", "a-1", "x" * 32])
def test_plain_words_are_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "a/b", ".", "a\n", "a$b", "x" * 33])
def test_all_else_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="--name lab"):
        check_name(name)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(delay_us=-1), "-1 us, expected 0 to 1000000 us"),
        (Shape(delay_us=math.nan), "nan us"),
        (Shape(rate_gbps=0), "0 Gbit/s, expected 0.001 to 1000"),
        (Shape(rate_gbps=math.inf), "inf Gbit/s"),
        (Shape(loss_percent=100.1), "100.1 percent, expected 0 to 100"),
        (Shape(loss_percent=-0.1), "-0.1 percent"),
    ],
)
def test_a_shape_that_no_link_has_is_refused(shape: Shape, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_shape("eth", shape)


def test_an_interface_that_a_lab_cannot_make_is_refused() -> None:
    for name in ("mgmt0", "lo", "a b", "x" * 16, "eth0\nlink del mgmt"):
        with pytest.raises(InputError, match="use another name"):
            check_cluster(with_interfaces(name))


def test_one_interface_on_two_fabrics_is_refused() -> None:
    with pytest.raises(InputError, match="'eth0' on two fabrics"):
        check_cluster(with_interfaces("eth0", "eth0"))


def test_a_cluster_of_machines_is_no_lab() -> None:
    cluster = with_lab_nodes(load_cluster("lab"), 2)
    machine = replace(cluster.nodes[0], platform="framework-desktop")
    with pytest.raises(InputError, match=r"give a cluster with a \[lab\] table"):
        check_cluster(replace(cluster, nodes=(machine, cluster.nodes[1])))
