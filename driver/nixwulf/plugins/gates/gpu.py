"""Gate: a platform's GPU is seen, and this user may use it; else engines run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.hardware import AMD
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused


def _vendor(subject: GateContext, node: Node) -> str:
    return str(subject.platform(node).get("gpu", {}).get("vendor", ""))


def _concerns(subject: GateContext, node: Node) -> bool:
    return subject.uses_gpu and _vendor(subject, node) in {"amd", "nvidia"}


# A GPU that this user may not open is no GPU, and engines do not say so: they run on the CPU.
_DEVICES = """
for device in /dev/kfd /dev/dri/renderD*; do
  if [ -w "$device" ]; then echo "$device yes"; elif [ -e "$device" ]; then echo "$device no"; fi
done
"""


def _command(subject: GateContext, node: Node) -> Sequence[str]:
    if _vendor(subject, node) == "nvidia":
        return ["nvidia-smi", "-L"]
    return ["sh", "-c", _DEVICES]


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    if _vendor(subject, node) == "amd":
        yield from _judge_amd(subject, node)
    else:
        yield from _judge_nvidia(subject, node)


def _judge_amd(subject: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = subject.facts[node.name].hardware
    if not any(gpu.vendor == AMD for gpu in hardware.gpus):
        yield refused(
            f"Node {node.name!r} shows no AMD GPU, so engines would run on its CPU; see 'dmesg | "
            "grep amdgpu' there."
        )
        return
    lines = subject.answers.get(GATE.name, {}).get(node.name, "").splitlines()
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


def _judge_nvidia(subject: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = subject.facts[node.name].hardware
    answer = subject.answers.get(GATE.name, {}).get(node.name, "")
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


GATE = Gate(
    name="gpu",
    holds="the platform's GPU is seen, and the user may open it: no silent run on the CPU",
    reads="`/sys/class/drm`, write access to `/dev/kfd` and `/dev/dri/renderD*`; `nvidia-smi -L`",
    fix="groups `render` and `video`; load the driver",
    concerns=_concerns,
    judge=_judge,
    command=_command,
)
