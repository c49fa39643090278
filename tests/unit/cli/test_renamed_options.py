"""Options that had other spellings: those still work, and help shows today's alone."""

import json

import click
import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.cli.options import RenamedOption

ASK = ["--cluster", "framework-2", "--model", "Llama-3.1-70B", "--quant", "Q4_K_M"]


def renamed(group=cli, words=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from renamed(command, (*words, name))
        for option in command.params:
            if isinstance(option, RenamedOption):
                yield (*words, name), option


def value_of(words, option, spelling, value):
    command = cli
    for word in words:
        command = command.get_command(click.Context(command), word)
    arguments = [spelling] if value is None else [spelling, value]
    context = command.make_context(words[-1], arguments, resilient_parsing=True)
    return context.params[option.name]


@pytest.mark.parametrize(
    ("words", "option"),
    [pytest.param(words, option, id=" ".join((*words, option.opts[0])))
     for words, option in renamed()],
)  # fmt: skip
def test_an_earlier_spelling_gives_what_todays_gives_and_is_not_in_the_help(words, option):
    value = option.means or "7"
    today = value_of(words, option, option.opts[0], value)
    assert today != option.default
    for spelling in option.earlier:
        assert value_of(words, option, spelling, None if option.means else value) == today
        shown = CliRunner().invoke(cli, [*words, "--help"]).output
        assert option.opts[0] in shown
        assert f"{spelling} " not in shown


def test_the_earlier_spellings_that_users_may_have_typed_are_all_taken():
    found = {(words[-1], spelling) for words, option in renamed() for spelling in option.earlier}
    assert found >= {
        ("predict", "--batch"), ("deploy", "--limit"), ("deploy", "--wait"),
        ("reboot", "--deadline"), ("shutdown", "--deadline"), ("recover", "--deadline"),
        ("engines", "--json"), ("preflight", "--json"), ("status", "--json"), ("import", "--json"),
    }  # fmt: skip


def test_a_wrong_value_names_the_spelling_of_today():
    done = CliRunner().invoke(cli, ["predict", *ASK, "--batch", "none"])
    assert done.exit_code == 2
    assert "Invalid value for '--concurrency'" in done.output


def test_json_by_either_spelling_is_the_same_document():
    today, earlier = (
        CliRunner().invoke(cli, ["engines", *words]).output
        for words in (["--format", "json"], ["--json"])
    )
    assert json.loads(today) == json.loads(earlier)
