"""What every command line of its kind has: a default cluster, completion, short flags."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import nixwulf
from machine_factory import cluster_text
from nixwulf.cli.main import cli
from stand_in import put

VARIABLE = "NIXWULF_CLUSTER"


def run(*words, **environment):
    return CliRunner().invoke(cli, words, env=environment)


def completed(*words):
    *before, begun = words
    found = ShellComplete(cli, {}, "nixwulf", "_NIXWULF_COMPLETE").get_completions(before, begun)
    return [(item.value, item.type) for item in found]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("bench", "--cluster", "framework-"), "framework-2"),
        (("predict", "--cluster", "mac"), "mac-studio-4"),
        (("deploy", "--cluster", "pi"), "pi-cm5-4"),
        (("preflight", "--cluster", "dgx"), "dgx-spark-2"),
        (("bench", "lab/"), "lab/demo"),
        (("predict", "--model", "gpt-oss"), "gpt-oss-120b"),
        (("predict", "--engine", "distr"), "distributed-llama"),
        (("tune", "--engine", "vl"), "vllm"),
        (("import", "--platform", "frame"), "framework-desktop"),
    ],
)
def test_a_shell_completes_the_names_that_there_are(words, name):
    found = completed(*words)
    assert (name, "plain") in found
    assert all(value.startswith(words[-1]) for value, _ in found)


def test_where_no_name_begins_so_the_shell_completes_files():
    assert completed("bench", "--cluster", "./mi") == [("./mi", "file")]


@pytest.mark.repository
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_program_prints_the_script_of_a_shell(shell):
    program = Path(sys.executable).with_name("nixwulf")
    words = {"_NIXWULF_COMPLETE": f"{shell}_source", "PATH": "/usr/bin:/bin"}
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not on this machine")
    done = subprocess.run([program], env=words, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "_NIXWULF_COMPLETE" in done.stdout


def test_a_variable_names_the_cluster_and_an_option_goes_before_it():
    by_variable = run("bench", "smoke", "--dry-run", **{VARIABLE: "framework-2"})
    by_option = run("bench", "smoke", "--dry-run", "--cluster", "framework-2", **{VARIABLE: "pi"})
    assert (by_variable.exit_code, by_option.exit_code) == (0, 0)
    assert by_variable.output == by_option.output


def test_without_or_with_an_empty_variable_it_is_the_lab():
    lab = run("bench", "smoke", "--dry-run", "--cluster", "lab").output
    assert run("bench", "smoke", "--dry-run", **{VARIABLE: ""}).output == lab
    assert run("bench", "smoke", "--dry-run").output == lab


def test_predict_wants_no_option_where_the_variable_names_one():
    done = run("predict", "--model", "gpt-oss-120b", **{VARIABLE: "framework-2"})
    assert (done.exit_code, "framework-2" in done.output) == (0, True)


def test_a_variable_that_names_no_cluster_is_refused_with_the_names_that_there_are():
    done = run("bench", "smoke", "--dry-run", **{VARIABLE: "gone"})
    assert done.exit_code == 2
    assert "framework-2" in done.output


@pytest.mark.parametrize(
    "words",
    [
        *("deploy", "update", "engines install", "engines remove", "models push x"),
        *("nodes exec true", "nodes reboot", "nodes shutdown", "nodes recover"),
    ],
)
def test_a_command_that_changes_machines_takes_no_variable(words, monkeypatch, tmp_path):
    """Where no lab is up, that is the one that it would reach else."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("nixwulf.nodes.lab.labs", list)
    done = run(*words.split(), **{VARIABLE: "framework-2"})
    assert done.exit_code == 2
    assert "--cluster" in done.output


def test_preflight_looks_at_the_cluster_of_the_variable():
    done = run("preflight", "--only", "file", **{VARIABLE: "framework-2"})
    assert (done.exit_code, "framework-2" in done.output) == (0, True)


def test_a_run_that_is_resumed_has_its_own_cluster(tmp_path):
    """With a cluster bench would plan anew, and say what differs."""
    done = run("bench", "--resume", str(tmp_path), **{VARIABLE: "gone"})
    assert done.exit_code == 2
    assert "gone" not in done.output


def test_the_version_has_a_short_flag():
    assert run("-V").output.split()[-1] == nixwulf.__version__


def test_quiet_prints_no_progress(capfd):
    from nixwulf.sweep.recording import make_progress

    for quiet in (False, True):
        with make_progress(quiet=quiet) as progress:
            progress.step("builds")
    assert capfd.readouterr().err.count("builds") == 1


def test_verbose_shows_each_program_that_is_started(tmp_path):
    """In a process of its own: a hook of Python's is never taken off again."""
    (tmp_path / "mine.toml").write_text(cluster_text("mine", "fw1"))
    put(tmp_path / "bin", "ssh", "exit 255")
    words = ("preflight", "--only", "status", "--cluster", "mine.toml")
    for flags, shown in ((["-v"], True), ([], False)):
        done = subprocess.run(
            [sys.executable, "-m", "nixwulf", *flags, *words],
            env=os.environ | {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ("\n+ ssh " in f"\n{done.stderr}") is shown


def test_quiet_goes_for_each_command():
    seen = {}

    @click.command("bench")
    @click.option("-q", "--quiet", is_flag=True)
    def stand_in(quiet):
        seen["quiet"] = quiet

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cli), "get_command", lambda *_: stand_in)
        assert run("-q", "bench").exit_code == 0
    assert seen == {"quiet": True}


@pytest.mark.parametrize("words", [(), ("models",), ("nodes",), ("lab",), ("cluster",)])
def test_a_command_without_arguments_shows_its_help_line_by_line(words):
    command = [sys.executable, "-m", "nixwulf", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "\nCommands:\n" in done.stderr
