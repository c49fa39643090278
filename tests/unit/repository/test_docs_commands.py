"""Commands in the documents are such as the program takes, and sessions are what it prints."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster

PAGES = [
    *("README.md", "CONTRIBUTING.md", "docs/reference/commands.md"),
    *sorted(map(str, [*Path("docs").glob("*.md"), *Path("docs/how-to").glob("*.md")])),
]
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?nixwulf (?P<words>.*?)(?: >\S+)?$", re.MULTILINE)
# Commands of the flake are those of the program.
FLAKE = re.compile(r"^nix run \.#(?P<app>deploy|update|bench) -- (?P<words>.*)$", re.MULTILINE)
IN_TEXT = re.compile(r"`nixwulf (?P<words>[a-z][^`]*)`")


def commands():
    for page in PAGES:
        text = re.sub(r" \\\n *", " ", Path(page).read_text())
        for block in re.findall(r"```(?:console)?\n(.*?)```", text, re.DOTALL):
            for found in COMMAND.finditer(block):
                yield page, found["words"]
            for found in FLAKE.finditer(block):
                yield page, f"{found['app']} {found['words']}"
        for found in IN_TEXT.finditer(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            if "..." not in found["words"]:
                yield page, found["words"]


def parse(group, words):
    """Let click read the words as it would before it runs a command; raises UsageError."""
    context = click.Context(group, info_name="nixwulf")
    while isinstance(group, click.Group):
        if not words:
            return
        if words[0].startswith("-") and group.invoke_without_command:
            break
        name, group, words = group.resolve_command(context, words)
        if isinstance(group, click.Group):
            context = click.Context(group, info_name=name, parent=context)
    if words:  # a name alone is one that is spoken of
        group.make_context(group.name, list(words), parent=context)


@pytest.mark.parametrize(("page", "words"), sorted(set(commands())))
def test_a_command_in_the_documents_is_one_that_the_program_takes(page, words, in_a_checkout):
    try:
        parse(cli, shlex.split(words, comments=True))
    except click.UsageError as error:
        pytest.fail(f"{page}: nixwulf {words}: {error.format_message()}")


# In a text of a VM test's script; what it makes of variables is none.
OF_A_TEST = re.compile(r"[\"(; ]nixwulf (?P<command>[a-z]+)(?: (?P<sub>[a-z]+)(?= ))?(?=[^\n]*\")")


@pytest.mark.parametrize(
    "path", sorted(Path("nixos/tests").rglob("*.nix")), ids=lambda path: path.stem
)
def test_a_vm_test_runs_commands_that_the_program_has(path):
    text = "\n".join(one for one in path.read_text().splitlines() if one.lstrip()[:1] != "#")
    for found in OF_A_TEST.finditer(text):
        command = cli.get_command(click.Context(cli), found["command"])
        assert command is not None, found[0]
        if isinstance(command, click.Group) and found["sub"]:
            assert found["sub"] in command.commands, found[0]


@pytest.fixture
def in_a_checkout(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of, beside those of the repository."""
    for name in ("clusters", "sweeps", "results", "tests", "driver"):
        (tmp_path / name).symlink_to(Path(name).resolve())
    readme = Path("README.md").read_text()
    (tmp_path / "mine.toml").write_text(block(readme, "toml"))
    smoke = Path("sweeps/smoke.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(
        smoke.replace("{random: {architecture: llama}}", "{path: /models/mine.gguf}")
    )
    (tmp_path / "foo.toml").write_text(block(Path("docs/predict.md").read_text(), "toml"))
    for folder in ("runs/mine", "runs/first", "runs/before", "runs/after", "runs/good"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def block(text, language):
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def dry():
    """Those of which nothing is reached, measured or written."""
    wanted = re.compile(
        r"(bench|plan) .*--dry-run|predict |preflight .*--only file|compare platform="
    )
    return sorted({words for _, words in commands() if wanted.match(words)})


@pytest.mark.parametrize("words", dry())
def test_a_command_that_reaches_nothing_works_as_it_is_written(words, in_a_checkout):
    done = CliRunner().invoke(cli, shlex.split(words, comments=True))
    assert done.exit_code == 0, f"nixwulf {words}: {done.output}"


def test_a_copy_of_smoke_with_a_model_has_cases_on_the_readme_s_cluster(in_a_checkout):
    assert yaml.safe_load(Path("mine.yaml").read_text())["models"] == {
        "tiny": {"path": "/models/mine.gguf"}
    }
    assert len(load_cluster("mine.toml").nodes) == 2
    done = CliRunner().invoke(cli, ["bench", "mine.yaml", "--cluster", "mine.toml", "--dry-run"])
    assert done.exit_code == 0
    assert "3 cases" in done.output


def sweeps():
    for page in PAGES:
        for number, text in enumerate(
            re.findall(r"```yaml\n(.*?)```", Path(page).read_text(), re.DOTALL)
        ):
            if text.startswith("name:"):
                yield pytest.param(text, id=f"{page}-{number}")


@pytest.mark.parametrize("text", list(sweeps()))
def test_a_sweep_in_the_documents_has_cases_on_a_cluster(text, in_a_checkout):
    """On that of the README; fabrics that it lacks are the page's example of a choice."""
    document = yaml.safe_load(text)
    document["matrix"].pop("fabric", None)
    document.pop("exclude", None)
    Path("page.yaml").write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(cli, ["bench", "page.yaml", "--cluster", "mine.toml", "--dry-run"])
    assert done.exit_code == 0, done.output


def sessions():
    for page in PAGES:
        if page.startswith("docs/how-to/"):  # those have machines of their own: test_how_to.py
            continue
        for text in re.findall(r"```console\n\$ (.*?)```", Path(page).read_text(), re.DOTALL):
            command, *shown = text.splitlines()
            if (
                "$ " not in "".join(shown) and " import " not in command
            ):  # those are tested with their files
                yield pytest.param(command, shown, id=f"{page}: {command[:40]}")


@pytest.mark.parametrize(("command", "shown"), list(sessions()))
def test_a_session_is_what_the_command_prints(command, shown):
    """Lines of '...' stand for some that are left out."""
    program, *arguments = shlex.split(command)
    done = CliRunner().invoke(cli, arguments)
    assert (program, done.exit_code) == ("nixwulf", 0), done.output
    printed = "\n".join(line.rstrip() for line in done.output.splitlines())
    at = 0
    for part in re.split(r"^\.\.\.$", "\n".join(shown), flags=re.MULTILINE):
        assert part.strip("\n") in printed[at:]
        at = printed.index(part.strip("\n"), at) + len(part.strip("\n"))
