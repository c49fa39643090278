import hashlib
import re
import shlex


def give_drive(machine: QemuMachine) -> None:
    """Makes the machine's drive, of 3 GiB, before it is started."""
    with open(machine.state_dir / "disk.raw", "wb") as drive:
        drive.write(bytes(range(256)) * (64 << 12))
        drive.truncate(3 << 30)


def checksum_of_drive(machine: QemuMachine) -> str:
    with open(machine.state_dir / "disk.raw", "rb") as drive:
        return hashlib.file_digest(drive, "sha256").hexdigest()


def on_installer(command: str) -> str:
    """What a command of root's prints on the installer. Nothing but ssh leads into it: it has no test driver's shell."""
    return desk.succeed(f"ssh -n root@{INSTALLER} {shlex.quote(command)}", timeout=limit(60)).strip()


def wait_for_installer() -> None:
    is_installer = "grep -qx VARIANT_ID=installer /etc/os-release"
    desk.wait_until_succeeds(
        f"timeout 60 ssh -n -o ConnectTimeout=20 root@{INSTALLER} {is_installer}", timeout=limit(120)
    )


def refused(user: str) -> str:
    """By which ways to log in, of all that ssh has, the installer would let a user in whose key it does not know."""
    desk.succeed("test -e /tmp/stranger || ssh-keygen -q -t ed25519 -N '' -f /tmp/stranger")
    asked = f"ssh -F /dev/null -n -o StrictHostKeyChecking=no -o IdentitiesOnly=yes -i /tmp/stranger {user}@{INSTALLER}"
    status, printed = desk.execute(f"{asked} true 2>&1", timeout=limit(60))
    t.assertEqual(status, 255, printed)
    (ways,) = re.findall(r"Permission denied \((.*)\)", printed)
    return ways


def install_a_file() -> None:
    """Does what nixos-anywhere does: disko formats the disk and mounts it, and then its store is copied to."""
    copy = "nix --extra-experimental-features nix-command copy --to"
    desk.succeed(f"{copy} ssh://root@{INSTALLER} {FORMAT}", timeout=limit(60))
    on_installer(f"{FORMAT} >&2")
    for mount in ["/mnt", "/mnt/boot"]:
        t.assertRegex(on_installer(f"findmnt -no SOURCE {mount}"), "^/dev/nvme0n1p")
    store = f"ssh://root@{INSTALLER}?remote-store=local%3Froot=%2Fmnt"
    desk.succeed(f"{copy} '{store}' {FORMAT}", timeout=limit(60))
    on_installer(f"test -x /mnt{FORMAT} && command -v nixos-install nixos-enter")
