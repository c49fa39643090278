"""Systems that were built elsewhere take the place of a flake."""

import json

import pytest
from click.testing import CliRunner

from machine_factory import DISK, cluster_of, machine, plan_of
from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.ops.deploy.flake import Layout, Prebuilt, PrebuiltNode, load_prebuilt

CLUSTER = cluster_of("fw1", "fw2")
PATH = "/nix/store/00000000000000000000000000000000"
LAYOUT = {"disks": [DISK], "labels": ["disk-fw1-root"], "modules": ["nvme"], "interfaces": None}


def node(**changes):
    return {
        "system": f"{PATH}-system",
        "disko": f"{PATH}-disko",
        "kexec": f"{PATH}-kexec.tar",
        "layout": LAYOUT,
    } | changes


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads a document for the first node; its store paths are on this machine."""
    monkeypatch.setattr("pathlib.Path.exists", lambda path: "absent" not in str(path))

    def load(document):
        file = tmp_path / "deployment.json"
        file.write_text(json.dumps(document))
        return load_prebuilt(file, CLUSTER, CLUSTER.nodes[:1])

    return load


def test_a_deployment_is_read_with_what_its_configurations_would_do(load):
    found = load({"cluster": "mine", "nodes": {"fw1": node(kexec=None)}})
    assert found.nodes["fw1"] == PrebuiltNode(
        f"{PATH}-system",
        f"{PATH}-disko",
        None,
        Layout((DISK,), ("disk-fw1-root",), ("nvme",), None),
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"cluster": "office", "nodes": {"fw1": node()}},
            "it is of the cluster 'office' and mine.toml describes 'mine'; build that by",
        ),
        ({"cluster": "mine", "nodes": {"fw2": node()}}, "it has no node 'fw1'; it has: fw2."),
        (
            {"cluster": "mine", "nodes": {"fw1": node(system=f"{PATH}-absent")}},
            f"'{PATH}-absent' of node 'fw1' is not on this machine; copy the file with all",
        ),
        (
            {"cluster": "mine", "nodes": {"fw1": node(disko="/tmp/x; rm")}},
            "nodes.fw1.disko is '/tmp/x; rm', expected a path of the Nix store",
        ),
    ],
)
def test_a_file_that_is_not_of_the_nodes_is_refused(load, document, words):
    with pytest.raises(InputError) as raised:
        load(document)
    assert words in raised.value.message


def test_its_systems_are_installed_and_its_own_installer_is_started():
    prebuilt = Prebuilt("d", {"fw1": PrebuiltNode("/system", "/disko", "/kexec.tar", Layout())})
    (plan,) = plan_of({"fw1": machine(hostname="fw1")}, prebuilt=prebuilt).nodes
    assert plan.installs
    assert plan.build == ()
    assert plan.command == (
        *("nixos-anywhere", "--store-paths", "/disko", "/system"),
        *("--target-host", "root@192.168.1.10", "--kexec", "/kexec.tar"),
        *("--copy-host-keys", "--print-build-logs", "--phases", "kexec,disko,install,reboot"),
    )


def test_update_copies_what_is_built_and_evaluates_and_builds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.exists", lambda path: True)
    monkeypatch.setattr("nixwulf.inventory.cluster.load_cluster", lambda name: CLUSTER)
    monkeypatch.setattr("nixwulf.ops.deploy.flake.lacks_nix", lambda: None)
    file = tmp_path / "deployment.json"
    file.write_text(json.dumps({"cluster": "mine", "nodes": {"fw1": node(), "fw2": node()}}))
    command = ["update", "--cluster", "mine", "--prebuilt", str(file), "--dry-run"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    copies = [line.rpartition("--to ")[2] for line in done.output.splitlines()[:2]]
    assert copies == [
        f"ssh-ng://root@192.168.1.10 {PATH}-system",
        f"ssh-ng://root@192.168.1.11 {PATH}-system",
    ]
    assert "nix build" not in done.output


def test_a_rollback_takes_no_other_system(tmp_path, monkeypatch):
    monkeypatch.setattr("nixwulf.inventory.cluster.load_cluster", lambda name: CLUSTER)
    file = tmp_path / "deployment.json"
    file.write_text("{}")
    command = ["update", "--cluster", "mine", "--rollback", "--prebuilt", str(file)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert f"and --prebuilt '{file}' names another; give one of the two." in done.output


def test_a_dry_run_of_a_rollback_needs_no_nix(monkeypatch):
    monkeypatch.setattr("nixwulf.inventory.cluster.load_cluster", lambda name: CLUSTER)
    monkeypatch.setenv("PATH", "/nowhere")
    done = CliRunner().invoke(cli, ["update", "--cluster", "mine", "--rollback", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.output == (
        "On fw1, fw2: activate the generation before, reach the node over a new connection, and "
        "keep it; or go back after 300 s.\n"
    )
