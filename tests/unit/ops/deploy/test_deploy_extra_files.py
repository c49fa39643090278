"""Files of the user's own that a new system gets: what may be copied, and that it is asked for."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from machine_factory import INSTALLER, MAC, machine, plan_of, platform
from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.ops.deploy.install import check_extra_files


@pytest.fixture
def files(tmp_path):
    """A folder with a key as agenix or sops-nix want one, closed to others here."""
    key = tmp_path / "files" / "var" / "lib" / "sops-nix" / "key.txt"
    key.parent.mkdir(parents=True)
    key.write_text("AGE-SECRET-KEY-1\n")
    key.chmod(0o600)
    for folder in (tmp_path / "files" / "var", *key.parents[:2]):
        folder.chmod(0o755)
    (tmp_path / "files").chmod(0o700)
    return tmp_path / "files"


def test_the_folder_is_given_to_nixos_anywhere_by_its_whole_path(files, monkeypatch):
    monkeypatch.chdir(files.parent)
    (plan,) = plan_of({"fw1": machine(INSTALLER)}, extra_files=Path("files")).nodes
    at = plan.command.index("--extra-files")
    assert plan.command[at + 1] == str(files)
    (without,) = plan_of({"fw1": machine(INSTALLER)}).nodes
    assert "--extra-files" not in without.command


def test_a_mac_on_which_nothing_is_installed_gets_no_files(files):
    (plan,) = plan_of({"mac1": machine(MAC)}, platform("check"), extra_files=files).nodes
    assert plan.command == ()


def test_files_that_are_their_user_s_alone_may_be_copied(files):
    (files / "root").mkdir(mode=0o700)
    (files / "root" / "link").symlink_to("../var/lib/sops-nix/key.txt")
    check_extra_files(files)


def spoil(files, kind):
    key = files / "var" / "lib" / "sops-nix" / "key.txt"
    match kind:
        case "read by others":
            key.chmod(0o640)
        case "absolute":
            (files / "passwd").symlink_to("/etc/passwd")
        case "upwards":
            (files / "var" / "up").symlink_to("../../outside")
        case "folder outside":
            (files / "var" / "up").symlink_to("..", target_is_directory=True)
            (files / "etc").symlink_to("../", target_is_directory=True)
        case "pipe":
            os.mkfifo(files / "pipe", 0o600)
        case "closed":
            (files / "var").chmod(0o700)
        case "closed below":
            (files / "var" / "lib").chmod(0o750)
        case "written by others":
            key.parent.chmod(0o775)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("read by others", "key.txt' can be read by others here (mode 640); run 'chmod go= "),
        ("absolute", "passwd' leads to '/etc/passwd', out of the folder; put the file itself"),
        ("upwards", "var/up' leads to '../../outside', out of the folder; put the file itself"),
        ("folder outside", "etc' leads to '..', out of the folder; put the file itself there."),
        ("pipe", "pipe' is neither a file nor a folder; take it out."),
        ("closed", "var' has mode 700, and the node's '/var' would have it too; run 'chmod 755 "),
        ("closed below", "lib' has mode 750, and the node's '/var/lib' would have it too; run "),
        ("written by others", "sops-nix' has mode 775, and the node's '/var/lib/sops-nix' would"),
    ],
)
def test_what_may_not_be_copied_is_named_with_the_command(files, kind, words):
    spoil(files, kind)
    with pytest.raises(InputError) as raised:
        check_extra_files(files)
    assert words in raised.value.message
    assert raised.value.message.startswith(f"--extra-files: '{files}/")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
@pytest.mark.parametrize("place", ["var/lib/sops-nix/key.txt", "root"])
def test_what_is_somebody_else_s_is_named_before_anything_is_wiped(place, files):
    (files / "root").mkdir(mode=0o700)
    with tempfile.TemporaryDirectory() as folder:  # above pytest's own only root can look
        Path(folder).chmod(0o755)
        theirs = shutil.copytree(files, Path(folder) / "files")
        for path in (theirs, *theirs.rglob("*")):
            os.chown(path, 65534, -1)
        os.chown(theirs / place, 0, -1)
        os.seteuid(65534)
        try:
            with pytest.raises(InputError, match=r"cannot be read \(Permission denied\); see 'ls"):
                check_extra_files(theirs)
        finally:
            os.seteuid(0)


def test_modes_are_those_that_unpacking_leaves(files, tmp_path):
    """The two programs as nixos-anywhere (July 2026) joins them: why modes of folders matter."""
    spoil(files, "closed below")
    (tmp_path / "mnt").mkdir()
    pack = ["tar", "-C", str(files), "-cpf-", "."]
    unpack = ["tar", "-C", str(tmp_path / "mnt"), "-xpf-", "--no-same-owner"]
    packed = subprocess.run(pack, capture_output=True, check=True).stdout
    subprocess.run(unpack, input=packed, check=True)
    assert (tmp_path / "mnt" / "var" / "lib").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "mnt").stat().st_mode & 0o777 == 0o700


def test_deploy_refuses_such_a_folder_before_it_reaches_a_node(files, monkeypatch):
    spoil(files, "read by others")
    monkeypatch.setenv("PATH", "/nonexistent")
    command = ["deploy", "--cluster", "mini-3", "--dry-run", "--extra-files", str(files)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert "key.txt' can be read by others here" in done.output


@pytest.mark.parametrize("wrong", ["absent", "var/lib/sops-nix/key.txt"])
def test_what_is_no_folder_is_refused(files, wrong):
    command = ["deploy", "--cluster", "mini-3", "--dry-run", "--extra-files", str(files / wrong)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert f"'{files / wrong}'" in done.output
    assert "is no folder" in done.output
