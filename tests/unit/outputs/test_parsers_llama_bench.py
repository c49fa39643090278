import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.llama_bench import parse, recognises

FIXTURES = Path("tests/fixtures/llama-bench")
FORMS = [FIXTURES / f"two-depths.{form}" for form in ("md", "csv", "json", "jsonl", "sql")]
TABLE = (FIXTURES / "two-depths.md").read_text()
SERVERS = (FIXTURES / "two-servers.md").read_text()
BUFFERS = (FIXTURES / "two-servers-buffers.txt").read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.suffix)
def test_every_form_of_its_output_gives_the_same_tests_model_and_build(path):
    (commit,) = re.findall(r"commit (\w+)", (FIXTURES / "version.txt").read_text())
    rows = parse(path.read_text())
    assert [row.test for row in rows] == ["pp16", "tg4", "pp16 @ d32", "tg4 @ d32"]
    assert [row.metric for row in rows] == ["prompt", "decode"] * 2
    assert [(row.n_prompt, row.n_gen, row.n_depth) for row in rows] == [
        (16, 0, 0),
        (0, 4, 0),
        (16, 0, 32),
        (0, 4, 32),
    ]
    for row in rows:
        assert (row.model, row.backend, row.rpc_servers) == ("llama ?B F16", "CPU", 0)
        assert row.build_commit == commit
        assert row.mean > 0
        assert row.deviation > 0


@pytest.mark.parametrize("path", FORMS[2:4], ids=lambda path: path.suffix)
def test_json_keeps_every_sample(path):
    for row in parse(path.read_text()):
        assert len(row.samples) == 2
        assert sum(row.samples) / 2 == pytest.approx(row.mean, rel=1e-3)


@pytest.mark.parametrize("name", ["rpc-server-killed.json", "rpc-server-killed.jsonl"])
def test_what_was_printed_before_a_crash_is_kept(name):
    (row,) = parse((FIXTURES / name).read_text())
    assert (row.test, row.rpc_servers) == ("pp64", 2)


def test_without_a_row_the_error_quotes_the_line_that_says_why():
    with pytest.raises(ParseError, match="no result row in 4 lines.* line 1 says .*failed to allo"):
        parse((FIXTURES / "too-little-memory.stderr").read_text())


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        # no output: the line that one types before it
        (f"$ llama-bench -m a.gguf\n{SERVERS}", 0),
        # no output: the line that one types before it
        (f"$ llama-bench --rpc 10.0.0.2:1,10.0.0.3:1,10.0.0.4:1 -m a.gguf\n{SERVERS}", 3),
        (BUFFERS, 2),
        (BUFFERS.replace("RPC0[", "RPC["), 2),
        (SERVERS, None),
        (TABLE, 0),
    ],
    ids=["no --rpc", "--rpc", "buffers", "older buffers", "nothing", "no RPC"],
)
def test_rpc_servers_are_counted_from_the_command_or_the_log(text, servers):
    assert {row.rpc_servers for row in parse(text)} == {servers}


def test_each_run_of_a_document_has_its_own_build():
    (ours,) = {row.build_commit for row in parse(TABLE)}
    second = TABLE.replace(f"build: {ours}", "build: bbb")
    assert [row.build_commit for row in parse(TABLE + second)] == [ours] * 4 + ["bbb"] * 4


def test_prompt_and_decode_in_one_test_are_neither():
    *_, row = parse((FIXTURES / "both-in-one.md").read_text())
    assert (row.metric, row.n_prompt, row.n_gen) == ("prompt_and_decode", 16, 4)


@pytest.mark.timeout(60)
def test_objects_that_never_end_cost_no_more_than_their_lines():
    """Where each is read to the end of the text, this takes minutes, not two seconds."""
    with pytest.raises(ParseError, match="no result row"):
        parse("{\n" * 300_000)


def test_a_speed_that_is_none_names_its_line():
    speed = SERVERS.splitlines()[2].split("|")[-2].strip()
    with pytest.raises(ParseError, match=r"line 3: 'nan ± nan' is no speed, expected"):
        parse(SERVERS.replace(speed, "nan ± nan"))


@given(text=st.text(), path=st.sampled_from(FORMS), at=st.floats(0, 1))
def test_any_text_gives_rows_or_a_parse_error(text, path, at):
    whole = path.read_text()
    cut = int(len(whole) * at)
    for damaged in (text, whole[:cut], whole[:cut] + text + whole[cut:]):
        recognises(damaged)
        with contextlib.suppress(ParseError):
            assert parse(damaged)
