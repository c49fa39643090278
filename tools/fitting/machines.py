"""Machines of published numbers: which facts hold for what a table calls them, and their links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_toml
from nixwulf.inventory.platforms import load_platform
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, fabric_facts, platform_facts

_FILE = Path(str(resources.files("nixwulf"))) / "data" / "model" / "machines.toml"
_GIGABITS = re.compile(r"(\d+(?:\.\d+)?)\s*G(?:bE|b/s|bit)")


def chip(machine: str) -> str:
    """The chip of a machine, where several machines have the same; else the machine."""
    for known in _machines():
        if known["name"] == machine:
            return str(known.get("chip", machine))
    return machine


@cache
def _machines() -> list[dict[str, Any]]:
    machines: list[dict[str, Any]] = read_toml(_FILE)["machines"]
    return machines


def machine_of(platform: str) -> dict[str, Any]:
    """The entry of what a table calls a machine; raises InputError where none matches."""
    for machine in _machines():
        if re.search(machine["match"], platform):
            return machine
    raise InputError(f"of platform {platform!r} no facts are known")


def platforms_of(machine: Mapping[str, Any]) -> list[PlatformFacts]:
    """Facts of a machine's node, or of each node of a pair of unlike ones."""
    documents = [load_platform(name) for name in machine.get("platforms", ())]
    known = [platform_facts(document) for document in documents or [machine["facts"]]]
    memory = machine.get("memory_gib")
    return [replace(one, memory_gib=float(memory)) for one in known] if memory else known


def fabric_of(row: Mapping[str, str], machine: Mapping[str, Any]) -> FabricFacts:
    """The link of a row: as published of the machine, else what is usual of its kind."""
    text = row["interconnect"]
    transport = "rdma" if row["transport"].startswith("rdma") else "tcp"
    found = _GIGABITS.search(text)
    speed = float(row.get("fabric_gbps") or (found[1] if found else 1.0))
    if "Thunderbolt 5" in text:
        kind = "thunderbolt5-rdma"
    elif "USB4" in text:
        kind = "usb4-rdma" if transport == "rdma" else "thunderbolt-net"
    else:
        kind = "roce" if transport == "rdma" else "ethernet"
        if "cloud VM" in text:
            speed = 20.0
    known = {}
    for link in machine.get("links", ()):
        if link["transport"] == transport and re.search(link["interconnect"], text):
            known = {key: link[key] for key in ("rtt_us", "bandwidth_gbps")}
            break
    return fabric_facts(kind, transport, speed, **known)
