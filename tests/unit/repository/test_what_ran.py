"""The table of what has run where is made of results, of each thing that the flake has."""

import json
import re
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError

sys.path.append("tools")
import what_ran
from what_ran_table import EVALUATION, Tree, table

CLUSTER = Path("clusters/mini-3.toml").absolute()
# hand-made: the harness is no part of the repository (form: its drive.py and boot)
PASSED = """\
boot: evaluates .#checks.x86_64-linux.vm-switch
boot: evaluated in 12 s
boot: built in 31 s: /nix/store/00000000000000000000000000000000-nixos-test-driver-switch
  160.2 subtest: the node (1) is reached
  161.9 node1: must succeed: true
  162.0 (finished: subtest: the node (1) is reached, in 1.80 seconds)
  162.1 subtest: no other port is open
  170.4 (finished: subtest: no other port is open, in 8.30 seconds)
  171.0 cleanup

passed  the node (1) is reached (2 s)
passed  no other port is open (8 s)
total: passed, 2 of 2 subtests begun, 172 s
"""
# no output: the same, damaged on purpose
FAILED = PASSED.replace(
    "passed  no other port is open (8 s)", "FAILED  no other port is open: False is not true"
).replace("total: passed, 2 of 2", "total: FAILED, 1 of 2")
BUILT = PASSED[: PASSED.index("  160.2")]


@pytest.fixture
def flake(tmp_path, monkeypatch):
    """A flake of one platform, module, system, image and VM test, in the current folder.

    Every commit that a test names is the folder as it is then.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(what_ran, "tree_of", lambda _: nullcontext(Path()))
    for name in ("platforms/generic-x86_64", "tests"):
        Path("nixos", name).mkdir(parents=True)
    for name in ("modules", "clusters"):
        Path(name).mkdir()
    Path("modules/engine.nix").touch()
    Path("nixos/tests/switch.nix").write_text(
        'with subtest("the node (1) is reached"):\nwith subtest(\n    "no other port is open"\n):\n'
    )
    Path("nixos/tests/covers.toml").write_text(
        'switch = ["platforms/generic-x86_64", "modules/engine"]\n'
    )
    shutil.copy(CLUSTER, "clusters")
    names = {"platforms": ["generic-x86_64"], "modules": ["engine"], "tests": ["vm-switch"]}
    names["packages"] = ["image-generic-x86_64", "nixwulf"]
    what_ran.write_json(EVALUATION, {"commit": "e0e0e0e", **names})
    return tmp_path


def record(log, commit="abc1234"):
    what_ran.record(what_ran.parse(log, "2026-11-22", commit))


def cells(row):
    """What the table has in a row, without the row's name."""
    (line,) = [line for line in table(Tree.read()).splitlines() if line.startswith(f"| `{row}`")]
    return re.split(r" ?\| ?", line)[2:-1]


def test_the_committed_table_is_what_the_committed_results_make():
    text = what_ran.PAGE.read_text()
    made = "run '.venv/bin/python tools/what_ran.py table' and commit what it writes"
    assert text[text.index("| what |") :] == f"{table(Tree.read())}\n", made


def test_each_platform_module_and_vm_test_of_the_tree_has_a_row():
    folders = {"platforms": "nixos/platforms/*", "modules": "modules/*.nix"}
    expected = {f"{kind}/{path.stem}" for kind in folders for path in Path().glob(folders[kind])}
    assert expected <= set(Tree.read().rows)
    tests = {path.stem for path in Path("nixos/tests").glob("*.nix")} - {"default"}
    for path in Path("nixos/tests/per-platform").glob("*.nix"):
        tests.add(f"{path.stem}-generic-x86_64")
    assert {f"vm-{test}" for test in tests} <= set(Tree.read().rows)


def test_what_has_no_result_is_evaluated_at_most(flake):
    assert cells("installers/image-generic-x86_64") == ["e0e0e0e", "-", "-", "-", "-"]
    Path("modules/younger.nix").touch()
    assert cells("modules/younger") == ["-", "-", "-", "-", "-"]


def test_a_test_that_passed_has_its_subtests_seconds_and_commit(flake):
    record(PASSED)
    shown = "passed, 2 of 2, 172 s, abc1234, 2026-11-22"
    assert cells("vm-switch") == ["e0e0e0e", "yes", shown, "-", "-"]


def test_a_test_that_passed_shows_what_it_covers(flake):
    record(PASSED)
    for name in ("platforms/generic-x86_64", "modules/engine"):
        assert cells(name) == ["e0e0e0e", "vm-switch", "vm-switch", "-", "-"]


def test_a_test_that_failed_takes_the_place_of_its_pass_and_shows_nothing_as_booted(flake):
    record(PASSED)
    record(FAILED, commit="def5678")
    assert cells("vm-switch")[2] == "**failed**, 1 of 2, 172 s, def5678, 2026-11-22"
    assert cells("modules/engine")[2] == "vm-switch **failed**"


def test_a_subtest_that_a_failure_left_out_was_not_written_later(flake):
    with Path("nixos/tests/switch.nix").open("a") as file:
        file.write('with subtest("the node is reached again"):\n')
    record(FAILED)
    assert cells("vm-switch")[2].startswith("**failed**, 1 of 2, ")


def test_a_test_whose_machines_do_not_come_up_has_failed(flake):
    record(PASSED)
    record(BUILT + "\ntotal: FAILED, 0 of 0 subtests begun, 1200 s\n")
    assert cells("vm-switch")[2] == "**failed**, 1200 s, abc1234, 2026-11-22"


def test_what_was_only_built_is_not_shown_as_booted(flake):
    record(BUILT)
    assert cells("vm-switch")[1:3] == ["yes", "-"]


def test_a_system_that_was_built_is_its_platforms(flake):
    attribute = "nixosConfigurations.mini-3-mini1.config.system.build.toplevel"
    record(BUILT.replace("checks.x86_64-linux.vm-switch", attribute))
    assert cells("platforms/generic-x86_64")[1:3] == ["mini-3-mini1", "-"]


def test_a_build_that_failed_is_shown(flake):
    record(re.sub("built in 31 s.*", "the build failed after 31 s; all of it is in x", BUILT))
    assert cells("vm-switch")[1:3] == ["**failed**: vm-switch", "-"]


@pytest.mark.parametrize(
    "changed",
    [
        *("nixos/tests/switch.nix", "nixos/tests/switch/new.py", "nixos/tests/prelude.py"),
        *("nixos/tests/default.nix", "nixos/tests/machines/knock.py", "modules/engine.nix"),
        *("nixos/platforms/generic-x86_64/new.nix", "driver/nixwulf/sweep/session.py"),
        *("driver/nixwulf/plugins/engines/vllm/__init__.py", "driver/nixwulf/cli/bench.py"),
        *("driver/nixwulf/core/files.py", "driver/nixwulf/inventory/cluster.py"),
    ],
)
def test_a_result_of_before_a_change_of_what_it_is_made_of_is_stale(flake, changed):
    with Path("nixos/tests/switch.nix").open("a") as file:
        file.write('knock\nnode.succeed("nixwulf bench")\n')
    record(PASSED)
    assert (cells("vm-switch")[2][:8], what_ran.stale()) == ("passed, ", [])
    assert "stale" not in cells("vm-switch")[2]
    path = Path(changed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("# changed\n")
    assert cells("vm-switch")[2].startswith("passed, stale, 2 of 2, ")
    assert cells("modules/engine")[2] == "vm-switch passed, stale"
    assert what_ran.stale() == ["switch"]
    record(PASSED)
    assert what_ran.stale() == []


@pytest.mark.parametrize(
    "changed", ["nixos/images/iso.nix", "nixos/platforms/generic-x86_64/new.nix"]
)
def test_a_change_of_the_images_or_of_its_platform_makes_the_result_of_an_installer_stale(
    flake, changed
):
    Path("nixos/tests/covers.toml").write_text('switch = ["installers/image-generic-x86_64"]\n')
    record(PASSED)
    assert cells("installers/image-generic-x86_64")[2] == "vm-switch"
    Path(changed).parent.mkdir(parents=True, exist_ok=True)
    Path(changed).write_text("changed")
    assert cells("installers/image-generic-x86_64")[2] == "vm-switch passed, stale"


@pytest.mark.parametrize(
    "changed", ["README.md", "modules/other.nix", "driver/nixwulf/report/render.py"]
)
def test_a_change_elsewhere_makes_no_result_stale(flake, changed):
    record(PASSED)
    Path(changed).parent.mkdir(parents=True, exist_ok=True)
    Path(changed).write_text("changed")
    assert "stale" not in cells("vm-switch")[2]


def test_a_test_that_failed_or_never_ran_is_among_those_to_boot(flake):
    assert what_ran.stale() == ["switch"]
    record(FAILED)
    assert what_ran.stale() == ["switch"]


def test_a_result_of_a_commit_that_is_not_here_is_refused(flake, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(flake)
    what_ran.subprocess.run(["git", "init", "-q"], check=True)
    with pytest.raises(InputError, match="no commit 'abc1234'"):
        record(PASSED)


def test_a_subtest_that_was_written_later_has_not_passed(flake):
    record(PASSED)
    with Path("nixos/tests/switch.nix").open("a") as file:
        file.write('with subtest("the node is reached again"):\n')
    shown = "passed before 1 of its subtests were written, stale"
    assert cells("vm-switch")[2].startswith(f"{shown}, 2 of 2, ")
    assert cells("modules/engine")[2] == f"vm-switch {shown}"


def test_the_subtests_of_a_test_for_each_platform_are_in_one_file(flake):
    Path("nixos/tests/per-platform").mkdir()
    Path("nixos/tests/per-platform/boot.nix").write_text('with subtest("it boots"):\n')
    Path("nixos/tests/covers.toml").write_text("boot-generic-x86_64 = []\n")
    with pytest.raises(InputError, match="passed without its subtest 'it boots'"):
        record(PASSED.replace("vm-switch", "vm-boot-generic-x86_64"))


def test_only_a_published_run_of_a_node_of_this_flake_is_shown_as_hardware(flake):
    node = {"name": "n1", "platform": "generic-x86_64", "facts": {"linux_firmware": "20260622"}}
    run = {"kind": "run", "cluster": {"lab": False}, "nodes": [node]}
    other = {**run, "nodes": [{**node, "facts": {}}]}
    for document, expected in (
        (other, "-"),
        ({**run, "cluster": {"lab": True}}, "-"),
        (run, "yes"),
    ):
        what_ran.write_json(Path("results/desk/records/1.json"), document)
        assert cells("platforms/generic-x86_64")[4] == expected


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("", "This is no log of the harness"),
        (PASSED[: PASSED.index("boot: built")], "The log of 'vm-switch' has no end"),
        (BUILT + "\ntotal: passed, 0 of 0 subtests begun, 9 s\n", "no subtest was begun"),
        (PASSED.replace("vm-switch", "vm-bridge"), "The flake has no 'vm-bridge'."),
        (PASSED.replace("no other port", "a port"), "without its subtest 'no other port is open'"),
        (PASSED.replace("checks.x86_64-linux.vm-switch", "formatter"), "'formatter' is no VM test"),
    ],
)
def test_a_log_that_proves_nothing_is_not_recorded(flake, log, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        record(log)


def test_a_flake_with_changes_that_are_not_committed_is_not_recorded(flake):
    with pytest.raises(InputError, match="ran with changes that are not committed"):
        record(PASSED, commit="")


def test_a_result_of_a_test_that_is_gone_is_refused(flake):
    record(PASSED)
    Path("nixos/tests/covers.toml").write_text("")
    with pytest.raises(InputError, match=r"vm-switch-booted-debian\.json: .* Remove the file\."):
        table(Tree.read())


def test_a_test_cannot_cover_what_is_not_there(flake):
    Path("nixos/tests/covers.toml").write_text('switch = ["modules/motor"]\n')
    with pytest.raises(InputError, match="'vm-switch' shows 'modules/motor', which does not exist"):
        Tree.read()


def test_a_log_that_is_refused_does_not_keep_the_others_out(flake, capfd):
    for name, log in (("a", BUILT[:20]), ("b", PASSED)):
        Path(f"{name}.log").write_text(log)
    assert what_ran.record_logs([Path("a.log"), Path("b.log")], "abc1234") == 1
    assert capfd.readouterr().err.startswith("a.log is not recorded: ")
    assert cells("vm-switch")[2].startswith("passed")


def test_boot_runs_the_harness_and_keeps_its_result(flake, capfd):
    for command in ("init -q", "add .", "-c user.name=n -c user.email=e commit -qm flake"):
        what_ran.subprocess.run(["git", *command.split()], check=True)
    harness = Path("harness")
    harness.write_text(f"#!/bin/sh\necho 'for '$1\ncat <<'E'\n{FAILED}E\nexit 1\n")
    harness.chmod(0o755)
    assert what_ran.boot(["switch"], "./harness") == 1
    output = capfd.readouterr()
    assert output.out.startswith("for vm-switch\n")
    assert output.err == "Failed: switch.\n"
    result = json.loads(Path("results/flake/vm-switch-booted-debian.json").read_text())
    assert (result["passed"], result["commit"]) == (False, what_ran.committed())


def test_boot_keeps_no_result_of_a_flake_with_changes(flake, capfd):
    what_ran.subprocess.run(["git", "init", "-q"], check=True)
    assert what_ran.boot(["switch"], "true") == 0
    assert "vm-switch is not recorded" in capfd.readouterr().err
