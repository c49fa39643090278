"""The public workflow: what it builds, on which machines, and what waits for what."""

import re
from pathlib import Path

import pytest
import yaml

WORKFLOW = Path(__file__).parents[2] / ".github" / "workflows" / "ci.yml"
BUILDS = ("vm", "image")


@pytest.fixture(scope="module")
def jobs() -> dict:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def commands(job: dict) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_no_build_waits_for_the_check_of_all_systems(jobs):
    (check,) = [name for name, job in jobs.items() if "--all-systems" in commands(job)]
    waits = {name: jobs[name].get("needs") for name in BUILDS}
    assert check not in waits.values()
    assert waits == {"vm": "names", "image": "names"}


def test_what_nixpkgs_cache_lacks_is_built_once(jobs):
    for name in BUILDS:
        uses = [step.get("uses", "").partition("@")[0] for step in jobs[name]["steps"]]
        assert "DeterminateSystems/magic-nix-cache-action" in uses, name


def test_an_image_is_built_on_a_runner_of_its_own_architecture(jobs):
    assert (
        "matrix.image.system == 'aarch64-linux' && 'ubuntu-24.04-arm'" in jobs["image"]["runs-on"]
    )
    (build,) = [step for step in jobs["image"]["steps"] if "nix build" in step.get("run", "")]
    assert ".#packages.$SYSTEM.$IMAGE" in build["run"]
    assert build["env"]["SYSTEM"] == "${{ matrix.image.system }}"


def test_a_pull_request_may_read_and_its_values_reach_no_shell_as_text(jobs):
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {"contents": "read"}
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_an_action_is_what_it_was_when_it_was_chosen(jobs):
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
