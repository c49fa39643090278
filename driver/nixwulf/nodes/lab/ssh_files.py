"""Files of OpenSSH and of /etc that a lab generates: keys, configurations, users, host names."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.core.files import cache_dir, read_text
from nixwulf.nodes.lab import connect
from nixwulf.nodes.lab.links import management_addresses
from nixwulf.nodes.lab.state import Definition, StateFolder

NODE_FOLDER = Path("/run/lab")
HOME = NODE_FOLDER / "home"
# Commands mean the same whoever runs the lab, also a service's user, whose shell is nologin.
SHELL = "/bin/sh"


def search_path() -> str:
    """PATH with the folders of tc and sshd, which ordinary users' PATH often lacks."""
    inherited = os.environ.get("PATH", os.defpath).split(":")
    return ":".join(dict.fromkeys([*inherited, "/usr/sbin", "/usr/local/sbin", "/sbin"]))


def find_sshd() -> Path:
    """OpenSSH's server: on PATH, where distributions put it, or unpacked in the user's cache."""
    unpacked = cache_dir() / "openssh" / "usr" / "sbin" / "sshd"
    found = shutil.which("sshd", path=f"{search_path()}:{unpacked.parent}")
    if found is None:
        raise InputError(
            f"No sshd on PATH, in /usr/sbin, in /usr/local/sbin or at {str(unpacked)!r}; run 'make "
            "setup', which unpacks it there without installing a service."
        )
    return Path(found).resolve()


def write_all(state: StateFolder, definition: Definition, path: Sequence[Path]) -> None:
    """Write every generated file of a lab.

    Args:
        path: folders to put first on the nodes' PATH.
    """
    names = [node.name for node in definition.cluster.nodes]
    addresses = management_addresses(definition.cluster, definition.subnet)
    user_key = state.folder / "id_ed25519"
    keys = [user_key, *(_folder(state, name) / "host_key" for name in names)]
    _make_keys(keys)
    public = {key: key.with_suffix(".pub").read_text("utf-8") for key in keys}
    known_hosts = "".join(
        f"{name},{addresses[name]} {public[state.node(name) / 'host_key']}" for name in names
    )
    (state.folder / "known_hosts").write_text(known_hosts, "utf-8")
    state.connections.mkdir()
    state.ssh_config.write_text(_client(state, definition, addresses), "utf-8")
    sshd_config = _server(Path(definition.sshd), path)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{addresses[name]} {name}\n" for name in names)
    for name in names:
        folder = state.node(name)
        files = {
            "sshd_config": sshd_config,
            "authorized_keys": public[user_key],
            "hosts": hosts,
            "hostname": f"{name}\n",
            "passwd": _passwd(definition.user),
            "shadow": f"{definition.user}:*:::::::\n",
        }
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
        private = folder / "home" / ".ssh"
        private.mkdir(parents=True, mode=0o700)
        shutil.copy2(user_key, private / "id_ed25519")
        (private / "known_hosts").write_text(known_hosts, "utf-8")


def _folder(state: StateFolder, node: str) -> Path:
    folder = state.node(node)
    folder.mkdir(parents=True)
    return folder


def _make_keys(keys: Sequence[Path]) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nixwulf-lab", "-f"]
    processes: list[subprocess.Popen[str]] = []
    try:
        for key in keys:
            made = [*command, str(key)]
            processes.append(
                subprocess.Popen(made, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process, key in zip(processes, keys, strict=True):
            _, words = process.communicate()
            if process.returncode != 0:
                raise InputError(
                    f"ssh-keygen made no key at {str(key)!r}: {' '.join(words.split())}"
                )
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _client(state: StateFolder, definition: Definition, addresses: dict[str, str]) -> str:
    # -I -S: the helper needs the standard library only, and starts in a third of the time. The
    # lab's wires are this machine's memory: its ssh prefers what is cheap. A key exchange that is
    # safe from quantum computers takes 65 ms of CPU at each end.
    helper = shlex.join([sys.executable, "-I", "-S", connect.__file__, str(state.control)])
    common = f"""\
Host {" ".join(addresses)}
  User {definition.user}
  IdentityFile "{state.folder}/id_ed25519"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "{state.folder}/known_hosts"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  PasswordAuthentication no
  BatchMode yes
  KexAlgorithms ^curve25519-sha256
  Ciphers ^aes128-gcm@openssh.com
  ControlMaster auto
  ControlPath "{state.connections}/%n"
  ControlPersist yes
  ProxyUseFdpass yes
"""
    proxies = (
        f"Host {name}\n  ProxyCommand {helper} {address}\n" for name, address in addresses.items()
    )
    return common + "".join(proxies)


def _server(sshd: Path, path: Sequence[Path]) -> str:
    search = ":".join([*map(str, path), search_path()])
    # Since 9.8 sshd starts other programs, by default where it was to be installed.
    helpers = (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
    beside = [
        f"{option} {found}\n"
        for option, name in helpers
        for found in (sshd.parent / name, sshd.parents[1] / "lib" / "openssh" / name)
        if found.exists()
    ]
    return f"""\
Port 22
HostKey {NODE_FOLDER}/host_key
AuthorizedKeysFile {NODE_FOLDER}/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
MaxSessions 64
MaxStartups 64
Subsystem sftp internal-sftp
SetEnv "PATH={search}"
{"".join(beside)}"""


def _passwd(user: str) -> str:
    """The host's users, with the lab's user at home in the node's own folder.

    sshd wants a user named sshd when it runs as root; the other lines give files' owners names.
    """
    lines = []
    for line in read_text(Path("/etc/passwd")).splitlines():
        ours = ":".join([*line.split(":")[:-2], str(HOME), SHELL])
        lines.append(ours if line.startswith(f"{user}:") else line)
    names = {line.split(":")[0] for line in lines}
    if user not in names:
        lines.append(f"{user}:x:{os.getuid()}:{os.getgid()}::{HOME}:{SHELL}")
    if "sshd" not in names:
        lines.append("sshd:x:65533:65534::/run/sshd:/bin/false")
    return "".join(line + "\n" for line in lines)
