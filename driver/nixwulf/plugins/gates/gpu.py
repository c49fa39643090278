"""Gates: the GPU is seen, may be opened, and may have more of shared memory than the default.

Also: no node saves power or is slowed down while it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.interfaces import AMD
from nixwulf.plugins.gates import Gate, GateContext, Verdict, on_lab, refused, unknown


def _vendor(context: GateContext, node: Node) -> str:
    return str(context.platform(node).get("gpu", {}).get("vendor", ""))


# A GPU that this user may not open is no GPU, and engines do not say so: they run on the CPU.
_DEVICES = """
for device in /dev/kfd /dev/dri/renderD*; do
  if [ -w "$device" ]; then echo "$device yes"; elif [ -e "$device" ]; then echo "$device no"; fi
done
"""


def _judge_amd(context: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = context.facts[node.name].hardware
    if not any(gpu.vendor == AMD for gpu in hardware.gpus):
        yield refused(
            f"Node {node.name!r} shows no AMD GPU, so engines would run on its CPU; see 'dmesg | "
            "grep amdgpu' there."
        )
        return
    lines = context.answer("gpu", node).splitlines()
    for what, needed_by in (("/dev/dri/renderD", "Vulkan"), ("/dev/kfd", "ROCm")):
        found = [line.split() for line in lines if line.startswith(what)]
        if not found:
            yield refused(
                f"Node {node.name!r} has no '{what}', so {needed_by} would run on its CPU; see "
                "'dmesg | grep amdgpu' there."
            )
        elif not any(may == ["yes"] for _, *may in found):
            yield refused(
                f"Node {node.name!r} does not let this user write {found[0][0]!r}, so "
                f"{needed_by} would run on its CPU; run 'usermod -aG render,video USER' there, and "
                "log in again."
            )


def _judge_nvidia(context: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = context.facts[node.name].hardware
    answer = context.answer("gpu", node)
    if not hardware.nvidia_driver:
        yield refused(
            f"Node {node.name!r} has no NVIDIA driver loaded, so engines would run on its CPU; run "
            "'modprobe nvidia' there, or deploy it."
        )
    elif "GPU 0" not in answer:
        yield refused(
            f"On node {node.name!r} 'nvidia-smi -L' shows no GPU: {answer[:120]!r}; reboot it "
            "when driver and library differ."
        )


# The kernel gives ttm half of the memory, and people who raise it take 62 % or more.
_LEAST_SHARE = 0.55


def _concerns_gtt(context: GateContext, node: Node) -> bool:
    gpu = context.platform(node).get("gpu", {})
    return context.uses_gpu and gpu.get("vendor") == "amd" and bool(gpu.get("shared_memory"))


def _judge_gtt(context: GateContext, node: Node) -> Iterator[Verdict]:
    facts = context.facts[node.name]
    gpus = [gpu for gpu in facts.hardware.gpus if gpu.vendor == AMD and gpu.gtt_bytes]
    if not gpus or not facts.memory_total:
        yield unknown(f"Node {node.name!r} does not report how much memory its GPU may have.")
        return
    gpu = max(gpus, key=lambda gpu: gpu.gtt_bytes)
    whole = facts.memory_total + gpu.vram_bytes
    if gpu.gtt_bytes + gpu.vram_bytes < _LEAST_SHARE * whole:
        yield refused(
            f"The GPU of node {node.name!r} may have {_gib(gpu.gtt_bytes)} GiB (and "
            f"{_gib(gpu.vram_bytes)} of its own) of {_gib(whole)}, the kernel's default; deploy "
            "it, or boot it with 'ttm.pages_limit=31457280' for 120 GiB."
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f}"


# Under these drivers "powersave" scales with the load, and the energy preference decides.
_SCALING_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_SAVING_PROFILES = frozenset({"low-power", "quiet", "cool"})


def _judge_governor(context: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = context.facts[node.name].hardware
    name, governor = node.name, hardware.governor
    if not governor and not hardware.platform_profile:
        yield unknown(f"Node {name!r} reports neither a governor nor a power profile.")
        return
    if governor == "powersave" and hardware.governor_driver not in _SCALING_DRIVERS:
        yield refused(
            f"Node {name!r} has the governor 'powersave', its lowest clock; run 'cpupower "
            "frequency-set -g performance' there."
        )
    if hardware.energy_preference == "power":
        yield refused(
            f"Node {name!r} has the energy preference 'power'; run 'tuned-adm profile "
            "throughput-performance' there."
        )
    if hardware.platform_profile in _SAVING_PROFILES:
        yield refused(
            f"Node {name!r} has the power profile {hardware.platform_profile!r}; run 'echo "
            "performance > /sys/firmware/acpi/platform_profile' there."
        )
    first = next(n for n in context.nodes if n.platform == node.platform)
    theirs = context.facts[first.name].hardware
    for what, ours, other in (
        ("governor", governor, theirs.governor),
        ("power profile", hardware.platform_profile, theirs.platform_profile),
    ):
        if ours != other:
            yield refused(
                f"Node {name!r} has the {what} {ours!r} and {first.name!r} has {other!r}; deploy "
                "both, or set the same."
            )


# https://www.raspberrypi.com/documentation/computers/os.html#get_throttled; the bits above these
# say what was since it booted.
_PI = {
    0x1: "too low a voltage",
    0x2: "a capped clock",
    0x4: "throttling",
    0x8: "its soft temperature limit",
}
# NVML's clocks event reasons: hardware slowdown, software and hardware thermal slowdown, power
# brake (https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html).
_NVIDIA_SLOWED = 0x8 | 0x20 | 0x40 | 0x80
_NVIDIA = ["nvidia-smi", "--query-gpu=clocks_throttle_reasons.active", "--format=csv,noheader"]


def _command_throttling(context: GateContext, node: Node) -> Sequence[str] | None:
    if context.platform(node).get("gpu", {}).get("vendor") == "nvidia":
        return _NVIDIA
    pi = node.platform.startswith("raspberry-pi")
    if pi and context.facts[node.name].hardware.throttled is None:
        return ["vcgencmd", "get_throttled"]
    return None


def _judge_throttling(context: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = context.facts[node.name].hardware
    answer = context.answer("throttling", node)
    bits = re.search(r"0x([0-9a-fA-F]{1,16})\b", answer)
    throttled = hardware.throttled
    if bits and not answer.startswith("throttled="):
        if int(bits[1], 16) & _NVIDIA_SLOWED:
            yield refused(
                f"The GPU of node {node.name!r} is slowed down now ('0x{bits[1]}'); see "
                "'nvidia-smi -q -d PERFORMANCE' there, and cool it."
            )
    elif bits:
        throttled = int(bits[1], 16)
    now = [words for bit, words in _PI.items() if (throttled or 0) & bit]
    if now:
        yield refused(
            f"The firmware of node {node.name!r} reports {', '.join(now)} ('{throttled:#x}'); see "
            "its heat sink and its power supply, and let it cool."
        )
    for name, state in hardware.slowing.items():
        if state:
            yield refused(
                f"Node {node.name!r} slows itself down: {name!r} is at {state}; let it cool, and "
                "see its fans."
            )
    if throttled is None and not bits and not hardware.slowing:
        yield unknown(f"Node {node.name!r} does not report whether it is slowed down.")


GATES = (
    Gate(
        name="gpu",
        slows="nodes",
        holds="the platform's GPU is seen, and the user may open it: no silent run on the CPU",
        reads="`/sys/class/drm`, write access to `/dev/kfd` and `/dev/dri/renderD*`; "
        "`nvidia-smi -L`",
        fix="groups `render` and `video`; load the driver",
        concerns=lambda context, node: (
            context.uses_gpu and _vendor(context, node) in {"amd", "nvidia"}
        ),
        judge=lambda context, node: (
            _judge_amd if _vendor(context, node) == "amd" else _judge_nvidia
        )(context, node),
        command=lambda context, node: (
            ["nvidia-smi", "-L"] if _vendor(context, node) == "nvidia" else ["sh", "-c", _DEVICES]
        ),
    ),
    Gate(
        name="gtt",
        holds=f"the GPU may have more than {_LEAST_SHARE:.0%} of the memory that it shares",
        reads="`mem_info_gtt_total` and `mem_info_vram_total` of `/sys/class/drm`, `MemTotal`",
        fix="`nixwulf.strix-halo.gpuMemoryGiB`, or the kernel parameter `ttm.pages_limit`",
        concerns=_concerns_gtt,
        judge=_judge_gtt,
    ),
    Gate(
        name="governor",
        slows="nodes",
        holds="no node saves power, and nodes of one platform have the same governor and profile",
        reads="`cpufreq` of cpu0, `/sys/firmware/acpi/platform_profile`",
        fix="`cpupower frequency-set -g performance`, `tuned-adm profile accelerator-performance`",
        concerns=lambda context, node: not on_lab(node),
        judge=_judge_governor,
    ),
    Gate(
        name="throttling",
        slows="nodes",
        holds="nothing slows a node down now",
        reads="processors among `/sys/class/thermal/cooling_device*`; a Raspberry Pi's "
        "`get_throttled`; `nvidia-smi`'s throttle reasons",
        fix="heat sink, fans, power supply; let it cool",
        concerns=lambda context, node: not on_lab(node),
        judge=_judge_throttling,
        command=_command_throttling,
    ),
)
