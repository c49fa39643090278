"""Machines that people own, by what public dumps show of them: their platform, gates and speed."""

import json
import tomllib
from pathlib import Path

import pytest

from nixwulf.inventory.cluster import Node, load_cluster, parse_cluster
from nixwulf.inventory.platforms import is_generic, load_platform, platform_names, platform_of
from nixwulf.nodes.facts import parse_facts
from nixwulf.ops.survey.draft import draft, render
from nixwulf.ops.survey.machines import parse
from nixwulf.plugins.gates import all_gates, context_of_cluster, result_of
from predict_command import refused, ways

MACHINES = tomllib.loads(Path(__file__).with_name("known_machines.toml").read_text())["machines"]
STRIX_HALO = {"gpu", "gtt", "kernel", "known-bad"}
WEIGHTS_GB = 4.5  # of Llama 3.1 8B in Q4_K_M, without its embeddings, at least


# hand-made: a section of what the survey's script prints (form: ops/deploy/identity.sh)
SECTION = "\n== {}\n{}\n"
# hand-made: a GPU as LLVM names it (form: https://docs.kernel.org/gpu/amdgpu/driver-misc.html)
TARGET = "/sys/class/kfd/kfd/topology/nodes/1/properties:gfx_target_version 110501"
# hand-made: a card's memory (form: https://docs.kernel.org/gpu/amdgpu/driver-misc.html)
VRAM = "/sys/class/drm/card1/device/mem_info_vram_total:{}"


def printed(machine):
    """What the survey's script prints on a machine of which this is known."""
    mac = machine.get("system") == "arm64"
    name = "machdep.cpu.brand_string" if mac else "model name\t"
    files = [TARGET] if machine.get("targets") == ["gfx1151"] else []
    files += [VRAM.format(machine["vram_gib"] * 2**30 - 4096)] if "vram_gib" in machine else []
    sections = {
        "kernel": "Darwin" if mac else "Linux",
        "architecture": machine.get("system", "x86_64"),
        "product": machine["product"],
        "cpu": f"{name}: {machine['cpu']}" if "cpu" in machine else "",
        "compatible": "\n".join(machine.get("compatible", ())),
        "pci": "\n".join(f"c400\t{one.replace(':', '')}" for one in machine.get("pci", ())),
        "displays": f"      Total Number of Cores: {machine.get('gpu_cores', '')}",
        "files": "\n".join(files),
    }
    return "".join(SECTION.format(name, text) for name, text in sections.items())


def surveyed(machine):
    return parse(Node("a", "", "you@a"), printed(machine))


def written(machine, folder):
    """The cluster file of a machine alone, as 'cluster new' writes it."""
    path = folder / "mine.toml"
    path.write_text(render(draft("mine", [surveyed(machine)], [], [])))
    return path


def test_the_list_is_of_forty_machines_each_with_its_source():
    assert len(MACHINES) == 40
    assert all(machine["source"] for machine in MACHINES)
    assert sum(not is_generic(machine["platform"]) for machine in MACHINES) == 38


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one["platform"])
def test_a_machine_has_its_platform_the_gates_of_its_chip_and_a_prediction(machine, tmp_path):
    path = written(machine, tmp_path)
    cluster = load_cluster(path)
    (node,) = cluster.nodes
    assert node.platform == machine["platform"]

    context = context_of_cluster(cluster, {"a": parse_facts("")})
    gates = {gate.name for gate in all_gates().values() if gate.concerns(context, node)}
    gpu = load_platform(node.platform).get("gpu", {})
    expected = {"gpu"} if gpu.get("vendor") in {"amd", "nvidia"} else set()
    expected |= {"gtt"} if gpu.get("vendor") == "amd" and gpu.get("shared_memory") else set()
    expected |= STRIX_HALO if gpu.get("target") == "gfx1151" else set()
    assert gates & {*STRIX_HALO, "governor"} == expected | {"governor"}

    asked = ("--model", "Llama-3.1-8B", "--quant", "Q4_K_M", "--engine", "llama.cpp")
    if is_generic(node.platform):
        missing = f"--what-if platform.{node.platform}.memory_bandwidth_gbs="
        assert missing in refused(*asked, cluster=str(path))
    else:
        (way,) = ways(*asked, cluster=str(path))
        facts = load_platform(node.platform)
        bound = facts.get("memory_bandwidth_nominal_gbs", facts.get("memory_bandwidth_gbs"))
        assert 0 < way["decode"]["predicted"] < bound["value"] / WEIGHTS_GB


@pytest.mark.parametrize("machine", [one for one in MACHINES if is_generic(one["platform"])])
def test_of_a_chip_that_nobody_knows_is_said_that_it_is_not_predicted(machine):
    _, (why,) = platform_of(surveyed(machine).signs)
    assert "it is measured, and not predicted" in why


@pytest.mark.parametrize(
    "filler", ["To be filled by O.E.M.", "Default string", "System Product Name", " \t"]
)
def test_a_filler_of_the_firmwares_maker_is_no_product(filler):
    found, (why,) = platform_of(surveyed({"product": filler, "cpu": "Intel(R) N97"}).signs)
    assert (found, why[:29]) == ("intel-n", "The firmware names no product")
    found, _ = platform_of(surveyed({"product": filler}).signs)
    assert found == "generic-x86_64"


def test_of_several_cards_and_chips_the_file_says_so():
    both = {"product": "", "pci": ["10de:2204", "10de:2204", "1002:150e"]}
    found, why = platform_of(surveyed(both).signs)
    assert found == "rtx-3090"
    assert "which ryzen-ai-300 has too" in why[0]
    assert "It has 2 of them; predictions are of one." in why[0]


def test_a_card_of_one_identifier_and_another_memory_is_another_card():
    found, _ = platform_of(surveyed({"product": "", "pci": ["1002:744c"], "vram_gib": 20}).signs)
    assert found == "generic-x86_64"


@pytest.mark.parametrize("system", ["aarch64", "arm64"])
def test_a_chip_under_another_system_is_none(system):
    machine = {"product": "", "system": system, "cpu": "Intel(R) N100", "pci": ["10de:2684"]}
    found, _ = platform_of(surveyed(machine).signs)
    assert is_generic(found)


def test_a_platform_by_chip_says_by_what_with_a_source_and_no_two_are_the_same():
    seen = []
    for name in platform_names():
        by = load_platform(name).get("recognised_by")
        if by:
            assert by["source"].startswith("https://"), name
            seen.append(json.dumps({key: by[key] for key in by if key != "source"}))
    assert len(seen) == len(set(seen)) > 40


# hand-made: a cable (form: https://docs.kernel.org/admin-guide/thunderbolt.html)
CABLE = [
    "/sys/bus/thunderbolt/devices/0-2/tx_lanes:{}",
    "/sys/bus/thunderbolt/devices/0-2/rx_lanes:{}",
    "/sys/bus/thunderbolt/devices/0-2/tx_speed:20.0 Gb/s",
    "/sys/bus/thunderbolt/devices/0-2/rx_speed:20.0 Gb/s",
]
# hand-made: 32 GiB (form: https://docs.kernel.org/gpu/amdgpu/driver-misc.html)
LAPTOP = [
    "/sys/class/drm/card1/device/vendor:0x1002",
    f"/sys/class/drm/card1/device/mem_info_gtt_total:{15 * 2**30}",
    f"/sys/class/drm/card1/device/mem_info_vram_total:{2 * 2**30}",
    f"/proc/meminfo:MemTotal:       {30 * 2**20} kB",
]


def facts_of(lines):
    """The facts of a Linux machine with these lines of files."""
    # hand-made: the least of a node's facts (form: nodes/facts.sh)
    head = ["", "--", "/proc/sys/kernel/osrelease:7.0.0"]
    return parse_facts("\n".join([*head, *lines]))


@pytest.mark.parametrize(
    ("lanes", "state"), [((2, 2), "ok"), ((2, 1), "refused")], ids=["whole", "half"]
)
def test_a_cable_of_half_its_lanes_between_boxes_known_by_their_chip_is_refused(lanes, state):
    fabric = {"kind": "thunderbolt-net", "speed_gbps": 20, "mtu": 1500, "subnet": "10.1.0.0/24"}
    nodes = [
        {
            "name": name,
            "ssh": name,
            "platform": platform_of(surveyed(MACHINES[1]).signs)[0],
            "fabrics": {"tb": {"interface": "thunderbolt0", "address": f"10.1.0.{end}"}},
        }
        for end, name in enumerate("ab", 1)
    ]
    cluster = parse_cluster({"name": "m", "fabrics": {"tb": fabric}, "nodes": nodes}, "m")
    lines = [line.format(lanes[place]) for line, place in zip(CABLE, (0, 1, 0, 1), strict=True)]
    facts = facts_of(lines)
    context = context_of_cluster(cluster, {"a": facts, "b": facts})
    assert result_of(all_gates()["usb4"], context, cluster.nodes[0], ()).state == state


def test_more_memory_for_the_gpu_is_asked_for_by_the_machines_own():
    nodes = [{"name": "a", "ssh": "a", "platform": "ryzen-ai-300"}]
    cluster = parse_cluster({"name": "m", "fabrics": {}, "nodes": nodes}, "m")
    facts = facts_of(LAPTOP)
    context = context_of_cluster(cluster, {"a": facts})
    (sentence,) = result_of(all_gates()["gtt"], context, cluster.nodes[0], ()).sentences
    assert f"ttm.pages_limit={30 * 2**18}" in sentence
