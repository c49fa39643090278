"""The kernel's command line: parameters that bear on speed are kept, and no others."""

from __future__ import annotations

import re

# What has to do with memory, devices, clocks and cores; all others, known or not, are taken out:
# root=UUID=..., ip=..., resume=, rd.luks.uuid=, systemd.machine_id=, and what init is given.
_KEPT = re.compile(
    r"""
    (amd|intel)_(iommu|pstate|idle)(\..*)? | iommu(\..*)? | amdgpu\..* | amdttm\..* | ttm\..*
    | nvidia.* | nouveau\..* | i915\..* | xe\..* | thunderbolt\..* | usbcore\..* | thunderbolt_.*
    | pci | pcie_.* | pcie_aspm(\..*)? | (default_)?hugepages(z)? | transparent_hugepage
    | numa.* | cma | swiotlb | mitigations | spec.* | nopti | pti | l1tf | mds | tsx.*
    | isolcpus | nohz.* | rcu.* | threadirqs | preempt | skew_tick | nosmt | maxcpus | nr_cpus
    | processor\..* | cpufreq\..* | cpuidle.* | haltpoll\..* | idle | tsc | clocksource | hpet
    | mce | nmi_watchdog | nowatchdog | psi | zswap\..* | init_on_(alloc|free) | slab_nomerge
    | (modprobe\.|module_|initcall_)blacklist | panic | quiet | splash | loglevel
    """,
    re.VERBOSE,
)


def split(command_line: str) -> tuple[list[str], list[str]]:
    """The parameters that are kept, and those that are not; what follows ' -- ' goes to init."""
    kernel, dashes, init = command_line.partition(" -- ")
    kept: list[str] = []
    removed = ["--", *init.split()] if dashes else []
    for word in kernel.split():
        (kept if _KEPT.fullmatch(word.partition("=")[0].replace("-", "_")) else removed).append(
            word
        )
    return kept, removed
