"""The workflows and forms are such as GitHub takes, and run nothing that can change unseen."""

import re
import subprocess
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
    "sources": {"ask": {"contents", "pull-requests"}},
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


@pytest.mark.parametrize(("status", "requests"), [(0, []), (1, ["pr view", "pr create"])])
def test_what_has_to_be_read_again_is_one_request(tmp_path, status, requests):
    """The workflow's own script, with stand-ins for the two tools and for GitHub's program."""
    *_, step = yaml.safe_load(Path(".github/workflows/sources.yml").read_text())["jobs"]["ask"][
        "steps"
    ]
    for command in ("init -q --bare ../origin.git", "init -q", "remote add origin ../origin.git"):
        (tmp_path / "work").mkdir(exist_ok=True)
        subprocess.run(["git", *command.split()], cwd=tmp_path / "work", check=True)
    for name, text in (
        (".venv/bin/python", f'echo "$1: read it"; exit {status}'),
        ("bin/gh", f'echo "$1 $2" >>{tmp_path}/asked'),
    ):
        program = tmp_path / "work" / name
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=tmp_path / "work",
        env={"PATH": f"{tmp_path}/work/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    asked = tmp_path / "asked"
    assert (asked.read_text().splitlines() if asked.exists() else []) == requests
    shown = ["git", "--git-dir", tmp_path / "origin.git", "show", "sources:to-read.txt"]
    listed = subprocess.run(shown, capture_output=True, text=True, check=False).stdout
    assert listed.count("read it") == 2 * status
