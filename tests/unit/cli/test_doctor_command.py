"""nixwulf doctor from its command line: bad input, its three formats, and its exit codes."""

import json

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.nodes.facts import NodeReading
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.doctor import examine
from tool_outputs import fixture

WELL = NodeReading.of(fixture("doctor/raspberry-pi-cm5.txt"))
# hand-made: no Pi is at hand (form: https://github.com/geerlingguy/sbc-reviews/issues/21)
HOT = NodeReading.of(fixture("doctor/raspberry-pi-cm5.txt") + "@log:Undervoltage detected!\n")


@pytest.fixture
def machines(monkeypatch):
    """What each host prints, by name; a host that is not here does not answer."""
    answers = {}
    monkeypatch.setattr(
        examine,
        "open_all",
        lambda hosts: {h.node.name: "No answer." for h in hosts if h.node.name not in answers},
    )
    monkeypatch.setattr(
        examine,
        "gather_readings",
        lambda hosts, programs, faults: {h.node.name: answers[h.node.name] for h in hosts},
    )
    monkeypatch.setattr(Connection, "run", lambda *arguments, **options: pytest.fail("asked again"))
    monkeypatch.setattr(examine, "examine", lambda context, nodes, waived: [])
    return answers


def doctor(*arguments):
    return CliRunner().invoke(cli, ["doctor", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "or bring a lab up by 'nixwulf lab up'"),
        (("--cluster", "nowhere"), "No clusters/nowhere.toml"),
        (("--cluster", "mini-3", "--node", "n9"), "No node 'n9' in 'mini-3'"),
        (("you@h1", "--cluster", "mini-3"), "Give HOST or --cluster"),
        (("you@h1", "--node", "h1"), "give HOST or --node"),
    ],
)
@pytest.mark.usefixtures("runtime")
def test_what_cannot_be_examined_is_named(arguments, words):
    result = doctor(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert "Traceback" not in result.output


def test_hosts_that_are_well_are_three_lines_and_exit_0(machines):
    machines |= {"h1": WELL, "h2": WELL}
    result = doctor("h1", "h2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[-1].startswith("2 machines: 0 wrong, 0 warning, 0 unknown, ")
    assert len(lines) == 2


def test_a_fault_ends_with_3_and_its_mend_and_source_stand_below_it(machines):
    machines |= {"h1": WELL, "h2": HOT}
    result = doctor("h1", "h2")
    assert result.exit_code == 3
    first = result.output.splitlines()[:4]
    assert first[0].startswith("wrong    under-voltage on h2: ")
    assert [line.split(":")[0].strip() for line in first[1:]] == ["expected", "mend", "source"]


def test_a_host_that_does_not_answer_is_wrong_and_the_others_are_examined(machines):
    machines["h1"] = WELL
    found = json.loads(doctor("h1", "h2", "--format", "json").output)
    assert not found["passed"]
    assert found["nodes"] == ["h1", "h2"]
    states = {(one["node"], one["check"]): one["state"] for one in found["findings"]}
    assert states["h2", "ssh"] == "wrong"
    assert states["h1", "shared-memory"] == "ok"


def test_ndjson_is_a_finding_a_line_with_every_key(machines):
    machines["h1"] = HOT
    result = doctor("h1", "--format", "ndjson")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert len(rows) > 30
    keys = {"node", "check", "state", "read", "expected", "mend", "source"}
    assert all(set(row) == keys for row in rows)
    assert all(row["mend"] for row in rows if row["state"] != "ok")
