"""The campaign's trials are what the issue of faults asks for, and each can be done."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "campaign"))

import faults
from trial import CASES, KINDS
from trials import TRIALS

ROOT = Path(__file__).parents[3]


def test_there_are_many_trials_each_with_a_name_a_case_and_a_fault_that_exist():
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 150
    for trial in TRIALS:
        assert trial.case in CASES
        assert callable(getattr(faults, trial.fault))
        assert trial.fault in KINDS


@pytest.mark.repository
def test_all_of_the_campaign_runs_nightly_and_may_only_read():
    workflow = (ROOT / ".github/workflows/nightly.yml").read_text()
    assert "permissions:\n  contents: read\n" in workflow
    assert "tests/campaign all" in workflow
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)
