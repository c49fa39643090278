"""INT, TERM and HUP end each command within two seconds, with 130, and leave no process."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stand_in import put

CLUSTER = """
name = "own"
deploy.ssh_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINixwulfExampleKeyNobodyHasThePrivate00 a"]
[fabrics.cable]
kind = "ethernet"
speed_gbps = 10
mtu = 1500
subnet = "198.51.100.0/24"
"""
NODE = """
[[nodes]]
name = "n{n}"
platform = "generic-x86_64"
ssh = "root@198.51.100.{n}"
disk = "/dev/disk/by-id/virtio-x"
fabrics.cable = {{ interface = "eth1", address = "198.51.100.{n}" }}
"""
# What nodes answer: nothing; or one boot, for ever, so that each command waits for another.
SILENT = "exec sleep 600.{mark}"
SAME_BOOT = "echo boot 1; echo uptime 60; sleep 0.1"
REBOOT = ("nodes", "reboot", "--cluster", "own.toml")
RECOVER = ("nodes", "recover", "--cluster", "own.toml", "--up-to", "reboot")
DRY_RUN = ("deploy", "--cluster", "own.toml", "--dry-run")
STATUS = ("preflight", "--cluster", "own.toml", "--only", "status")


class Desk:
    """A folder with a cluster file, and stand-ins for ssh and nix first on PATH."""

    def __init__(self, folder, answer):
        self.folder, self.mark = folder, f"{os.getpid()}{time.monotonic_ns()}"
        text = CLUSTER + "".join(NODE.format(n=n) for n in (1, 2))
        (folder / "own.toml").write_text(text)
        put(folder / "bin", "ssh", f"touch asked; {answer.format(mark=self.mark)}")
        put(
            folder / "bin",
            "nix",
            f"touch asked; (sleep 600.{self.mark}) & {SILENT}".format(mark=self.mark),
        )
        own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(folder)}
        self.environment = {**os.environ, **own}

    def start(self, *arguments, **options):
        command = [sys.executable, "-m", "nixwulf", *arguments]
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment, **options)
        until = time.monotonic() + 30
        while not (self.folder / "asked").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(0.5)  # until the command waits, or a moment before
        return process

    def left(self):
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            found += [entry.name] if self.mark.encode() in words and b"sleep" in words else []
        return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(REBOOT, SILENT), (REBOOT, SAME_BOOT), (RECOVER, SILENT), (DRY_RUN, SILENT),
     (STATUS, SILENT)],
)  # fmt: skip
def test_a_signal_ends_a_command_that_waits_for_nodes(tmp_path, number, arguments, answer):
    desk = Desk(tmp_path, answer)
    process = desk.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begin = time.monotonic()
    process.send_signal(number)
    _, words = process.communicate(timeout=30)
    assert time.monotonic() - begin < 15  # of 600; 1 s where nothing else runs
    assert process.returncode == 130
    assert words.splitlines()[-1] == "Interrupted."
    assert desk.left() == []


def test_what_is_started_in_the_background_of_a_closed_terminal_goes_on_without_words(tmp_path):
    desk = Desk(tmp_path, SAME_BOOT)
    try:
        ours, theirs = pty.openpty()
    except OSError:
        pytest.skip("this machine has no pseudo-terminals")
    process = desk.start(*REBOOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 130
    assert desk.left() == []


def test_a_second_signal_does_not_cut_the_first_ones_end_short(tmp_path):
    program = (
        "import time\n"
        "from nixwulf.core import interrupts\n"
        "interrupts.handle()\n"
        "try:\n  print('up', flush=True); time.sleep(60)\n"
        "finally:\n  time.sleep(1); print('taken down', flush=True)\n"
    )
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
        time.sleep(0.1)
    assert process.communicate(timeout=30)[0] == "taken down\n"


def test_an_ignored_hangup_stays_ignored(tmp_path):
    desk = Desk(tmp_path, SAME_BOOT)

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = desk.start(*REBOOT, stderr=subprocess.PIPE, preexec_fn=ignore)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 130
