"""The memory breakdown that llama.cpp prints (llama-fit-params, and servers at their end).

https://github.com/ggml-org/llama.cpp/tree/master/tools/fit-params
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words

_HEAD = "memory breakdown [MiB]"
_COUNT = r"([0-9]{1,18})"
_SELF = rf"{_COUNT} =\s*{_COUNT} \+\s*{_COUNT} \+\s*{_COUNT}"
# A GPU's name has parentheses of its own: Vulkan0 (llvmpipe (LLVM 21.1.8, 256 bits)).
_NAME = r"\|\s+- (\S+)(?: \(([^|]*)\))?\s*\|"
_DEVICE = re.compile(rf"{_NAME}\s*{_COUNT} =\s*{_COUNT} \+ \(\s*{_SELF}\) \+\s*(-?[0-9]{{1,18}})")
_HOST = re.compile(rf"{_NAME}\s*{_SELF}")
_ROW = re.compile(r"\|\s+- \S")


@dataclass(frozen=True)
class Memory:
    """What one device or the host holds, in MiB: own is model + context + compute.

    description: the GPU's name, or the address of an RPC server; total and free are None on the
    host. A host and a GPU with unified memory take from the same memory: add their own up.
    """

    device: str
    description: str
    own: int
    model: int
    context: int
    compute: int
    total: int | None = None
    free: int | None = None


def parse(text: str) -> tuple[Memory, ...]:
    """The devices and the host, in the order of the rows; at least one."""
    found, began = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if _HEAD in line:
            began = True
        elif began and _ROW.search(line):
            found.append(_memory(line, number))
    if not found:
        raise ParseError(
            f"llama-fit-params: no device in {len(text.splitlines())} lines, expected a table "
            f"under {_HEAD!r}{last_words(text)}"
        )
    return tuple(found)


def recognises(text: str) -> bool:
    """The head of its table."""
    return _HEAD in text


def _memory(line: str, number: int) -> Memory:
    device, host = _DEVICE.search(line), _HOST.search(line)
    found = device or host
    if found is None:
        raise ParseError(
            f"llama-fit-params, line {number}: {line.strip()[-80:]!r}, expected "
            "'total = free + (self = model + context + compute) + unaccounted'."
        )
    numbers = [int(text) for text in found.groups()[2:]]
    total, free = numbers[:2] if device else (None, None)
    own, model, context, compute = numbers[2:6] if device else numbers
    name, description = found[1], found[2] or ""
    return Memory(name, description, own, model, context, compute, total, free)
