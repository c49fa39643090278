"""Each gate holds, refuses or cannot tell, by the facts of a node; its sentence says what to do."""

import dataclasses
import math
import re

import pytest

from healthy_pair import CLUSTER, DEVICES, FW1, FW2, context, facts_of, held, refusal
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster, parse_cluster
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.llm import Model, PlacedModel
from nixwulf.llm.model_facts import Sizes
from nixwulf.nodes.facts import Clock, listeners
from nixwulf.nodes.interfaces import HARDWARE_FILES
from nixwulf.plugins.benchmarks import find as find_benchmark
from nixwulf.plugins.engines import find
from nixwulf.plugins.gates import (
    Crossing,
    GateContext,
    GateResult,
    all_gates,
    context_of_cluster,
    known_names,
)
from nixwulf.plugins.gates.kernel import is_older, table
from nixwulf.plugins.runtime.case import Case
from tool_outputs import fixture


def test_nothing_is_wrong_with_a_healthy_pair():
    answers = {
        "gpu": DEVICES,
        "disk": fixture("linux/df.txt"),
        "ports": "  sl  local_address",
        "strangers": CLUSTER.name,
        "path-mtu": "\n".join(
            f"{at.address} passes" for node in CLUSTER.nodes for at in node.fabrics.values()
        ),
    }
    everything = context(
        answers={gate: {"fw1": text, "fw2": text} for gate, text in answers.items()}
    )
    states = {(g, n.name): held(g, everything, n) for g in all_gates() for n in CLUSTER.nodes}
    assert [r for r in states.values() if r.state not in {"ok", "not applicable"}] == []
    idle = {r.gate for r in states.values() if r.state == "not applicable"}
    assert idle == {"gid", "memlock", "memory", "model", "rdma-vendor", "versions"}


@pytest.mark.parametrize(
    ("gate", "change", "words"),
    [
        ("kernel", ("6.19.1", "6.18.2-arch1"), "runs kernel '6.18.2-arch1'"),
        ("known-bad", ("6.19.1", "6.17.0"), "kernel '6.17.0', known to be bad on gfx1151"),
        ("known-bad", ("0x00000080", "0x00000083"), "MES firmware 0x83, known to be bad"),
        ("known-bad", ("firmware:20260622", "firmware:20251125"), "linux-firmware '20251125'"),
        ("gpu", ("vendor:0x1002", "vendor:0x1a03"), "shows no AMD GPU"),
        ("gtt", ("gtt_total:128849018880", "gtt_total:66560000000"), "62.0 GiB (and 0.5 of its"),
        ("usb4", ("rx_speed:20.0", "rx_speed:10.0"), "receives at '10 Gb/s x 2'"),
        ("usb4", ("tx_lanes:2", "tx_lanes:1"), "sends at '20 Gb/s x 1'"),
        ("usb4", ("0-2/rx_speed", "0-2/other"), "has no cable to another host"),
        ("governor", ("profile:performance", "profile:low-power"), "power profile 'low-power'"),
        ("throttling", ("device0/cur_state:0", "device0/cur_state:4"), "'Processor (cooling_dev"),
        ("fabric", ("thunderbolt0/mtu:9000", "thunderbolt0/mtu:1500"), "has MTU 1500 on"),
        ("fabric", ("thunderbolt0/mtu", "thunderbolt1/mtu"), "no interface 'thunderbolt0'"),
        ("fabric", ("10.10.0.1\n", "10.10.0.7\n"), "does not have the address '10.10.0.1'"),
        # no output: a line of HALO
        ("programs", ("/usr/bin/iperf3\n", ""), "lacks 'iperf3' on PATH"),
    ],
)
def test_a_fact_that_is_wrong_is_refused_with_its_value_and_what_to_do(gate, change, words):
    against = context(change)
    if gate == "governor":  # The other node differs from it as well.
        assert words in " ".join(held(gate, against).sentences)
        return
    assert words in refusal(gate, against)
    assert held(gate, against, FW2).state == "ok"


def test_an_engine_that_a_node_lacks_is_brought_by_the_command_that_the_refusal_names():
    without = context(engine=find("llama.cpp"), case=object(), answers={})
    assert refusal("programs", without).endswith(
        "lacks 'llama-bench' on PATH; deploy it or run 'nixwulf engines install --cluster "
        f"{CLUSTER.source}'."
    )
    other = context(engine=find("exo"), case=object(), answers={})
    assert "deploy it or install one version of exo." in refusal("programs", other)


def test_what_the_drivers_own_machine_lacks_is_refused_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    without = context(benchmark=find_benchmark("llama-benchy"), case=object(), answers={})
    sentences = held("programs", without).sentences
    assert sentences == (
        "This machine lacks 'llama-benchy' on PATH; run \"pip install 'llama-benchy>=0.3.8'\".",
    )
    assert held("programs", without, FW2).sentences == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("D128 yes", "D128 no"), "usermod -aG render,video"),
        (("/dev/kfd yes\n", ""), "has no '/dev/kfd', so ROCm would run on its CPU"),
    ],
)
def test_a_gpu_that_the_user_may_not_open_is_refused(change, words):
    answers = {"gpu": {"fw1": DEVICES.replace(*change), "fw2": DEVICES}}
    assert words in refusal("gpu", context(answers=answers))
    assert held("gpu", context(answers=answers), FW2).state == "ok"


def test_a_powersave_that_scales_with_the_load_is_none():
    change = ("governor:performance", "governor:powersave")
    both = {"fw1": facts_of(change)["fw1"], "fw2": facts_of(change)["fw1"]}
    assert held("governor", context(facts=both)).state == "ok"
    plain = facts_of(change)["fw1"]
    hardware = dataclasses.replace(plain.hardware, governor_driver="acpi-cpufreq")
    both = dict.fromkeys(both, dataclasses.replace(plain, hardware=hardware))
    assert "governor 'powersave'" in refusal("governor", context(facts=both))


@pytest.mark.parametrize(
    ("gate", "change"),
    [
        ("known-bad", ("/fw_version/mes_fw_version:0x00000080", "/nothing:0")),
        ("known-bad", ("/etc/nixwulf/linux-firmware:20260622", "/etc/nothing:0")),
        ("gtt", ("mem_info_gtt_total:128849018880", "nothing:0")),
        ("usb4", ("0-2/rx_lanes:2", "0-2/nothing:2")),
        ("throttling", ("type:Processor", "type:Fan")),
    ],
)
def test_what_a_node_does_not_tell_is_unknown_and_refuses_nothing(gate, change):
    result = held(gate, context(change))
    assert result.state == "unknown"
    assert "does not report" in result.sentences[0]


def test_a_node_that_runs_no_linux_is_unknown():
    result = held("fabric", context(("osrelease:6.19.1", "osrelease:")))
    assert result.state == "unknown"
    assert "runs no Linux" in result.sentences[0]


def test_a_waived_gate_still_says_what_is_wrong():
    result = held("kernel", context(("6.19.1", "6.1.0")), waived=("kernel",))
    assert result.state == "waived"
    assert "'6.1.0'" in result.sentences[0]


def test_an_unknown_gate_cannot_be_waived():
    with pytest.raises(InputError, match="unknown gate 'kernal'; did you mean 'kernel'"):
        known_names(["kernal"])
    assert known_names(["kernel", "clock", "kernel"]) == ("clock", "kernel")


def test_a_memory_carved_out_by_the_firmware_counts_for_the_gpu():
    change = ("mem_info_vram_total:536870912", f"mem_info_vram_total:{96 * 2**30}")
    assert held("gtt", context(change)).state == "ok"


def test_clocks_are_apart_only_by_what_no_round_trip_explains():
    facts = facts_of()
    late = dataclasses.replace(facts["fw2"], clock=Clock(3.0, 3.5))
    sentence = refusal("clock", context(facts={**facts, "fw2": late}), FW2)
    assert "at least 2.9 s ahead of that of 'fw1'" in sentence
    answers = {"clock": {"fw1": "1000.000000000", "fw2": "997.250000000"}}
    asked = context(answers=answers, asked=(1000.0, 1000.5))
    assert "at least 2.2 s behind that of 'fw1'" in refusal("clock", asked, FW2)
    vague = dataclasses.replace(facts["fw2"], clock=Clock(-2.0, 3.5))
    assert held("clock", context(facts={**facts, "fw2": vague}), FW2).state == "ok"


# hand-made: no RDMA device is at hand
# (form: https://github.com/torvalds/linux/blob/55b0245/Documentation/ABI/stable/sysfs-class-infiniband)
RDMA = """\
/sys/class/infiniband/mlx5_0/device/vendor:0x15b3
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/gids/0:fe80:0000:0000:0000:0000:0000:0000:0001
/sys/class/infiniband/mlx5_0/ports/1/gids/3:0000:0000:0000:0000:0000:ffff:0a0a:0001
"""


def rdma_subject(
    first=RDMA, second=RDMA, memlock=math.inf, device="mlx5_0", kind="roce", gid_index=3
):
    document = {**CLUSTER.document, "fabrics": dict(CLUSTER.document["fabrics"])}
    document["fabrics"]["cable"] = {**document["fabrics"]["cable"], "kind": kind}
    document["nodes"] = [
        {
            **node,
            "fabrics": {"cable": {**node["fabrics"]["cable"], "gid_index": gid_index, **named}},
        }
        for node, named in (
            (node, {"rdma_device": device} if device else {}) for node in document["nodes"]
        )
    ]
    cluster = parse_cluster(document, "test")
    facts = {"fw1": facts_of(extra=first)["fw1"], "fw2": facts_of(extra=second)["fw1"]}
    facts["fw1"] = dataclasses.replace(facts["fw1"], memlock=memlock)
    answers = {"memlock": {"fw1": "infinity", "fw2": "infinity"}}
    return dataclasses.replace(context_of_cluster(cluster, facts), answers=answers)


def rdma_held(gate, against, place=0):
    return held(gate, against, against.nodes[place])


def test_rdma_gates_hold_for_a_device_that_is_ready():
    for gate in ("gid", "memlock", "rdma-vendor"):
        assert rdma_held(gate, rdma_subject()).state == "ok"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("ffff:0a0a:0001", "0000:0000:0000"), "The GID 3 of 'mlx5_0' on node 'fw1' is zero"),
        (("4: ACTIVE", "1: DOWN"), "is 'DOWN', not 'ACTIVE'"),
        (("gids/3", "gids/4"), "has no GID 3; it has 0, 4"),
        (("0a0a:0001", "0a0a:0007"), "is not of the address '10.10.0.1'; no GID is"),
        (("mlx5_0", "mlx5_1"), "has no RDMA device 'mlx5_0'; it has: mlx5_1"),
    ],
)
def test_an_rdma_device_that_is_not_ready_is_refused(change, words):
    result = rdma_held("gid", rdma_subject(first=RDMA.replace(*change)))
    assert result.state == "refused"
    assert words in result.sentences[0]


def test_a_gid_that_is_not_of_the_roce_fabrics_address_is_refused_with_the_one_that_is():
    """GID 0 is of the link-local address, and perftest ends with 'Failed to modify QP to RTR'."""
    # no output: the lines of RDMA, the other way round
    swapped = (
        RDMA.replace("gids/0", "gids/x").replace("gids/3", "gids/0").replace("gids/x", "gids/3")
    )
    result = rdma_held("gid", rdma_subject(first=swapped))
    assert result.state == "refused"
    assert "GID 3 of 'mlx5_0' on node 'fw1' is 'fe80:" in result.sentences[0]
    assert "which is not of the address '10.10.0.1'; GID 0 is; correct" in result.sentences[0]


def test_every_port_of_every_cable_needs_its_device_and_its_address():
    sparks = load_cluster("dgx-spark-3")
    # no output: the lines of RDMA, for each port of the first node
    devices = "".join(
        RDMA.replace("mlx5_0", port.rdma_device).replace("0a0a:0001", f"c0a8:0{net}01")
        for net, port in enumerate(sparks.nodes[0].ends("ring"))
    )

    def gid(text):
        facts = dict.fromkeys((node.name for node in sparks.nodes), facts_of(extra=text)["fw1"])
        return held("gid", context_of_cluster(sparks, facts), sparks.nodes[0])

    assert gid(devices).state == "ok"
    (sentence,) = gid(devices.replace("rocep1s0f1", "other")).sentences
    assert "has no RDMA device 'rocep1s0f1'" in sentence
    (sentence,) = gid(devices.replace("c0a8:0301", "c0a8:0901")).sentences
    assert "'roceP2p1s0f1'" in sentence
    assert "is not of the address '192.168.3.1'" in sentence


def test_a_gid_of_roce_v1_is_refused_with_the_one_of_v2():
    # no output: lines of sysfs without a colon of their own
    types = "{}gid_attrs/types/{}:{}\n".format
    root = "/sys/class/infiniband/mlx5_0/ports/1/"
    old = RDMA + types(root, 3, "IB/RoCE v1")
    assert rdma_held("gid", rdma_subject(first=RDMA + types(root, 3, "RoCE v2"))).state == "ok"
    found = rdma_held("gid", rdma_subject(first=old))
    assert found.state == "refused"
    assert "is of 'IB/RoCE v1'" in found.sentences[0]
    # no output: a line of sysfs with another index
    gid = "gids/4:0000:0000:0000:0000:0000:ffff:0a0a:0001\n"
    both = old + root + gid + types(root, 4, "RoCE v2")
    assert "set gid_index to 4." in rdma_held("gid", rdma_subject(first=both)).sentences[0]


def test_an_infiniband_gid_has_no_address():
    """The zero GID is refused there too, and a port's own GUID is what it shall have."""
    found = rdma_held("gid", rdma_subject(kind="infiniband", gid_index=0))
    assert found.state == "ok"


def test_an_rdma_device_that_the_cluster_does_not_name_is_unknown():
    assert rdma_held("gid", rdma_subject(device=None)).state == "unknown"


def test_cards_of_two_vendors_are_refused():
    result = rdma_held("rdma-vendor", rdma_subject(second=RDMA.replace("15b3", "8086")), 1)
    assert "of '0x8086', and that of 'fw1' of '0x15b3'" in result.sentences[0]


def test_a_login_and_a_unit_each_need_their_limit():
    low = rdma_held("memlock", rdma_subject(memlock=8192 * 1024))
    assert "A login on node 'fw1' may lock 8192 KiB" in low.sentences[0]
    answers = {"memlock": {"fw1": "8388608"}}
    unit = rdma_held("memlock", dataclasses.replace(rdma_subject(), answers=answers))
    assert "A unit on node 'fw1' may lock 8192 KiB" in unit.sentences[0]
    answers = {"memlock": {"fw1": "sh: systemctl: not found"}}
    none = rdma_held("memlock", dataclasses.replace(rdma_subject(), answers=answers))
    assert none.state == "unknown"


def test_a_case_over_tcp_is_not_concerned_by_rdma():
    fabric = rdma_subject().crossings[1].fabric
    over_tcp = dataclasses.replace(rdma_subject(), crossings=(Crossing(fabric, rdma=False),))
    for gate in ("gid", "memlock", "rdma-vendor"):
        assert rdma_held(gate, over_tcp).state == "not applicable"


def test_the_lab_has_no_hardware_to_look_at():
    lab = load_cluster("lab")
    against = context_of_cluster(lab, {node.name: facts_of()["fw1"] for node in lab.nodes})
    hardware = ("gpu", "gtt", "kernel", "known-bad", "governor", "throttling", "usb4", "memlock")
    for gate in hardware:
        assert held(gate, against, lab.nodes[0]).state == "not applicable"


def test_a_case_that_asks_for_the_cpu_needs_no_gpu():
    def case(**parameters):
        placed = ("llama.cpp", "llama-bench", "big", 1, None, None, "single")
        return Case(*placed, parameters, 1, 1, True, "")

    blind = facts_of(("vendor:0x1002", "vendor:0x1a03"))
    alone = GateContext(nodes=(FW1,), facts=blind, engine=find("llama.cpp"), case=case())
    assert held("gpu", alone).state == "refused"
    on_cpu = dataclasses.replace(alone, case=case(backend="cpu"))
    of_machines = dataclasses.replace(alone, engine=None)
    for against in (on_cpu, of_machines):
        assert {held(g, against).state for g in ("gpu", "gtt")} == {"not applicable"}


def test_one_node_alone_has_no_fabric_to_look_at():
    alone = GateContext(nodes=(FW1,), facts=facts_of(), engine=find("llama.cpp"))
    for gate in ("fabric", "path-mtu", "usb4", "clock", "rdma-vendor"):
        assert held(gate, alone).state == "not applicable"


# As if it were fw1's: its address is in the place of the machine's own.
TCP = fixture("linux/tcp.txt").replace("0B014D0A", "01000A0A")


def test_listeners_are_read_and_connections_are_not():
    assert listeners(TCP) == {
        ("127.0.0.1", 8080),
        ("10.10.0.1", 50151),
        ("::", 22),
        ("10.10.0.1", 80),
    }


def test_a_port_that_is_taken_is_refused_with_whose_it_is():
    sentence = refusal("ports", context(answers={"ports": {"fw1": TCP}}))
    assert "listens on '10.10.0.1:50151', which the link's measurement needs" in sentence
    taken = TCP.replace("01000A0A:C3E7", "00000000:C384")
    assert "'0.0.0.0:50052', which llama.cpp needs" in refusal(
        "ports", context(answers={"ports": {"fw1": taken}})
    )


def test_a_port_of_another_address_is_not_taken():
    elsewhere = TCP.replace("01000A0A:C3E7", "09000A0A:C384")
    assert held("ports", context(answers={"ports": {"fw1": elsewhere}})).state == "ok"


def test_packets_that_do_not_pass_are_distinguished_from_a_dead_path():
    address = FW2.fabrics["cable"].address
    printed = fixture("linux/path-mtu.txt").splitlines()
    assert [line.split()[1] for line in printed] == ["passes", "small", "silent"]
    office = f"{FW2.fabrics['office'].address} passes\n"
    small = context(answers={"path-mtu": {"fw1": f"{office}{address} small"}})
    assert f"try 'ping -M do -s 8972 {address}'" in refusal("path-mtu", small)
    silent = context(answers={"path-mtu": {"fw1": f"{office}{address} silent"}})
    assert "No packet came back from 'fw1' to 'fw2'" in refusal("path-mtu", silent)
    assert held("path-mtu", context()).state == "unknown"


def test_a_ping_that_cannot_forbid_fragments_is_named_and_no_mtu_is_blamed():
    address, office = FW2.fabrics["cable"].address, FW2.fabrics["office"].address
    # no output: what our own script prints
    answer = f"{office} passes\n{address} unasked"
    found = held("path-mtu", context(answers={"path-mtu": {"fw1": answer}}))
    assert found.state == "unknown"
    assert "The ping of node 'fw1' has no option '-M do'" in found.sentences[0]
    assert "install iputils there" in found.sentences[0]


def test_a_disk_that_is_nearly_full_is_refused():
    text = re.sub(r"\d+( +\d+% )", r"524288\1", fixture("linux/df.txt"))
    assert "0.50 GiB free on '/'" in refusal("disk", context(answers={"disk": {"fw1": text}}))
    nowhere = fixture("linux/df-nowhere.txt")
    assert held("disk", context(answers={"disk": {"fw1": nowhere}})).state == "unknown"


PI = load_cluster("pi-cm5-4").nodes[0]
SPARK = load_cluster("dgx-spark-2").nodes[0]


def test_a_raspberry_pi_says_by_its_firmware_that_it_throttles_now():
    # no output: a path, as globs find it on a Compute Module 5
    path = "/sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
    for bits, state in (("50000", "ok"), ("50005", "refused")):
        facts = {PI.name: facts_of(extra=f"{path}:{bits}\n")["fw1"]}
        assert held("throttling", GateContext((PI,), facts), PI).state == state
    command = all_gates()["throttling"].command
    alone = GateContext((PI,), {PI.name: facts_of()["fw1"]})
    assert command(alone, PI) == ["vcgencmd", "get_throttled"]
    asked = dataclasses.replace(alone, answers={"throttling": {PI.name: "throttled=0xe0008"}})
    assert "its soft temperature limit ('0xe0008')" in refusal("throttling", asked, PI)


def test_an_nvidia_gpu_is_asked_by_its_own_program():
    # hand-made: no NVIDIA GPU is at hand (form: proc(5) of the driver, in its README, "Support")
    version = "/proc/driver/nvidia/version:NVRM version: NVIDIA UNIX Open  580.95.05  R\n"
    facts = {SPARK.name: facts_of(extra=version)["fw1"]}
    assert facts[SPARK.name].hardware.nvidia_driver == "580.95.05"
    seen = GateContext(
        (SPARK,), facts, answers={"gpu": {SPARK.name: "GPU 0: NVIDIA GB10 (UUID: x)"}}
    )
    assert held("gpu", seen, SPARK).state == "ok"
    words = "Failed to initialize NVML: Driver/library version mismatch"
    failed = dataclasses.replace(seen, answers={"gpu": {SPARK.name: words}})
    assert words in refusal("gpu", failed, SPARK)
    bare = GateContext((SPARK,), {SPARK.name: facts_of()["fw1"]})
    assert "no NVIDIA driver loaded" in refusal("gpu", bare, SPARK)
    for bits, state in (("0x0000000000000001", "ok"), ("0x0000000000000040", "refused")):
        slowed = dataclasses.replace(seen, answers={"throttling": {SPARK.name: bits}})
        assert held("throttling", slowed, SPARK).state == state


def test_a_model_has_to_be_where_it_is_read():
    alone = GateContext(nodes=(FW1,), facts=facts_of())
    model = Model("big", path="/big.gguf")
    gone = dataclasses.replace(alone, model=PlacedModel(model, "/big.gguf", None, "fw1"))
    assert "has no model '/big.gguf'" in refusal("model", gone)
    assert held("memory", gone).state == "not applicable"


def test_a_model_has_to_fit():
    sizes = Sizes(
        layers=(200 * 2**30,), embedding=0, output=0, tied=0, vocabulary=1,
        cache_widths=((0, 0),), windows=(0,), hidden=1, feed_forward=1, heads=1,
    )  # fmt: skip
    placed = PlacedModel(Model("big", path="/big.gguf"), "/big.gguf", 200 * 2**30, sizes=sizes)
    case = Case("llama.cpp", "llama-bench", "big", 1, None, None, "single", {}, 1, 1, True, "")
    alone = GateContext(nodes=(FW1,), facts=facts_of(), case=case, model=placed)
    assert "needs 200.0 GiB on node 'fw1'" in refusal("memory", alone)


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("6.18.4", "6.19", True),
        ("6.19", "6.19.0", False),
        ("6.19.0-rc2", "6.19", False),
        ("7.0.0-30-generic", "6.19", False),
        ("6.9", "6.10", True),
    ],
)
def test_kernels_are_compared_by_number(version, than, older):
    assert is_older(version, than) == older


def test_the_kernel_floor_of_strix_halo_is_that_of_the_chip_on_all_its_platforms():
    # modules/strix-halo.nix takes it from one of them.
    platforms = [load_platform(name) for name in platform_names()]
    strix_halo = [one for one in platforms if one.get("gpu", {}).get("target") == "gfx1151"]
    assert len(strix_halo) > 1
    assert len({one["kernel_floor"]["value"] for one in strix_halo}) == 1


@pytest.mark.parametrize(
    ("printed", "backend", "state"),
    [
        ("version: 10566 (abcdef)", "rocm", "refused"),
        ("version: 0.1.0-dev (build 10440, commit 6b4344ecc)", "rocm", "refused"),
        ("version: 9842 (abcdef)", "rocm", "ok"),
        ("version: 0.1.0-dev (build 10900, commit 6b4344ecc)", "rocm", "ok"),
        ("version: 10566 (abcdef)", "vulkan", "ok"),
        ("", "rocm", "unknown"),
    ],
)
def test_a_bad_build_of_llama_cpp_is_refused_where_the_case_computes_by_rocm(
    printed, backend, state
):
    placed = ("llama.cpp", "llama-bench", "big", 1, None, None, "single")
    case = Case(*placed, {"backend": backend}, 1, 1, True, "")
    # no output: our own question's frame around what the program printed
    answers = {"versions": {"fw1": f"nixwulf-engine:llama.cpp\n/usr/bin/x\n{printed}\n"}}
    alone = GateContext(nodes=(FW1,), facts=facts_of(), case=case, answers=answers)
    assert held("known-bad", alone).state == state


def test_the_table_of_known_bad_ones_is_valid():
    assert "mes-0x83" in table()


def test_gates_state_their_own_names_and_read_no_file_twice():
    for name, gate in all_gates().items():
        assert gate.name == name
        assert all([gate.holds, gate.reads, gate.fix])
    assert len(set(HARDWARE_FILES)) == len(HARDWARE_FILES)


def test_a_result_is_a_document_of_a_stable_shape():
    assert GateResult("kernel", "n1", "refused", ("Why.",)).document() == {
        "gate": "kernel",
        "node": "n1",
        "state": "refused",
        "sentences": ["Why."],
    }


@pytest.mark.parametrize("answer", ["cat: /etc/nixwulf/cluster: No such file or directory", "x"])
def test_of_machines_that_the_flake_did_not_image_strangers_are_named(answer):
    there = context(answers={"strangers": {"fw1": answer, "fw2": CLUSTER.name}})
    fw1, fw2 = (held("strangers", there, node) for node in CLUSTER.nodes)
    assert (fw1.state, fw2.state) == ("unknown", "ok")
    office, cable = fw1.sentences
    assert office.startswith("Whoever is on '192.168.1.0/24', from which node 'fw1' is reached by ")
    address = CLUSTER.nodes[0].fabrics["cable"].address
    assert cable.startswith(f"Node 'fw1' may take packets for '{address}' from its other networks")
