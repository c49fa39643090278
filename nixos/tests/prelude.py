import functools
import json
import shutil


@functools.cache
def slowness() -> int:
    """Without KVM everything takes 15 to 30 times as long. Whether it is used is asked of a machine that runs: there are
    hosts whose /dev/kvm cannot make one."""
    running = next(machine for machine in machines if isinstance(machine, QemuMachine) and machine.booted)
    return 1 if "enabled" in running.send_monitor_command("info kvm") else 20


def limit(seconds: float) -> int:
    """What may take a machine with KVM so many seconds, in seconds of the machines at hand."""
    return int(seconds * slowness())


def reaches(machine: BaseMachine, address: str, port: int) -> bool:
    """Whether a machine's TCP connection to a port is taken."""
    return machine.execute(f"timeout 20 bash -c '</dev/tcp/{address}/{port}'")[0] == 0


def address_of(machine: BaseMachine, family: int, interface: str, scope: str) -> str:
    """The address of family 4 or 6 that a machine's interface has in a scope of iproute2's."""
    shown = f"ip -{family} -o address show dev {interface} scope {scope}"
    return machine.succeed(f"{shown} | awk '{{ print $4 }}'").split("/")[0]


def wait_for_console(machine: QemuMachine, words: str, times: int, timeout: int) -> None:
    """Waits until words are so many times on a machine's console, of all since it was started. The driver's
    wait_for_console_text() takes a second for each line that was printed before."""
    retry(lambda _: machine.get_console_log().count(words) >= times, timeout_seconds=timeout)


# Which ports' packets come to an interface, and which of them the firewall (of priority 0) lets through.
KNOCKS = """
table inet knocks {
  set tcp_arrived { type inet_service; size 65536; flags dynamic; }
  set tcp_passed { type inet_service; size 65536; flags dynamic; }
  set udp_arrived { type inet_service; size 65536; flags dynamic; }
  set udp_passed { type inet_service; size 65536; flags dynamic; }
  chain arrived {
    type filter hook prerouting priority -400;
    iifname INTERFACE tcp flags == syn add @tcp_arrived { tcp dport }
    iifname INTERFACE add @udp_arrived { udp dport }
  }
  chain passed {
    type filter hook input priority 400;
    iifname INTERFACE tcp flags == syn add @tcp_passed { tcp dport }
    iifname INTERFACE add @udp_passed { udp dport }
  }
}
"""


def let_in(
    machine: BaseMachine, interface: str, sender: BaseMachine, address: str
) -> dict[str, set[int]]:
    """The ports, of all, to which a machine's firewall lets a sender's packets through, by tcp and udp. Both machines
    import machines/knocks.nix."""
    rules = KNOCKS.replace("INTERFACE", interface)
    machine.succeed(f"nft destroy table inet knocks; nft -f - <<'EOF'\n{rules}\nEOF")

    def counted(name: str) -> set[int]:
        listed = json.loads(machine.succeed(f"nft --json list set inet knocks {name}"))["nftables"]
        return {port for entry in listed for port in entry.get("set", {}).get("elem", [])}

    def all_arrived(_last_try: bool) -> bool:
        sender.succeed(f"knock {address}", timeout=limit(30))
        return all(len(counted(f"{protocol}_arrived")) == 65535 for protocol in ["tcp", "udp"])

    retry(all_arrived, timeout_seconds=limit(60))
    return {protocol: counted(f"{protocol}_passed") for protocol in ["tcp", "udp"]}


def install(machine: QemuMachine) -> None:
    """Lets disko format the empty drive, installs the machine's own system on it, and shuts the installer down."""
    facts = INSTALLED[machine.name]
    machine.wait_for_unit("multi-user.target", timeout=limit(60))
    machine.succeed(f"{facts['disko']} >&2", timeout=limit(60))
    machine.succeed(
        f"{facts['install']} --no-channel-copy --no-root-passwd --system {facts['toplevel']} >&2",
        timeout=limit(120),
    )
    machine.shutdown()


def boot_from_disk(machine: QemuMachine) -> None:
    """Starts what is installed on the drive, by the firmware and its boot loader; a reboot stays inside QEMU."""
    machine.start_command = type(machine.start_command)(INSTALLED[machine.name]["start"])
    machine.start(allow_reboot=True)


for machine in machines:
    if machine.name in INSTALLED:
        with open(machine.state_dir / "system.raw", "wb") as drive:
            drive.truncate(16 << 30)
        shutil.copy(INSTALLED[machine.name]["variables"], machine.state_dir / "efi-variables.fd")
        (machine.state_dir / "efi-variables.fd").chmod(0o600)
