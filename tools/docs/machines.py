"""Facts of platforms, each with its source, and what is usual of links."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from markdown import code, link, number, table

from nixwulf.inventory.platforms import flake_platforms, load_platform, shipped_platforms

_UNITS = {
    "memory_gib": ("memory", "GiB"),
    "memory_bandwidth_gbs": ("memory bandwidth, measured", "GB/s"),
    "memory_bandwidth_nominal_gbs": ("memory bandwidth, nominal", "GB/s"),
    "compute_tflops": ("compute, dense 16 bit, nominal", "Tflop/s"),
    "hpl_gflops": ("HPL on one node", "Gflop/s"),
    "gpu_memory_fraction": ("share of the memory that vLLM may take", ""),
    "idle_watts": ("idle, at the wall", "W"),
    "price_usd": ("price", "US$"),
}
_INTRODUCTION = """# Platforms

What is known of each kind of machine, from `driver/nixwulf/data/platforms/`; `predict` computes
from it and gates judge by it. [platform-file.md](platform-file.md) has the keys,
[hardware.md](../hardware.md) how each machine is set up.
"""
_BY_CHIP = """## By chip

From `driver/nixwulf/data/chips.toml`: what holds of any machine with a chip. `cluster new` gives it
to a machine that has no file of its own, the flake installs none of them.

"""
_LINKS = """# Links

Round trip and rate of a kind of fabric and transport, taken by `predict` where nothing was
measured, which it then says.

"""
_RAILS = """
## What less was found to be

Of records that measured a link of a platform and no model, `explain` names the known cause.

"""


def pages() -> dict[str, str]:
    """The pages of platforms and links."""
    parts = [_INTRODUCTION, *map(_platform, flake_platforms()), _by_chip()]
    return {"platforms.md": "\n".join(parts), "links.md": _links()}


def _platform(name: str) -> str:
    facts = load_platform(name)
    rows = [
        [
            title,
            f"{number(facts[key]['value'])} {unit}",
            facts[key].get("note", ""),
            link(facts[key]["source"]),
        ]
        for key, (title, unit) in _UNITS.items()
        if key in facts
    ]
    rows += list(map(_port, facts.get("ports", ())))
    if "gpu" in facts:
        gpu = facts["gpu"]
        rows.append([
            "GPU",
            " ".join(filter(None, (gpu["vendor"], gpu.get("target")))),
            f"llama.cpp by {', then '.join(gpu['backends'])}. {gpu.get('note', '')}",
            link(gpu["source"]),
        ])  # fmt: skip
    if "kernel_floor" in facts:
        floor = facts["kernel_floor"]
        rows.append(["oldest kernel", floor["value"], floor.get("note", ""), link(floor["source"])])
    if "install" in facts:
        install = facts["install"]
        rows.append(
            [
                "installed by",
                install["method"],
                install.get("reason", ""),
                link(install.get("source", "")),
            ]
        )
    steps = [f"{place}. {step}" for place, step in enumerate(facts.get("setup", ()), 1)]
    by_hand = "\nBy hand:\n\n" + "\n".join(steps) + "\n" if steps else ""
    title = f"## {name}\n\n{facts['description']} ({code(facts['system'])}).\n\n"
    return title + table(["", "", "", ""], rows) + by_hand


def _by_chip() -> str:
    rows = []
    for name in sorted(set(shipped_platforms()) - set(flake_platforms())):
        facts = load_platform(name)
        by = facts.get("recognised_by", {})
        signs = [by.get("cpu"), by.get("compatible"), *by.get("pci", ())]
        figures = [
            f"{words.partition(',')[0]} {number(facts[key]['value'])} {unit}"
            + (f" ({facts[key]['note']})" if "note" in facts[key] else "")
            for key, (words, unit) in _UNITS.items()
            if key in facts
        ]
        kept = [facts[key]["source"] for key in _UNITS if key in facts]
        rows.append([
            code(name),
            facts["description"],
            "; ".join(figures),
            " or ".join(map(code, filter(None, signs))),
            " ".join(map(link, dict.fromkeys(kept))),
        ])  # fmt: skip
    head = ["platform", "machine", "facts", "recognised by", "sources"]
    return _BY_CHIP + table(head, rows)


def _port(port: dict[str, Any]) -> list[str]:
    speed = f" of {number(port['speed_gbps'])} Gbit/s" if "speed_gbps" in port else ""
    return [
        f"ports: {port['kind']}",
        f"{port['count']}{speed}",
        port.get("note", ""),
        link(port["source"]),
    ]


def _links() -> str:
    text = (resources.files("nixwulf") / "data" / "model" / "links.toml").read_text("utf-8")
    rows = [
        [
            one["kind"],
            one["transport"],
            number(one.get("speed_gbps", "")),
            number(one["rtt_us"]),
            f"{number(one['bandwidth_gbps'])} Gbit/s"
            if "bandwidth_gbps" in one
            else f"{one['share']:.0%} of nominal",
            link(one["source"]),
        ]
        for one in tomllib.loads(text)["links"]
    ]
    head = ["kind", "transport", "speed, Gbit/s", "round trip, us", "rate, one way", "source"]
    return _LINKS + table(head, rows) + _RAILS + table(*_rails())


def _rails() -> tuple[list[str], list[list[str]]]:
    text = (resources.files("nixwulf") / "data" / "rails.toml").read_text("utf-8")
    rows = [
        [
            one["platform"],
            f"{one['metric']}, {number(one['usual'])} ({link(one['source'])})",
            f"below {number(cause['below'])}" if "below" in cause else f"above {cause['above']}",
            f"{cause['text']} ({link(cause['source'])})",
        ]
        for one in tomllib.loads(text)["rails"]
        for cause in one["causes"]
    ]
    return ["platform", "usual, Gbit/s or us", "found", "cause and mend"], rows
