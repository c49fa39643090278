"""An existing cluster file against what its machines say."""

import copy

import pytest

from nixwulf.inventory.cluster import parse_cluster
from nixwulf.nodes.interfaces import RdmaPort
from nixwulf.ops.survey.draft import additions, differences
from survey_factory import interface, machine, surveyed

WIRED = [
    {("a", "cable0"), ("b", "cable0")},
    {("a", "en3"), ("b", "en3")},
    {("b", "en4"), ("c", "en4")},
    {(name, "eth0") for name in "abc"},
]


def machines():
    """A card's cable with RDMA, two cables of a mesh, a network of all."""
    ports = {
        name: [interface("eth0", f"10.1.0.{end}/24")] for end, name in enumerate("abc", start=1)
    }
    for name, own in (("a", "10.2.0.1"), ("b", "10.2.0.2")):
        device = (RdmaPort("mlx5_0", "ACTIVE", {3: own}),)
        ports[name].append(interface("cable0", f"{own}/30", rdma=device, speed_gbps=100.0))
    for port, (one, other), subnet in (("en3", "ab", "10.3.0"), ("en4", "bc", "10.3.1")):
        ports[one].append(interface(port, f"{subnet}.1/30", medium="thunderbolt"))
        ports[other].append(interface(port, f"{subnet}.2/30", medium="thunderbolt"))
    product = "Desktop (AMD Ryzen AI Max 300 Series)"
    return [machine(name, *ports[name], product=product) for name in "abc"]


def found(change=lambda document: None, wired=WIRED):
    """What is said of the file that would be written, after a change to it."""
    there = machines()
    document = copy.deepcopy(surveyed(there, WIRED).document)
    change(document)
    real = parse_cluster(surveyed(there, wired).document, "there")
    ours = parse_cluster(document, "mine.toml")
    return differences(ours, there, real), additions(ours, real)


def test_what_was_just_written_differs_in_nothing():
    assert found() == ([], [])


def set_fabric(name, **values):
    return lambda document: document["fabrics"][name].update(values)


def set_node(index, **values):
    return lambda document: document["nodes"][index].update(values)


def set_end(fabric, **values):
    return lambda document: document["nodes"][0]["fabrics"][fabric].update(values)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (set_fabric("lan", speed_gbps=25), "fabrics.lan: its speed is 25 Gbit/s in the file, and"),
        (set_fabric("lan", mtu=9000), "fabrics.lan: its mtu is 9000, and at most 1500 bytes pass."),
        (set_fabric("cable", kind="ethernet"), "its kind is 'ethernet' in the file, and 'roce'"),
        (
            set_end("cable", rdma_device="mlx5_9"),
            "fabrics.cable: rdma_device of a is 'mlx5_9' in the file, and 'mlx5_0' there.",
        ),
        (set_end("cable", gid_index=1), "fabrics.cable: gid_index of a is 1 in the file, and 3"),
        (
            set_node(1, platform="generic-x86_64"),
            "Node 'b' is a 'Desktop (AMD Ryzen AI Max 300 Series)', of the platform "
            "'framework-desktop', and the file has 'generic-x86_64'.",
        ),
    ],
)
def test_each_value_that_the_machines_contradict_is_a_sentence(change, sentence):
    (said,), more = found(change)
    assert sentence in said
    assert more == []


def test_a_wire_that_a_node_is_not_on_and_a_cable_that_is_not_there_are_named():
    (said,), _ = found(wired=[*WIRED[:3], {("a", "eth0"), ("b", "eth0")}])
    assert said.startswith("fabrics.lan: c and the other nodes do not reach each other on it;")
    (said,), _ = found(wired=[WIRED[0], WIRED[1], WIRED[3]])
    assert said.startswith("fabrics.mesh (the cable of b and c): ")


def test_a_wire_that_the_file_lacks_is_reported_and_is_no_fault():
    def without(document):
        del document["fabrics"]["cable"]
        for node in document["nodes"][:2]:
            del node["fabrics"]["cable"]

    assert found(without) == (
        [],
        ["Not in the file, and need not be: a wire of a (cable0), b (cable0)."],
    )


@pytest.mark.parametrize(
    ("platform", "deploy", "said"),
    [
        ("generic-x86_64", False, True),
        ("strix-halo", False, False),
        ("minisforum-ms-s1-max", False, False),
        ("generic-x86_64", True, False),
    ],
)
def test_a_machine_known_by_its_chip_contradicts_a_file_that_knows_nothing_of_it(
    platform, deploy, said
):
    """A file with [deploy] has to name a platform of the flake."""
    there = [machine("a", pci=("1002:1586",))]
    document = surveyed(there, []).document
    real = parse_cluster(document, "there")
    ours = copy.deepcopy(document)
    ours["nodes"][0]["platform"] = platform
    if deploy:
        ours["deploy"] = {"ssh_keys": ["ssh-ed25519 AAAA you"]}
    sentences = differences(parse_cluster(ours, "mine.toml"), there, real)
    assert ["of the platform 'strix-halo'" in one for one in sentences] == [True] * said
