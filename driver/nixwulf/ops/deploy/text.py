"""Facts and plans as lines of text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from nixwulf.core.text import clean
from nixwulf.inventory.cluster import Node
from nixwulf.ops.deploy.machine import Disk, Machine
from nixwulf.ops.deploy.plan import DeployPlan, NodePlan
from nixwulf.ops.deploy.refusals import shown
from nixwulf.ops.deploy.verify import Verified

_METHODS = {
    "kexec": "installed over ssh (kexec)",
    "image": "installed over ssh, from its installer's image",
    "check": "checked only",
}


def facts_text(node: Node, found: Machine | str) -> str:
    """What a node answered, with its disks, or why it did not."""
    lines = [f"{node.name}  {node.ssh}  {node.platform}"]
    if isinstance(found, str):
        lines.append(_line("not reached", found))
    else:
        lines += _facts(found)
        lines += [_line("disk", _disk(disk, node)) for disk in found.disks]
    return clean("\n".join(lines))


def plan_text(plan: DeployPlan) -> str:
    """The whole plan: nothing is done to a node that is not in it."""
    parts = ["\n".join(_node(node)) for node in plan.nodes]
    if plan.locked_out:
        parts.append(f"REFUSED: {plan.locked_out}")
    return clean("\n\n".join(parts))


def wiping(plan: NodePlan) -> str:
    """What is wiped of a node: the disk, and what runs there now."""
    disk, machine = plan.wiped, plan.machine
    if disk is None or machine is None:
        return f"{plan.node.disk or 'no disk in the cluster file'} (not seen)"
    used = f", now mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
    return clean(f"{plan.node.disk} ({disk.words}{used})")


def _node(plan: NodePlan) -> Iterable[str]:
    node, machine = plan.node, plan.machine
    yield f"{node.name}  {node.ssh}  {node.platform}: {_METHODS[plan.method]}"
    if machine is None:
        yield _line("not reached", plan.unreached)
    else:
        yield from _facts(machine)
    for reason in plan.refusals:
        yield _line("REFUSED", reason)
    for step in plan.by_hand:
        yield _line("by hand", step)
    if plan.command and not plan.refusals:
        yield _line("WIPES", wiping(plan))
    if plan.build:
        yield _line("build", shlex.join(plan.build))
    if plan.command:
        yield _line("command", shlex.join(plan.command))


def _facts(machine: Machine) -> Iterable[str]:
    kind = " (an installer)" if machine.installer else ""
    words = [f"{machine.hostname!r} runs {machine.os or machine.kernel}{kind}", machine.system]
    yield _line("now", ", ".join([*words, f"reached as {machine.user}"]))
    secure = {True: "Secure Boot on", False: "Secure Boot off", None: ""}[machine.secure_boot]
    memory = f"{machine.memory / 1e9:.1f} GB memory"
    refused = True if machine.locked_down else machine.kexec_disabled
    kexec = {True: "kexec refused", False: "kexec allowed", None: "no kexec"}[refused]
    firmware = f"{machine.firmware} {machine.firmware_version}".strip()
    own = [machine.product, firmware, secure, memory, kexec if machine.firmware else ""]
    yield _line("machine", ", ".join(filter(None, own)))
    if machine.rdma or machine.rdma_devices:
        devices = ", ".join(machine.rdma_devices) or "no devices"
        yield _line("RDMA", f"{machine.rdma or 'rdma_ctl says nothing'}; {devices}")


def _disk(disk: Disk, node: Node) -> str:
    used = f", mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
    mark = "  <- the cluster file's" if node.disk in disk.ids else ""
    name = node.disk if node.disk in disk.ids else shown(disk)
    return f"{name} ({disk.words}{used}){mark}"


def _line(title: str, words: str) -> str:
    return f"  {title:<11}  {words}"


def verified_text(found: Sequence[Verified]) -> str:
    """A line a node: what it was found to be."""
    width = max((len(one.node.name) for one in found), default=0)
    lines = []
    for one in found:
        state = "verified" if not one.problems else "NOT AS EXPECTED"
        words = "not reached"
        if one.machine is not None:
            fabrics = ", ".join(one.node.fabrics) or "no fabric"
            words = f"{one.machine.os or one.machine.kernel}; {fabrics}"
        lines.append(f"{one.node.name:<{width}}  {state:<15}  {words}")
    return clean("\n".join(lines))
