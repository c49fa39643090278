"""Facts of the machines that records name: platforms, and machines of published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.core.files import read_toml
from nixwulf.inventory.platforms import load_platform, platform_names

_MACHINES = Path(str(resources.files("nixwulf"))) / "data" / "model" / "machines.toml"


@cache
def facts_of(name: str) -> Mapping[str, Any] | None:
    """In the form of a platform's file; None for a machine that nobody gave facts of."""
    if name in platform_names():
        return load_platform(name)
    for machine in read_toml(_MACHINES)["machines"]:
        if machine["name"] == name and "facts" in machine:
            facts: Mapping[str, Any] = machine["facts"]
            return facts
    return None
