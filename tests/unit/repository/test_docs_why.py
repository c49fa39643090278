"""The sessions in the pages on predicting and explaining are what the commands print."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli

PAGES = ("docs/predict.md", "docs/explain.md")


def sessions(page):
    """Each command of a page with the lines that it shows."""
    for block in re.findall(r"```console\n\$ (.*?)```", Path(page).read_text(), re.DOTALL):
        command, *shown = block.splitlines()
        yield command, shown


@pytest.mark.parametrize(("command", "shown"), [one for page in PAGES for one in sessions(page)])
def test_a_command_of_the_page_prints_what_the_page_shows(command, shown):
    program, *arguments = shlex.split(command)
    done = CliRunner().invoke(cli, arguments)
    assert (program, done.exit_code) == ("nixwulf", 0), done.output
    printed = [line.rstrip() for line in done.output.splitlines()]
    if shown[-1] == "...":  # the page leaves out the rest
        shown = shown[:-1]
        printed = printed[: len(shown)]
    assert printed == shown
