"""Outputs that people have beside those of benchmarks: recognised, so that an import can say so."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """An output without a benchmark's result: its name, what it holds, how it is recognised."""

    name: str
    what: str
    pattern: re.Pattern[str]


_LANES = r"[0-9]{1,4}(?:\.[0-9]{1,3})? Gb/sx[0-9]{1,4}"
KINDS = (
    Kind(
        "ethtool",
        "ethtool INTERFACE: the speed an interface claims, which is nominal on thunderbolt-net.",
        re.compile(r"^[ \t]*Settings for \S+:", re.MULTILINE),
    ),
    # https://github.com/ggml-org/llama.cpp/tree/master/tools/fit-params
    Kind(
        "llama_fit_params",
        "The memory breakdown that llama.cpp prints (llama-fit-params, and servers at their end).",
        re.compile(r"memory breakdown \[MiB\]"),
    ),
    Kind(
        "thunderbolt",
        "Thunderbolt and USB4 links, as sysfs and the kernel's log report them.",
        re.compile(
            rf"^[ \t]*\d+-\d+ \S+ tx={_LANES} rx={_LANES}[ \t]*$"
            r"|thunderbolt \d+-\d+: new host found, vendor=0x[0-9a-f]+ device=0x[0-9a-f]+",
            re.MULTILINE | re.ASCII,
        ),
    ),
)


def kind_of(text: str) -> Kind | None:
    """What a text is of these, or None."""
    return next((kind for kind in KINDS if kind.pattern.search(text)), None)
