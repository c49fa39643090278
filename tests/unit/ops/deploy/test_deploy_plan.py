"""What deploying would do: decided from facts alone, and safe by construction."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machine_factory import (
    DEBIAN,
    DISK,
    INSTALLER,
    MAC,
    NVME,
    PI,
    answer,
    cluster_of,
    machine,
    plan_of,
    platform,
)
from nixwulf.core.errors import InputError
from nixwulf.ops.deploy.flake import Layout
from nixwulf.ops.deploy.machine import parse_machine
from nixwulf.ops.deploy.plan import check_deployable, facts_text, new_to_others, plan_text

CLUSTER = cluster_of("fw1", "fw2")
OTHER_DISK = "/dev/disk/by-id/ata-OTHER"


def reasons(base=DEBIAN, facts=None, expected="debian", of=CLUSTER, **changes):
    """Why the first of two nodes is refused when it is this machine."""
    plan = plan_of(
        {"fw1": machine(base, **changes)}, facts, of, expected={"fw1": expected or "fw1"}
    )
    (node,) = plan.nodes
    assert node.installs == (bool(node.command) and not node.refusals)
    return list(node.refusals)


def test_a_machine_that_is_as_expected_is_installed():
    assert reasons() == []
    assert reasons(expected=None, hostname="fw1.lan") == []
    assert reasons(INSTALLER, expected=None) == []


# no output: what the driver's own script found, changed on purpose
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "aarch64"}, "is a aarch64-linux machine and its platform"),
        ({"hostname": "fw2"}, "answers as 'fw2', which is another node of mine.toml"),
        ({"base": INSTALLER, "hostname": "FW2"}, "which is another node of mine.toml"),
        ({"expected": None}, "add '--expect fw1=debian'"),
        ({"expected": "ubuntu"}, "add '--expect fw1=debian'"),
        ({"disk_ids": f"{OTHER_DISK} /dev/nvme0n1"}, f"it has: {OTHER_DISK} (ACME 1TB, 1000.2 GB)"),
        ({"disk_ids": ""}, "it has: /dev/nvme0n1, which has no id (ACME 1TB, 1000.2 GB)"),
        ({"disks": ""}, "it has: none"),
        (
            {"disks": "", "programs": "/bin/tar\n/bin/cpio\n/bin/setsid\n/bin/ip\n/bin/awk"},
            "it has no lsblk",
        ),
        ({"disks": [NVME | {"size": 15_900_000_000}]}, "of 15.9 GB, and needs 16 GB"),
        ({"disks": [NVME | {"ro": True}]}, "can only read its disk"),
        ({"base": INSTALLER, "disks": [NVME]}, "runs its installer from the disk"),
        ({"user": "me"}, "reached as 'me', who cannot become root without a password"),
        ({"firmware": "BIOS"}, "booted by BIOS, and what is installed boots by UEFI"),
        ({"secure_boot": "1"}, "has Secure Boot on"),
        ({"kexec_disabled": "1"}, "a kernel that refuses kexec"),
        ({"lockdown": "none [integrity] confidentiality"}, "a kernel that refuses kexec"),
        ({"kexec_disabled": ""}, "a kernel without kexec"),
        ({"memory": "MemTotal: 3400000 kB"}, "has 3.5 GB of memory, and kexec"),
        ({"programs": "/bin/tar\n/bin/setsid\n/bin/ip\n/bin/awk\n/bin/lsblk"}, "lacks cpio, which"),
    ],
)
def test_a_machine_is_refused_for_one_reason_that_says_what_to_do(changes, words):
    (reason,) = reasons(**changes)
    assert words in reason
    assert reason.startswith("Node 'fw1' ")
    assert reason.endswith(".")


def test_a_product_is_matched_by_the_platforms_expression():
    facts = platform(product="^NucBox")
    assert reasons(facts=facts) == []
    (reason,) = reasons(facts=facts, product="Desktop")
    assert "is a 'Desktop', and the platform 'generic-x86_64' is '^NucBox'" in reason
    (reason,) = reasons(facts=facts, product="")
    assert "is a 'machine without a product name'" in reason


def test_a_machine_that_runs_another_clusters_system_is_refused_unless_that_is_expected():
    (reason,) = reasons(cluster="office")
    assert reason == (
        "Node 'fw1' runs a system of the cluster 'office', and mine.toml describes 'mine'; correct "
        "its ssh address, or where it leaves that cluster, or that cluster was renamed, add "
        "'--expect-cluster office'."
    )
    own = plan_of({"fw1": machine(hostname="fw1", cluster="mine")})
    assert own.refusals == []
    other = {"fw1": machine(hostname="fw1", cluster="office")}
    assert plan_of(other, expected_cluster="office").refusals == []
    assert len(plan_of(other, expected_cluster="home").refusals) == 1


def test_an_installer_needs_no_kexec():
    poor = {"kexec_disabled": "", "memory": "MemTotal: 1000000 kB", "programs": "/bin/lsblk"}
    assert reasons(INSTALLER, expected=None, **poor) == []


@pytest.mark.parametrize(("user", "kexec"), [("root", False), ("sudo", True)])
def test_a_node_never_takes_another_installer_than_the_flakes(user, kexec):
    """Where somebody else than root is reached, nixos-anywhere looks for the installer itself."""
    (plan,) = plan_of({"fw1": machine(INSTALLER, user=user)}).nodes
    assert ("--kexec" in plan.command) == kexec
    assert plan.command[-1].startswith("kexec,") == kexec
    assert bool(plan.build) == kexec


def test_a_disk_that_a_first_attempt_left_mounted_is_no_reason():
    left = NVME | {"children": [{"name": "p", "type": "part", "mountpoint": "/mnt/boot"}]}
    assert reasons(INSTALLER, expected=None, disks=[left]) == []


def test_a_node_without_a_disk_is_refused_with_the_disks_there_are():
    (reason,) = reasons(of=cluster_of("fw1", "fw2", disk=None))
    assert reason == (
        f"Node 'fw1' has no disk in the cluster file; add one of: {DISK} (ACME 1TB, 1000.2 GB)."
    )


def test_two_nodes_that_are_one_machine_are_both_refused():
    same = machine(INSTALLER)
    plan = plan_of({"fw1": same, "fw2": same})
    assert [node.refusals for node in plan.nodes] == [
        ("Node 'fw1' is the same machine as 'fw2'; correct its ssh address.",),
        ("Node 'fw2' is the same machine as 'fw1'; correct its ssh address.",),
    ]


def test_the_machine_at_which_one_sits_is_refused():
    own = plan_of({"fw1": machine(hostname="fw1")}, local_machine=("b-1", "fw1"))
    sentence = "Node 'fw1' is the same machine at which you sit; correct its ssh address."
    assert own.refusals == [sentence]
    other = plan_of({"fw1": machine(hostname="fw1")}, local_machine=("b-2", "fw1"))
    assert other.refusals == []
    unknown = plan_of({"fw1": machine(hostname="fw1", boot="")}, local_machine=("", "fw1"))
    assert unknown.refusals == []


def test_two_installers_of_one_image_are_two_machines():
    plan = plan_of({"fw1": machine(INSTALLER), "fw2": machine(INSTALLER, boot="b-2")})
    assert len(plan.to_install) == 2


@pytest.mark.parametrize("formatted", [(), (OTHER_DISK,), (DISK, OTHER_DISK)])
def test_the_flake_must_format_the_disk_of_the_cluster_file_and_no_other(formatted):
    plan = plan_of({"fw1": machine(INSTALLER)}, layouts={"mine-fw1": Layout(formatted)})
    assert plan.to_install == ()
    (reason,) = plan.refusals
    assert reason.endswith("; make them agree.")
    good = plan_of({"fw1": machine(INSTALLER)}, layouts={"mine-fw1": Layout((DISK,))})
    assert good.refusals == []


LABELS = ("disk-mini1-dadbdf69-boot", "disk-mini1-dadbdf69-root")
# Two disks with these names. What lsblk calls 'loop' is called 'disk' here, as a machine's disk is.
TWO_DISKS = Path("tests/fixtures/lsblk/equal-labels.json").read_text("utf-8")
TWO_DISKS = TWO_DISKS.replace('"type": "loop"', '"type": "disk"').replace("67108864", "67108864000")


def with_two_disks(labels, wiped="/dev/loop0"):
    # no output: links of a node that is made up
    links = f"{DISK} {wiped}\n{OTHER_DISK} /dev/loop{'1' if wiped.endswith('0') else '0'}"
    found = parse_machine(answer(INSTALLER, disks=TWO_DISKS, disk_ids=links))
    return plan_of({"fw1": found}, layouts={"mine-fw1": Layout((DISK,), labels)})


@pytest.mark.parametrize(("wiped", "other"), [("/dev/loop0", "loop1"), ("/dev/loop1", "loop0")])
def test_another_disk_with_the_names_of_the_new_partitions_is_refused(wiped, other):
    plan = with_two_disks(LABELS, wiped)
    assert plan.to_install == ()
    assert plan.refusals == [
        "Node 'fw1' has another disk with 'disk-mini1-dadbdf69-boot' and 'disk-mini1-dadbdf69-root'"
        f", {OTHER_DISK} (unnamed, 67.1 GB), which may be overwritten or booted in place of "
        f"'{DISK}'; remove that disk, or rename its partitions: "
        f"'sfdisk --part-label /dev/{other} 1 old-1; sfdisk --part-label /dev/{other} 2 old-2'."
    ]


def test_one_equal_name_is_enough():
    (reason,) = with_two_disks(LABELS[1:]).refusals
    assert "has another disk with 'disk-mini1-dadbdf69-root', " in reason
    assert reason.endswith("'sfdisk --part-label /dev/loop1 2 old-2'.")


def test_other_disks_may_have_partitions_of_other_names():
    """So has the disk of a node that was installed on another one before."""
    plan = with_two_disks(("disk-mini1-0a1b2c3d-boot", "disk-mini1-0a1b2c3d-root"))
    assert plan.refusals == []
    assert len(plan.to_install) == 1


def test_nobody_is_locked_out():
    plan = plan_of({"fw1": machine(INSTALLER)}, locked_out="mine.toml: none of your keys.")
    assert plan.to_install == ()
    assert plan.refusals == ["mine.toml: none of your keys."]
    away = plan_of({"fw1": "it does not answer"}, locked_out="mine.toml: none of your keys.")
    assert away.refusals == []


def test_a_pi_is_installed_from_its_installer_only():
    facts = platform("image")
    pi, booted = machine(PI), machine(INSTALLER, architecture="aarch64", firmware="device tree")
    (by_hand,) = plan_of({"fw1": pi}, facts).nodes
    assert not by_hand.installs
    assert by_hand.refusals == ()
    assert by_hand.by_hand == (
        "it has to boot its installer's image, because kexec hangs there",
        "nix build --out-link image-generic-x86_64 '.#packages.aarch64-linux.image-generic-x86_64'",
        "write the file in image-generic-x86_64/sd-image/ (unpacked by 'zstd -d') to an SD card "
        f"that is not {DISK}",
        "boot fw1 from it and let it have the address in 'root@192.168.1.10'",
        "nixwulf deploy --cluster mine.toml --node fw1",
    )
    (ready,) = plan_of({"fw1": booted}, facts).nodes
    assert ready.installs
    assert ready.command[-2:] == ("--phases", "disko,install,reboot")
    sudo = machine(INSTALLER, architecture="aarch64", firmware="device tree", user="sudo")
    (refused,) = plan_of({"fw1": sudo}, facts).nodes
    assert "set its ssh to 'root@192.168.1.10'" in refused.refusals[0]


def test_a_mac_is_only_checked():
    (mac,) = plan_of({"fw1": machine(MAC)}, platform("check")).nodes
    assert not mac.installs
    assert mac.refusals == ()
    assert mac.by_hand == (
        "nothing is installed from here, because only Apple installs macOS",
        "ssh root@192.168.1.10, and there, in a checkout of the flake:",
        "nix build --out-link system .#darwinConfigurations.mine-fw1.system",
        "sudo ./system/sw/bin/darwin-rebuild switch --flake .#mine-fw1",
    )


def test_a_platform_of_which_nothing_is_known_is_not_installed():
    facts = {"name": "odd", "description": "odd", "system": "x86_64-linux"}
    (node,) = plan_of({"fw1": machine()}, facts).nodes
    assert not node.installs
    assert node.by_hand == (
        "nothing is installed from here, because nobody has installed a odd yet",
    )


def test_a_cluster_without_deploy_says_what_to_add():
    with pytest.raises(InputError, match=r"mine.toml: it has no \[deploy\].*add '\[deploy\]'"):
        check_deployable(cluster_of("fw1", keys=()))
    check_deployable(CLUSTER)


def test_the_plans_text_is_what_people_read():
    machines = {
        "fw1": machine(),
        "fw2": "Node 'fw2' cannot be reached: no route",
        "fw3": machine(INSTALLER, boot="b-3", disk_ids=""),
    }
    # no output: the plan's own text
    assert (
        plan_text(plan_of(machines, expected={"fw1": "debian"}))
        == f"""\
fw1  root@192.168.1.10  generic-x86_64: installed over ssh (kexec)
  now          'debian' runs Debian GNU/Linux 12 (bookworm), x86_64-linux, reached as root
  machine      NucBox G3, UEFI 1.20, Secure Boot off, 16.5 GB memory, kexec allowed
  WIPES        {DISK} (ACME 1TB, 1000.2 GB, now mounted at /, /boot/efi)
  build        nix build --extra-experimental-features 'nix-command flakes' --out-link \
runs/kexec-generic-x86_64.tar '.#packages.x86_64-linux.kexec-generic-x86_64'
  command      nixos-anywhere --flake '.#mine-fw1' --target-host root@192.168.1.10 --kexec \
runs/kexec-generic-x86_64.tar --copy-host-keys --print-build-logs --phases \
kexec,disko,install,reboot

fw2  root@192.168.1.11  generic-x86_64: installed over ssh (kexec)
  not reached  Node 'fw2' cannot be reached: no route
  WIPES        {DISK} (not seen)
  build        nix build --extra-experimental-features 'nix-command flakes' --out-link \
runs/kexec-generic-x86_64.tar '.#packages.x86_64-linux.kexec-generic-x86_64'
  command      nixos-anywhere --flake '.#mine-fw2' --target-host root@192.168.1.11 --kexec \
runs/kexec-generic-x86_64.tar --copy-host-keys --print-build-logs --phases \
kexec,disko,install,reboot

fw3  root@192.168.1.12  generic-x86_64: installed over ssh (kexec)
  now          'nixwulf-installer' runs NixOS 26.11 (Zokor) (an installer), x86_64-linux, \
reached as root
  machine      NucBox G3, UEFI 1.20, Secure Boot off, 16.5 GB memory, kexec allowed
  REFUSED      Node 'fw3' has no disk '{DISK}'; it has: /dev/nvme0n1, which has no id \
(ACME 1TB, 1000.2 GB); /dev/sda, which has no id (Stick, 31.9 GB).
  command      nixos-anywhere --flake '.#mine-fw3' --target-host root@192.168.1.12 \
--copy-host-keys --print-build-logs --phases disko,install,reboot"""
    )


def test_nodes_that_were_there_before_have_to_be_updated_to_let_a_new_one_in():
    """Their firewall lets in the addresses that the cluster file had when they were built."""
    names = [node.name for node in CLUSTER.nodes]
    assert new_to_others(CLUSTER, names) is None
    assert new_to_others(CLUSTER, []) is None
    words = new_to_others(CLUSTER, names[:1])
    assert words.startswith(f"{', '.join(names[1:])} drop the packets of a node that is new")
    assert words.endswith(f"run 'nixwulf update --cluster {CLUSTER.source}'.")


def test_the_facts_text_lists_every_disk_by_the_id_to_write_down():
    node = dataclasses.replace(CLUSTER.nodes[0], disk=None)
    # no output: the driver's own text
    assert (
        facts_text(node, machine(INSTALLER))
        == f"""\
fw1  root@192.168.1.10  generic-x86_64
  now          'nixwulf-installer' runs NixOS 26.11 (Zokor) (an installer), x86_64-linux, \
reached as root
  machine      NucBox G3, UEFI 1.20, Secure Boot off, 16.5 GB memory, kexec allowed
  disk         {DISK} (ACME 1TB, 1000.2 GB)
  disk         /dev/disk/by-id/usb-Stick (Stick, 31.9 GB, mounted at /iso)"""
    )


def test_what_a_machine_says_cannot_steer_the_terminal():
    text = facts_text(CLUSTER.nodes[0], machine(product="\x1b[2JNuc"))
    assert "\x1b" not in text


# no output: sections of the driver's own script
sections = st.fixed_dictionaries(
    {},
    optional={
        "hostname": st.sampled_from(["fw1", "fw2", "fw3", "debian", ""]),
        "architecture": st.sampled_from(["x86_64", "aarch64"]),
        "user": st.sampled_from(["root", "sudo", "me"]),
        "firmware": st.sampled_from(["UEFI", "BIOS", ""]),
        "secure_boot": st.sampled_from(["0", "1", ""]),
        "kexec_disabled": st.sampled_from(["0", "1", ""]),
        "boot": st.sampled_from(["b-1", "b-2", "b-3", ""]),
        "disk_ids": st.sampled_from([DEBIAN["disk-ids"], INSTALLER["disk-ids"], "", OTHER_DISK]),
        "disks": st.sampled_from([DEBIAN["disks"], INSTALLER["disks"], [], ""]),
    },
)
bases = st.sampled_from([DEBIAN, INSTALLER, PI, MAC])
found = st.just("no answer") | st.builds(lambda base, new: machine(base, **new), bases, sections)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["fw1", "fw2", "fw3"]), found, min_size=1),
    st.sampled_from(["kexec", "image", "check"]),
    st.none() | st.sampled_from([(), (DISK,), (OTHER_DISK,)]),
    st.none() | st.just("locked out"),
)
def test_no_plan_wipes_what_it_should_not(machines, method, formatted, locked_out):
    cluster = cluster_of("fw1", "fw2", "fw3")
    disks = None if formatted is None else {f"mine-{n}": Layout(formatted) for n in machines}
    plan = plan_of(
        machines,
        platform(method),
        cluster,
        expected={"fw1": "debian"},
        layouts=disks,
        locked_out=locked_out,
    )
    assert [node.node.name for node in plan.nodes] == sorted(machines)
    refused = {node.node.name for node in plan.nodes if node.refusals}
    for node in plan.to_install:
        assert locked_out is None
        assert node.node.name not in refused
        assert node.machine is not None
        assert DISK in node.wiped.ids
        assert formatted in {None, (DISK,)}
        assert not node.by_hand
        assert node.command.count(f".#mine-{node.node.name}") == 1
        assert node.node.ssh in node.command
    for node in plan.nodes:
        assert all(isinstance(word, str) for word in node.command)
        assert node.command[:1] in {(), ("nixos-anywhere",)}
        assert node.wiped is None or node.installs
    assert all(reason.endswith(".") or reason == locked_out for reason in plan.refusals)
    text = plan_text(plan)
    assert text.count(" generic-x86_64: ") == len(machines)
    assert OTHER_DISK not in [line.split()[1] for line in text.splitlines() if " WIPES " in line]
