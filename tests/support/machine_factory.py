"""Machines for tests, as the text that the facts script prints; their hardware is invented."""

import json

from nixwulf.inventory.cluster import parse_cluster
from nixwulf.ops.deploy.machine import parse_machine
from nixwulf.ops.deploy.plan import make_plan

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi you@desk"
DISK = "/dev/disk/by-id/nvme-ACME_1TB_S1"

# hand-made: no NVMe is at hand (form: linux/machine.txt, lsblk --json)
NVME = {
    "name": "nvme0n1",
    "size": 1000204886016,
    "model": "ACME 1TB  ",
    "serial": "S1",
    "type": "disk",
    "rm": False,
    "ro": False,
    "mountpoint": None,
    "children": [
        {"name": "nvme0n1p1", "size": 5, "type": "part", "mountpoint": "/boot/efi"},
        {"name": "nvme0n1p2", "size": 9, "type": "part", "mountpoint": "/"},
    ],
}
# hand-made: no USB stick is at hand (form: linux/machine.txt, lsblk --json)
STICK = {
    "name": "sda",
    "size": 31914983424,
    "model": "Stick",
    "type": "disk",
    "children": [{"name": "sda1", "type": "part", "mountpoint": "/iso"}],
}
# hand-made: no such mini PC is at hand (form: linux/machine.txt)
DEBIAN = {
    "kernel": "Linux",
    "architecture": "x86_64",
    "hostname": "debian.lan",
    "user": "root",
    "system": "/run/current-system",
    "boot": "b-1",
    # hand-made: no machine with UEFI, NVMe and kexec is at hand; one that is parsed as it is
    # is linux/machine.txt (form: driver/nixwulf/ops/deploy/identity.sh, machine.sh)
    "os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian',
    "product": "NucBox G3",
    "firmware": "UEFI",
    "firmware-version": "1.20",
    "secure-boot": "   0",
    "lockdown": "[none] integrity confidentiality",
    "kexec-disabled": "0",
    "memory": "MemTotal:       16106132 kB",
    # hand-made: as above (form: linux/machine.txt)
    "programs": "/usr/bin/tar\n/usr/bin/cpio\n/usr/bin/setsid\n/usr/bin/ip\n/usr/bin/awk\n"
    "/usr/bin/lsblk",
    # hand-made: as above (form: udev(7), /dev/disk/by-id)
    "disk-ids": f"{DISK} /dev/nvme0n1\n{DISK}-part1 /dev/nvme0n1p1\n"
    "/dev/disk/by-id/nvme-eui.0025 /dev/nvme0n1",
    "disks": [NVME],
}
# hand-made: no installer is running here (form: linux/machine.txt)
INSTALLER = DEBIAN | {
    "hostname": "nixwulf-installer",
    # hand-made: no installer is running here (form: os-release(5) and NixOS' installer module)
    "os-release": "ID=nixos\nVARIANT_ID=installer\nPRETTY_NAME='NixOS 26.11 (Zokor)'",
    "system": "/nix/store/abc-nixos-system-installer",
    # hand-made: as above (form: udev(7), /dev/disk/by-id)
    "disk-ids": f"{DISK} /dev/nvme0n1\n/dev/disk/by-id/usb-Stick /dev/sda",
    "disks": [NVME | {"children": []}, STICK],
}
# hand-made: no Raspberry Pi is at hand (form: linux/machine.txt)
PI = DEBIAN | {
    "architecture": "aarch64",
    "hostname": "raspberrypi",
    "user": "sudo",
    # hand-made: no Raspberry Pi is at hand (form: os-release(5))
    "os-release": 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian',
    "product": "Raspberry Pi Compute Module 5 Rev 1.0",
    "firmware": "device tree",
    "firmware-version": "",
    "secure-boot": "",
    "kexec-disabled": "",
}
# hand-made: no Mac is at hand (form: driver/nixwulf/ops/deploy/identity.sh, machine.sh)
MAC = {
    "kernel": "Darwin",
    "architecture": "arm64",
    "hostname": "mac1.local",
    "user": "me",
    "system": "",
    "os-release": 'PRETTY_NAME="macOS 26.2 (25C56)"',
    "product": "Mac15,14",
    "memory-bytes": "549755813888",
    "rdma": "enabled",
    # hand-made: no Mac is at hand (form: ibv_devices(1) as Apple ships it,
    # https://developer.apple.com/documentation/technotes/tn3205-low-latency-communication-with-rdma-over-thunderbolt)
    "rdma-devices": "    device          \t   node GUID\n    rdma_en2  \te0c5797d9c8fac05",
}


def answer(base=DEBIAN, **changes):
    """What the script prints of a machine; underscores of names stand for their hyphens."""
    sections = base | {key.replace("_", "-"): value for key, value in changes.items()}
    if isinstance(sections.get("disks"), list):
        sections["disks"] = json.dumps({"blockdevices": sections["disks"]})
    # no output: the frame that our own script prints
    return "".join(f"\n== {name}\n{text}\n" for name, text in sections.items())


def machine(base=DEBIAN, **changes):
    return parse_machine(answer(base, **changes))


def platform(method="kexec", **install):
    values = {"kexec": {"image": "iso"}, "image": {"image": "sd", "reason": "kexec hangs there"}}
    defaults = values.get(method, {"reason": "only Apple installs macOS"})
    system = {"kexec": "x86_64-linux", "image": "aarch64-linux", "check": "aarch64-darwin"}[method]
    return {
        "name": "some",
        "description": "some",
        "system": system,
        "install": {"method": method, **defaults, **install},
    }


def cluster_of(*names, disk=DISK, source="mine.toml", keys=(KEY,)):
    nodes = [
        {
            "name": name,
            "platform": "generic-x86_64",
            "ssh": f"root@192.168.1.{10 + number}",
            **({"disk": disk} if disk else {}),
            "fabrics": {"switch": {"interface": "eth0", "address": f"192.168.1.{10 + number}"}},
        }
        for number, name in enumerate(names)
    ]
    fabric = {"kind": "ethernet", "speed_gbps": 2.5, "mtu": 1500, "subnet": "192.168.1.0/24"}
    document = {"name": "mine", "fabrics": {"switch": fabric}, "nodes": nodes}
    if keys:
        document["deploy"] = {"ssh_keys": list(keys)}
    return parse_cluster(document, source)


def plan_of(machines, facts=None, cluster=None, **settings):
    """A plan for nodes that are all of one platform; machines by node."""
    cluster = cluster or cluster_of(*machines)
    platforms = {"generic-x86_64": facts or platform()}
    nodes = [node for node in cluster.nodes if node.name in machines]
    return make_plan(cluster, ".", nodes, platforms, machines, **settings)


def cluster_text(name: str, node: str) -> str:
    """A cluster file of one node that the flake can make, on an address that nothing answers."""
    # hand-made: our own form, not a program's (form: driver/nixwulf/data/schemas/cluster.json)
    return f"""
name = "{name}"
[deploy]
ssh_keys = ["{KEY}"]
[fabrics.lan]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "10.90.0.0/24"
[[nodes]]
name = "{node}"
platform = "generic-x86_64"
ssh = "root@127.0.0.1"
disk = "{DISK}"
fabrics.lan = {{ interface = "enp1s0", address = "10.90.0.1" }}
"""
