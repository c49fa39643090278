"""Platforms: the facts of a kind of machine, each with its source, by name, product or chip.

Of those that the flake installs, each is a file of data/platforms; data/chips.toml has the others;
a file of the user's own stands beside a cluster file, or in ~/.config/nixwulf/platforms.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Required, TypedDict

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, is_there, read_toml
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean

NOMINAL_SHARE = 0.86
"""Of a nominal memory bandwidth where none was measured: what the Framework's GPU reads."""
GENERIC = "generic-x86_64"
_FOLDER = DATA / "platforms"
_WHAT_TO_WRITE = "name, description, system, facts with sources (docs/reference/platform-file.md)"
_own: dict[str, Path] = {}

# What firmware says where its maker wrote nothing, in small letters
# (https://github.com/dominiksalvet/asus-fan-control/issues/93 has the last).
_NO_PRODUCT = frozenset(
    {"to be filled by o.e.m.", "default string", "not specified", "o.e.m.", "system product name"}
)


class Platform(TypedDict, total=False):
    """A platform's file, which passed its schema: each figure is a value with its source."""

    name: Required[str]
    description: str
    system: Required[str]
    setup: str
    memory_gib: Mapping[str, Any]
    memory_bandwidth_gbs: Mapping[str, Any]
    memory_bandwidth_nominal_gbs: Mapping[str, Any]
    compute_tflops: Mapping[str, Any]
    hpl_gflops: Mapping[str, Any]
    gpu_memory_fraction: Mapping[str, Any]
    gpu: Mapping[str, Any]
    kernel_floor: Mapping[str, Any]
    recognised_by: Mapping[str, Any]
    idle_watts: Mapping[str, Any]
    price_usd: Mapping[str, Any]
    install: Mapping[str, Any]
    ports: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Signs:
    """Signs of a machine's make and chips; empty where it gives none.

    system: as Nix calls it, such as 'x86_64-linux'. product: of the firmware. cpu: the processor's
    name. compatible: of the device tree. pci: 'vendor:device' of each PCI device. targets: GPUs as
    LLVM names them. vram_gib: of each card, GiB. gpu_cores: of a Mac; 0 where that is not known.
    """

    system: str
    product: str = ""
    cpu: str = ""
    compatible: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    targets: frozenset[str] = frozenset()
    vram_gib: frozenset[int] = frozenset()
    gpu_cores: int = 0

    @property
    def called(self) -> str:
        """The product, where that says something, else the processor."""
        return product_of(self) or self.cpu or next(iter(self.compatible), "machine without a name")


@cache
def flake_platforms() -> tuple[str, ...]:
    """The names of the platforms that the flake knows too, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def shipped_platforms() -> tuple[str, ...]:
    """The names of all platforms that came with the driver, sorted."""
    return tuple(sorted({*flake_platforms(), *_chips()}))


def platform_names() -> tuple[str, ...]:
    """The names of all platforms that are known here, also the user's own, sorted."""
    return tuple(sorted({*shipped_platforms(), *_own, *_of_user()}))


def gpu_vendor(platform: str | Path) -> str:
    """Return the maker of a platform's GPU: amd, apple or nvidia; empty without one."""
    return str(load_platform(platform).get("gpu", {}).get("vendor", ""))


def is_macos(platform: str | Path) -> bool:
    """Tell whether machines of a platform run macOS."""
    return str(load_platform(platform)["system"]).endswith("-darwin")


def load_platform(name_or_path: str | Path) -> Platform:
    """The facts of a platform, by name or by file; raises InputError."""
    path = Path(name_or_path)
    return _read(path) if path.suffix == ".toml" else deepcopy(_known(str(name_or_path)))


def own_platform(name_or_path: str, folder: Path, who: str) -> str:
    """The name of the platform that a cluster file in a folder means, known from now on.

    name_or_path: of one that came with the driver, of NAME.toml in that folder or in the user's, or
    the path of a file, from that folder. who: whose platform it is, as errors begin.

    Raises InputError: there is none, it is no platform, or another one has its name.
    """
    path = folder / name_or_path
    if path.suffix != ".toml":
        if name_or_path in flake_platforms() or name_or_path in _chips():
            return name_or_path
        path = folder / f"{name_or_path}.toml"
        if not is_there(path) and name_or_path in _of_user():
            path = _of_user()[name_or_path]
    if not is_there(path):
        known = platform_names()
        place = f"'{path}' or in '{user_folder()}'" if path.stem == name_or_path else f"'{path}'"
        raise InputError(
            f"{who} has the unknown platform {name_or_path!r}; {did_you_mean(path.stem, known)} "
            f"One of your own goes to {place}: {_WHAT_TO_WRITE}."
        )
    facts = load_platform(path)
    name = str(facts["name"])
    if name in shipped_platforms() or load_platform(_own.setdefault(name, path)) != facts:
        other = f"'{_own[name]}'" if name in _own else "one that came with nixwulf"
        raise InputError(f"{who} has the platform '{path}', whose name {other} has too; rename it.")
    return name


def user_folder() -> Path:
    """Return the user's own platforms: nixwulf/platforms in $XDG_CONFIG_HOME or ~/.config."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "nixwulf" / "platforms"


def _of_user() -> dict[str, Path]:
    return {path.stem: path for path in sorted(user_folder().glob("*.toml"))}


@cache
def _known(name: str) -> Platform:
    """Read and checked once: a search asks two thousand times."""
    if name not in flake_platforms():
        if facts := _chips().get(name):
            return facts
        if path := _own.get(name) or _of_user().get(name):
            return _read(path)
    return _read(_FOLDER / f"{name}.toml")


def _read(path: Path) -> Platform:
    document: Any = read_toml(path)
    check(document, "platform", str(path))
    if document["name"] != path.stem:
        raise InputError(f"{path}: name is {document['name']!r}, expected {path.stem!r}.")
    by = document.get("recognised_by", {})
    for text in (document.get("install", {}).get("product"), by.get("cpu"), by.get("compatible")):
        try:
            re.compile(text or "")
        except re.error as error:
            raise InputError(f"{path}: {text!r} is no regular expression: {error}.") from None
    found: Platform = document
    return found


@cache
def _chips() -> dict[str, Platform]:
    """Read the chips of data/chips.toml, in its order."""
    tables = read_toml(DATA / "chips.toml")
    chips: dict[str, Any] = {name: {"name": name, **facts} for name, facts in tables.items()}
    return chips


def memory_bandwidth_gbs(platform: Platform) -> float:
    """Return a platform's bandwidth: measured, else a share of the nominal one; 0 for neither."""
    nominal = platform.get("memory_bandwidth_nominal_gbs", {}).get("value", 0.0)
    measured = platform.get("memory_bandwidth_gbs", {}).get("value", 0.0)
    return float(measured) or NOMINAL_SHARE * float(nominal)


def product_of(signs: Signs) -> str:
    """The product of a machine; empty where its firmware says nothing or a filler."""
    return "" if signs.product.strip().lower() in _NO_PRODUCT else signs.product.strip()


def platforms_of(product: str) -> list[str]:
    """The platforms whose machines the firmware calls so; more than one would be a mistake."""
    return [
        name
        for name in _candidates()
        if (pattern := load_platform(name).get("install", {}).get("product"))
        and product
        and re.search(pattern, product)
    ]


def platforms_by_chip(signs: Signs) -> list[str]:
    """The platforms that a machine may be by its chips, the user's own and the likeliest first."""
    return [name for name in _candidates() if _has_chip(load_platform(name), signs)]


def generic_of(system: str) -> str:
    """The platform of a machine whose system alone is known."""
    if system.endswith("-darwin"):
        return "generic-darwin"
    return "generic-aarch64" if system.startswith("aarch64-") else GENERIC


def platform_of(signs: Signs) -> tuple[str, tuple[str, ...]]:
    """The platform of a machine, and why it may be another one, or why nothing is known of it."""
    product = product_of(signs)
    known = platforms_of(product)
    if len(known) == 1:
        return known[0], ()
    why = f"No platform has the product {product!r}" if product else "The firmware names no product"
    if not (like := platforms_by_chip(signs)):
        said = "none has its chips: it is measured, and not predicted (docs/new-platform.md)."
        return generic_of(signs.system), (f"{why}, and {said}",)
    too = (
        f", which {' and '.join(like[1:])} {'have' if like[2:] else 'has'} too" if like[1:] else ""
    )
    installed = "" if like[0] in flake_platforms() else " The flake does not install this platform."
    by = load_platform(like[0])["recognised_by"]
    cards = sum(signs.pci.count(one) for one in by.get("pci", ()))
    several = f" It has {cards} of them; predictions are of one." if cards > 1 else ""
    return like[0], (f"{why}; it is known by its chip{too}.{several}{installed}",)


def is_generic(platform: str) -> bool:
    """Tell whether nothing is known of a platform's machines but their system."""
    return platform.startswith("generic-")


def _candidates() -> Iterator[str]:
    yield from dict.fromkeys((*_own, *_of_user(), *flake_platforms(), *_chips()))


def _has_chip(facts: Platform, signs: Signs) -> bool:
    by, gpu = facts.get("recognised_by", {}), facts.get("gpu", {})
    cores, vram = by.get("gpu_cores"), by.get("vram_gib")
    differs = (
        facts["system"] != signs.system
        or (cores and signs.gpu_cores and cores != signs.gpu_cores)
        or (vram and signs.vram_gib and vram not in signs.vram_gib)
    )
    return not differs and bool(
        ("cpu" in by and re.search(by["cpu"], signs.cpu))
        or ("compatible" in by and any(re.search(by["compatible"], x) for x in signs.compatible))
        or {*by.get("pci", ())} & {*signs.pci}
        or ("pci" in by and gpu.get("shared_memory") and gpu.get("target") in signs.targets)
    )
