"""Deploying a lab's nodes as if they were machines, up to what would wipe them.

The facts are real ones, read over a real sshd. 'nixos-anywhere' and 'nix' are recorders: of them
only the commands are asserted.
"""

import os
import pty
import re
import signal
import subprocess
import time

import pytest
from deploy_under_test import BY_ID, DRESS, SYSTEM, Desk, largest_disk
from lab_under_test import cluster_of, processes

from nixwulf.inventory.cluster import Shape
from stand_in import put

OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi x"


@pytest.fixture(scope="module")
def plain(bring_up):
    """Nodes as they are: namespaces of this machine, which nothing can be installed on."""
    running = bring_up(cluster_of(2, cable=Shape()), "plain")
    yield running
    running.lab.down()


@pytest.fixture(scope="module")
def dressed(bring_up, tmp_path_factory):
    """Nodes that look like PCs to be installed."""
    device = largest_disk()
    if os.getuid() != 0 or device is None:
        pytest.skip("dressing nodes takes root, lsblk, and a disk of 16 GB to be named")
    programs = tmp_path_factory.mktemp("programs")
    put(programs, "cpio")
    running = bring_up(cluster_of(2, cable=Shape()), "dressed", path=[programs])
    desk = Desk(running, programs, {})
    for node in ("n1", "n2"):
        desk.shell(node, DRESS, device)
    yield running
    running.lab.down()


@pytest.fixture
def desk(plain, tmp_path):
    made = Desk.make(plain, tmp_path)
    yield made
    made.close()


@pytest.fixture
def bench(dressed, tmp_path):
    made = Desk.make(dressed, tmp_path)
    for node in ("n1", "n2"):
        made.shell(node, "rm -f /run/current-system")
    yield made
    made.close()


def test_the_facts_phase_needs_no_flake_and_shows_what_answers(desk):
    (desk.folder / "bin" / "nix").unlink()
    done = desk.nixwulf("preflight", "--cluster", desk.cluster(), "--only", "facts")
    assert done.returncode == 0, done.stderr
    for node in ("n1", "n2"):
        assert f"'{node}' runs " in done.stdout
    assert " GB memory" in done.stdout
    assert "reached as " in done.stdout


def test_a_node_that_does_not_answer_is_shown_beside_those_that_do(desk):
    cluster = desk.cluster(ssh=("n1", "no-such-host"))
    done = desk.nixwulf("preflight", "--cluster", cluster, "--only", "facts")
    assert done.returncode == 3
    assert "'n1' runs " in done.stdout
    assert "not reached  Node 'n2' cannot be reached" in done.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ssh": ("n2", "n1")}, "Node 'n1' answers as 'n2', which is another node of "),
        ({"names": ("left", "n2")}, "if that is the machine to wipe, add '--expect left=n1'"),
        ({"disk": "/dev/disk/by-id/none"}, "Node 'n1' has no disk '/dev/disk/by-id/none'; it has"),
        ({"key": OTHER_KEY}, "is in deploy.ssh_keys, so you would be locked out"),
    ],
)
def test_a_machine_that_is_not_the_one_expected_is_refused(desk, changes, words):
    names = changes.get("names", ("n1", "n2"))
    desk.flake({f"own-{name}": [changes.get("disk", BY_ID)] for name in names})
    cluster = desk.cluster(**changes)
    dry = desk.nixwulf("deploy", "--cluster", cluster, "--dry-run")
    assert dry.returncode == 3, dry.stderr
    assert words in dry.stdout
    yes = [word for name in names for word in ("--yes-wipe", name)]
    done = desk.nixwulf("deploy", "--cluster", cluster, *yes)
    assert done.returncode == 3
    assert words in done.stderr
    assert "Nothing was changed" in done.stderr
    assert desk.calls("nixos-anywhere") == []


def test_the_flake_and_the_cluster_file_must_name_the_same_disk(desk):
    desk.flake({"own-n1": ["/dev/sda"], "own-n2": [BY_ID]})
    done = desk.nixwulf("deploy", "--cluster", desk.cluster(), "--dry-run")
    assert done.returncode == 3
    assert "'own-n1' of the flake formats /dev/sda; make them agree." in done.stdout


def test_a_flake_without_the_configuration_is_named(desk):
    desk.flake({"own-n1": [BY_ID], "own-n2": None})
    done = desk.nixwulf("deploy", "--cluster", desk.cluster(), "--dry-run")
    assert done.returncode == 2
    assert 'has no nixosConfigurations."own-n2"; is the cluster file' in done.stderr


def test_a_dry_run_prints_the_plan_of_nodes_that_do_not_answer(desk):
    cluster = desk.cluster(ssh=("nowhere-1", "nowhere-2"))
    done = desk.nixwulf("deploy", "--cluster", cluster, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("not reached  Node ") == 2
    assert done.stdout.count(f"WIPES        {BY_ID} (not seen)") == 2
    assert "nixos-anywhere --flake '.#own-n1' --target-host nowhere-1 " in done.stdout
    assert desk.calls("nixos-anywhere") == []


def test_a_dry_run_over_nodes_that_could_be_installed_says_what_it_would_wipe(bench):
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(rf"WIPES        {BY_ID} \(.*GB", done.stdout)) == 2
    assert bench.calls("nixos-anywhere") == []


def test_an_installer_does_not_wipe_the_disk_that_it_runs_from(bench):
    """The disk that the by-id name leads to holds this machine's own file systems."""
    release = "ID=nixos\\nVARIANT_ID=installer\\n"
    bench.shell(
        "n2", f"printf '{release}' >/run/dress/os; mount --bind /run/dress/os /etc/os-release"
    )
    try:
        done = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--dry-run", "--node", "n2")
    finally:
        bench.shell("n2", "umount /etc/os-release")
    assert done.returncode == 3, done.stdout
    assert f"Node 'n2' runs its installer from the disk '{BY_ID}'" in done.stdout


def test_without_a_terminal_the_option_to_add_is_named(bench):
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--yes-wipe", "n1")
    assert done.returncode == 2
    assert done.stderr.endswith("to wipe these nodes add --yes-wipe n2.\n")
    assert bench.calls("nixos-anywhere") == []


def test_the_commands_that_would_install_are_run_and_then_the_nodes_are_verified(bench):
    """The recorder leaves on each node the link to a system that an installation leaves."""
    bench.program(
        "nixos-anywhere",
        f'printf "%s\\n" "$*" >>{bench.folder}/nixos-anywhere.calls\n'
        'echo "### Formatting hard drive with disko ###"\n'
        f'ssh "$4" ln -sfn "{SYSTEM}-${{2#*#}}" /run/current-system',
    )
    yes = ("--yes-wipe", "n1", "--yes-wipe", "n2")
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), *yes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(bench.calls("nixos-anywhere")) == [
        f"--flake .#own-{node} --target-host {node} --kexec runs/kexec-generic-x86_64.tar "
        "--copy-host-keys --print-build-logs --phases kexec,disko,install,reboot"
        for node in ("n1", "n2")
    ]
    systems, asked, build = [call for call in bench.calls("nix") if call.startswith("build ")]
    assert systems.endswith(
        '--no-link .#nixosConfigurations."own-n1".config.system.build.toplevel '
        '.#nixosConfigurations."own-n2".config.system.build.toplevel --dry-run'
    )
    assert asked == f"{build} --dry-run"
    assert build.endswith(
        "--out-link runs/kexec-generic-x86_64.tar .#packages.x86_64-linux.kexec-generic-x86_64"
    )
    assert "n1: Formatting hard drive with disko" in done.stderr
    (folder,) = (bench.folder / "runs").glob("deploy-own-*")
    assert sorted(log.name for log in folder.iterdir()) == ["n1.log", "n2.log"]
    assert done.stdout.count("verified  ") == 2


def test_files_of_ones_own_arrive_as_root_s_and_the_others_have_to_learn_of_a_new_node(bench):
    """What nixos-anywhere does with the folder is done over the real ssh, to a folder there."""
    key = bench.folder / "own files" / "var" / "lib" / "key"
    key.parent.mkdir(parents=True)
    key.write_text("secret\n")
    key.chmod(0o600)
    os.chown(key, 1000, 1000)
    bench.program(
        "nixos-anywhere",
        'while [ "$1" != --extra-files ]; do shift; done\n'
        'tar -C "$2" -cpf- . | ssh n1 "mkdir -p /run/mnt; tar -C /run/mnt -xf- --no-same-owner"\n'
        f'ssh n1 ln -sfn "{SYSTEM}-own-n1" /run/current-system',
    )
    one = ("--node", "n1", "--yes-wipe", "n1", "--extra-files", "own files")
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), *one)
    assert done.returncode == 0, done.stdout + done.stderr
    there = bench.shell("n1", "stat -c '%U %a' /run/mnt/var/lib/key; cat /run/mnt/var/lib/key")
    assert there == "root 600\nsecret\n"
    assert f"run 'nixwulf update --cluster {bench.folder}/own.toml'" in done.stdout


def test_where_the_installer_cannot_be_built_no_node_is_changed(bench):
    bench.program(
        "nix",
        f'case "$*" in *disko*) cat {bench.folder}/disks.json ;;\n'
        "*--dry-run) ;; build*) exit 7 ;; esac",
    )
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--node", "n1", "--yes-wipe", "n1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "An installer is not built, and no node is changed: nix ended with 7" in done.stderr
    assert bench.calls("nixos-anywhere") == []


def test_a_failed_installation_names_its_step_its_last_line_and_its_log(bench):
    bench.program("nixos-anywhere", 'echo "### Installing NixOS ###"; echo "no space"; exit 7')
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--node", "n1", "--yes-wipe", "n1")
    assert done.returncode == 1
    sentence = "Node 'n1' is not installed: nixos-anywhere ended with 7 at 'Installing NixOS' (no"
    assert sentence in done.stderr
    log = re.search(r"see (runs/\S+/n1.log)", done.stderr)
    assert (bench.folder / log[1]).read_text() == "### Installing NixOS ###\nno space\n"


def test_an_installation_that_takes_too_long_is_ended(bench):
    bench.program("nixos-anywhere", "sleep 600")
    options = ("--node", "n1", "--yes-wipe", "n1", "--install-timeout", "1")
    done = bench.nixwulf("deploy", "--cluster", bench.cluster(), *options)
    assert done.returncode == 1
    assert "nixos-anywhere was ended at 'starting'" in done.stderr


def test_an_interrupt_ends_what_was_started(bench):
    marker = f"271828.{os.getpid()}"
    bench.program("nixos-anywhere", f'echo "### Installing NixOS ###"; exec sleep {marker}')
    options = ("--node", "n1", "--yes-wipe", "n1")
    process = bench.start_until(
        "Installing NixOS", "deploy", "--cluster", bench.cluster(), *options
    )
    while not sleeping(marker):  # its name changes a moment after the words
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "n1: ended at 'Installing NixOS'; see runs/" in words
    assert "may have no system; run the same command again" in words
    assert not sleeping(marker)


def sleeping(marker):
    found = []
    for pid in processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read()
        except OSError:
            continue
        found += [pid] if f"sleep\0{marker}\0".encode() in words else []
    return found


def test_a_name_that_is_not_typed_right_leaves_the_node_out(bench):
    def answers(*lines):
        primary, secondary = pty.openpty()
        process = subprocess.Popen(
            bench.command("deploy", "--cluster", bench.cluster(), "--phase", "install"),
            cwd=bench.folder,
            env=bench.environment,
            stdin=secondary,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.write(primary, "".join(f"{line}\n" for line in lines).encode())
        output = process.communicate(timeout=60)[0]
        os.close(primary)
        os.close(secondary)
        return process.returncode, output

    code, output = answers("y", "n2")
    assert code == 3, output
    assert "That is not 'n1': it is left out." in output
    assert "Node 'n1' was not installed" in output
    (call,) = bench.calls("nixos-anywhere")
    assert "--flake .#own-n2 " in call


def test_verify_says_what_is_not_as_expected(bench):
    for node in ("n1", "n2"):
        bench.shell(node, f"ln -sfn {SYSTEM}-own-{node} /run/current-system")
    right = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--phase", "verify")
    assert right.returncode == 0, right.stderr
    wrong = bench.nixwulf("deploy", "--cluster", bench.cluster(mtu=9000), "--phase", "verify")
    assert wrong.returncode == 3
    assert "Node 'n1' has MTU 1500 on 'cable'" in wrong.stderr
    bench.shell("n1", "ln -sfn /nix/store/old /run/current-system")
    old = bench.nixwulf("deploy", "--cluster", bench.cluster(), "--phase", "verify")
    assert "Node 'n1' runs '/nix/store/old' and the flake makes '" in old.stderr
    swapped = bench.cluster(ssh=("n2", "n1"))
    other = bench.nixwulf("deploy", "--cluster", swapped, "--phase", "verify")
    assert "Node 'n1' answers as 'n2'; deploy it, or correct its ssh address." in other.stderr


def test_verify_refuses_a_system_that_nix_did_not_make(desk):
    done = desk.nixwulf("deploy", "--cluster", desk.cluster(), "--phase", "verify")
    assert done.returncode == 3
    assert "which Nix did not make; deploy it." in done.stderr
    assert done.stdout.count("NOT AS EXPECTED") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "n9"], "No node 'n9' in "),
        (
            ["--node", "n1", "--yes-wipe", "n2"],
            "--yes-wipe 'n2' is not among the nodes chosen: n1.",
        ),
        (["--expect", "n1"], "--expect is 'n1', expected NODE=HOSTNAME"),
        (["--flake", ".#x"], "--flake is '.#x', expected a flake without '#'"),
        (["--flake", "--impure"], "--flake is '--impure', expected"),
    ],
)
def test_a_wrong_option_is_named(desk, arguments, message):
    done = desk.nixwulf("deploy", "--cluster", desk.cluster(), "--dry-run", *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr


def test_without_nixos_anywhere_the_message_names_how_to_get_it(desk):
    (desk.folder / "bin" / "nixos-anywhere").unlink()
    desk.environment["PATH"] = f"{desk.folder / 'bin'}:/usr/bin:/bin"
    done = desk.nixwulf("deploy", "--cluster", desk.cluster())
    assert done.returncode == 2
    assert "'nixos-anywhere' is not on PATH; run this as 'nix run .#deploy -- ...'" in done.stderr


def test_deploying_the_lab_or_an_unmanaged_cluster_is_refused(desk):
    lab = desk.nixwulf("deploy", "--cluster", "lab")
    assert lab.returncode == 2
    assert "the nodes of a lab are namespaces of this machine" in lab.stderr
    plain = desk.folder / "plain.toml"
    plain.write_text(
        re.sub(r"(?s)\[deploy\].*?\n\[fabrics", "[fabrics", desk.cluster().read_text())
    )
    done = desk.nixwulf("deploy", "--cluster", plain)
    assert done.returncode == 2
    assert "it has no [deploy], so its nodes are not managed; add '[deploy]'" in done.stderr


def test_waiting_for_a_restart_ends_when_the_node_answers(bench):
    """The node's sshd is stopped, which is as silent as a node that restarts, and then goes on."""
    bench.shell("n1", f"ln -sfn {SYSTEM}-own-n1 /run/current-system")
    bench.program("nixos-anywhere", "ssh -o ControlPath=none n1 'pkill -STOP -o sshd'")
    options = ("--node", "n1", "--yes-wipe", "n1")
    process = bench.start_until(
        "Waiting up to 600 s", "deploy", "--cluster", bench.cluster(), *options
    )
    time.sleep(1)
    stopped = [pid for pid in processes() if state_of(pid) == "T"]
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    output, words = process.communicate(timeout=60)
    assert process.returncode == 0, words
    assert "n1  verified " in output


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
