"""What the builds of llama.cpp on the nodes offer, and on which devices a case computes."""

from __future__ import annotations

import re

from nixwulf.engines import llama_cpp_options
from nixwulf.run import Run, RunFailure
from nixwulf.ssh import Connection

_LOOK = """
llama-server --version 2>&1
echo "--"
llama-bench --list-devices 2>/dev/null
exit 0
"""
_DEVICES = "devices"
_FLAGS = "flags"


def look(run: Run) -> None:
    """What the builds on the nodes offer; raises RunFailure when one lacks the backend."""
    for node, answer in zip(run.nodes, run.outputs(_LOOK), strict=True):
        name = node.node.name
        said, _, listed = answer.partition("--\n")
        version = re.search(r"^version: (.*)", said, re.MULTILINE)
        if version and node is run.head:
            run.engine_facts["version"] = version[1]
        devices = tuple(sorted(llama_cpp_options.listed_devices(listed)))
        run.engine_found[_DEVICES, name] = devices
        if backend(run) in llama_cpp_options.DEVICE_PREFIXES and not own_devices(run, node):
            raise RunFailure(
                "skipped",
                f"Node {name!r} has no device of {backend(run)} for llama.cpp, it lists "
                f"{', '.join(devices) or 'the CPU only'}; see 'llama-bench --list-devices' there.",
            )
    run.engine_facts["origin"] = run.program("llama-bench")
    for program in ("llama-bench", "llama-server"):
        text = run.output(run.head, '"$1" --help 2>&1 || true', run.program(program))
        run.engine_found[_FLAGS, program] = tuple(llama_cpp_options.offered(text))


def flags(run: Run, program: str) -> tuple[str, ...]:
    """The flags that a program on the head offers."""
    return run.engine_found[_FLAGS, program]


def backend(run: Run) -> str:
    """What the case asks to compute on."""
    return str(run.case.parameters.get("backend", "any"))


def own_devices(run: Run, node: Connection) -> tuple[str, ...]:
    """The devices of a node that the case names; none when it leaves the choice to llama.cpp."""
    wanted = backend(run)
    if wanted in {"any", "cpu"}:
        return ("CPU",) if wanted == "cpu" else ()
    return llama_cpp_options.devices_of(wanted, run.engine_found[_DEVICES, node.node.name])


def uses_gpu(run: Run, node: Connection) -> bool:
    """Whether a node takes part by a GPU of its own."""
    return backend(run) != "cpu" and bool(run.engine_found[_DEVICES, node.node.name])


def served(run: Run) -> tuple[Connection, ...]:
    """The nodes that compute through an RPC server.

    A GPU of the head takes part by itself, and the head in its own list has crashed clients
    (https://github.com/geerlingguy/beowulf-ai-cluster/issues/15). A CPU does not: llama.cpp splits
    over devices, and with RPC devices only, the head looks up embeddings and samples, nothing else.
    """
    return run.workers if uses_gpu(run, run.head) else run.nodes


def arguments(run: Run, separator: str) -> list[str]:
    """Which devices a client of a case computes on, RPC ones first as llama.cpp has them."""
    layers = ["-ngl", "99"]
    if backend(run) == "any":
        return layers if run.case.nodes > 1 or uses_gpu(run, run.head) else []
    devices: list[str] = []
    if run.case.nodes > 1:
        count = sum(len(own_devices(run, node)) for node in served(run))
        devices += [f"RPC{number}" for number in range(count)]
    devices += own_devices(run, run.head) if uses_gpu(run, run.head) else ()
    return ["-dev", separator.join(devices), *layers] if devices else ["-dev", "none", "-ngl", "0"]
