"""Gate: no node saves power while it is measured, and all do the same."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, on_lab, refused, unknown

# Under these drivers "powersave" scales with the load, and the energy preference decides.
_SCALING_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_SAVING_PROFILES = frozenset({"low-power", "quiet", "cool"})


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    hardware = subject.facts[node.name].hardware
    name, governor = node.name, hardware.governor
    if not governor and not hardware.platform_profile:
        yield unknown(f"Node {name!r} tells neither a governor nor a power profile.")
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
    first = next(n for n in subject.nodes if n.platform == node.platform)
    theirs = subject.facts[first.name].hardware
    for what, ours, other in (
        ("governor", governor, theirs.governor),
        ("power profile", hardware.platform_profile, theirs.platform_profile),
    ):
        if ours != other:
            yield refused(
                f"Node {name!r} has the {what} {ours!r} and {first.name!r} has {other!r}; deploy "
                "both, or set the same."
            )


GATE = Gate(
    name="governor",
    holds="no node saves power, and nodes of one platform have the same governor and profile",
    reads="`cpufreq` of cpu0, `/sys/firmware/acpi/platform_profile`",
    fix="`cpupower frequency-set -g performance`, `tuned-adm profile accelerator-performance`",
    concerns=lambda subject, node: not on_lab(node),
    judge=_judge,
)
