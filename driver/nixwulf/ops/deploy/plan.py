"""What deploying would do to each node: decided before anything is done, from facts alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nixwulf.core.document import Column, Row, RowGroup, Table, plain_table
from nixwulf.core.errors import InputError
from nixwulf.core.text import clean
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.inventory.platforms import is_macos
from nixwulf.ops.deploy.flake import FEATURES, Layout, Prebuilt, attribute
from nixwulf.ops.deploy.machine import Disk, Machine, Verified
from nixwulf.ops.deploy.refusals import can_install, refusals, shown, unlike_layout

_FROM_INSTALLER = "disko,install,reboot"


@dataclass(frozen=True)
class NodePlan:
    """What would be done to a node.

    machine: None when it was not reached, and unreached is the reason. command: what installs it,
    empty where nothing here can. build: what makes the installer that the command names, before it,
    empty where there is none to be made. by_hand: what somebody has to do, one step a line.
    """

    node: Node
    method: str
    attribute: str
    machine: Machine | None
    unreached: str
    refusals: tuple[str, ...]
    command: tuple[str, ...]
    by_hand: tuple[str, ...]
    build: tuple[str, ...] = ()

    @property
    def installs(self) -> bool:
        """Whether the node is wiped and installed when its name is typed."""
        return self.machine is not None and not self.refusals and bool(self.command)

    @property
    def wiped(self) -> Disk | None:
        """The disk that is wiped; None when the node is refused or was not reached."""
        if not self.installs or self.machine is None or self.node.disk is None:
            return None
        return self.machine.disk(self.node.disk)


@dataclass(frozen=True)
class DeployPlan:
    """What would be done to the chosen nodes of a cluster, in the order of its file.

    locked_out: why the user could not log in to what is installed, which refuses all nodes.
    """

    cluster: Cluster
    flake: str
    nodes: tuple[NodePlan, ...]
    locked_out: str | None = None

    @property
    def to_install(self) -> tuple[NodePlan, ...]:
        """The nodes that are wiped and installed."""
        return () if self.locked_out else tuple(node for node in self.nodes if node.installs)

    @property
    def refusals(self) -> list[str]:
        """Every reason why nothing is done, but for nodes that did not answer."""
        reasons = [reason for node in self.nodes for reason in node.refusals]
        reached = any(node.machine is not None for node in self.nodes)
        return reasons + ([self.locked_out] if self.locked_out and reached else [])

    @property
    def unreached(self) -> list[str]:
        """Why nodes were not reached."""
        return [node.unreached for node in self.nodes if node.machine is None]


def make_plan(
    cluster: Cluster,
    flake: str,
    nodes: Sequence[Node],
    platforms: Mapping[str, dict[str, Any]],
    machines: Mapping[str, Machine | str],
    *,
    expected: Mapping[str, str] | None = None,
    expected_cluster: str | None = None,
    layouts: Mapping[str, Layout] | None = None,
    prebuilt: Prebuilt | None = None,
    locked_out: str | None = None,
    local_machine: tuple[str, str] | None = None,
    extra_files: Path | None = None,
) -> DeployPlan:
    """Plan for chosen nodes; nothing is done, and no node is asked.

    Args:
        platforms: the facts of their platforms by name, each with [install].
        machines: by node what answered, or why nothing did.
        expected: by node the host name that its machine may have besides the node's.
        expected_cluster: the cluster whose systems they may run besides their own.
        layouts: by attribute what each configuration would do, None when the flake was not asked.
    """
    planned = []
    for node in nodes:
        platform, found = install_of(platforms[node.platform]), machines[node.name]
        plan = _node_plan(cluster, flake, node, platform, found)
        if plan.machine is not None:
            own = (expected or {}).get(node.name)
            reasons = refusals(node, cluster, platform, plan.machine, own, expected_cluster)
            plan = replace(plan, refusals=tuple(reasons))
        if plan.method != "check" and (plan.machine is None or can_install(platform, plan.machine)):
            plan = _with_command(flake, plan, platform, prebuilt, extra_files)
        if layouts is not None and plan.method != "check":
            layout = layouts[plan.attribute]
            more = _other_disks(cluster, plan, layout.disks)
            if plan.machine is not None:
                more += unlike_layout(node, cluster, plan.machine, layout)
            plan = replace(plan, refusals=(*plan.refusals, *more))
        planned.append(plan)
    imaged = any(plan.method != "check" for plan in planned)
    reason = locked_out if imaged else None
    return DeployPlan(cluster, flake, tuple(_refuse_twice_reached(planned, local_machine)), reason)


def check_deployable(cluster: Cluster) -> None:
    """Raise InputError for a cluster whose nodes are not deployed."""
    if cluster.is_lab:
        raise InputError(
            f"{cluster.source}: the nodes of a lab are namespaces of this machine, and nothing is "
            "installed on them; name a cluster of machines with --cluster."
        )
    if "deploy" not in cluster.document:
        raise InputError(
            f"{cluster.source}: it has no [deploy], so its nodes are not managed; add "
            "'[deploy]' with ssh_keys = [\"...\"], your public key, and a disk for each node."
        )


def install_of(platform: dict[str, Any]) -> dict[str, Any]:
    """A platform's facts with [install]; a file without it means that nothing is known."""
    unknown = {"method": "check", "reason": f"nobody has installed a {platform['name']} yet"}
    return {"install": unknown, **platform}


def image_steps(cluster: Cluster, flake: str, node: Node, platform: dict[str, Any]) -> list[str]:
    """The steps that start a node's installer from an image, one a line."""
    kind = platform["install"].get("image", "")
    file, medium = {
        "iso": ("iso/", "a USB stick"),
        "sd": ("sd-image/ (unpacked by 'zstd -d')", "an SD card"),
    }[kind]
    out = f"image-{node.platform}"
    build = ["nix", "build", "--out-link", out, f"{flake}#packages.{platform['system']}.{out}"]
    again = ["nixwulf", "deploy", "--cluster", cluster.source, "--node", node.name]
    return [
        shlex.join(build),
        f"write the file in {out}/{file} to {medium} that is not {node.disk or 'its disk'}",
        f"boot {node.name} from it and let it have the address in {node.ssh!r}",
        shlex.join(again),
    ]


def darwin_steps(flake: str, node: Node, name: str) -> list[str]:
    """How a Mac gets its configuration: by nix-darwin as the flake locks it, on the Mac itself."""
    where = "a checkout of the flake" if flake.startswith((".", "/", "path:")) else "any folder"
    build = f"nix build --out-link system {flake}#darwinConfigurations.{name}.system"
    switch = f"sudo ./system/sw/bin/darwin-rebuild switch --flake {flake}#{name}"
    return [f"ssh {node.ssh}, and there, in {where}:", build, switch]


def _node_plan(
    cluster: Cluster, flake: str, node: Node, platform: dict[str, Any], found: Machine | str
) -> NodePlan:
    install, name = platform["install"], attribute(cluster, node)
    method = install["method"]
    machine = found if isinstance(found, Machine) else None
    by_hand: list[str] = []
    if method == "check":
        steps = darwin_steps(flake, node, name) if platform["system"] == "aarch64-darwin" else []
        by_hand = [f"nothing is installed from here, because {install['reason']}", *steps]
    elif method == "image" and not (machine and machine.installer):
        reason = f"it has to boot its installer's image, because {install['reason']}"
        by_hand = [reason, *image_steps(cluster, flake, node, platform)]
    return NodePlan(
        node=node,
        method=method,
        attribute=name,
        machine=machine,
        unreached=found if isinstance(found, str) else "",
        refusals=(),
        command=(),
        by_hand=tuple(by_hand),
    )


def _with_command(
    flake: str,
    plan: NodePlan,
    platform: dict[str, Any],
    prebuilt: Prebuilt | None,
    extra_files: Path | None,
) -> NodePlan:
    """The plan with what installs the node.

    By kexec always with an installer of the flake's own: nixos-anywhere's default is a file of the
    day that the node downloads. A node that runs an installer needs none, and is not let leave it.
    """
    node, machine = plan.node, plan.machine
    what: tuple[str, ...] = ("--flake", f"{flake}#{plan.attribute}")
    kexec: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    phases = _FROM_INSTALLER
    if plan.method == "kexec" and not (machine and machine.installer and machine.user == "root"):
        name = f"kexec-{node.platform}"
        path = f"runs/{name}.tar"
        if prebuilt is None:
            made = f"{flake}#packages.{platform['system']}.{name}"
            build = ("nix", "build", *FEATURES, "--out-link", path, made)
        else:
            path = prebuilt.nodes[node.name].kexec or path
        kexec = ("--kexec", path)
        phases = f"kexec,{phases}"
    if prebuilt is not None:
        what = ("--store-paths", prebuilt.nodes[node.name].disko, prebuilt.nodes[node.name].system)
    files = ("--extra-files", str(extra_files.resolve())) if extra_files else ()
    command = (
        *("nixos-anywhere", *what, "--target-host", node.ssh, *kexec, *files),
        *("--copy-host-keys", "--print-build-logs", "--phases", phases),
    )
    return replace(plan, command=command, build=build)


def _other_disks(cluster: Cluster, plan: NodePlan, formatted: tuple[str, ...]) -> list[str]:
    """The disks that the flake formats are what nixos-anywhere wipes: they must be the node's.

    Somebody may have changed the cluster file after the flake took it, or added a disk in a module.
    """
    if formatted == (plan.node.disk,):
        return []
    what = ", ".join(formatted) or "no disk"
    return [
        f"Node {plan.node.name!r} has the disk {plan.node.disk!r} in {cluster.source}, and "
        f"{plan.attribute!r} of the flake formats {what}; make them agree."
    ]


def _refuse_twice_reached(
    planned: Sequence[NodePlan], local_machine: tuple[str, str] | None
) -> Iterator[NodePlan]:
    """Refuse nodes that are one machine; the names of installers are all the same."""
    machines = {plan.node.name: (m.boot, m.hostname) for plan in planned if (m := plan.machine)}
    for plan in planned:
        name = plan.node.name
        own = machines.get(name, ("", ""))
        same = [f"as {other!r}" for other in machines if other != name and machines[other] == own]
        same += ["at which you sit"] if own == local_machine else []
        more = [
            f"Node {name!r} is the same machine {which}; correct its ssh address."
            for which in same
            if own[0]
        ]
        yield replace(plan, refusals=(*plan.refusals, *more))


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
        if node.name not in installed and not is_macos(node.platform)
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
