"""A desk from which a lab's nodes are deployed as if they were machines, and what it records.

Nothing is ever installed: 'nixos-anywhere' and 'nix' are recorders here, small programs that write
down how they were called. ssh, sshd, the nodes' facts and their fabrics are real.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab_under_test import Running

from stand_in import put

BY_ID = "/dev/disk/by-id/virtio-LAB"
SYSTEM = "/nix/store/00000000000000000000000000000000-nixos-system"

NODE = """
[[nodes]]
name = "{name}"
platform = "generic-x86_64"
ssh = "{ssh}"
disk = "{disk}"
fabrics.cable = {{ interface = "{interface}", address = "{address}" }}
"""

# Dresses a node as a PC that can be installed: names, in its own mount namespace, that this machine
# may lack. Its lsblk, memory, system and host name stay as they are.
DRESS = f"""
set -e
device=$1
mkdir -p /run/dress
mount -t tmpfs tmpfs /run/dress
mkdir -p /run/dress/dev/pts /run/dress/dev/shm /run/dress/dev/disk/by-id /run/dress/kernel
for name in null zero full random urandom tty; do
  touch /run/dress/dev/$name
  mount --bind /dev/$name /run/dress/dev/$name
done
ln -s /proc/self/fd /run/dress/dev/fd
touch "/run/dress/dev/${{device#/dev/}}"
ln -s "../../${{device#/dev/}}" /run/dress/dev/{BY_ID.removeprefix("/dev/")}
mount --rbind /run/dress/dev /dev
mount -t tmpfs tmpfs /sys/firmware
mkdir /sys/firmware/efi
uname -n >/run/dress/kernel/hostname
echo 0 >/run/dress/kernel/kexec_load_disabled
mount --rbind /run/dress/kernel /proc/sys/kernel
"""


@dataclass(frozen=True)
class Desk:
    """Recorders, a cluster file, and the command line over the lab's own ssh configuration."""

    running: Running
    folder: Path
    environment: dict[str, str]

    @classmethod
    def make(cls, running: Running, folder: Path) -> Desk:
        """A desk in an empty folder; its ssh finds the lab's nodes by their names."""
        desk = cls(running, folder, {})
        desk.program("ssh", f'exec {shutil.which("ssh")} -F {running.lab.ssh_config} "$@"')
        desk.program("nixos-anywhere", f'printf "%s\\n" "$*" >>{folder}/nixos-anywhere.calls')
        desk.program(
            "nix",
            f'printf "%s\\n" "$(printf "%s" "$*" | tr "\\n" " ")" >>{folder}/nix.calls\n'
            'case "$*" in\n'
            f"*drvPath*) cat {folder}/systems.json ;;\n*disko*) cat {folder}/disks.json ;;\n"
            "config*) echo x86_64-linux ;;\nesac",
        )
        own = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SSH_AUTH_SOCK": "",
            # Two labs have nodes of the same names, and a shared connection is known by the name.
            "XDG_RUNTIME_DIR": tempfile.mkdtemp(prefix="nw"),
        }
        desk.environment.update({**os.environ, **own})
        desk.flake({f"own-{node.name}": [BY_ID] for node in running.lab.cluster.nodes})
        return desk

    def program(self, name: str, script: str) -> None:
        """Put a program first on PATH."""
        put(self.folder / "bin", name, script)

    def flake(self, disks: dict[str, list[str] | None]) -> None:
        """What the recorder of nix says of the flake's configurations."""
        rest = {
            "labels": [],
            "modules": [module.name for module in Path("/sys/module").iterdir()],
            "interfaces": [],
        }
        layouts = {name: own and {"disks": own, **rest} for name, own in disks.items()}
        (self.folder / "disks.json").write_text(json.dumps(layouts))
        systems = {
            name: {"drv": f"{SYSTEM}-{name}.drv", "out": f"{SYSTEM}-{name}"} for name in disks
        }
        (self.folder / "systems.json").write_text(json.dumps(systems))

    def calls(self, program: str) -> list[str]:
        """How a recorder was called, a line a call."""
        file = self.folder / f"{program}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def cluster(
        self,
        *,
        ssh: tuple[str, ...] = ("n1", "n2"),
        names: tuple[str, ...] = ("n1", "n2"),
        disk: str = BY_ID,
        mtu: int = 1500,
        key: str | None = None,
        more: str = "",
    ) -> Path:
        """A cluster file of the lab's nodes as machines; more goes to the last of them."""
        own = (self.running.lab.ssh_config.parent / "id_ed25519.pub").read_text().strip()
        text = (
            f'name = "own"\n[deploy]\nssh_keys = ["{key or own}"]\n[fabrics.cable]\n'
            f'kind = "ethernet"\nspeed_gbps = 10\nmtu = {mtu}\nsubnet = "10.90.0.0/24"\n'
        )
        places = {node.name: node.fabrics["cable"] for node in self.running.lab.cluster.nodes}
        for name, host, place in zip(names, ssh, places.values(), strict=True):
            text += NODE.format(
                name=name, ssh=host, disk=disk, interface=place.interface, address=place.address
            )
        path = self.folder / "own.toml"
        path.write_text(text + more)
        return path

    def command(self, *arguments: object) -> list[str]:
        """The driver's command line."""
        return [sys.executable, "-m", "nixwulf", *map(str, arguments)]

    def close(self) -> None:
        """End the shared connections; the recorders stay until the test's folder goes."""
        runtime = Path(self.environment["XDG_RUNTIME_DIR"])
        for socket in runtime.glob("nixwulf-ssh/*"):
            command = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "node"]
            subprocess.run(command, capture_output=True, check=False)
        # A connection that ends removes its socket itself, which shutil.rmtree does not expect.
        subprocess.run(["rm", "-rf", runtime], check=True)

    def nixwulf(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the driver here, without a terminal."""
        return subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start_until(self, words: str, *arguments: object) -> subprocess.Popen[str]:
        """Start the driver here, without a terminal; it has said the words on standard error."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert any(words in line for line in process.stderr or ())
        return process

    def shell(self, node: str, script: str, *arguments: str) -> str:
        """Run a script on a node; it must succeed."""
        words = " ".join(map(shlex.quote, arguments))
        done = subprocess.run(
            ["ssh", "-F", str(self.running.lab.ssh_config), node, f"sh -s -- {words}"],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def largest_disk() -> str | None:
    """The largest disk of this machine, which nothing here opens; none where lsblk lists none."""
    if shutil.which("lsblk") is None:
        return None
    done = subprocess.run(
        ["lsblk", "--json", "--bytes", "--nodeps", "--output", "NAME,SIZE,TYPE,RO"],
        capture_output=True,
        text=True,
        check=True,
    )
    disks = [
        (device["size"], f"/dev/{device['name']}")
        for device in json.loads(done.stdout)["blockdevices"]
        if device["type"] == "disk" and device["size"] >= 16e9 and not device["ro"]
    ]
    return max(disks, default=(0, None))[1]
