"""The campaign's trials are what the issue of faults asks for, and each can be done."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "campaign"))

import faults
from trial import CASES, KINDS, OUTSIDE
from trials import TRIALS

ROOT = Path(__file__).parents[3]


def test_there_are_many_trials_each_with_a_name_a_case_and_a_fault_that_exist():
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 150
    for trial in TRIALS:
        assert trial.case in CASES
        assert callable(getattr(faults, trial.fault))
        assert trial.fault in KINDS


@pytest.mark.repository
def test_who_is_trusted_is_said_with_trials_options_and_files_that_there_are():
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line[:2] == "| "]
    assert len(rows) >= 11
    assert all(len(row) == 4 and all(row) for row in rows)
    kinds = {*KINDS.values(), "hostile inputs", "private texts"}
    for *_, tried in rows[2:]:
        for one in tried.split(", "):
            assert one in kinds or (ROOT / one.strip("`")).is_file(), one
    for path in re.findall(r"\]\(([\w/.-]+)\)", text):
        assert (ROOT / path).is_file(), path
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    named = re.findall(r"`(--[a-z-]+)`", text)
    assert len(named) >= 3
    assert all(f"{one}" in page for one in named)
    assert all(f"nixwulf {one}" in page for one in re.findall(r"`nixwulf ([a-z]+)", text))


@pytest.mark.repository
def test_the_kinds_of_the_outside_were_tried_and_the_page_says_how_many():
    figures = json.loads((ROOT / "results/figures/campaign.json").read_text("utf-8"))
    tried = {row["kind"]: row["trials"] for row in figures["faults"]["groups"]}
    page = (ROOT / "docs/reference/campaign.md").read_text("utf-8")
    for kind in OUTSIDE.values():
        assert f"| {kind} | {tried[kind]} |" in page


@pytest.mark.repository
def test_all_of_the_campaign_runs_nightly_and_may_only_read():
    workflow = (ROOT / ".github/workflows/nightly.yml").read_text()
    assert "permissions:\n  contents: read\n" in workflow
    assert "tests/campaign all" in workflow
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)
