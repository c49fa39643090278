"""The commands that serve a way: those of its record, less what only measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from nixwulf.endpoint import MARGIN
from nixwulf.record import Record

# Clients, and programs that answer once.
_ONLY_MEASURE = frozenset({"llama-bench", "iperf3", "mlx_lm.benchmark", "mlx_lm.generate"})
_SERVER = "llama-server"
_ADDRESS = {"--host": "127.0.0.1"}
# Off where it is measured, because prompts of a benchmark do not repeat; those of people do.
_CACHES = frozenset({"LLAMA_ARG_CACHE_PROMPT", "LLAMA_ARG_CACHE_RAM"})


@dataclass(frozen=True)
class Command:
    """A command line of a node, as a shell takes it."""

    node: str
    line: str


def commands(record: Record, slots: int) -> tuple[Command, ...]:
    """What starts on each node, in order: workers' servers, then the head's.

    Of llama-server the address, the context and the caches are changed: a run has it listen on a
    socket of its own, with room for a few tokens.
    """
    found: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for one in record["commands"]:
        argv = one["argv"]
        name = PurePosixPath(argv[0]).name
        if name not in _ONLY_MEASURE and not _ONLY_MEASURE.intersection(
            PurePosixPath(word).name for word in argv[:3]
        ):
            # Of servers that were started more than once, the last one is the way's own: the one
            # before gave the text to compare with.
            found.pop((one["node"], name), None)
            found[one["node"], name] = one
    parameters = record["case"]["parameters"]
    context = slots * (parameters.get("n_prompt", 0) + parameters.get("n_gen", 0) + MARGIN)
    return tuple(
        Command(one["node"], _line(_for_good(one["argv"], slots, context), one.get("environment")))
        for one in found.values()
    )


def _for_good(argv: Sequence[str], slots: int, context: int) -> list[str]:
    if PurePosixPath(argv[0]).name != _SERVER:
        return list(argv)
    changed = {**_ADDRESS, "-np": str(slots), "-c": str(context)}
    kept = list(argv)
    for place, word in enumerate(argv[:-1]):
        if word in changed:
            kept[place + 1] = changed[word]
    return [*kept, "--port", "8080"]


def _line(argv: Sequence[str], environment: Mapping[str, str] | None) -> str:
    variables = [
        f"{name}={value}" for name, value in (environment or {}).items() if name not in _CACHES
    ]
    return shlex.join([*(["env", *variables] if variables else []), *argv])
