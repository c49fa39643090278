"""The sessions in the pages on predicting and explaining are what the commands print."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nixwulf.cli import cli
from nixwulf.cluster import load_cluster
from nixwulf.plan import make_plan
from nixwulf.sweep import parse_sweep

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


def test_the_sweep_of_the_page_can_be_run():
    (text,) = re.findall(r"```yaml\n(.*?)```", Path("docs/explain.md").read_text(), re.DOTALL)
    plan = make_plan(parse_sweep(yaml.safe_load(text), "docs/explain.md"), load_cluster("lab"))
    assert len(plan.cases) == 5
