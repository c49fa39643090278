import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.parsers import ParseError
from nixwulf.parsers.llama_bench import parse, recognises

FIXTURES = Path("tests/fixtures/llama-bench")
FORMS = [FIXTURES / f"two-depths.{form}" for form in ("md", "csv", "json", "jsonl", "sql")]
HEAD = "| model | size | params | backend | ngl | test | t/s |\n| --- | --- | - | - | - | - | - |\n"


def table(*lines):
    return HEAD + "".join(f"| qwen3 8B | 4.68 GiB | 8.19 B | {line} |\n" for line in lines)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.suffix)
def test_every_form_of_its_output_gives_the_same_tests_model_and_build(path):
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
        assert (row.build_commit, row.build_number) == ("0c1e570", 0)
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
    ("log", "servers"),
    [
        ("$ llama-bench -m a.gguf\n{}", 0),
        ("$ llama-bench --rpc 10.0.0.2:1,10.0.0.3:1 -m a.gguf\n{}", 2),
        ("load_tensors: RPC[10.0.0.2:1] model buffer size = 9 MiB\n{}", 1),
        ("{}", None),
    ],
    ids=["no --rpc", "--rpc", "buffers", "nothing"],
)
def test_rpc_servers_are_counted_from_the_command_or_the_log(log, servers):
    (row,) = parse(log.format(table("Vulkan,RPC | 99 | tg128 | 20.00 ± 0.10")))
    assert row.rpc_servers == servers


def test_each_run_of_a_document_has_its_own_build():
    first = table("CUDA | 99 | pp512 | 9.0 ± 0.1") + "\nbuild: aaa (1)\n"
    second = table("CUDA | 99 | tg32 | 8.0 ± 0.1") + "\nbuild: bbb (2)\n"
    assert [row.build_commit for row in parse(first + second)] == ["aaa", "bbb"]


def test_prompt_and_decode_in_one_test_are_neither():
    (row,) = parse(table("CUDA | 99 | pp4096+tg128 | 900.5 ± 1.0"))
    assert (row.metric, row.n_prompt, row.n_gen) == ("prompt_and_decode", 4096, 128)


@pytest.mark.timeout(60)
def test_objects_that_never_end_cost_no_more_than_their_lines():
    """Where each is read to the end of the text, this takes minutes, not two seconds."""
    with pytest.raises(ParseError, match="no result row"):
        parse("{\n" * 300_000)


def test_a_speed_that_is_none_names_its_line():
    with pytest.raises(ParseError, match=r"line 3: 'nan ± nan' is no speed, expected"):
        parse(table("CUDA | 99 | tg32 | nan ± nan"))


@given(text=st.text(), path=st.sampled_from(FORMS), at=st.floats(0, 1))
def test_any_text_gives_rows_or_a_parse_error(text, path, at):
    whole = path.read_text()
    cut = int(len(whole) * at)
    for damaged in (text, whole[:cut], whole[:cut] + text + whole[cut:]):
        recognises(damaged)
        with contextlib.suppress(ParseError):
            assert parse(damaged)
