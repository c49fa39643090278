"""`nixwulf lab` with bad input: one sentence, exit code 2, and nothing made."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nixwulf.cli.main import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["lab", *arguments])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--nodes", "1"], "2 to 16 nodes, not 1"),
        (["up", "--nodes", "17"], "2 to 16 nodes, not 17"),
        (["up", "--nodes", "-4"], "2 to 16 nodes, not -4"),
        (["up", "--nodes", "two"], "'two' is not a valid integer"),
        (["up", "--name", "a;rm -rf b"], "The lab name 'a;rm -rf b' is not"),
        (["up", "--name", "../x"], "The lab name '../x' is not"),
        (["up", "--name", "x" * 33], "1 to 32 letters"),
        (["up", "--cluster", "absent"], "No clusters/absent.toml"),
        (["status"], "No lab 'lab' is up; bring it up with: nixwulf lab up --name lab"),
        (["status", "--name", "$(id)"], "The lab name '$(id)' is not"),
        (["down"], "No lab 'lab' is up"),
        (["exec", "n1", "--", "true"], "No lab 'lab' is up"),
        (["link", "thunderbolt", "--delay-us", "5"], "No lab 'lab' is up"),
        (["link", "thunderbolt", "--delay-us", "soon"], "'soon' is not a valid float"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, runtime: Path
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert not list(runtime.iterdir())


@pytest.mark.usefixtures("runtime")
def test_down_of_all_labs_is_no_error_when_there_are_none() -> None:
    assert run("down", "--all").exit_code == 0


@pytest.mark.parametrize("command", ["up", "down", "status", "exec", "link"])
def test_the_help_of_each_command_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"nixwulf lab {command}" in result.output.partition("Example:")[2]
