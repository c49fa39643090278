"""Updating a lab's nodes: the script that switches a node runs for real, over a real sshd.

The nodes have no systemd and no NixOS: a system is a folder laid out like one, whose
switch-to-configuration notes how it was called, and 'systemd-run', 'systemctl' and 'nix-env' are
stand-ins that note it too, and do with shell jobs what is asked of systemd here. That systemd and
NixOS do the same is only asserted by what they are called with.
"""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from deploy_under_test import Desk
from lab_under_test import cluster_of

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import connections
from nixwulf.ops.deploy.flake import Built
from nixwulf.ops.deploy.install import _SCRIPT, Target, switch_all

SYSTEMS = "/run/systems"

MAKE = Path(__file__).with_name("system_under_test.sh").read_text()


# A unit that the new system brings fails, and so switch-to-configuration exits with 4.
FAILS = """
echo 'echo "llama.service loaded failed failed x" >/run/units/failed; exit 4' >/run/hooks/new
"""


# The node falls silent. Going back wakes it; on a loaded machine that may have been before.
SILENT = "pkill -STOP -o sshd; (sleep 30; pkill -CONT sshd) >/dev/null 2>&1 </dev/null &"


@pytest.fixture(scope="module")
def nodes(bring_up):
    if os.getuid() != 0:
        pytest.skip("only root switches a node, and this lab's user is not root")
    running = bring_up(cluster_of(2, cable=Shape()), "update")
    yield running
    running.lab.down()


@pytest.fixture
def desk(nodes, tmp_path):
    made = Desk.make(nodes, tmp_path)
    for node in ("n1", "n2"):
        made.shell(node, "rm -rf /run/systems /run/records /run/units /run/hooks /run/parts")
        for system in ("old", "new"):
            made.shell(node, MAKE, system)
        made.shell(
            node,
            "mkdir -p /run/parts; cd /run/parts; touch kernel initrd kernel-modules\n"
            f"ln -sfn {SYSTEMS}/old /run/current-system; ln -sfn {SYSTEMS}/old /run/booted-system",
        )
    out = {"out": f"{SYSTEMS}/new", "drv": "/nix/store/new.drv"}
    (tmp_path / "systems.json").write_text(json.dumps({"own-n1": out, "own-n2": out}))
    yield made
    made.close()


def switch(desk, *names, seconds=60, path=f"{SYSTEMS}/new"):
    """What came of each node, its reboot and its words."""
    found = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)
    built = Built("/nix/store/new.drv", path)
    targets = [Target(found[name], built, ".#n", here=True) for name in names]
    return [
        (update.state, update.reboot, update.words)
        for update in switch_all(targets, seconds, lambda node, words: None)
    ]


def record(desk, node, name):
    return desk.shell(node, f"cat /run/records/{name} 2>/dev/null || true").splitlines()


def current(desk, node):
    return desk.shell(node, "readlink /run/current-system").strip()


def test_a_node_is_switched_and_its_new_system_kept(desk):
    assert switch(desk, "n1") == [("updated", False, "")]
    assert current(desk, "n1") == f"{SYSTEMS}/new"
    assert record(desk, "n1", "switch") == [f"{SYSTEMS}/new test", f"{SYSTEMS}/new boot"]
    assert record(desk, "n1", "nix-env") == [
        f"--profile /nix/var/nix/profiles/system --set {SYSTEMS}/new"
    ]
    timer, activation = record(desk, "n1", "systemd-run")
    assert timer.startswith("--quiet --unit=nixwulf-rollback --on-active=60 ")
    assert f" sh {SYSTEMS}/old /nix/var/nix/profiles/system " in timer
    options = "--quiet --unit=nixwulf-activate --service-type=exec --remain-after-exit "
    assert activation.startswith(f"{options}/bin/sh -c switch() ")
    assert activation.endswith(f" sh {SYSTEMS}/new")
    assert "stop nixwulf-rollback.timer" in record(desk, "n1", "systemctl")


def test_the_timer_is_armed_before_anything_is_activated_and_nothing_lasts_before_it_is_off(desk):
    desk.shell("n1", "echo 'ls /run/units/nixwulf-rollback.timer* >/run/armed' >/run/hooks/new")
    switch(desk, "n1")
    assert "nixwulf-rollback.timer" in desk.shell("n1", "cat /run/armed")
    calls = record(desk, "n1", "switch")
    assert calls.index(f"{SYSTEMS}/new test") < calls.index(f"{SYSTEMS}/new boot")


def test_a_node_that_cannot_be_reached_again_goes_back_by_itself(desk):
    """The new system stops its sshd, as one with a wrong firewall would be silent."""
    desk.shell("n1", f"echo '{SILENT}' >/run/hooks/new")
    started = time.monotonic()
    (lost, kept) = switch(desk, "n1", "n2", seconds=4)
    assert lost[0] == "rolled-back"
    assert kept[0] == "updated"
    assert time.monotonic() - started > 4
    assert (current(desk, "n1"), current(desk, "n2")) == (f"{SYSTEMS}/old", f"{SYSTEMS}/new")
    assert record(desk, "n1", "nix-env") == []
    assert record(desk, "n1", "switch") == [f"{SYSTEMS}/new test", f"{SYSTEMS}/old test"]


def test_a_connection_older_than_the_activations_end_does_not_show_that_the_node_is_reached(desk):
    """The node falls silent while the driver, connected already, asks it about the activation."""
    other = '[ "$1 $property" != "nixwulf-activate.service ActiveState" ]'
    once = f"{{ rm /run/hooks/asked; {SILENT} }}"
    desk.shell("n1", f"echo '{other} || {once}' >/run/hooks/asked")
    assert switch(desk, "n1", seconds=4) == [("rolled-back", False, "")]
    assert current(desk, "n1") == f"{SYSTEMS}/old"
    assert record(desk, "n1", "nix-env") == []


def test_a_node_on_which_a_unit_fails_goes_back_at_once_and_says_why(desk):
    desk.shell("n1", FAILS)
    started = time.monotonic()
    words = "'llama.service' failed, see 'journalctl --boot --unit=llama.service' there"
    assert switch(desk, "n1") == [("rolled-back", False, words)]
    assert time.monotonic() - started < 30
    assert current(desk, "n1") == f"{SYSTEMS}/old"
    assert record(desk, "n1", "nix-env") == []


def test_a_slow_activation_is_waited_for(desk):
    desk.shell("n1", "echo 'sleep 5' >/run/hooks/new")
    assert switch(desk, "n1") == [("updated", False, "")]


def test_an_activation_that_hangs_is_ended_by_the_timer(desk):
    desk.shell("n1", "echo 'sleep 600' >/run/hooks/new")
    ((state, _, _),) = switch(desk, "n1", seconds=3)
    assert state == "rolled-back"
    assert "stop nixwulf-activate.service" in record(desk, "n1", "systemctl")


@pytest.mark.parametrize("part", ["kernel", "initrd", "kernel-params"])
def test_a_reboot_is_asked_for_when_what_boots_has_changed(desk, part):
    system = f"{SYSTEMS}/new"
    desk.shell("n1", f"rm {system}/{part}; echo other >{system}/{part}")
    assert switch(desk, "n1") == [("updated", True, "")]


def test_a_machine_that_is_not_the_node_is_not_touched(desk):
    found = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)
    node = replace(found["n1"].node, name="n2")
    built = Built("/nix/store/new.drv", f"{SYSTEMS}/new")
    swapped = Target(replace(found["n1"], node=node), built, ".#n", here=True)
    (update,) = switch_all([swapped], 60, lambda node, words: None)
    assert update.state == "refused"
    assert "This machine is 'n1', not 'n2'; correct the node's ssh address." in update.words
    assert record(desk, "n1", "systemd-run") == []


def test_a_system_that_did_not_arrive_is_not_activated(desk):
    ((state, _, words),) = switch(desk, "n1", path="/run/systems/none")
    assert state == "refused"
    assert "There is no system at '/run/systems/none'; copy it again." in words
    assert record(desk, "n1", "systemd-run") == []


def test_two_updates_of_a_node_do_not_meet(desk):
    desk.shell("n1", "echo active >/run/units/nixwulf-rollback.timer.ActiveState")
    ((state, _, words),) = switch(desk, "n1")
    assert state == "refused"
    assert "Another update of 'n1' goes on; wait until it has ended." in words


@pytest.fixture
def profile(desk):
    """The first node has a /nix of its own, whose profile leads to a system."""
    if not os.path.isdir("/nix"):  # noqa: PTH112
        pytest.skip("giving a node a profile of its own takes a folder /nix")
    desk.shell("n1", "mount -t tmpfs tmpfs /nix; mkdir -p /nix/var/nix/profiles; touch /nix/own")
    desk.shell("n1", f"cd /nix/var/nix/profiles; ln -s {SYSTEMS}/old system-1-link")
    desk.shell("n1", "ln -s system-1-link /nix/var/nix/profiles/system")
    yield lambda: desk.shell("n1", "cd /nix/var/nix/profiles; readlink system; ls").split()
    desk.shell("n1", "umount /nix")


def test_a_node_that_runs_the_system_already_is_left_alone(desk, profile):
    assert switch(desk, "n1", path=f"{SYSTEMS}/old") == [("unchanged", False, "")]
    assert record(desk, "n1", "systemd-run") == []


def test_a_node_that_would_not_boot_the_system_that_it_runs_is_not_unchanged(desk, profile):
    desk.shell("n1", "echo 'echo No space left on device; exit 1' >/run/hooks/boot-old")
    ((state, _, words),) = switch(desk, "n1", path=f"{SYSTEMS}/old")
    assert state == "refused"
    assert "'n1' runs this system already and cannot make it the one that boots: No space" in words
    assert f"; run '{SYSTEMS}/old/bin/switch-to-configuration boot' there." in words


def test_a_boot_loader_that_cannot_be_installed_sends_the_node_back_as_often_as_it_fails(
    desk, profile
):
    desk.shell("n1", "echo 'echo No space left on device; exit 1' >/run/hooks/boot-new")
    for _ in range(2):
        assert switch(desk, "n1") == [("rolled-back", False, "No space left on device")]
        assert current(desk, "n1") == f"{SYSTEMS}/old"
        assert profile() == ["system-1-link", "system", "system-1-link"]
        assert record(desk, "n1", "switch")[-2:] == [f"{SYSTEMS}/old test", f"{SYSTEMS}/old boot"]
    desk.shell("n1", "rm /run/hooks/boot-new")
    assert switch(desk, "n1") == [("updated", False, "")]
    assert profile()[0] == "system-2-link"
    assert switch(desk, "n1") == [("unchanged", False, "")]


@pytest.mark.parametrize("state", ["updated", "rolled-back"])
def test_what_a_full_partition_left_of_the_boot_loaders_file_does_not_keep_it_from_being_installed(
    desk, profile, state
):
    """NixOS's installer makes loader.tmp, and fails for ever where it is there already."""
    left = "/run/hooks/esp/loader/loader.tmp"
    full = f"[ ! -e {left} ] || exit 1; touch {left}"
    desk.shell(
        "n1", f"mkdir -p /run/hooks/esp/loader; touch {left}; echo '{full}' >/run/hooks/boot-old"
    )
    ends = "" if state == "updated" else "; exit 1"
    desk.shell("n1", f"echo '{full}{ends}' >/run/hooks/boot-new")
    assert switch(desk, "n1") == [(state, False, "")]
    if state == "rolled-back":
        desk.shell("n1", f"echo 'touch {left}; exit 1' >/run/hooks/boot-old")
        assert "could not be installed again: make room" in switch(desk, "n1")[0][2]
        desk.shell("n1", f"test ! -e {left}")


def test_while_the_boot_loader_is_installed_copies_of_its_entries_are_on_the_disk(desk, profile):
    """NixOS's installer deletes entries before it writes theirs: a power cut between left an empty
    menu, which the VM test update-power-cut found.
    """
    entries = "/run/hooks/esp/loader/entries"
    desk.shell(
        "n1",
        f"mkdir -p {entries}; echo old >{entries}/nixos-a1.conf;"
        f" echo tried >{entries}/nixos-b2+2-1.conf;"
        f" echo bad >{entries}/nixos-c3+0-3.conf; echo left >{entries}/nixos-d4.conf_x.tmp;"
        f" echo 'rm {entries}/nixos-*; ls {entries} >/run/during; cat {entries}/* >>/run/during;"
        f" echo new >{entries}/nixos-e5+3.conf' >/run/hooks/boot-new",
    )
    assert switch(desk, "n1") == [("updated", False, "")]
    assert desk.shell("n1", "cat /run/during").split() == [
        "kept-a1.conf",
        "kept-b2.conf",
        "old",
        "tried",
    ]
    assert desk.shell("n1", f"ls {entries}").split() == ["nixos-e5+3.conf"]


def test_the_timer_is_armed_until_the_boot_loader_is_installed(desk, profile):
    desk.shell("n1", "echo 'ls /run/units >/run/armed' >/run/hooks/boot-new")
    assert switch(desk, "n1") == [("updated", False, "")]
    assert "nixwulf-rollback.timer.ActiveState" in desk.shell("n1", "cat /run/armed; ls /run/units")
    assert "nixwulf-rollback.timer.ActiveState" not in desk.shell("n1", "ls /run/units")


@pytest.mark.parametrize("last", ["start", "look", "finish"])
def test_when_the_driver_is_killed_all_of_the_old_system_comes_back(desk, profile, last):
    """In 'finish' it is killed while the boot loader is installed: the profile is the new one."""
    desk.shell("n1", "echo 'sleep 20; exit 1' >/run/hooks/boot-new")
    connection = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)["n1"].fresh()
    for mode in ("start", "look", "finish")[: ("start", "look", "finish").index(last) + 1]:
        words = (mode, "n1", f"{SYSTEMS}/new", "12")
        try:
            connection.script(_SCRIPT, *words, timeout_s=5)
        except NixwulfError:
            assert mode == "finish"
            assert profile()[0] == "system-2-link"
        time.sleep(0.5)
    deadline = time.monotonic() + 60
    while record(desk, "n1", "switch")[-1:] != [f"{SYSTEMS}/old boot"] and last == "finish":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    # The script of 'finish' lives on without its driver; it ends before the next test begins.
    ended = "start --no-block nixwulf-rollback.service"
    while last == "finish" and ended not in record(desk, "n1", "systemctl"):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    while current(desk, "n1") != f"{SYSTEMS}/old":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert profile() == ["system-1-link", "system", "system-1-link"]


def test_a_node_whose_power_was_cut_while_it_kept_a_system_ends_on_the_one_that_it_boots(
    desk, profile
):
    """What a reboot leaves: no unit, nothing of /run, the old system, and the profile as it was."""
    desk.shell(
        "n1",
        f"cd /nix/var/nix/profiles; ln -s {SYSTEMS}/new system-2-link;"
        " ln -sfn system-2-link system; rm -rf /run/units/* /run/nixwulf-update",
    )
    connection = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)["n1"].fresh()

    def look() -> str:
        return connection.script(_SCRIPT, "look", "n1", f"{SYSTEMS}/new", timeout_s=60)

    assert look() == "state rolling-back\n"
    deadline = time.monotonic() + 60
    while (answer := look()) == "state rolling-back\n":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert answer == "state rolled-back\n"
    assert profile() == ["system-1-link", "system", "system-1-link"]
    assert record(desk, "n1", "switch")[-2:] == [f"{SYSTEMS}/old test", f"{SYSTEMS}/old boot"]


def test_a_node_whose_power_was_cut_while_it_kept_a_system_may_have_booted_that_one(desk, profile):
    """What such a reboot leaves: no unit, nothing of /run, and the new system everywhere."""
    desk.shell(
        "n1",
        f"cd /nix/var/nix/profiles; ln -s {SYSTEMS}/new system-2-link;"
        f" ln -sfn system-2-link system; ln -sfn {SYSTEMS}/new /run/current-system;"
        " rm -rf /run/units/* /run/nixwulf-update",
    )
    connection = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)["n1"].fresh()
    answer = connection.script(_SCRIPT, "finish", "n1", f"{SYSTEMS}/new", timeout_s=60)
    assert answer.splitlines()[-1] == "state updated"


def without_nix(desk):
    """The desk's PATH has no nix."""
    (desk.folder / "bin" / "nix").unlink()
    own = [Path(place) for place in desk.environment["PATH"].split(":")]
    kept = [str(place) for place in own if not (place / "nix").exists()]
    return {**desk.environment, "PATH": ":".join(kept)}


def rollback(desk, *more):
    return desk.nixwulf("update", "--cluster", desk.cluster(), "--node", "n1", "--rollback", *more)


def test_a_node_goes_back_to_its_previous_generation_by_choice_and_without_a_nix_here(
    desk, profile
):
    assert switch(desk, "n1") == [("updated", False, "")]
    desk.environment.update(without_nix(desk))
    done = rollback(desk)
    assert done.returncode == 0, done.stderr
    made = desk.shell("n1", "stat -c %y /nix/var/nix/profiles/system-1-link").partition(".")[0]
    assert done.stdout == f"Node 'n1' runs generation 1 of {made} again.\n"
    assert current(desk, "n1") == f"{SYSTEMS}/old"
    assert profile() == ["system-1-link", "system", "system-1-link", "system-2-link"]
    assert record(desk, "n1", "switch")[-2:] == [f"{SYSTEMS}/old test", f"{SYSTEMS}/old boot"]
    (timer,) = [line for line in record(desk, "n1", "systemd-run") if f" sh {SYSTEMS}/new " in line]
    assert timer.startswith("--quiet --unit=nixwulf-rollback --on-active=300 ")
    again = rollback(desk)
    assert again.returncode == 3
    assert "'n1' has no generation before 'system-1-link'; update it to the " in again.stderr
    assert "No node was switched" in again.stderr
    assert current(desk, "n1") == f"{SYSTEMS}/old"


def test_of_generations_that_were_deleted_in_between_the_last_that_is_there_is_the_previous_one(
    desk, profile
):
    place = "/nix/var/nix/profiles"
    desk.shell("n1", f"cd {place}; for n in 2 9; do ln -s {SYSTEMS}/old system-$n-link; done")
    desk.shell("n1", f"cd {place}; ln -s {SYSTEMS}/new system-10-link; ln -s x system-11-link")
    desk.shell("n1", f"ln -sfn system-10-link {place}/system")
    desk.shell("n1", f"ln -sfn {SYSTEMS}/new /run/current-system")
    done = rollback(desk)
    assert done.returncode == 0, done.stderr
    assert "runs generation 9 of " in done.stdout
    assert profile()[0] == "system-9-link"


def test_a_node_that_cannot_go_back_by_choice_keeps_both_generations(desk, profile):
    assert switch(desk, "n1") == [("updated", False, "")]
    desk.shell("n1", "echo 'echo No space left on device; exit 1' >/run/hooks/boot-old")
    done = rollback(desk)
    assert done.returncode == 1
    assert (
        "Node 'n1' went back to its old system: No space left on device; see what else there is "
        "by 'nixos-rebuild list-generations' there." in done.stderr
    )
    assert current(desk, "n1") == f"{SYSTEMS}/new"
    assert profile() == ["system-2-link", "system", "system-1-link", "system-2-link"]


def test_an_interface_that_a_node_does_not_have_is_named_before_anything_is_built(desk):
    layout = {"disks": [], "labels": [], "modules": [], "interfaces": []}
    out = {"out": f"{SYSTEMS}/new", "drv": "/nix/store/new.drv", "layout": layout}
    (desk.folder / "systems.json").write_text(json.dumps({"own-n1": out, "own-n2": out}))
    file, (place, *_) = desk.cluster(), desk.running.lab.cluster.nodes[0].fabrics.values()
    file.write_text(file.read_text().replace(f'"{place.interface}"', '"enp77s0"', 1))
    done = desk.nixwulf("update", "--cluster", file)
    assert done.returncode == 3
    assert "has no interface 'enp77s0'" in done.stderr
    assert not any(call.startswith("build") for call in desk.calls("nix"))


OTHERS_FAIL = "echo '{} loaded activating auto-restart x' >/run/units/failed"


@pytest.mark.parametrize(
    "before",
    [
        OTHERS_FAIL.format("opensm.service"),
        "printf 'NRestarts=0\\nId=a\\n\\nId=opensm.service\\nNRestarts=7\\n' >/run/units/restarts",
    ],
)
def test_a_unit_that_failed_before_does_not_send_a_node_back(desk, before):
    desk.shell("n1", before)
    hook = OTHERS_FAIL.format("opensm.service")
    desk.shell("n1", f"cat >/run/hooks/new <<'END'\n{hook}; exit 4\nEND")
    assert switch(desk, "n1") == [("updated", False, "")]


def test_a_unit_that_fails_beside_one_that_failed_before_sends_a_node_back(desk):
    desk.shell("n1", OTHERS_FAIL.format("opensm.service"))
    hook = "echo 'llama.service loaded failed failed x' >>/run/units/failed; exit 4"
    desk.shell("n1", f"cat >/run/hooks/new <<'END'\n{hook}\nEND")
    ((state, _, _),) = switch(desk, "n1")
    assert state == "rolled-back"


# An error of the switch's own, once.
ONCE = "[ -e /run/parts/tried ] || { touch /run/parts/tried; exit 1; }"


def test_an_activation_that_ends_in_an_error_of_its_own_is_tried_again(desk):
    desk.shell("n1", f"echo '{ONCE}' >/run/hooks/new")
    assert switch(desk, "n1") == [("updated", False, "")]
    assert record(desk, "n1", "switch") == [
        *[f"{SYSTEMS}/new test"] * 2,
        f"{SYSTEMS}/new boot",
    ]


def test_going_back_is_tried_again_where_it_ends_in_an_error_of_its_own(desk):
    desk.shell("n1", FAILS)
    desk.shell("n1", f"echo '{ONCE}' >/run/hooks/old")
    ((state, _, _),) = switch(desk, "n1")
    assert state == "rolled-back"
    assert record(desk, "n1", "switch") == [
        f"{SYSTEMS}/new test",
        *[f"{SYSTEMS}/old test"] * 2,
    ]


def test_an_activation_that_ends_in_another_way_sends_a_node_back(desk):
    desk.shell("n1", "echo 'exit 1' >/run/hooks/new")
    ((state, _, _),) = switch(desk, "n1")
    assert state == "rolled-back"


# As the flake writes them: tests/nix/test_fabric_services.py compares.
RULE = 'SUBSYSTEM=="net", KERNEL=="{}", TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{}.service"'


def test_new_services_of_an_interface_that_is_there_are_started_or_named(desk):
    rules = "etc/udev/rules.d"
    new = [("lo", "llama"), ("lo", "fails"), ("lo", "runs"), ("lo", "old"), ("enp77s0", "absent")]
    lines = "\n".join(RULE.format(*pair) for pair in new)
    desk.shell(
        "n1",
        f"mkdir -p {SYSTEMS}/new/{rules} {SYSTEMS}/old/{rules}\n"
        f"cat >{SYSTEMS}/new/{rules}/99-local.rules <<'END'\nACTION==\"add\"\n{lines}\nEND\n"
        f"echo '{RULE.format('lo', 'old')}' >{SYSTEMS}/old/{rules}/99-local.rules\n"
        "echo active >/run/units/runs.service.ActiveState\n"
        "echo 'echo started >>/run/records/llama' >/run/units/llama.command\n"
        "echo 'exit 1' >/run/units/fails.command",
    )
    done = desk.nixwulf("update", "--cluster", desk.cluster(), "--node", "n1")
    assert done.returncode == 0, done.stderr
    assert record(desk, "n1", "llama") == ["started"]
    assert "fails.service" in done.stdout
    assert "'ssh n1 systemctl restart fails.service'" in done.stdout
    starts = [line for line in record(desk, "n1", "systemctl") if line.startswith("start ")]
    assert starts == ["start fails.service", "start llama.service"]


def test_a_system_of_another_disk_is_not_activated(desk):
    device = "/dev/disk/by-partlabel/disk-n1-0a1b2c3d-root"
    desk.shell(
        "n1",
        f"mkdir {SYSTEMS}/new/etc; echo '{device} / ext4 defaults 0 1' >{SYSTEMS}/new/etc/fstab",
    )
    ((state, _, words),) = switch(desk, "n1")
    assert state == "refused"
    assert (
        f"The new system of 'n1' mounts '/' from '{device}', which is not there; set its disk back "
        "in the cluster file, or deploy it again." in words
    )
    (shown,) = re.findall(r"update: `([^`]*)`", Path("docs/how-to/replace-a-disk.md").read_text())
    assert re.search(".*".join(map(re.escape, shown.split("..."))), words)
    assert record(desk, "n1", "systemd-run") == []


def test_a_full_boot_partition_is_named_before_anything_is_activated(desk):
    desk.shell(
        "n1", f"mkdir -p /run/esp {SYSTEMS}/new/etc; mount -t tmpfs -o size=2m tmpfs /run/esp"
    )
    try:
        desk.shell("n1", f"echo 'LABEL=esp /run/esp vfat defaults 0 2' >{SYSTEMS}/new/etc/fstab")
        desk.shell("n1", f"cd {SYSTEMS}/new; rm initrd; head -c 4000000 /dev/zero >initrd")
        ((state, _, words),) = switch(desk, "n1")
        assert state == "refused"
        assert "'/run/esp' of 'n1' has 2 MB left, and an update needs 4 MB; delete old" in words
        desk.shell("n1", f"cd {SYSTEMS}/new; rm initrd; ln -s /run/parts/initrd initrd")
        assert switch(desk, "n1") == [("updated", False, "")]
    finally:
        desk.shell("n1", "umount /run/esp")


def test_what_the_boot_loader_deletes_first_is_room(desk, profile):
    """The oldest generation's kernel leaves the partition before the new one's is written."""
    make = f"""
      set -e
      mkdir -p /run/esp {SYSTEMS}/new/etc/nixwulf {SYSTEMS}/oldest
      mount -t tmpfs -o size=7m tmpfs /run/esp
      mkdir -p /run/esp/EFI/nixos
      for system in oldest old new; do
        mkdir -p /nix/store/$system-initrd
        (echo $system; head -c 3000000 /dev/zero) >/nix/store/$system-initrd/initrd
        ln -sfn /nix/store/$system-initrd/initrd {SYSTEMS}/$system/initrd
      done
      touch {SYSTEMS}/oldest/kernel
      for system in oldest old; do
        cp /nix/store/$system-initrd/initrd /run/esp/EFI/nixos/$system-initrd-initrd.efi
      done
      cd /nix/var/nix/profiles
      ln -s {SYSTEMS}/old system-10-link
      ln -sfn {SYSTEMS}/oldest system-1-link
      ln -sfn system-10-link system
      echo 'LABEL=esp /run/esp vfat defaults 0 2' >{SYSTEMS}/new/etc/fstab
      echo 3 >{SYSTEMS}/new/etc/nixwulf/boot-generations
    """
    desk.shell("n1", make)
    try:
        ((state, _, words),) = switch(desk, "n1")
        assert state == "refused"
        assert "'/run/esp' of 'n1' has 1 MB left, and an update needs 3 MB; delete old" in words
        desk.shell("n1", f"echo 2 >{SYSTEMS}/new/etc/nixwulf/boot-generations")
        assert switch(desk, "n1") == [("updated", True, "")]
    finally:
        desk.shell("n1", "umount /run/esp")


def test_update_builds_once_copies_to_all_and_switches_all(desk):
    done = desk.nixwulf("update", "--cluster", desk.cluster())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Node 'n1' is updated.", "Node 'n2' is updated."]
    calls = [" ".join(call.split()[:1]) for call in desk.calls("nix")]
    assert calls == ["eval", "config", "config", "build", "build", "copy", "copy"]
    asked, build = [call for call in desk.calls("nix") if call.startswith("build ")]
    assert asked == f"{build} --dry-run"
    assert build.endswith("--no-link --print-build-logs /nix/store/new.drv^out")
    copies = sorted(call.rpartition("--to ")[2] for call in desk.calls("nix") if "--to " in call)
    assert copies == [f"ssh-ng://n1 {SYSTEMS}/new", f"ssh-ng://n2 {SYSTEMS}/new"]


def test_update_of_one_node_leaves_the_others(desk):
    done = desk.nixwulf("update", "--cluster", desk.cluster(), "--node", "n2")
    assert done.returncode == 0, done.stderr
    assert current(desk, "n1") == f"{SYSTEMS}/old"


def test_a_dry_run_prints_the_commands_and_changes_nothing(desk):
    done = desk.nixwulf("update", "--cluster", desk.cluster(), "--dry-run")
    assert done.returncode == 0, done.stderr
    copy = "nix copy --extra-experimental-features 'nix-command flakes' --no-check-sigs --to "
    assert f"{copy}ssh-ng://n1 " in done.stdout
    assert record(desk, "n1", "systemd-run") == []
    assert not any(call.startswith("build") for call in desk.calls("nix"))


def test_when_a_node_lacks_its_system_none_is_switched(desk):
    desk.program(
        "nix",
        f'printf "%s\\n" "$*" >>{desk.folder}/nix.calls\ncase "$*" in\n'
        '*ssh-ng://n2*) echo "error: No space left on device" >&2; exit 1 ;;\n'
        f"*eval*) cat {desk.folder}/systems.json ;;\nconfig*) echo x86_64-linux ;;\nesac",
    )
    done = desk.nixwulf("update", "--cluster", desk.cluster())
    assert done.returncode == 3
    assert (
        "Node 'n2' has not got its system: No space left on device; make room there: 'ssh n2 "
        "nix-collect-garbage --delete-older-than 30d'." in done.stderr
    )
    assert "No node was switched" in done.stderr
    assert record(desk, "n1", "systemd-run") == []


def test_a_node_that_is_being_measured_is_not_updated(desk, tmp_path):
    connection = connections(desk.running.lab.cluster, desk.running.lab.ssh_config)["n1"]
    process = OwnedProcess.start(connection, "server", ["sleep", "300"], {}, tmp_path / "run-1")
    try:
        done = desk.nixwulf("update", "--cluster", desk.cluster())
    finally:
        process.stop()
    assert done.returncode == 3
    assert "Node 'n1' is in use: " in done.stderr
    assert "run-1-server; wait for the end of the sweep, or stop what " in done.stderr
    assert not any(call.startswith("build") for call in desk.calls("nix"))


def test_a_build_that_fails_changes_no_node(desk):
    desk.program(
        "nix",
        'case "$*" in\n*--dry-run) ;;\nbuild*) echo "error: builder failed" >&2; exit 1 ;;\n'
        f"*eval*) cat {desk.folder}/systems.json ;;\nconfig*) echo x86_64-linux ;;\nesac",
    )
    done = desk.nixwulf("update", "--cluster", desk.cluster())
    assert done.returncode == 1
    assert "error: builder failed" in done.stderr
    assert "The systems are not built, and no node is changed: nix ended with 1" in done.stderr


def test_a_failed_node_is_named_and_so_is_that_nodes_differ(desk):
    desk.shell("n1", FAILS)
    done = desk.nixwulf("update", "--cluster", desk.cluster())
    assert done.returncode == 1
    assert done.stderr.endswith(
        "Node 'n1' went back to its old system: 'llama.service' failed, see 'journalctl --boot "
        "--unit=llama.service' there; correct the configuration and update again.\n"
        "The nodes now run different systems: update again.\n"
    )
    assert done.stdout == "Node 'n2' is updated.\n"


def test_a_node_that_does_not_answer_is_named_before_anything_is_built(desk):
    done = desk.nixwulf("update", "--cluster", desk.cluster(ssh=("n1", "nowhere")))
    assert done.returncode == 3
    assert "Node 'n2' cannot be reached" in done.stderr
    assert not any(call.startswith("build") for call in desk.calls("nix"))
