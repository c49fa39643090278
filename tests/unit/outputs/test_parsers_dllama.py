"""What dllama printed when tools/fixtures/dllama.py ran it: whole, cut off, and refused."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.dllama import Speed, Step, parse, recognises, steps

FIXTURES = Path("tests/fixtures/dllama")
FILES = sorted(FIXTURES.glob("*.txt"))


def text_of(name):
    return (FIXTURES / f"{name}.txt").read_text()


def test_speeds_and_every_token_with_its_sync_and_traffic_are_read():
    result = parse(text_of("two-nodes"))
    assert result.evaluation == Speed(tokens=32, tokens_s=75.78)
    assert result.prediction == Speed(tokens=16, tokens_s=32.22)
    assert result.batches == (Step(15, 406, 816, 832, "(32 tokens)"),)
    assert len(result.tokens) == 16
    assert result.tokens[-1] == Step(1, 68, 25, 26, " bogu")


def test_one_node_sends_nothing_and_four_nodes_are_read_too():
    alone = parse(text_of("one-node"))
    assert {(s.sync_ms, s.sent_kib, s.received_kib) for s in alone.tokens} == {(0, 0, 0)}
    assert parse(text_of("four-nodes")).tokens[0].received_kib == 75


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("killed-worker", "Execution failed in one of the threads"),
        ("too-many-nodes", "does not support more nodes than the number of KV heads"),
        ("f32-with-q80", "Unsupported CPU op code: MATMUL"),
        ("no-tokenizer", "Failed to open tokenizer file"),
        ("no-worker", "Cannot connect"),
        ("cpu-build-with-gpu-index", "This build does not support GPU"),
        ("vulkan-no-such-index", "Invalid GPU index, found 1 GPUs"),
        ("vulkan-two-threads", "This configuration supports max 1 threads"),
        ("vulkan-f32-with-q80", "Unsupported shader: MATMUL/Q80_F32_F32"),
    ],
)
def test_an_error_is_refused_with_its_line_and_dllamas_own_words(name, words):
    with pytest.raises(ParseError, match=rf"^dllama: line \d+: expected no error.*{words}"):
        parse(text_of(name))


@pytest.mark.parametrize("name", ["two-nodes", "four-nodes", "vulkan-one-node", "vulkan-two-nodes"])
def test_nodes_and_devices_change_the_times_and_not_the_tokens(name):
    alone, other = ([step.text for step in parse(text_of(n)).tokens] for n in ("one-node", name))
    assert len(set(alone)) == 16
    assert other == alone


def test_tokens_before_a_crash_can_still_be_read():
    kept = steps(text_of("killed-worker"), "Pred")
    assert kept[-1] == Step(2, 0, 25, 26, " bize")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tokens/s: 32.22", "tokens/s: inf", r"tokens/s: NUMBER"),
        ("tokens/s: 32.22", "tokens/s: -nan", r"tokens/s: NUMBER"),
        ("    nTokens: 16", "    nTokens: 17", "17 lines of tokens, not 16"),
        ("Prediction\n", "", "a line 'Prediction'"),
    ],
)
def test_what_is_no_result_is_refused_with_what_was_expected(old, new, expected):
    text = text_of("two-nodes")
    assert old in text
    with pytest.raises(ParseError, match=rf"^dllama: line \d+: expected {expected}"):
        parse(text.replace(old, new))


def test_pieces_of_text_that_end_lines_and_a_prompt_that_looks_like_a_result_do_no_harm():
    text = text_of("two-nodes").replace(" bogu\n", "\n\n")
    # no output: a prompt that looks like a result
    text = text.replace(" for the but", "Evaluation\nPrediction\n for the but")
    assert parse(text).tokens[-1].text == ""
    assert parse(text).prediction.tokens_s == 32.22


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_text_cut_short_at_any_line_or_byte_gives_a_result_or_the_parsers_own_error(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for end in range(len(lines)):
        for part in (0, len(lines[end]) // 2):
            with suppress(ParseError):
                parse((b"".join(lines[:end]) + lines[end][:part]).decode(errors="replace"))


@given(st.text())
def test_any_text_gives_a_result_or_the_parsers_own_error(text):
    with suppress(ParseError):
        parse(text)


def test_its_output_is_recognised_and_that_of_others_is_not():
    for name in ("one-node", "two-nodes", "killed-worker", "no-worker"):
        assert recognises(text_of(name)), name
    assert not recognises(Path("tests/fixtures/mlx/mlx.single.llama.txt").read_text())
