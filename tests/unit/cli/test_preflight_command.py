"""Bad input to preflight: one sentence and exit 2; and the table that it prints."""

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.ops.preflight import Preflight, table_of
from nixwulf.plugins.gates import GateResult


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "or bring a lab up by 'nixwulf lab up'"),
        (("--cluster", "nowhere"), "No clusters/nowhere.toml"),
        (("--cluster", "lab"), "No lab 'lab' is up"),
        (
            ("--cluster", "mini-3", "--waive", "mtu"),
            "--waive: unknown gate 'mtu'; did you mean 'path-mtu'?",
        ),
        (
            ("--cluster", "mini-3", "--gate", "mtu"),
            "--gate: unknown gate 'mtu'; did you mean 'path-mtu'?",
        ),
        (("--cluster", "mini-3", "--node", "n9"), "No node 'n9' in 'mini-3'; known: mini1,"),
    ],
)
@pytest.mark.usefixtures("runtime")
def test_what_cannot_be_held_is_named_with_the_next_command(arguments, words):
    result = CliRunner().invoke(cli, ["preflight", *arguments])
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert result.output.count("\n") == 1


def test_a_cluster_file_is_checked_without_reaching_a_node():
    today = CliRunner().invoke(cli, ["preflight", "--cluster", "mini-3", "--only", "file"])
    assert today.exit_code == 0
    assert "cluster 'mini-3', 3 nodes, fabrics " in today.output


def test_what_holds_no_gate_takes_no_option_of_gates():
    arguments = ["preflight", "--cluster", "mini-3", "--only", "facts", "--gate", "ssh"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert "--only facts holds no gate; leave out --gate and --waive." in result.output


def test_the_table_has_a_row_a_gate_and_a_column_a_node():
    results = (
        GateResult("ssh", "n1", "ok"),
        GateResult("ssh", "n2", "refused", ("Node 'n2' cannot be reached.",)),
        GateResult("fabric", "n1", "unknown", ("Why.",)),
    )
    found = Preflight(load_cluster("lab"), results)
    # no output: what the driver itself prints
    assert table_of(found) == "gate    n1  n2\nssh     ok  REFUSED\nfabric  ?"
    assert not found.document()["passed"]
    assert [result.node for result in found.of("refused")] == ["n2"]
