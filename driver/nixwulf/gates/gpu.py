"""Gate: a platform's GPU is seen, and this user may use it; else engines run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nixwulf.cluster import Node
from nixwulf.gates import Gate, Subject, Verdict, refused
from nixwulf.hardware import AMD


def _vendor(subject: Subject, node: Node) -> str:
    return str(subject.platform(node).get("gpu", {}).get("vendor", ""))


def _concerns(subject: Subject, node: Node) -> bool:
    uses = subject.engine is not None or not subject.is_case
    return uses and _vendor(subject, node) in {"amd", "nvidia"}


def _command(subject: Subject, node: Node) -> Sequence[str] | None:
    return ["nvidia-smi", "-L"] if _vendor(subject, node) == "nvidia" else None


def _judge(subject: Subject, node: Node) -> Iterator[Verdict]:
    if _vendor(subject, node) == "amd":
        yield from _judge_amd(subject, node)
    else:
        yield from _judge_nvidia(subject, node)


def _judge_amd(subject: Subject, node: Node) -> Iterator[Verdict]:
    hardware = subject.facts[node.name].hardware
    if not any(gpu.vendor == AMD for gpu in hardware.gpus):
        yield refused(
            f"Node {node.name!r} shows no AMD GPU, so engines would run on its CPU; see 'dmesg | "
            "grep amdgpu' there."
        )
        return
    for what, needed_by in (("/dev/dri/renderD", "Vulkan"), ("/dev/kfd", "ROCm")):
        found = {path: may for path, may in hardware.devices.items() if path.startswith(what)}
        if not found:
            yield refused(
                f"Node {node.name!r} has no '{what}', so {needed_by} would run on its CPU; see "
                "'dmesg | grep amdgpu' there."
            )
        elif not any(found.values()):
            yield refused(
                f"Node {node.name!r} does not let this user write {next(iter(found))!r}, so "
                f"{needed_by} would run on its CPU; run 'usermod -aG render,video USER' there, and "
                "log in again."
            )


def _judge_nvidia(subject: Subject, node: Node) -> Iterator[Verdict]:
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
