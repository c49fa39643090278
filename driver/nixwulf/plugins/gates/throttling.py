"""Gate: no node is slowed down already, by heat or by its power supply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, on_lab, refused, unknown

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


def _command(subject: GateContext, node: Node) -> Sequence[str] | None:
    if subject.platform(node).get("gpu", {}).get("vendor") == "nvidia":
        return _NVIDIA
    pi = node.platform.startswith("raspberry-pi")
    if pi and subject.facts[node.name].hardware.throttled is None:
        return ["vcgencmd", "get_throttled"]
    return None


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = subject.facts[node.name].hardware
    answer = subject.answers.get(GATE.name, {}).get(node.name, "")
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
        yield unknown(f"Node {node.name!r} does not tell whether it is slowed down.")


GATE = Gate(
    name="throttling",
    holds="nothing slows a node down now",
    reads="processors among `/sys/class/thermal/cooling_device*`; a Raspberry Pi's "
    "`get_throttled`; `nvidia-smi`'s throttle reasons",
    fix="heat sink, fans, power supply; let it cool",
    concerns=lambda subject, node: not on_lab(node),
    judge=_judge,
    command=_command,
)
