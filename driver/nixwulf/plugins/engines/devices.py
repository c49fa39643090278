"""What the Python of an engine's programs reports on a node: versions, and its device.

An engine that sees no GPU takes the CPU without an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nixwulf.core.files import shipped_text
from nixwulf.inventory.platforms import gpu_vendor
from nixwulf.nodes.ssh import Connection, each
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime.run import Run, RunFailure

CPU, NONE = "cpu", "none"
# What the code that is asked prints before the name of the device; logs may be around it.
MARK = "nixwulf-device"
_ANSWER = re.compile(rf"^{MARK} (\w+)$", re.MULTILINE)
# vLLM's import alone takes 15 s of a fast machine.
_ASK_S = 300

_SCRIPT = shipped_text("plugins/engines/in_python.sh")
# A version says little of what a checkout or git installed: releases of exo share one.
PRINT_VERSIONS = shipped_text("data/print_versions.txt")


def in_python(program: str, code: str, *arguments: str) -> list[str]:
    """What runs code in the Python of a program, in silence about errors."""
    return ["sh", "-c", _SCRIPT, "sh", program, code, *arguments]


def ask(run: Run, program: str, code: str) -> dict[str, str]:
    """The device that code prints in the Python of a program, by node; empty where it prints none.

    program: its name on PATH; a node without it has an empty answer.
    """

    def of(node: Connection) -> str:
        place = run.facts[node.node.name].programs.get(program, "")
        command = in_python(place, code)
        text = run.output(node, '"$@" || :', *command, timeout_s=_ASK_S)
        match = _ANSWER.search(text)
        return match[1] if match else ""

    names = [node.node.name for node in run.nodes]
    return dict(zip(names, each(of, run.nodes), strict=True))


def record(run: Run, devices: Mapping[str, str]) -> None:
    """Keep what each node computes on, by the nodes' names, in the run's record."""
    shown = [f"{name}: {device}" for name, device in devices.items()]
    # Replicas are started one after the other, each with its node alone.
    before = run.engine_facts.get("devices", "").split(", ")
    run.engine_facts["devices"] = ", ".join(one for one in dict.fromkeys([*before, *shown]) if one)


def idle_gpu(engine: str, node: Connection, found: str, remedy: str) -> RunFailure:
    """A run that fails because a node's GPU would not compute.

    remedy: a command or a change that helps, as a clause.
    """
    return RunFailure(
        f"{engine} on node {node.node.name!r} {found}, and the platform {node.node.platform!r} "
        f"has a GPU; {remedy}."
    )


def require_gpus(run: Run, engine: Engine, devices: Mapping[str, str], remedy: str) -> None:
    """Record what the engine computes on; a GPU that it has kernels for has to be in use.

    devices: by node, as from `ask`. remedy: what to do on a node whose GPU is not used, as a
    clause.

    Raises RunFailure: a node computes on its CPU although its platform has such a GPU.
    """
    record(run, {node.node.name: devices[node.node.name] or "unknown" for node in run.nodes})
    for node in run.nodes:
        name = node.node.name
        if gpu_vendor(node.node.platform) not in engine.gpus:
            continue
        if devices[name] in {CPU, NONE}:
            found = "computes on the CPU" if devices[name] == CPU else "finds no device"
            raise idle_gpu(engine.name, node, found, remedy)
        if not devices[name]:
            run.warnings.append(
                f"{engine.name} on node {name!r} did not say what it computes on: that it is the "
                "GPU is not proved."
            )
