"""Platforms: the facts of a kind of machine, each with its source, one TOML file a platform."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.schema import check

NOMINAL_SHARE = 0.86
"""Of a nominal memory bandwidth where none was measured: what the Framework's GPU reads."""
_FOLDER = DATA / "platforms"


@cache
def platform_names() -> tuple[str, ...]:
    """The names of all known platforms, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def gpu_vendor(platform: str | Path) -> str:
    """Who made the GPU of a platform: amd, apple or nvidia; empty of one that has none."""
    return str(load_platform(platform).get("gpu", {}).get("vendor", ""))


def is_macos(platform: str | Path) -> bool:
    """Whether machines of a platform run macOS."""
    return str(load_platform(platform)["system"]).endswith("-darwin")


def load_platform(name_or_path: str | Path) -> dict[str, Any]:
    """The facts of a platform, by name or by file; raises InputError."""
    path = Path(name_or_path)
    return _read(path) if path.suffix == ".toml" else deepcopy(_shipped(str(name_or_path)))


@cache
def _shipped(name: str) -> dict[str, Any]:
    """Read and checked once: a search asks two thousand times."""
    return _read(_FOLDER / f"{name}.toml")


def _read(path: Path) -> dict[str, Any]:
    document = read_toml(path)
    check(document, "platform", str(path))
    if document["name"] != path.stem:
        raise InputError(f"{path}: name is {document['name']!r}, expected {path.stem!r}.")
    return document


@cache
def _all() -> dict[str, dict[str, Any]]:
    return {name: load_platform(name) for name in platform_names()}


def memory_bandwidth_gbs(platform: Mapping[str, Any]) -> float:
    """Of a platform's facts: as measured, else the share of the nominal one; 0 without either."""
    nominal = platform.get("memory_bandwidth_nominal_gbs", {}).get("value", 0.0)
    measured = platform.get("memory_bandwidth_gbs", {}).get("value", 0.0)
    return float(measured) or NOMINAL_SHARE * float(nominal)


def platforms_of(product: str) -> list[str]:
    """The platforms whose machines the firmware calls so; more than one would be a mistake."""
    products = {name: facts.get("install", {}).get("product") for name, facts in _all().items()}
    return [
        name
        for name, pattern in products.items()
        if pattern and product and re.search(pattern, product)
    ]


def platforms_like(system: str, vendor: str, target: str | None) -> list[str]:
    """The platforms that a machine may be whose product is not known, by its GPU.

    system: what Nix calls it, such as 'x86_64-linux'. target: the GPU as LLVM names it, None where
    it is not known.
    """
    found = []
    for name, facts in _all().items():
        gpu = facts.get("gpu", {})
        unnamed = "product" not in facts.get("install", {}) and facts["system"] == system
        same = vendor and gpu.get("vendor") == vendor
        if unnamed and same and (target is None or gpu.get("target", target) == target):
            found.append(name)
    return found
