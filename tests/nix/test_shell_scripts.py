"""Scripts that Nix writes: their text is evaluated, checked, and run with the test's programs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stand_in import put

STORE = "/nix/store/[a-z0-9]{32}"
VLLM = (
    "docker.io/kyuz0/vllm-therock-gfx1151"
    "@sha256:25fd294fde9f729d1e75f109022ab4496c78190c0a6dc0142440529f7af20e4d"
)
PODMAN = """#!/usr/bin/env bash
[[ $1 == image ]] && exit "${HAVE_IMAGE:-1}"
printf '%s\\n' "$@"
"""


@pytest.fixture(scope="module")
def scripts(flake):
    return flake.value("checks.x86_64-linux.shell-scripts.scripts")


@pytest.fixture
def run(tmp_path):
    """Runs a script; its programs come from this machine, and before them from a folder bin."""
    (tmp_path / "bin").mkdir()

    def run(text, *arguments, **variables):
        (tmp_path / "script").write_text(text)
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        return subprocess.run(
            [shutil.which("bash"), tmp_path / "script", *arguments],
            env={"PATH": path, "HOME": str(tmp_path), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_all_scripts_pass_shellcheck(scripts, tmp_path):
    assert len(scripts) >= 8
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


class TestHostnameGuard:
    @pytest.fixture
    def guard(self, scripts, run, tmp_path):
        """The guard of mini1, on a machine with the names and the boot that a test gives."""

        def guard(hostname, *, configured=None, booted=True, **variables):
            (tmp_path / "kernel").write_text(f"{hostname}\n")
            if configured:
                (tmp_path / "configured").write_text(f"{configured}\n")
            if booted:
                (tmp_path / "booted").touch()
            text = scripts["hostname-guard"]
            for real, ours in (
                ("/proc/sys/kernel/hostname", "kernel"),
                ("/etc/hostname", "configured"),
                ("/run/booted-system", "booted"),
            ):
                assert real in text
                text = text.replace(real, str(tmp_path / ours))
            text = text.replace("done </etc/fstab", f"done <{tmp_path}/fstab")
            text = re.sub(rf"{STORE}-util-linux[^/]*/bin/", "", text)
            return run(text, str(system), "switch", **variables)

        system = Path("/new/system")
        guard.system = tmp_path / "system"

        def of_disk(hostname, present, wanted, **variables):
            nonlocal system
            system = guard.system
            (system / "etc").mkdir(parents=True)
            (system / "etc/fstab").write_text(f"{wanted} / ext4 defaults 0 1\n")
            (tmp_path / "fstab").write_text(f"tmpfs /tmp tmpfs\n{present} / ext4 defaults 0 1\n")
            put(tmp_path / "bin", "lsblk", '#!/bin/sh\necho "nvme0n1 2"\n')
            return guard(hostname, **variables)

        guard.of_disk = of_disk
        return guard

    def test_a_renaming_says_how_the_partitions_get_the_names_that_the_new_system_boots_by(
        self, guard
    ):
        wanted = "/dev/disk/by-partlabel/disk-mini1-0a1b2c3d-root"
        done = guard.of_disk("mini2", "/dev/null", wanted, EXPECTED_HOSTNAME="mini1")
        assert done.returncode == 1
        assert (
            "sfdisk --no-reread --part-label /dev/nvme0n1 2 disk-mini1-0a1b2c3d-root && udevadm "
            "trigger --settle --subsystem-match=block && EXPECTED_HOSTNAME=mini1 "
            f"{guard.system}/bin/switch-to-configuration switch" in done.stdout
        )

    def test_a_renaming_passes_where_the_new_system_finds_its_partitions(self, guard):
        done = guard.of_disk("mini2", "/dev/null", "/dev/null", EXPECTED_HOSTNAME="mini1")
        assert done.returncode == 0, done.stdout

    def test_the_node_itself_passes(self, guard):
        assert guard("mini1").returncode == 0

    def test_another_machine_is_refused_with_the_command_that_renames_it(self, guard):
        done = guard("mini2")
        assert done.returncode == 1
        assert "clusters/mini-3.toml: node 'mini1': this machine is 'mini2'" in done.stdout
        assert "EXPECTED_HOSTNAME=mini1 /new/system/bin/switch-to-configuration" in done.stdout

    def test_who_says_the_new_name_passes(self, guard):
        assert guard("mini2", EXPECTED_HOSTNAME="mini1").returncode == 0

    def test_a_machine_that_was_renamed_has_its_new_name_before_the_kernel_has_it(self, guard):
        assert guard("mini2", configured="mini1").returncode == 0
        assert guard("mini1", configured="mini2").returncode == 1

    def test_no_program_is_needed_on_path(self, guard):
        assert guard("mini1", PATH="/nonexistent").returncode == 0

    def test_a_first_installation_passes(self, guard):
        assert guard("nixos-installer", booted=False).returncode == 0


class TestFirmwareBootOfThePi:
    @pytest.fixture
    def install(self, scripts, run, tmp_path):
        """Installs a generation whose kernel says its number on a firmware partition's folder."""
        (tmp_path / "dtbs" / "broadcom").mkdir(parents=True)
        (tmp_path / "dtbs" / "overlays").mkdir()
        (tmp_path / "dtbs" / "broadcom" / "bcm2712-rpi-cm5.dtb").touch()
        (tmp_path / "dtbs" / "overlays" / "vc4.dtbo").touch()
        (tmp_path / "config.txt").write_text("[all]\ndtparam=pciex1\n")
        text = re.sub(
            rf"{STORE}-(linux[^/ ]*/dtbs|dtbs-filtered)",
            str(tmp_path / "dtbs"),
            scripts["pi-firmware-boot"],
        )
        text = re.sub(rf"cat {STORE}-\S+", f"cat {tmp_path / 'config.txt'}", text)
        text = text.replace("/run/booted-system", str(tmp_path / "booted"))

        def install(number):
            toplevel = tmp_path / f"{'0' * 31}{number}-nixos-system-blade1"
            toplevel.mkdir()
            (toplevel / "kernel").write_text(f"kernel {number}")
            (toplevel / "initrd").touch()
            (toplevel / "kernel-params").write_text("console=ttyAMA10")
            done = run(text, str(toplevel), str(tmp_path / "firmware"))
            assert done.returncode == 0, done.stderr
            return toplevel

        (tmp_path / "firmware").mkdir()
        return install

    def booting(self, folder):
        """The kernel that the firmware would take."""
        config = (folder / "firmware" / "config.txt").read_text()
        prefix = re.search(r"os_prefix=(\S+)", config)[1]
        return (folder / "firmware" / prefix / "kernel").read_text()

    def test_the_firmware_gets_the_newest_kernel_and_keeps_its_own_settings(
        self, install, tmp_path
    ):
        install(1)
        install(2)
        assert self.booting(tmp_path) == "kernel 2"
        assert "dtparam=pciex1" in (tmp_path / "firmware" / "config.txt").read_text()

    def test_the_kernel_knows_where_its_system_is(self, install, tmp_path):
        toplevel = install(1)
        (line,) = (tmp_path / "firmware").glob("nixos-*/cmdline.txt")
        assert line.read_text() == f"init={toplevel}/init console=ttyAMA10\n"

    def test_the_generation_that_runs_is_kept_and_older_ones_are_not(self, install, tmp_path):
        install(1)
        (tmp_path / "booted").symlink_to(install(2))
        install(3)
        kernels = {path.read_text() for path in (tmp_path / "firmware").glob("nixos-*/kernel")}
        assert kernels == {"kernel 2", "kernel 3"}


class TestToolbox:
    @pytest.fixture
    def toolbox(self, scripts, run, tmp_path):
        """The program of the toolbox vllm, where podman prints its arguments."""
        put(tmp_path / "bin", "podman", PODMAN)
        return lambda *arguments, **variables: run(scripts["toolbox-vllm"], *arguments, **variables)

    def test_a_command_reaches_the_image_argument_by_argument(self, toolbox):
        done = toolbox("vllm", "serve", "a model", "--port=1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-5:] == [VLLM, "vllm", "serve", "a model", "--port=1"]

    def test_it_reads_folders_that_exist_and_has_neither_home_nor_token(self, toolbox, tmp_path):
        options = toolbox("env", XDG_CACHE_HOME=str(tmp_path / "cache")).stdout.splitlines()
        volumes = [option for option in options if option.startswith("--volume=")]
        assert "--volume=/usr:/usr:ro" in volumes
        assert not [volume for volume in volumes if "not exist" in volume]
        (hub,) = [volume for volume in volumes if "huggingface" in volume]
        assert hub.endswith("/huggingface/hub:/root/.cache/huggingface/hub")
        assert not {"/tmp", "/home"} & {volume[9:].split(":")[0] for volume in volumes}

    def test_without_a_command_it_says_what_to_give(self, toolbox):
        done = toolbox()
        assert (done.returncode, done.stdout) == (2, "")
        assert "no command; give one" in done.stderr

    def test_an_image_that_is_there_is_not_pulled_again(self, toolbox):
        assert toolbox("--pull", HAVE_IMAGE="0").stdout == ""
        assert toolbox("--pull").stdout.splitlines() == ["pull", "--quiet", VLLM]


class TestPrefetch:
    @pytest.fixture
    def prefetch(self, scripts, run, tmp_path):
        """The prefetch of the toolbox vllm, whose program is the test's own; it says `fetched`."""

        def prefetch(program):
            put(tmp_path / "bin", "toolbox-vllm", program)
            text = re.sub(rf"{STORE}-toolbox-vllm/bin/", "", scripts["toolbox-vllm-prefetch"])
            text = re.sub(r"/run/toolbox-vllm/\w+", str(tmp_path / "fetched"), text)
            return run(text), (tmp_path / "fetched").exists()

        return prefetch

    def test_an_image_that_cannot_be_fetched_fails_no_unit_and_is_tried_again(self, prefetch):
        done, fetched = prefetch("echo no route to host >&2; exit 125")
        assert (done.returncode, fetched) == (0, False)
        assert done.stdout == (
            "The image of the toolbox 'vllm' was not fetched; trying again in ten minutes.\n"
        )

    def test_an_image_that_was_fetched_is_not_asked_for_again(self, prefetch):
        done, fetched = prefetch('[ "$*" = --pull ]')
        assert (done.returncode, done.stdout, fetched) == (0, "", True)


def test_an_app_is_the_driver_that_knows_its_revision(scripts, run, tmp_path):
    put(tmp_path / "bin", "nixwulf", 'echo "$NIXWULF_REVISION" "$@"')
    text = re.sub(rf"{STORE}-nixwulf[^/]*/bin", str(tmp_path / "bin"), scripts["app-deploy"])
    done = run(text, "--cluster", "a cluster.toml")
    assert done.stdout == "0123456-dirty deploy --cluster a cluster.toml\n"


def test_a_mac_without_rdma_gets_a_line_for_each_thing_that_is_missing(scripts, run, tmp_path):
    put(tmp_path / "bin", "sw_vers", "echo 15.7")
    put(tmp_path / "bin", "ibv_devices", "true")
    put(tmp_path / "bin", "ibv_devinfo", "true")
    put(tmp_path / "bin", "rdma_ctl", "echo disabled")
    text = scripts["mac-rdma-check"].replace("/usr/bin/sw_vers", str(tmp_path / "bin" / "sw_vers"))
    done = run(text)
    assert done.returncode == 1
    assert [line.split(";")[0] for line in done.stdout.splitlines()] == [
        "macOS is '15.7'",
        "ibv_devices lists no rdma_en device, and rdma_ctl says 'disabled'",
        "No port is PORT_ACTIVE",
    ]


def test_the_token_of_ray_is_in_the_environment_of_the_command(run, scripts, tmp_path):
    (tmp_path / "ray-token").write_text("0123abcd\n")
    text = scripts["with-ray-token"]
    shown = run(text, "printenv", "RAY_AUTH_TOKEN", CREDENTIALS_DIRECTORY=str(tmp_path))
    assert (shown.returncode, shown.stdout) == (0, "0123abcd\n")


def test_without_a_token_the_command_of_ray_is_not_run(run, scripts, tmp_path):
    strict = f"set -euo pipefail\n{scripts['with-ray-token']}"
    (tmp_path / "ray-token").touch()
    empty = run(strict, "echo", "ran", CREDENTIALS_DIRECTORY=str(tmp_path))
    assert "the file of nixwulf.vllm.rayTokenFile is empty" in empty.stderr
    absent = run(strict, "echo", "ran", CREDENTIALS_DIRECTORY=str(tmp_path / "none"))
    assert (empty.stdout, absent.stdout) == ("", "")
    assert 0 not in {empty.returncode, absent.returncode}
