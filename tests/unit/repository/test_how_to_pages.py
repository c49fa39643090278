"""The how-to pages are followed: what can run here runs, and prints what the page shows.

A desk is a folder made of the flake's template, and 'ssh' answers as machines would. Nothing is
reached or installed. What nix makes of the pages is in tests/nix, what a node prints in tests/lab.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from answering_nodes import put_ssh
from machine_factory import DEBIAN, INSTALLER, KEY, NVME, STICK, answer
from nixwulf.inventory.cluster import load_cluster
from nixwulf.ops.deploy.install import Update, check_extra_files, sentence
from nixwulf.sweep.phases import hint_for
from stand_in import put

pytestmark = pytest.mark.repository
PAGES = sorted(Path("docs/how-to").glob("*.md"))
ROOT = Path().resolve()
S4, S9 = "/dev/disk/by-id/nvme-ACME_1TB_S4", "/dev/disk/by-id/nvme-ACME_2TB_S9"
NEW = NVME | {"size": 2000398934016, "model": "ACME 2TB", "serial": "S9", "children": []}
MINI1, MINI4 = "192.168.1.31", "192.168.1.34"
# hand-made: no such mini PC is at hand (form: linux/machine.txt)
DEBIAN_13 = answer(
    DEBIAN,
    hostname="debian",
    disk_ids=f"{S4} /dev/nvme0n1",
    os_release='PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian',
)
# hand-made: no installer is running here (form: linux/machine.txt)
IN_INSTALLER = answer(
    INSTALLER,
    hostname="nixos-installer",
    disk_ids=f"{S9} /dev/nvme0n1",
    disks=[NEW],
)


def text_of(page):
    return Path("docs/how-to", page).read_text()


def blocks(page, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


class Desk:
    """A folder with a cluster of three, whose file takes what a page says of it."""

    def __init__(self, folder, machines):
        self.folder = folder / "mine"
        self.folder.mkdir()
        template = (ROOT / "templates/cluster/cluster.toml").read_text()
        self.cluster = self.folder / "cluster.toml"
        self.cluster.write_text(re.sub(r'"ssh-ed25519 .*"', f'"{KEY}"', template))
        (folder / ".ssh").mkdir()
        (folder / ".ssh" / "id.pub").write_text(KEY)
        put_ssh(folder / "bin", machines)
        self.environment = {
            "HOME": str(folder),
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    def edit(self, old, new):
        text = self.cluster.read_text()
        assert old in text
        self.cluster.write_text(text.replace(old, new))

    def put_nix(self, disk=S9, labels=()):
        """A nix as a Mac has it, which makes a system of mini1 and knows its layout."""
        layout = f'{{"disks": ["{disk}"], "labels": {list(labels)}, "modules": null, '
        layout = layout.replace("'", '"') + '"interfaces": null}'
        system = f'{{"drv": "/nix/store/x.drv", "out": "/nix/store/x", "layout": {layout}}}'
        script = (
            'case "$*" in\n'
            "config*) echo aarch64-darwin ;;\n"
            f"""*drvPath*) echo '{{"mine-mini1": {system}}}' ;;\n"""
            f"""*) echo '{{"mine-mini1": {layout}}}' ;;\n"""
            "esac"
        )
        put(Path(self.environment["HOME"]) / "bin", "nix", script)

    def run(self, command):
        """Exit code, output and words of a page's command; an app of the flake is nixwulf's."""
        words = shlex.split(re.sub(r"\s#.*", "", command))
        if words[:2] == ["nix", "run"]:
            assert words[3] == "--"
            words = ["nixwulf", *filter(None, [words[2].partition("#")[2]]), *words[4:]]
        assert words[0] == "nixwulf"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


def desk_of(page, folder):
    """The desk of somebody who has followed the page up to its commands."""
    machines = {"add-a-node.md": {MINI4: DEBIAN_13}}.get(page, {MINI1: IN_INSTALLER})
    desk = Desk(folder, machines)
    if page == "add-a-node.md":
        (table,) = blocks(page, "toml")
        desk.cluster.write_text(f"{desk.cluster.read_text()}\n{table}")
    if page in {"replace-a-disk.md", "work-from-a-mac.md"}:
        desk.edit("/dev/disk/by-id/nvme-EXAMPLE_1", S9)
    if page == "work-from-a-mac.md":
        desk.put_nix()
    return desk


def sessions():
    for page in PAGES:
        for block in blocks(page.name, "console"):
            command, _, shown = block.removeprefix("$ ").partition("\n")
            yield pytest.param(page.name, command, shown, id=f"{page.stem}: {command[:50]}")


@pytest.mark.parametrize(("page", "command", "shown"), list(sessions()))
def test_a_page_s_command_prints_what_the_page_shows(page, command, shown, tmp_path):
    """Lines of '...' stand for some that are left out."""
    code, printed, said = desk_of(page, tmp_path).run(command)
    assert code == 0, printed + said
    at = 0
    for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
        wanted = part.strip("\n")
        assert wanted in printed[at:], printed
        at = printed.index(wanted, at) + len(wanted)


def test_each_page_is_read_in_a_minute_and_linked():
    assert len(PAGES) == 6
    index = Path("docs/nix.md").read_text()
    for page in PAGES:
        assert len(page.read_text().splitlines()) <= 30
        assert f"](how-to/{page.name})" in index
    assert "](docs/how-to)" in Path("README.md").read_text()


def produced(page, folder):
    """All that the commands print in the cases that the page's symptoms are of."""
    desk, printed = desk_of(page, folder), []
    one = "nix run .#deploy -- --cluster cluster.toml --dry-run --node"
    node = load_cluster(desk.cluster).nodes[0]
    if page == "add-a-node.md":
        printed += desk.run(f"{one} mini4")
        desk.edit(S4, "/dev/disk/by-id/nvme-OTHER")
        printed += desk.run(f"{one} mini4 --expect mini4=debian")
        # What llama.cpp and iperf3 say, by which the driver gives its hint.
        words = ("Failed to connect to 192.168.1.31:50052", "unable to connect to server")
        assert "firewall" in (hint_for(words[0]) or "")
        printed += words
    elif page == "change-the-ssh-key.md":
        (folder / ".ssh" / "id.pub").write_text(KEY.replace("AAAAC3", "AAAAC4"))
        printed += desk.run(f"{one} mini1")
        printed.append(sentence(Update(node, "rolled-back")))
    elif page == "replace-a-disk.md":
        stick = STICK | {"size": NVME["size"]}
        on_stick = answer(INSTALLER, disk_ids=f"{S9} /dev/sda", disks=[stick])
        (folder / "bin/answers" / MINI1).write_text(on_stick)
        printed += desk.run(f"{one} mini1")
        old = {"name": "sdb1", "type": "part", "partlabel": "disk-mini1-0a1b2c3d-root"}
        both = [NEW, {"name": "sdb", "type": "disk", "size": 1, "children": [old]}]
        both = answer(INSTALLER, disk_ids=f"{S9} /dev/nvme0n1", disks=both)
        (folder / "bin/answers" / MINI1).write_text(both)
        desk.put_nix(labels=["disk-mini1-0a1b2c3d-root"])
        printed += desk.run(f"{one} mini1")
    elif page == "work-from-a-mac.md":
        put(folder / "bin", "nixos-anywhere")
        (folder / "bin/answers" / MINI1).write_text(
            answer(DEBIAN, hostname="mini1", disk_ids=f"{S9} /dev/nvme0n1", disks=[NEW])
        )
        broken = (folder / "bin/nix").read_text().replace("esac", "build*) exit 1 ;;\nesac")
        put(folder / "bin", "nix", re.sub(r"(\*drvPath)", r"build*) exit 1 ;;\n\1", broken))
        printed += desk.run(f"{one.replace(' --dry-run', '')} mini1 --yes-wipe mini1")
        (folder / "bin/nix").unlink()
        printed += desk.run("nixwulf update --cluster cluster.toml")
    return "\n".join(map(str, printed))


# Printed by a node's own script (update.sh), which runs in tests/lab/test_update.py.
IN_THE_LAB = {
    "mounts '/' from '/dev/...', which is not there",
    "has no generation before",
}


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_a_page_s_symptoms_are_what_is_printed(page, tmp_path):
    rows = [row.split("|")[1] for row in text_of(page).splitlines() if row.startswith("| ")][2:]
    phrases = {phrase for row in rows for phrase in re.findall("`([^`]*)`", row)} - IN_THE_LAB
    printed = produced(page, tmp_path)
    absent = [
        phrase
        for phrase in phrases
        if not re.search(".*".join(map(re.escape, phrase.split("..."))), printed)
    ]
    assert absent == [], printed


def test_the_sentences_of_an_update_are_those_of_the_pages(tmp_path):
    node = load_cluster(desk_of("add-a-node.md", tmp_path).cluster).nodes
    page = " ".join(text_of("add-a-node.md").split())
    assert f"`{sentence(Update(node[0], 'updated'))}`" in page
    assert f"`{sentence(Update(node[3], 'unchanged'))}`" in page
    assert f"# {sentence(Update(node[0], 'updated'))}" in text_of("change-the-ssh-key.md")


def test_a_rollback_is_told_as_the_page_has_it(tmp_path):
    node = load_cluster(desk_of("go-back.md", tmp_path).cluster).nodes[0]
    update = Update(node, "updated", generation="41 of 2026-11-20 10:31:05")
    assert sentence(update) in blocks("go-back.md", "")[1]


def test_both_keys_of_the_page_are_let_in(tmp_path):
    desk = desk_of("change-the-ssh-key.md", tmp_path)
    (table,) = blocks("change-the-ssh-key.md", "toml")
    keys = tomllib.loads(table)["deploy"]["ssh_keys"]
    desk.cluster.write_text(
        re.sub(r"(?m)^ssh_keys = .*$", table.split("\n")[1], desk.cluster.read_text())
    )
    assert list(load_cluster(desk.cluster).ssh_keys) == keys
    for key in keys:
        (tmp_path / "key.pub").write_text(key)
        done = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], check=False)
        assert done.returncode == 0


@pytest.mark.parametrize("umask", ["022", "077"])
def test_the_folder_of_the_secrets_page_may_be_copied_and_is_refused_where_it_closes_var(
    umask, tmp_path
):
    (tmp_path / "mine").mkdir()
    (commands,) = blocks("keep-secrets.md", "")
    make, keygen = (line for line in commands.splitlines() if "../files" in line)
    # hand-made: age is not on every machine; its file has this mode (form: age-keygen(1))
    key = shlex.quote(shlex.split(keygen, comments=True)[-1])
    script = f"umask {umask}; {make}; umask 077; echo AGE-SECRET-KEY-1 >{key}"
    subprocess.run(["sh", "-ec", script], cwd=tmp_path / "mine", check=True)
    if umask == "022":
        check_extra_files(tmp_path / "files")
    else:
        with pytest.raises(Exception, match=r"'/var' would have it too; run 'chmod 755"):
            check_extra_files(tmp_path / "files")
