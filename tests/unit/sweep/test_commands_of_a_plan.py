"""What a plan that somebody sent may run on this machine when it is resumed: nothing unasked."""

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import make_plan, parse_sweep, plan_to_resume, resuming, save_plan
from stand_in import put

SWEEP = {
    "name": "sent",
    "models": {"tiny": {"random": {}}},
    "matrix": {"model": ["tiny"], "nodes": [1], "parallelism": ["single"]},
    "on_hang": "recover",
}
CLUSTER = """
name = "sent"
fabrics.lan = {{ kind = "ethernet", speed_gbps = 10, mtu = 1500, subnet = "10.9.0.0/24" }}
[[nodes]]
name = "n1"
platform = "generic-x86_64"
ssh = "n1.invalid"
fabrics.lan = {{ interface = "eth0", address = "10.9.0.1" }}
power_switch = {{ kind = "{kind}", {value} }}
"""
COMMAND = 'command = ["touch", "/nowhere/a file"]'


@pytest.fixture
def sent(tmp_path):
    def make(kind="command", value=COMMAND, **changes):
        # no output: a cluster file
        (tmp_path / "c.toml").write_text(CLUSTER.format(kind=kind, value=value))
        sweep = parse_sweep({**SWEEP, **changes}, "sent.yaml")
        plan = make_plan(sweep, load_cluster(tmp_path / "c.toml"))
        save_plan(plan, tmp_path / "run" / "plan.json")
        return tmp_path / "run", plan

    return make


def test_a_plan_that_runs_a_command_here_is_refused_with_the_command_and_what_agrees(sent):
    folder, plan = sent()
    with pytest.raises(InputError) as error:
        plan_to_resume(folder, None)
    assert "\"touch '/nowhere/a file'\"" in error.value.message
    assert error.value.message.endswith(
        f"go on with 'nixwulf bench --resume {folder} --allow-commands'."
    )
    assert plan_to_resume(folder, None, allow_commands=True).cases == plan.cases
    assert resuming(plan, folder).endswith(" --allow-commands")


def test_the_users_own_cluster_file_agrees(sent):
    folder, plan = sent()
    assert plan_to_resume(folder, plan).cases == plan.cases
    _, other = sent(value='command = ["true"]')
    sent()
    with pytest.raises(InputError, match="was started with another plan"):
        plan_to_resume(folder, other)


@pytest.mark.parametrize(
    ("kind", "value", "changes"),
    [
        ("command", COMMAND, {"on_hang": "go-on"}),
        ("shelly", 'url = "http://10.0.0.9"', {}),
    ],
)
def test_where_no_command_would_run_nothing_is_asked(sent, kind, value, changes):
    folder, plan = sent(kind, value, **changes)
    assert plan_to_resume(folder, None).cases == plan.cases
    assert resuming(plan, folder) == f"nixwulf bench --resume {folder}"


@pytest.mark.parametrize("verb", ["bench", "reproduce"])
def test_both_commands_that_resume_refuse_and_reach_no_node(sent, tmp_path, monkeypatch, verb):
    folder, _ = sent()
    ssh = put(tmp_path / "bin", "ssh", 'echo "$@" >>"$0.calls"; exit 255')
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    done = CliRunner().invoke(cli, [verb, "--resume", str(folder)])
    assert done.exit_code == 2
    assert f"nixwulf {verb} --resume {folder} --allow-commands" in done.output
    assert not (ssh.parent / "ssh.calls").exists()


def test_consent_without_a_plan_to_resume_is_refused():
    done = CliRunner().invoke(cli, ["bench", "--allow-commands"])
    assert done.exit_code == 2
    assert "--allow-commands is for a plan that --resume goes on with" in done.output
