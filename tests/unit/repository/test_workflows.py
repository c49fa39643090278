"""The workflows and forms are such as GitHub takes, and run nothing that can change unseen."""

import re
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.repository
WORKFLOWS = sorted(Path(".github/workflows").glob("*.yml"))
FORMS = sorted(set(Path(".github/ISSUE_TEMPLATE").glob("*.yml")) - {
    Path(".github/ISSUE_TEMPLATE/config.yml")
})  # fmt: skip
USED = re.compile(r"uses: (\S+?)@(\S+)(?: # (v\S+))?")
WRITES = {
    "release": {"pypi": {"id-token"}, "github": {"contents"}},
    "pages": {"site": {"contents"}},
    "update-flake-lock": {"update": {"contents", "pull-requests"}},
}


def named(path):
    return path.stem


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_every_action_is_a_commit_that_names_its_version(path):
    for action, commit, version in USED.findall(path.read_text()):
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        assert version, action


def test_one_action_is_one_commit_in_all_workflows():
    pins = {found for path in WORKFLOWS for found in USED.findall(path.read_text())}
    assert len(pins) == len({action for action, _, _ in pins})


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_a_workflow_may_read_and_its_jobs_write_what_they_are_for(path):
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {"contents": "read"}
    writing = {
        name: {what for what, may in job["permissions"].items() if may == "write"}
        for name, job in document["jobs"].items()
        if "permissions" in job
    }
    assert writing == WRITES.get(path.stem, {})
    assert all("timeout-minutes" in job for job in document["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_no_script_has_a_value_of_an_event_in_its_text(path):
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for step in job["steps"]:
            assert "github.event" not in step.get("run", "")


def test_there_are_forms_for_numbers_predictions_and_bugs():
    assert [path.stem for path in FORMS] == ["bug", "numbers", "prediction"]


@pytest.mark.parametrize("path", FORMS, ids=named)
def test_a_form_has_fields_of_kinds_that_github_knows(path):
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "checkboxes", "dropdown"}
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in fields)
