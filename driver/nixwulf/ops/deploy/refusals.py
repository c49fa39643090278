"""Why a machine is not imaged: each reason is one sentence that ends with what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.inventory.cluster import PRIVATE, Cluster, Node
from nixwulf.inventory.fabrics import KINDS
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.deploy.flake import Layout
from nixwulf.ops.deploy.machine import Disk, Machine

# The installer with all firmware is in memory twice while it starts: as loaded, and unpacked.
_KEXEC_MEMORY = 3.5e9
_SMALLEST_DISK = 16e9
_EXAMPLE_KEYS = DATA / "example_keys.toml"
_INSTALLER_PROGRAMS = ("tar", "cpio", "setsid", "ip", "awk")


def refusals(
    node: Node,
    cluster: Cluster,
    platform: dict[str, Any],
    machine: Machine,
    expected: str | None,
    expected_cluster: str | None = None,
) -> list[str]:
    """The reasons not to image a machine as a node, a sentence each that ends with what to do.

    expected: the host name that it may have besides the node's own. expected_cluster: the cluster
    whose system it may run besides the node's own.
    """
    found = [*_identity(node, cluster, platform, machine), *in_use(node, machine)]
    found += other_cluster(node, cluster, machine, expected_cluster)
    if platform["install"]["method"] != "check":
        found += _disk(node, machine)
    if can_install(platform, machine):
        found += _name(node, cluster, machine, expected)
        found += _ability(node, platform, machine)
    return found


def can_install(platform: dict[str, Any], machine: Machine) -> bool:
    """Whether this machine can be installed as it runs now; else somebody has to do something."""
    method = platform["install"]["method"]
    return method == "kexec" or (method == "image" and machine.installer)


def _identity(
    node: Node, cluster: Cluster, platform: dict[str, Any], machine: Machine
) -> Iterable[str]:
    name = node.name
    if machine.system != platform["system"]:
        yield (
            f"Node {name!r} is a {machine.system} machine and its platform {node.platform!r} is "
            f"{platform['system']}; correct its platform or its ssh address."
        )
    product = platform["install"].get("product")
    if product and not re.search(product, machine.product):
        yield (
            f"Node {name!r} is a {machine.product or 'machine without a product name'!r}, and the "
            f"platform {node.platform!r} is {product!r}; correct its platform or its ssh address."
        )
    hostname = machine.hostname.lower()
    if any(hostname == other.name.lower() for other in cluster.nodes if other != node):
        yield (
            f"Node {name!r} answers as {machine.hostname!r}, which is another node of "
            f"{cluster.source}; see whether their ssh addresses are swapped."
        )


def in_use(node: Node, machine: Machine) -> list[str]:
    """Why a machine is left alone on which a driver measures."""
    if not machine.owned:
        return []
    others = any(" of user " in name for name in machine.owned)
    return [
        f"Node {node.name!r} is in use: {', '.join(machine.owned)}; wait for the end of the sweep, "
        "or stop what a killed driver left by 'nixwulf nodes recover --up-to stop'"
        + (", as the user who started it." if others else ".")
    ]


def other_cluster(
    node: Node, cluster: Cluster, machine: Machine, expected: str | None
) -> list[str]:
    """Why a machine is left alone that runs the system of a node of another cluster."""
    if machine.cluster in {"", cluster.name, expected}:
        return []
    return [
        f"Node {node.name!r} runs a system of the cluster {machine.cluster!r}, and "
        f"{cluster.source} describes {cluster.name!r}; correct its ssh address, or where it leaves "
        f"that cluster, or that cluster was renamed, add '--expect-cluster {machine.cluster}'."
    ]


def _name(node: Node, cluster: Cluster, machine: Machine, expected: str | None) -> Iterable[str]:
    name, hostname = node.name, machine.hostname
    known = {other.name.lower() for other in cluster.nodes} | {(expected or name).lower()}
    if not machine.installer and hostname.lower() not in known:
        yield (
            f"Node {name!r} answers as {hostname!r} and runs {machine.os or machine.kernel!r}; if "
            f"that is the machine to wipe, add '--expect {name}={hostname}'."
        )


def _disk(node: Node, machine: Machine) -> Iterable[str]:
    name = node.name
    if node.disk is None:
        yield f"Node {name!r} has no disk in the cluster file; add one of: {_choice(machine)}."
        return
    disk = machine.disk(node.disk)
    if disk is None:
        yield f"Node {name!r} has no disk {node.disk!r}; it has: {_choice(machine)}."
        return
    if disk.size < _SMALLEST_DISK:
        yield (
            f"Node {name!r} would be installed on {node.disk!r} of {disk.size / 1e9:.1f} GB, and "
            f"needs {_SMALLEST_DISK / 1e9:.0f} GB; choose another disk: {_choice(machine)}."
        )
    if disk.read_only:
        yield f"Node {name!r} can only read its disk {node.disk!r}; choose another disk."
    # What a first attempt mounted below /mnt, a second one unmounts.
    used = [place for place in disk.mountpoints if not re.match(r"/mnt(/|$)", place)]
    if machine.installer and used:
        yield (
            f"Node {name!r} runs its installer from the disk {node.disk!r} (mounted at {used[0]}); "
            "install on another one, or boot the installer from a stick or card."
        )


def unlike_layout(node: Node, cluster: Cluster, machine: Machine, layout: Layout) -> list[str]:
    """Why the node's configuration would not work on this machine, or not on this disk of it."""
    return [
        *_equal_labels(node, machine, layout.labels),
        *absent_interfaces(node, cluster, machine, layout),
        *_absent_drivers(node, machine, layout),
    ]


def absent_interfaces(
    node: Node, cluster: Cluster, machine: Machine, layout: Layout
) -> Iterable[str]:
    """Which interfaces of the node's fabrics the machine lacks.

    Only where the machine's names can be compared with those of the installed system. A card for
    which the present system has no driver has no name yet.
    """
    if layout.interfaces is None or not machine.interfaces or machine.driverless_cards:
        return
    known = {*machine.interfaces, *layout.interfaces}
    for name, place in ((key, end) for key in node.fabric_names for end in node.ends(key)):
        kind = KINDS[cluster.fabrics[name].kind]
        if not kind.by_cable and place.interface not in known:
            there = ", ".join(name for name in machine.interfaces if name != "lo")
            yield (
                f"Node {node.name!r} has no interface {place.interface!r}, which {cluster.source} "
                f"names for the fabric {name!r}; it has, by all names: {there or 'none'}."
            )


def _absent_drivers(node: Node, machine: Machine, layout: Layout) -> Iterable[str]:
    disk = machine.disk(node.disk or "")
    if disk is None or layout.modules is None:
        return
    known = {module.replace("-", "_") for module in layout.modules}
    lacking = [module for module in disk.drivers if module.replace("-", "_") not in known]
    if lacking:
        modules = " ".join(f'"{module}"' for module in lacking)
        yield (
            f"Node {node.name!r} reaches its disk {node.disk!r} by {', '.join(lacking)}, which its "
            "configuration does not load before it mounts the disk, so that it would not boot; add "
            f"'boot.initrd.availableKernelModules = [ {modules} ];' in a module."
        )


def _equal_labels(node: Node, machine: Machine, labels: Sequence[str]) -> list[str]:
    """Why another disk of the machine would be taken for the one that is installed on.

    labels: the names of the partitions that the node's configuration makes. disko and the installed
    system find them by these names, whichever disk has them.
    """
    reasons = []
    for disk in machine.disks:
        same = [(device, label) for device, label in disk.labels if label in labels]
        if not same or node.disk in disk.ids:
            continue
        numbers = [re.sub(r".*?([0-9]*)$", r"\1", device) for device, _ in same]
        renamed = "; ".join(f"sfdisk --part-label {disk.name} {n} old-{n}" for n in numbers)
        names = " and ".join(repr(label) for _, label in same)
        reasons.append(
            f"Node {node.name!r} has another disk with {names}, {shown(disk)} ({disk.words}), "
            f"which may be overwritten or booted in place of {node.disk!r}; remove that disk, or "
            f"rename its partitions: '{renamed}'."
        )
    return reasons


def _ability(node: Node, platform: dict[str, Any], machine: Machine) -> Iterable[str]:
    name, install = node.name, platform["install"]
    if machine.user not in {"root", "sudo"}:
        yield (
            f"Node {name!r} is reached as {machine.user!r}, who cannot become root without a "
            f"password; let root in by ssh, or give {machine.user!r} passwordless sudo."
        )
    if install.get("image") == "iso" and machine.firmware != "UEFI":
        yield (
            f"Node {name!r} booted by {machine.firmware or 'an unknown firmware'}, and what is "
            "installed boots by UEFI; turn the legacy mode (CSM) off in its firmware."
        )
    if machine.secure_boot:
        yield (
            f"Node {name!r} has Secure Boot on, and what is installed is not signed; turn it off "
            "in its firmware."
        )
    if install["method"] == "image" and machine.installer and machine.user != "root":
        yield (
            f"Node {name!r} is in its installer as {machine.user!r}; set its ssh to "
            f"'root@{node.ssh.rpartition('@')[2]}'."
        )
    if install["method"] == "kexec" and not machine.installer:
        yield from _kexec(name, machine)


def _kexec(name: str, machine: Machine) -> Iterable[str]:
    if machine.kexec_disabled is None:
        yield f"Node {name!r} runs a kernel without kexec; boot the installer's image there."
    elif machine.kexec_disabled or machine.locked_down:
        yield (
            f"Node {name!r} runs a kernel that refuses kexec (kexec_load_disabled, or locked down "
            "by Secure Boot); boot the installer's image there."
        )
    if machine.memory < _KEXEC_MEMORY:
        yield (
            f"Node {name!r} has {machine.memory / 1e9:.1f} GB of memory, and kexec into the "
            f"installer needs {_KEXEC_MEMORY / 1e9:.1f} GB; boot the installer's image there."
        )
    lacking = [program for program in _INSTALLER_PROGRAMS if program not in machine.programs]
    if lacking:
        yield f"Node {name!r} lacks {', '.join(lacking)}, which kexec needs; install that there."


def _choice(machine: Machine) -> str:
    """The disks that a machine has, for who has to choose one."""
    if not machine.disks:
        return "none" if "lsblk" in machine.programs else "unknown, because it has no lsblk"
    return "; ".join(f"{shown(disk)} ({disk.words})" for disk in machine.disks)


def shown(disk: Disk) -> str:
    """The id by which a cluster file names a disk: one with model and serial number."""
    speaking = [link for link in disk.ids if not re.search(r"/(wwn-|nvme-(eui|nvme)\.|dm-)", link)]
    return next(iter([*speaking, *disk.ids]), f"{disk.name}, which has no id")


def locked_out(cluster: Cluster, connections: Iterable[Connection]) -> str | None:
    """Why nobody here could log in after an installation, or somebody else could; or None."""
    own = own_keys(connections)
    if _bare(own) & _bare(cluster.ssh_keys):
        examples = read_toml(_EXAMPLE_KEYS)["keys"]
        if any(key in examples for _, key in _bare(cluster.ssh_keys)):
            return (
                f"{cluster.source}: deploy.ssh_keys has the key of Nixwulf's examples, by which "
                "somebody else could log in as root; remove its line."
            )
        return None
    which = (
        f"none of your {len(own)} public keys ({', '.join(sorted({_comment(key) for key in own}))})"
        if own
        else "you have no public key in ~/.ssh or in your ssh agent, and so none"
    )
    return (
        f"{cluster.source}: {which} is in deploy.ssh_keys, so you would be locked out; add one "
        "('cat ~/.ssh/*.pub', or make one by 'ssh-keygen')."
    )


def own_keys(connections: Iterable[Connection]) -> list[str]:
    """The public keys that ssh would offer to nodes: of the agent, and beside its key files."""
    lines: list[str] = []
    if shutil.which("ssh-add"):
        agent = subprocess.run(["ssh-add", "-L"], capture_output=True, text=True, check=False)
        lines += agent.stdout.splitlines() if agent.returncode == 0 else []
    files = set(Path("~/.ssh").expanduser().glob("*.pub"))
    for connection in connections:
        files |= {
            Path(f"{value}.pub").expanduser()
            for key, value in connection.settings()
            if key == "identityfile"
        }
    for file in sorted(files):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if PRIVATE in text:
            raise InputError(
                f"'{file}' holds a private key, and a public one is expected there; write it anew "
                f"by 'ssh-keygen -y -f {file.with_suffix('')} >{file}'."
            )
        lines += text.splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if _bare([line])))


def _bare(keys: Iterable[str]) -> set[tuple[str, str]]:
    """Type and key, without the comment."""
    return {(words[0], words[1]) for key in keys if len(words := key.split()) >= 2}  # noqa: PLR2004


def _comment(key: str) -> str:
    kind, _, *comment = key.split(" ", 2)
    return comment[0] if comment else kind
