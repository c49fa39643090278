"""What a cluster file is made of: who is on which wire, its figures, and what is left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.inventory.platforms import platform_of
from nixwulf.nodes.interfaces import Cable, Hardware, RdmaPort
from nixwulf.ops.deploy.machine import Disk
from nixwulf.ops.survey.draft import draft, render
from nixwulf.ops.survey.fabrics import meshes
from nixwulf.ops.survey.machines import check_different, node_names
from nixwulf.ops.survey.wires import Reach, candidates, pairs_to_try, wires
from survey_factory import attachments, interface, loaded, machine, surveyed, tried, with_reach

LAN = [{("a", "eth0"), ("b", "eth0"), ("c", "eth0")}]


def lan(*more, **others):
    """Three machines on one switch."""
    return [
        machine(name, interface("eth0", f"10.1.0.{index}/24", **others), *more)
        for index, name in enumerate("abc", start=1)
    ]


def test_machines_on_a_switch_are_on_one_fabric():
    cluster = loaded(surveyed(lan(), LAN))
    fabric = cluster.fabrics["lan"]
    assert (fabric.kind, fabric.speed_gbps, fabric.mtu) == ("ethernet", 10, 1500)
    assert str(fabric.subnet) == "10.1.0.0/24"
    assert [node.fabrics["lan"].address for node in cluster.nodes] == [
        "10.1.0.1",
        "10.1.0.2",
        "10.1.0.3",
    ]


@pytest.mark.parametrize(
    ("decoy", "reason"),
    [
        (interface("docker0", "172.17.0.1/16", medium="virtual"), "of containers or virtual"),
        (interface("docker0", "172.17.0.1/16"), "the same address on several machines"),
        (interface("eth1", "10.9.0.1/24", carrier=False), "nothing is plugged in"),
        (interface("wg0", "10.8.0.1/24", medium="tunnel"), "a VPN or tunnel"),
        (interface("wlan0", "10.7.0.1/24", medium="wifi"), "Wi-Fi, whose speed"),
    ],
)
def test_what_is_no_wire_is_left_out_with_the_reason_once(decoy, reason):
    everywhere = [{(name, decoy.name) for name in "abc"}]
    found = surveyed(lan(decoy), LAN + everywhere)
    assert attachments(found) == {frozenset(LAN[0])}
    (line,) = found.left_out
    assert line.startswith(f"{decoy.name} of every node ({decoy.addresses[0]}): {reason}")


def test_an_address_without_a_peer_and_a_second_one_on_a_wire_are_left_out():
    machines = [
        machine(
            "a", interface("eth0", "10.1.0.1/24", "10.2.0.1/24"), interface("eth1", "10.3.0.1/24")
        ),
        machine(
            "b", interface("eth0", "10.1.0.2/24", "10.2.0.2/24"), interface("eth1", "10.4.0.1/24")
        ),
    ]
    found = surveyed(machines, [{("a", "eth0"), ("b", "eth0")}, {("a", "eth1"), ("b", "eth1")}])
    assert attachments(found) == {frozenset({("a", "eth0"), ("b", "eth0")})}
    assert found.document["fabrics"]["lan"]["subnet"] == "10.1.0.0/24"
    assert found.left_out == (
        "eth0 of every node (10.2.0.1/24, 10.2.0.2/24): a second address on one wire, and a fabric "
        "has one an interface.",
        "eth1 of every node (10.3.0.1/24, 10.4.0.1/24): no other machine has an address in this "
        "subnet.",
    )


def test_the_address_on_a_wire_is_the_one_that_most_machines_share():
    machines = lan()
    machines[0] = machine("a", interface("eth0", "10.5.0.1/24", "10.1.0.1/24"))
    assert len(*attachments(surveyed(machines, LAN))) == 3


def test_two_interfaces_of_a_machine_in_one_network_are_the_faster_of_them():
    machines = lan()
    slow, fast = (
        interface(name, f"10.1.0.{end}/24", speed_gbps=speed)
        for name, end, speed in (("eth0", 1, 1.0), ("eth1", 9, 25.0))
    )
    machines[0] = machine("a", slow, fast)
    found = surveyed(machines, [LAN[0] | {("a", "eth1")}])
    assert attachments(found) == {frozenset({("a", "eth1"), ("b", "eth0"), ("c", "eth0")})}
    assert "eth0 of a (10.1.0.1/24): eth1 is on the same network" in found.left_out[0]


def test_subnets_of_the_same_numbers_on_two_switches_are_two_fabrics():
    machines = [
        machine(name, interface("eth0", f"10.1.0.{i}/24")) for i, name in enumerate("abcd", 1)
    ]
    wired = [{("a", "eth0"), ("c", "eth0")}, {("b", "eth0"), ("d", "eth0")}]
    assert attachments(surveyed(machines, wired)) == set(map(frozenset, wired))


def test_who_does_not_answer_the_others_is_left_out_with_the_direction():
    machines = lan()
    endpoints, _ = candidates(machines)
    a, b, c = endpoints
    found = tried(pairs_to_try(endpoints), LAN)
    for other in (a, b):
        found = with_reach(found, (other, c), 0)
    on, apart = wires(machines, endpoints, found)
    assert [end.node for wire in on for end in wire.members] == ["a", "b"]
    said = draft("mine", machines, on, apart)
    assert said.left_out == (
        "eth0 of c (10.1.0.3/24): reaches a, which does not reach it, reaches b, which does not "
        "reach it.",
    )


def test_machines_without_a_wire_in_common_still_make_a_file_that_loads():
    found = surveyed(lan(), [])
    cluster = loaded(found)
    assert cluster.fabrics == {}
    assert [node.fabrics for node in cluster.nodes] == [{}, {}, {}]
    text = render(found)
    # no output: what the driver itself writes
    assert "# No two of these nodes reach each other on a wire: below is why.\n[fabrics]\n" in text
    assert "does not reach b, does not reach c" in text


def test_the_mtu_is_what_passes_and_says_where_the_interfaces_have_another():
    found = surveyed(lan(mtu=9000), LAN, passes=1500)
    assert found.document["fabrics"]["lan"]["mtu"] == 1500
    assert found.notes["fabrics", "lan", "mtu"] == (
        "The interfaces have MTU 9000; what is between them passes 1500.",
    )
    machines = lan(mtu=9000)
    machines[1] = machine("b", interface("eth0", "10.1.0.2/24", mtu=1500))
    found = surveyed(machines, LAN)
    assert found.document["fabrics"]["lan"]["mtu"] == 1500
    assert found.notes["fabrics", "lan", "mtu"] == (
        "MTUs of the interfaces differ: b 1500; a, c 9000.",
    )


def test_an_mtu_that_could_not_be_tried_is_the_interfaces_with_a_comment():
    found = surveyed(lan(mtu=9000), LAN, passes=1)
    assert found.document["fabrics"]["lan"]["mtu"] == 9000
    assert "could not be tried" in found.notes["fabrics", "lan", "mtu"][0]


def test_a_speed_is_that_of_the_slowest_end_and_one_that_nothing_says_is_a_guess():
    machines = lan()
    machines[2] = machine("c", interface("eth0", "10.1.0.3/24", speed_gbps=2.5))
    found = surveyed(machines, LAN)
    assert found.document["fabrics"]["lan"]["speed_gbps"] == 2.5
    assert found.notes["fabrics", "lan", "speed_gbps"] == (
        "Ends are linked at unlike speeds, Gbit/s: c 2.50; a, b 10.0.",
    )
    found = surveyed(lan(speed_gbps=None), LAN)
    assert found.document["fabrics"]["lan"]["speed_gbps"] == 1
    assert "Its speed is not known" in found.notes["fabrics", "lan", "speed_gbps"][0]


def pair(*others, first=(), second=(), **shared):
    """Two machines with a cable on an interface called cable0."""
    return [
        machine("a", interface("cable0", "10.2.0.1/30", **shared, **dict(first))),
        machine("b", interface("cable0", "10.2.0.2/30", **shared, **dict(second))),
        *others,
    ]


CABLE = [{("a", "cable0"), ("b", "cable0")}]


def roce(state="ACTIVE", **gids):
    return (RdmaPort("mlx5_0", state, {int(key[1:]): value for key, value in gids.items()}),)


def test_cards_that_do_rdma_make_a_roce_fabric_with_the_gid_of_the_address():
    machines = pair(
        first={"rdma": roce(i3="10.2.0.1")}, second={"rdma": roce(i1="10.9.9.9", i5="10.2.0.2")}
    )
    cluster = loaded(surveyed(machines, CABLE))
    assert cluster.fabrics["cable"].kind == "roce"
    a, b = (node.fabrics["cable"] for node in cluster.nodes)
    assert (a.rdma_device, a.gid_index, b.gid_index) == ("mlx5_0", 3, 5)


def test_what_is_uncertain_of_rdma_has_a_comment():
    machines = pair(first={"rdma": roce("DOWN")}, second={"rdma": roce(i3="10.2.0.2")})
    found = surveyed(machines, CABLE)
    assert found.notes["fabrics", "cable", "kind"] == (
        "The port of mlx5_0 on a is DOWN.",
        "No GID of mlx5_0 on a is of RoCE v2 and 10.2.0.1: its gid_index is not known.",
    )
    assert "gid_index" not in found.document["nodes"][0]["fabrics"]["cable"]


@pytest.mark.parametrize(
    ("devices", "kind", "words"),
    [
        ({"first": {"rdma": roce(i3="10.2.0.1")}}, "ethernet", "no other end has RDMA"),
        (
            {"rdma": (RdmaPort("rxe0", "ACTIVE", {}, software=True),)},
            "ethernet",
            "rxe0 of a is left out: RDMA in software",
        ),
    ],
)
def test_rdma_that_cannot_be_used_is_left_out_with_the_reason(devices, kind, words):
    found = surveyed(pair(**devices), CABLE)
    assert found.document["fabrics"]["cable"]["kind"] == kind
    assert words in found.notes["fabrics", "cable", "kind"][0]
    assert "rdma_device" not in str(found.document)


@pytest.mark.parametrize(
    ("medium", "device", "kind", "gid"),
    [
        ("thunderbolt", None, "thunderbolt-net", None),
        ("thunderbolt", "usb4_rdma0", "usb4-rdma", 1),
        ("thunderbolt", "rdma_en3", "thunderbolt5-rdma", None),
        ("infiniband", "mlx5_0", "infiniband", 0),
    ],
)
def test_a_kind_is_what_carries_the_interfaces_and_what_they_can(medium, device, kind, gid):
    ends = [
        {"rdma": (RdmaPort(device, "ACTIVE", {1: f"10.2.0.{end}"}),)} if device else {}
        for end in (1, 2)
    ]
    cluster = loaded(surveyed(pair(medium=medium, first=ends[0], second=ends[1]), CABLE))
    assert [fabric.kind for fabric in cluster.fabrics.values()] == [kind]
    assert [node.fabrics["cable"].gid_index for node in cluster.nodes] == [gid, gid]
    assert cluster.nodes[0].fabrics["cable"].rdma_device == device


def test_a_cable_between_two_whose_ports_have_no_address_is_named():
    cable = Cable("x", "y", "fw2")
    machines = [
        machine("a", interface("thunderbolt0", medium="thunderbolt", cable=cable)),
        *lan()[1:],
    ]
    found = surveyed(machines, LAN)
    assert "thunderbolt0 of a (a cable to 'fw2'): no IPv4 address." in found.left_out


PAIRS = ("ab", "ac", "ad", "bc", "bd", "cd")


def macs(prefix):
    """Four Macs with a cable between every two, and the office's network."""
    wired, ports = [], {name: [] for name in "abcd"}
    network = {16: "169.254", 30: "10.50"}[prefix]
    for index, pair in enumerate(PAIRS, start=1):
        ends = set()
        for end, name in enumerate(pair, start=1):
            port = f"en{len(ports[name]) + 3}"
            address = f"{network}.{index}.{end}/{prefix}"
            device = (RdmaPort(f"rdma_{port}", "ACTIVE"),)
            ports[name].append(
                interface(port, address, medium="thunderbolt", speed_gbps=80.0, rdma=device)
            )
            ends.add((name, port))
        wired.append(ends)
    for end, name in enumerate("abcd", start=1):
        ports[name].append(interface("en0", f"192.168.1.{end}/24"))
    office = {(name, "en0") for name in "abcd"}
    return [machine(name, *ports[name]) for name in "abcd"], [*wired, office]


def test_cables_between_every_two_macs_are_one_fabric_of_cables():
    machines, wired = macs(prefix=30)
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    cluster = loaded(found)
    assert list(cluster.fabrics) == ["mesh", "lan"]
    mesh = cluster.fabrics["mesh"]
    assert (mesh.kind, mesh.speed_gbps, mesh.link_prefix) == ("thunderbolt5-rdma", 80, 30)
    assert (str(mesh.subnet), mesh.control) == ("10.50.0.0/21", "lan")
    assert len(cluster.joined("mesh", 4)) == 4
    assert cluster.nodes[3].links["mesh"]["a"].rdma_device == "rdma_en3"
    # no output: what the driver itself writes
    assert "# 6 cables between each two of a, b, c, d.\n[fabrics.mesh]\n" in render(found)


def test_cables_whose_addresses_nobody_gave_are_a_fabric_each():
    machines, wired = macs(prefix=16)
    found = surveyed(machines, wired)
    assert attachments(found) == set(map(frozenset, wired))
    cluster = loaded(found)
    assert list(cluster.fabrics) == [*(f"cable-{a}-{b}" for a, b in PAIRS), "lan"]
    text = render(found)
    # no output: what the driver itself writes
    assert "# A cable from a (en3) to b (en3).\n# It and 5 other cables hang together: with" in text


def test_a_second_cable_between_two_nodes_is_of_a_second_mesh():
    ports = {name: [] for name in "abc"}
    wired = []
    for index, pair in enumerate(("ab", "bc", "ab"), start=1):
        wired.append({(name, f"tb{index}") for name in pair})
        for end, name in enumerate(pair, start=1):
            address = f"10.50.{index}.{end}/30"
            ports[name].append(interface(f"tb{index}", address, medium="thunderbolt"))
    found = surveyed([machine(name, *ports[name]) for name in "abc"], wired)
    assert attachments(found) == set(map(frozenset, wired))
    cluster = loaded(found)
    assert [fabric.link_prefix for fabric in cluster.fabrics.values()] == [30, None]
    why = "No network joins all of its nodes, so that it has no control for vLLM and jaccl."
    assert why in found.notes["fabrics", "mesh"]


def test_only_cables_that_are_alike_and_hang_together_are_a_mesh():
    machines, wired = macs(prefix=30)
    endpoints, _ = candidates(machines)
    found, _ = wires(machines, endpoints, tried(pairs_to_try(endpoints), wired))
    assert [len(group) for group in meshes(found)] == [6, 1]
    apart = [wire for wire in found if wire.nodes in ({"a", "b"}, {"c", "d"})]
    assert [len(group) for group in meshes(apart)] == [1, 1]


def test_a_card_that_answers_for_another_is_reported():
    machines = pair()
    endpoints, _ = candidates(machines)
    found = tried(pairs_to_try(endpoints), CABLE)
    a, b = endpoints
    crossed = Reach(found.bytes, {(a, b): "02:99:99:99:99:99", (b, a): a.mac})
    (wire,), _ = wires(machines, endpoints, crossed)
    (words,) = wire.crossed
    assert words.startswith("10.2.0.2 of b is answered to a by another card than cable0")


def test_the_fastest_wire_is_first_and_sshs_last_among_equals():
    machines = [
        machine(
            name,
            interface("eth0", f"10.1.0.{end}/24", speed_gbps=10.0),
            interface("eth1", f"10.2.0.{end}/24", speed_gbps=100.0),
            interface("eth2", f"10.3.0.{end}/24", speed_gbps=10.0),
            reached_at=f"10.1.0.{end}",
        )
        for end, name in enumerate("ab", start=1)
    ]
    wired = [{("a", f"eth{port}"), ("b", f"eth{port}")} for port in range(3)]
    found = surveyed(machines, wired)
    assert list(found.document["fabrics"]) == ["lan-eth1", "lan-eth2", "lan-eth0"]
    # no output: what the driver itself writes
    assert "# ssh takes this network too.\n[fabrics.lan-eth0]" in render(found)


@pytest.mark.parametrize(
    ("made", "platform", "words"),
    [
        ({"product": "Desktop (AMD Ryzen AI Max 300 Series)"}, "framework-desktop", ""),
        ({"product": "Raspberry Pi Compute Module 5 Rev 1.0"}, "raspberry-pi-cm5", ""),
        (
            {"product": "Mac15,14", "kernel": "Darwin", "architecture": "arm64"},
            "mac-studio-m3-ultra",
            "",
        ),
        (
            {"product": "Mac16,11", "kernel": "Darwin", "architecture": "arm64"},
            "generic-darwin",
            "No platform has the product 'Mac16,11'",
        ),
        ({}, "generic-x86_64", "The firmware names no product"),
        ({"architecture": "aarch64"}, "generic-aarch64", "The firmware names no product"),
        (
            {"product": "X", "hardware": Hardware(targets=frozenset({"gfx1151"}))},
            "strix-halo",
            "known by its chip. The flake does not install this platform.",
        ),
        (
            {"product": "GX10", "architecture": "aarch64", "pci": ("10de:2e12",)},
            "dgx-spark",
            "known by its chip.",
        ),
    ],
)
def test_a_platform_is_known_by_its_product_or_else_uncertain(made, platform, words):
    found, why = platform_of(machine("a", **made).signs)
    assert found == platform
    assert words in " ".join(why)
    assert bool(words) == bool(why)


def test_disks_are_comments_by_id_and_the_file_decides_nothing_about_them():
    disk = Disk(
        "/dev/nvme0n1", 2 * 10**12, "WD", ids=("/dev/disk/by-id/nvme-WD_1",), mountpoints=("/",)
    )
    found = surveyed([machine("a", disks=(disk,))], [])
    loaded(found)
    # no output: what the driver itself writes
    assert '# disk = "/dev/disk/by-id/nvme-WD_1"  # WD, 2000.0 GB, mounted at /\n' in render(found)


def test_a_node_has_its_host_name_and_where_two_have_the_same_what_ssh_calls_it():
    machines = [machine("spark"), machine("pi"), machine("pi")]
    machines = [
        one.__class__(**{**vars(one), "node": one.node.__class__(ssh, "", ssh)})
        for one, ssh in zip(machines, ("you@10.0.0.1", "root@10.0.0.2", "third.lan"), strict=True)
    ]
    assert node_names(machines) == ["spark", "10.0.0.2", "third.lan"]


def test_two_names_of_one_machine_are_refused_and_clones_of_one_disk_are_not():
    card = interface("eth0", "10.1.0.1/24")
    once, twice = machine("a", card, boot="x"), machine("a2", card, boot="x")
    with pytest.raises(Exception, match="'a' and 'a2' are one machine, 'a2', by its network cards"):
        check_different([once, twice])
    check_different([once, machine("b", interface("eth0"), boot="x")])


@st.composite
def networks(draw):
    """Machines and the wires between them: switches with some of them each, cables, and decoys."""
    count = draw(st.integers(2, 12))
    names = [f"n{number}" for number in range(1, count + 1)]
    ports = {name: [] for name in names}
    truth = []
    for number in range(draw(st.integers(0, 4))):
        on = draw(st.sets(st.sampled_from(names), min_size=1))
        for name in on:
            second = [f"10.9.{number}.{names.index(name) + 1}/24"] * draw(st.integers(0, 1))
            first = f"10.{number}.0.{names.index(name) + 1}/24"
            ports[name].append(interface(f"eth{number}", first, *second))
        truth.append({(name, f"eth{number}") for name in on})
    for number in range(draw(st.integers(0, 5))):
        one, other = draw(st.permutations(names))[:2]
        nobody_gave = draw(st.booleans())
        network = f"169.254.{number}" if nobody_gave else f"10.200.{number}"
        ends = {(one, f"tb{number}"), (other, f"tb{number}")}
        for end, name in enumerate((one, other), start=1):
            address = f"{network}.{end}/{16 if nobody_gave else 30}"
            ports[name].append(interface(f"tb{number}", address, medium="thunderbolt"))
        truth.append(ends)
    for name in names:
        for decoy in draw(st.sets(st.sampled_from(["docker0", "br-1", "eth9", "wg0"]))):
            medium = {"docker0": "virtual", "wg0": "tunnel"}.get(decoy, "ethernet")
            own = names.index(name) + 1 if decoy in {"eth9", "wg0"} else 1
            ports[name].append(
                interface(decoy, f"172.17.0.{own}/16", medium=medium, carrier=decoy != "eth9")
            )
    return [machine(name, *ports[name]) for name in names], truth


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(networks())
def test_every_wire_is_found_with_all_of_its_machines_and_none_is_invented(made):
    machines, truth = made
    found = surveyed(machines, truth)
    assert attachments(found) == {frozenset(wire) for wire in truth if len(wire) > 1}
    loaded(found)
