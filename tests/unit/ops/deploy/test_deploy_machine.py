"""Facts of machines that may be imaged."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine_factory import DEBIAN, DISK, INSTALLER, MAC, NVME, PI, answer, machine
from macos_tools import on_a_mac
from nixwulf.ops.deploy import machine as module
from nixwulf.ops.deploy.machine import Machine, parse_machine
from nixwulf.ops.survey import machines
from tool_outputs import fixture


def test_what_the_script_printed_on_a_machine_without_firmware_tables_is_understood():
    text = fixture("linux/machine.txt")
    found = parse_machine(text)
    assert (found.system, found.hostname, found.user) == ("x86_64-linux", "n1", "root")
    assert (found.nixos, found.installer, found.firmware) == (False, False, "BIOS")
    assert found.os == re.search(r'PRETTY_NAME="(.*)"', text)[1]
    assert found.memory == int(re.search(r"MemTotal: +(\d+) kB", text)[1]) * 1024
    listed = json.loads(text.partition("== disks\n")[2].partition("\n== ")[0])["blockdevices"]
    whole = [disk for disk in listed if disk["size"] and not disk["name"].startswith("zram")]
    assert [(disk.name, disk.size) for disk in found.disks] == [
        (f"/dev/{disk['name']}", disk["size"]) for disk in whole
    ]
    assert whole, "this machine has a disk"


def test_a_debian_is_understood():
    found = machine()
    assert (found.system, found.hostname, found.user) == ("x86_64-linux", "debian", "root")
    assert (found.os, found.installer) == ("Debian GNU/Linux 12 (bookworm)", False)
    assert (found.firmware, found.secure_boot, found.locked_down) == ("UEFI", False, False)
    assert found.kexec_disabled is False
    assert found.memory == 16106132 * 1024
    assert found.system_path == ""


def test_a_disk_is_known_by_its_own_ids_and_never_by_those_of_its_partitions():
    (disk,) = machine().disks
    assert disk.name == "/dev/nvme0n1"
    assert disk.words == "ACME 1TB, 1000.2 GB"
    assert disk.ids == ("/dev/disk/by-id/nvme-ACME_1TB_S1", "/dev/disk/by-id/nvme-eui.0025")
    assert disk.mountpoints == ("/", "/boot/efi")
    assert machine().disk(DISK) == disk
    assert machine().disk(f"{DISK}-part1") is None


def test_an_installer_is_known_by_its_variant():
    assert machine(INSTALLER).installer
    # hand-made: no live system is running here (form: os-release(5))
    assert not machine(INSTALLER, os_release="ID=debian\nVARIANT_ID=installer").installer
    assert machine(INSTALLER).system_path == "/nix/store/abc-nixos-system-installer"


def test_a_pi_has_a_device_tree_and_no_kexec():
    found = machine(PI)
    assert (found.system, found.firmware, found.user) == ("aarch64-linux", "device tree", "sudo")
    assert found.kexec_disabled is None
    assert found.secure_boot is None


def test_a_mac_is_understood():
    found = machine(MAC)
    assert (found.system, found.hostname) == ("aarch64-darwin", "mac1")
    assert found.memory == 512 * 2**30
    assert found.rdma_devices == ("rdma_en2",)
    assert found.disks == ()


def test_an_old_lsblk_writes_its_numbers_as_text():
    old = NVME | {"size": "1000204886016", "ro": "1", "rm": "0"}
    (disk,) = machine(disks=[old]).disks
    assert disk.size == 1000204886016
    assert disk.read_only


def test_what_is_no_disk_to_install_on_is_left_out():
    others = [
        {"name": "zram0", "size": 8, "type": "disk", "mountpoint": "[SWAP]"},
        {"name": "sr0", "size": 8, "type": "rom"},
        {"name": "loop0", "size": 8, "type": "loop"},
        {"name": "sdb", "size": 0, "type": "disk"},
    ]
    assert [disk.name for disk in machine(disks=[*others, NVME]).disks] == ["/dev/nvme0n1"]


# no output: damaged on purpose
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"blockdevices": 3}', "[" * 100_000])
def test_a_listing_that_is_none_gives_no_disks(text):
    assert machine(disks=text).disks == ()


def test_a_size_of_thousands_of_digits_is_no_size():
    assert machine(disks=[NVME | {"size": "9" * 5000}]).disks == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
device = st.fixed_dictionaries(
    {},
    optional={
        key: json_values | st.just("disk")
        for key in (
            "name",
            "size",
            "model",
            "serial",
            "type",
            "ro",
            "mountpoint",
            "partlabel",
            "children",
        )
    },
)


@given(st.text() | st.builds(answer, disks=st.lists(device), disk_ids=st.text()))
def test_no_answer_of_a_machine_is_too_strange_to_read(text):
    found = parse_machine(text)
    assert isinstance(found, Machine)
    assert all(disk.size > 0 for disk in found.disks)


@given(st.sampled_from(sorted(DEBIAN)))
def test_each_section_may_be_missing(name):
    sections = {key: value for key, value in INSTALLER.items() if key != name}
    assert isinstance(parse_machine(answer(sections)), Machine)


def test_the_script_runs_on_this_machine_and_says_what_it_is():
    done = subprocess.run(["sh", "-c", module.script()], capture_output=True, text=True, check=True)
    found = parse_machine(done.stdout)
    assert found.kernel == "Linux"
    assert found.hostname == os.uname().nodename.partition(".")[0]
    assert found.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found.memory > 2**28
    assert done.stderr == ""


@pytest.mark.parametrize("script", [module.script, machines.script])
def test_a_mac_has_its_system_name_and_product_in_both_surveys(script, tmp_path):
    found = parse_machine(on_a_mac(script(), tmp_path))
    assert (found.system, found.hostname, found.product) == ("aarch64-darwin", "mac-a", "Mac15,14")


@pytest.mark.skipif(shutil.which("lsblk") is None, reason="lsblk is not on this machine")
def test_the_disks_of_this_machine_are_those_that_lsblk_lists():
    done = subprocess.run(["sh", "-c", module.script()], capture_output=True, text=True, check=True)
    lines = subprocess.run(
        ["lsblk", "--json", "--bytes", "--nodeps", "--output", "NAME,SIZE,TYPE"],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = {
        f"/dev/{device['name']}": device["size"]
        for device in json.loads(lines.stdout)["blockdevices"]
        if device["type"] == "disk" and device["size"] and not device["name"].startswith("zram")
    }
    assert {disk.name: disk.size for disk in parse_machine(done.stdout).disks} == listed
