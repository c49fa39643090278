"""Ports on which programs listen, and the container images by digest."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from typing import Any

from markdown import code, table

_DATA = resources.files("nixwulf") / "data"
_PORTS = """# Ports

What listens on a fabric for its other nodes. Most of these protocols have no authentication:
whoever reaches the port uses it. Nodes of the flake open them on their fabrics only, to the
cluster's own nodes. On others close them to everybody else, on all interfaces: Linux takes packets
for any of its addresses from any network. Engines' own APIs listen on the head's loopback, but
exo's, by which its nodes see each other.

"""
_IMAGES = """# Container images

Names that the parameter `toolbox` and the option `nixwulf.toolboxes.names` take. Of one without a
digest a sweep holds that of its first use, beside the cluster file; the option refuses it until
`nix run .#refresh-toolboxes` has asked the registry.

"""
_KNOWN_BAD = """# Kernels and firmware that are refused

The gate `known-bad` and the NixOS module of that name refuse them; all conditions of a row hold
at once. `tools/ask_sources.py` names sources that were closed since they were read.

"""


def pages() -> dict[str, str]:
    """The pages of ports, images and bad kernels."""
    return {"ports.md": _ports(), "images.md": _images(), "known-bad.md": _known_bad()}


def _ports() -> str:
    ports = _toml("ports.toml")
    rows = [
        [protocol.upper(), str(port), code(name)]
        for protocol in ("tcp", "udp")
        for name, port in ports[protocol].items()
    ]
    rows.sort(key=lambda row: (row[0], int(row[1])))
    rows += [
        ["TCP", f"{least} to {most}", code(name)] for name, (least, most) in ports["ranges"].items()
    ]
    after = (
        "\n`free`: what the kernel gives to those that ask for no port: NCCL, Gloo, Ray, Open MPI. "
        "RoCE is UDP 4791, perftest TCP 18515.\n"
    )
    return _PORTS + table(["", "port", "of"], rows) + after


def _images() -> str:
    images = json.loads((_DATA / "toolboxes.lock.json").read_text("utf-8"))["images"]
    rows = [
        [
            code(name),
            code(one["image"]),
            one["tag"] or "",
            one["digest"] or "none",
            one.get("note", ""),
        ]
        for name, one in images.items()
    ]
    return _IMAGES + table(["name", "image", "tag", "digest", ""], rows)


def _known_bad() -> str:
    rows = [
        [
            code(name),
            one["gpu"],
            _conditions(one),
            one["reason"],
            one["fix"],
            f"[source]({one['source']})",
            one["read"],
        ]
        for name, one in _toml("known_bad.toml").items()
    ]
    return _KNOWN_BAD + table(["name", "GPU", "when", "because", "what to do", "", "read"], rows)


def _conditions(one: dict[str, Any]) -> str:
    parts = []
    if "kernel_before" in one:
        parts.append(f"kernel {one['kernel_from']} to before {one['kernel_before']}")
    if "firmware_from" in one:
        same = one["firmware_from"] == one["firmware_to"]
        parts.append(
            f"linux-firmware {one['firmware_from']}" + ("" if same else f" to {one['firmware_to']}")
        )
    if "llama_cpp_from" in one:
        builds = f"{one['llama_cpp_from']} to before {one['llama_cpp_before']}"
        parts.append(f"llama.cpp build {builds}, by ROCm")
    if "mes" in one:
        parts.append(f"MES {one['mes']:#x}")
    return ", ".join(parts)


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_DATA / name).read_text("utf-8"))
