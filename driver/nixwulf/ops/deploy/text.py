"""Facts and plans as lines of text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from nixwulf.core.document import Column, Row, RowGroup, Table, plain_table
from nixwulf.core.text import clean
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.inventory.platforms import load_platform
from nixwulf.ops.deploy.machine import Disk, Machine
from nixwulf.ops.deploy.plan import DeployPlan, NodePlan
from nixwulf.ops.deploy.refusals import shown
from nixwulf.ops.deploy.verify import Verified

_COLUMNS = (Column("", width=11), "")
_METHODS = {
    "kexec": "installed over ssh (kexec)",
    "image": "installed over ssh, from its installer's image",
    "check": "checked only",
}


def facts_text(node: Node, found: Machine | str) -> str:
    """What a node answered, with its disks, or why it did not."""
    rows: list[Row | RowGroup] = [RowGroup(f"{node.name}  {node.ssh}  {node.platform}")]
    if isinstance(found, str):
        rows.append(("not reached", found))
    else:
        rows += _facts(found)
        rows += [("disk", _disk(disk, node)) for disk in found.disks]
    return plain_table(Table(_COLUMNS, rows), indent=2)


def plan_text(plan: DeployPlan) -> str:
    """The whole plan: nothing is done to a node that is not in it."""
    rows = [row for node in plan.nodes for row in _node(node)]
    if plan.locked_out:
        rows.append(RowGroup(f"REFUSED: {plan.locked_out}"))
    return plain_table(Table(_COLUMNS, rows), indent=2)


def new_to_others(cluster: Cluster, installed: Sequence[str]) -> str | None:
    """What the flake's nodes that were not installed lack where one is new to them; None of all."""
    others = [
        node.name
        for node in cluster.nodes
        if node.name not in installed and load_platform(node.platform)["system"].endswith("-linux")
    ]
    if not others or not installed:
        return None
    command = shlex.join(["nixwulf", "update", "--cluster", cluster.source])
    return (
        f"{', '.join(others)} drop the packets of a node that is new to the cluster, or has "
        f"another address, until they are updated; run '{command}'."
    )


def wiping(plan: NodePlan) -> str:
    """What is wiped of a node: the disk, and what runs there now."""
    disk, machine = plan.wiped, plan.machine
    if disk is None or machine is None:
        return f"{plan.node.disk or 'no disk in the cluster file'} (not seen)"
    used = f", now mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
    return clean(f"{plan.node.disk} ({disk.words}{used})")


def _node(plan: NodePlan) -> Iterator[Row | RowGroup]:
    node, machine = plan.node, plan.machine
    yield RowGroup(f"{node.name}  {node.ssh}  {node.platform}: {_METHODS[plan.method]}")
    if machine is None:
        yield "not reached", plan.unreached
    else:
        yield from _facts(machine)
    for reason in plan.refusals:
        yield "REFUSED", reason
    for step in plan.by_hand:
        yield "by hand", step
    if plan.command and not plan.refusals:
        yield "WIPES", wiping(plan)
    if plan.build:
        yield "build", shlex.join(plan.build)
    if plan.command:
        yield "command", shlex.join(plan.command)


def _facts(machine: Machine) -> Iterator[Row]:
    kind = " (an installer)" if machine.installer else ""
    words = [f"{machine.hostname!r} runs {machine.os or machine.kernel}{kind}", machine.system]
    yield "now", ", ".join([*words, f"reached as {machine.user}"])
    secure = {True: "Secure Boot on", False: "Secure Boot off", None: ""}[machine.secure_boot]
    memory = f"{machine.memory / 1e9:.1f} GB memory"
    refused = True if machine.locked_down else machine.kexec_disabled
    kexec = {True: "kexec refused", False: "kexec allowed", None: "no kexec"}[refused]
    firmware = f"{machine.firmware} {machine.firmware_version}".strip()
    own = [machine.product, firmware, secure, memory, kexec if machine.firmware else ""]
    yield "machine", ", ".join(filter(None, own))
    if machine.rdma or machine.rdma_devices:
        devices = ", ".join(machine.rdma_devices) or "no devices"
        yield "RDMA", f"{machine.rdma or 'rdma_ctl prints nothing'}; {devices}"


def _disk(disk: Disk, node: Node) -> str:
    used = f", mounted at {', '.join(disk.mountpoints)}" if disk.mountpoints else ""
    mark = "  <- the cluster file's" if node.disk in disk.ids else ""
    name = node.disk if node.disk in disk.ids else shown(disk)
    return f"{name} ({disk.words}{used}){mark}"


def verified_text(found: Sequence[Verified]) -> str:
    """A line a node: what it was found to be."""
    rows = []
    for one in found:
        state = "verified" if not one.problems else "NOT AS EXPECTED"
        words = "not reached"
        if one.machine is not None:
            fabrics = ", ".join(one.node.fabric_names) or "no fabric"
            words = f"{one.machine.os or one.machine.kernel}; {fabrics}"
        rows.append((one.node.name, state, words))
    return plain_table(Table(("", Column("", width=15), ""), rows))
