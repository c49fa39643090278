"""Two healthy Strix Halo nodes, and what gates say of them and of one change to the first."""

import dataclasses

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.facts import Clock, parse_facts
from nixwulf.plugins.gates import all_gates, context_of_cluster, result_of

# hand-made: no machine with Strix Halo is at hand; the lines that any Linux has are as those of
# linux/facts.txt (form: https://docs.kernel.org/gpu/amdgpu/driver-misc.html,
# https://docs.kernel.org/admin-guide/thunderbolt.html, https://docs.kernel.org/admin-guide/pm/)
HALO = """\
/usr/bin/iperf3
/usr/bin/ping
--
unlimited
clock:1800000000.25
/proc/sys/kernel/hostname:{name}
/proc/sys/kernel/osrelease:6.19.1
/proc/meminfo:MemTotal:       130000000 kB
/proc/meminfo:MemAvailable:   120000000 kB
/sys/class/net/thunderbolt0/mtu:9000
/sys/class/net/enp191s0/mtu:1500
/proc/net/fib_trie:           |-- {cable}
/proc/net/fib_trie:              /32 host LOCAL
/proc/net/fib_trie:           |-- {office}
/proc/net/fib_trie:              /32 host LOCAL
/sys/class/drm/card1/device/vendor:0x1002
/sys/class/drm/card1/device/mem_info_gtt_total:128849018880
/sys/class/drm/card1/device/mem_info_vram_total:536870912
/sys/class/drm/card1/device/fw_version/mes_fw_version:0x00000080
/sys/class/kfd/kfd/topology/nodes/0/properties:gfx_target_version 0
/sys/class/kfd/kfd/topology/nodes/1/properties:gfx_target_version 110501
/sys/bus/thunderbolt/devices/0-0/device_name:host
/sys/bus/thunderbolt/devices/0-2/device_name:{peer}
/sys/bus/thunderbolt/devices/0-2/tx_speed:20.0 Gb/s
/sys/bus/thunderbolt/devices/0-2/rx_speed:20.0 Gb/s
/sys/bus/thunderbolt/devices/0-2/tx_lanes:2
/sys/bus/thunderbolt/devices/0-2/rx_lanes:2
/sys/bus/thunderbolt/devices/1-3/rx_speed:10.0 Gb/s
/sys/bus/thunderbolt/devices/1-3/authorized:1
/sys/class/thermal/cooling_device0/type:Processor
/sys/class/thermal/cooling_device0/cur_state:0
/sys/class/thermal/cooling_device9/type:Fan
/sys/class/thermal/cooling_device9/cur_state:3
/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor:performance
/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver:amd-pstate-epp
/sys/firmware/acpi/platform_profile:performance
/run/booted-system/etc/nixwulf/linux-firmware:20260622
"""
# no output: what a script of the gate's own prints
DEVICES = "/dev/kfd yes\n/dev/dri/renderD128 yes\n"
CLUSTER = load_cluster("framework-2")
FW1, FW2 = CLUSTER.nodes


def facts_of(change=("", ""), extra=""):
    """The facts of both nodes, a healthy pair but for a change of the first one's text."""
    texts = {}
    for node, peer in ((FW1, "fw2"), (FW2, "fw1")):
        addresses = {name: at.address for name, at in node.fabrics.items()}
        texts[node.name] = HALO.format(name=node.name, peer=peer, **addresses)
    assert change[0] in texts["fw1"], change
    texts["fw1"] = texts["fw1"].replace(*change) + extra
    found = {name: parse_facts(text) for name, text in texts.items()}
    return {
        name: dataclasses.replace(facts, clock=Clock(0.0, 0.1)) for name, facts in found.items()
    }


def context(change=("", ""), extra="", **changes):
    changes = {"answers": {"gpu": {"fw1": DEVICES, "fw2": DEVICES}}} | changes
    return dataclasses.replace(context_of_cluster(CLUSTER, facts_of(change, extra)), **changes)


def held(gate, against, node=FW1, waived=()):
    return result_of(all_gates()[gate], against, node, waived)


def refusal(gate, against, node=FW1):
    result = held(gate, against, node)
    assert result.state == "refused", result
    assert len(result.sentences) == 1
    assert repr(node.name) in result.sentences[0]
    return result.sentences[0]
