"""Platforms: the facts of a kind of machine, each with its source, one TOML file a platform."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import read_toml
from nixwulf.core.schema import check

_FOLDER = Path(str(resources.files("nixwulf"))) / "data" / "platforms"


@cache
def platform_names() -> tuple[str, ...]:
    """The names of all known platforms, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def gpu_vendor(platform: str | Path) -> str:
    """Who made the GPU of a platform: amd, apple or nvidia; empty of one that has none."""
    return str(load_platform(platform).get("gpu", {}).get("vendor", ""))


def load_platform(name_or_path: str | Path) -> dict[str, Any]:
    """The facts of a platform, by name or by file; raises InputError."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = _FOLDER / f"{name_or_path}.toml"
    document = read_toml(path)
    check(document, "platform", str(path))
    if document["name"] != path.stem:
        raise InputError(f"{path}: name is {document['name']!r}, expected {path.stem!r}.")
    return document
