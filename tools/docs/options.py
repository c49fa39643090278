"""The options of the NixOS modules, where a nix can evaluate the flake."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from markdown import code, table

# Any node of the flake has all modules.
_NODE = ".#nixosConfigurations.mini-3-mini1"
_EXPRESSION = Path(__file__).with_name("options.nix")
_STORE = re.compile(r"/nix/store/[^/]+/")
_INTRODUCTION = """# Options of the NixOS modules

Set them in a cluster file, `[options]` for all nodes and `options` of a node for one (there
without the leading `nixwulf.`), or in a module of your own. Defaults of engines and services are
off.
"""


def pages() -> dict[str, str]:
    """The page of options; raises OSError or CalledProcessError where it cannot be evaluated."""
    found: list[dict[str, Any]] = json.loads(_evaluated())
    groups: dict[str, list[list[str]]] = {}
    for option in found:
        short = option["name"].removeprefix("nixwulf.")
        row = [
            code(short),
            _one_line(option["type"]),
            _default(option["default"]),
            option["description"],
        ]
        groups.setdefault(short.partition(".")[0], []).append(row)
    parts = [_INTRODUCTION]
    for name, rows in groups.items():
        parts.append(f"## {name}\n\n" + table(["option", "type", "default", ""], rows))
    return {"options.md": "\n".join(parts)}


def _evaluated() -> str:
    command = ["nix", "eval", "--json", _NODE, "--apply", _EXPRESSION.read_text(encoding="utf-8")]
    features = ["--extra-experimental-features", "nix-command flakes"]
    return subprocess.run([*command, *features], check=True, capture_output=True, text=True).stdout


def _default(text: str | None) -> str:
    return "required" if text is None else code(_STORE.sub("", _one_line(text)))


def _one_line(text: str) -> str:
    return " ".join(text.replace("`", "").split())
