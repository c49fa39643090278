"""Words of others on a terminal: names in the next command, and what nodes say."""

import ast
import re
import shlex
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import nixwulf
from nixwulf.cli import nodes
from nixwulf.core.text import as_typed

# hand-made: what a node that lies may print (form: ECMA-48, OSC 0 sets a window's title)
SAID = "vm\x1b]0;pwn\x07\x1b[2J\x9b31m\u202e\x00\r\nn2: fine"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
# Names that the schemas hold to letters, digits, '.', '_' and '-', or whole clauses.
PLAIN = {
    *("_LAB", "name", "self.name", "fabric", "definition.nodes[0].name"),
    *("found", "hub", "file", "check", "cluster", "source", "what", "consent", "named"),  # quoted
    *("only", "wanted", "side", "why", "row.source", "_MAJOR"),  # in no command
}


@pytest.mark.parametrize(
    "name", ["$(touch x) `id`.gguf", "it's; rm -rf ~", "a b", "", "plain.gguf"]
)
def test_a_command_is_read_by_a_shell_as_it_was_meant_with_our_quotes_or_without(name):
    told = as_typed("models", "push", name)
    assert shlex.split(told) in (
        ["nixwulf", "models", "push", name],
        [f"nixwulf models push {name}"],
    )


def test_no_command_is_printed_with_a_word_that_is_not_quoted():
    package = Path(nixwulf.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        texts = (
            one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.JoinedStr)
        )
        for text in texts:
            before = ""
            for part in text.values:
                if isinstance(part, ast.Constant):
                    before += part.value
                    continue
                word = ast.unparse(part.value)
                command = re.search(r"nixwulf [a-z]+ [^'.;]*$", before)
                if command and word not in PLAIN and not word.startswith(("shlex.", "as_typed(")):
                    found.append(f"{path.relative_to(package)}: {word}")
                before += "x"
    assert found == []


@pytest.fixture
def cluster(monkeypatch):
    node = SimpleNamespace(node=SimpleNamespace(name="n1"))
    found = (None, {"n1": node}, ["n1"])
    monkeypatch.setattr("nixwulf.cli.options.find_nodes", lambda *_: found)


def test_what_a_node_prints_gives_a_terminal_no_orders(monkeypatch, cluster):
    monkeypatch.setattr("nixwulf.nodes.ssh.open_all", lambda _: {})
    answers = [CompletedProcess([], 0, SAID, SAID)]
    monkeypatch.setattr("nixwulf.nodes.ssh.run_all", lambda *_, **__: answers)
    printed = CliRunner().invoke(nodes.nodes, ["exec", "--", "uname"]).output
    assert "n1: vm" in printed
    assert not UNSEEN.search(printed)
    assert all(line.startswith("n1: ") for line in printed.splitlines())


def test_what_a_node_says_while_it_is_recovered_gives_a_terminal_no_orders(monkeypatch, cluster):
    def recover(_cluster, _everyone, names, say, **_):
        say("n1", f"stopped {SAID}")
        return [SimpleNamespace(nodes=tuple(names), step=None, words=SAID)]

    monkeypatch.setattr("nixwulf.ops.recover.recover", recover)
    done = CliRunner().invoke(nodes.nodes, ["recover"])
    assert done.exit_code == 1
    assert "stopped vm" in done.output
    assert not UNSEEN.search(done.output)
    assert all(line.startswith("n1: ") for line in done.output.splitlines())
