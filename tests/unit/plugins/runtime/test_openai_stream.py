"""What a client makes of a stream, and of every way in which one can be broken."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken_endpoint import (
    DONE,
    END,
    FINISH,
    HEAD,
    chunk,
    event,
    plain,
    serving,
    text,
    usage,
)
from nixwulf.plugins.runtime.openai_stream import PATHS, StreamError, StreamReader, ask, body

STREAMS = Path("tests/fixtures/openai-streams")
WHOLE = [HEAD, text(" a"), text(" b"), text(" c"), FINISH, usage(7, 3), DONE, END]


def asked(folder, pieces, api="completions"):
    """The answer that a client gets from a server that sends these pieces, and what it heard."""
    heard = []

    async def go():
        async with (
            serving(folder, lambda request: pieces) as endpoint,
            endpoint.async_client() as client,
        ):
            request = body(api, "m", "the and", 4, 1)
            return await ask(client, PATHS[api], request, lambda: heard.append(1))

    return asyncio.run(go()), len(heard)


def payload(*pieces):
    """The server-sent events in chunks of HTTP."""
    return b"".join(piece.split(b"\r\n")[1] for piece in pieces)


# A llama-server gives a chat of a model without a template that of ChatML.
@pytest.mark.parametrize(
    ("server", "api", "prompt"),
    [
        ("llama-server", "completions", 19),
        ("llama-server", "chat", 69),
        ("mlx_lm.server", "completions", 19),
        ("mlx_lm.server", "chat", 18),
    ],
)
def test_the_stream_of_a_server_is_an_answer_with_its_own_counts(tmp_path, server, api, prompt):
    answer, _ = asked(tmp_path, [(STREAMS / f"{server}.{api}.http").read_bytes()], api)
    assert (answer.counted, answer.tokens, len(answer.came)) == (True, 4, 4)
    assert (answer.prompt_tokens, answer.finish) == (prompt, "length")
    assert ("predicted_per_second" in answer.timings) == (server == "llama-server")


@pytest.mark.parametrize("path", sorted(STREAMS.glob("*.http")), ids=lambda path: path.stem)
def test_the_stream_of_a_server_cut_anywhere_is_whole_or_one_sentence(tmp_path, path):
    api, stream = path.stem.rpartition(".")[2], path.read_bytes()
    for end in range(0, len(stream), 97):
        with suppress(StreamError):
            answer, _ = asked(tmp_path, [stream[:end]], api)
            assert (len(answer.came), answer.finish) == (4, "length")


def test_an_answer_is_counted_by_the_server_and_by_its_chunks(tmp_path):
    answer, heard = asked(tmp_path, WHOLE)
    assert (answer.prompt_tokens, answer.tokens, len(answer.came)) == (7, 3, 3)
    assert answer.finish == "length"
    assert answer.sent < answer.came[0]
    assert heard >= 1, "whatever comes is a sign of progress"


def test_every_chunk_with_text_has_the_moment_at_which_it_was_read():
    reader = StreamReader("/v1/completions")
    for moment, piece in ((1.5, text(" a")), (2.0, text(" b")), (3.0, text(" c"))):
        reader.feed(payload(piece), moment)
    reader.feed(payload(FINISH, usage(7, 3), DONE), 4.0)
    answer = reader.answer(1.0)
    assert answer.ttft_ms == 500
    assert answer.gaps_ms == [500, 1000]
    assert answer.decode == pytest.approx(2 / 1.5)
    assert answer.document()["came"] == [500, 1000, 2000]


def test_without_usage_the_chunks_with_text_are_all_that_is_known(tmp_path):
    answer, _ = asked(tmp_path, [HEAD, text(" a"), text(""), text(" b"), FINISH, DONE, END])
    assert not answer.counted
    assert answer.tokens == 2
    assert "prompt_tokens" not in answer.document()


def test_a_role_and_an_empty_text_are_no_tokens_and_thoughts_are(tmp_path):
    deltas = [
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"content": "yes"},
        {"content": ""},
        {},
    ]
    chat = [event({"choices": [{"delta": delta}]}) for delta in deltas]
    end = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    answer, _ = asked(tmp_path, [HEAD, *chat, end, usage(9, 3), DONE, END], "chat")
    assert len(answer.came) == 3
    assert answer.finish == "stop"


def test_comments_and_other_fields_of_events_are_passed_over(tmp_path):
    # no output: fields that the standard of events has and a server may send
    noise = chunk(b": ping\n\nevent: message\nid: 4\nretry: 10\n\n")
    answer, _ = asked(tmp_path, [HEAD, noise, *WHOLE[1:]])
    assert answer.tokens == 3


def test_events_that_come_in_pieces_are_put_together(tmp_path):
    whole = payload(*WHOLE[1:-1])
    pieces = [chunk(whole[at : at + 7]) for at in range(0, len(whole), 7)]
    answer, _ = asked(tmp_path, [HEAD, *pieces, END])
    assert (len(answer.came), answer.tokens) == (3, 3)


def test_characters_that_only_look_like_line_ends_are_text(tmp_path):
    words = "one\u2028two\x85three"
    raw = json.dumps({"choices": [{"text": words}]}, ensure_ascii=False).encode()
    answer, _ = asked(tmp_path, [HEAD, chunk(b"data: " + raw + b"\r\n\r\n"), *WHOLE[1:]])
    assert len(answer.came) == 4


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path):
    with pytest.raises(StreamError, match="no event"):
        asked(tmp_path, [HEAD, *[chunk(b"x" * 65536)] * 20, 60.0])


def test_a_stream_without_its_last_line_is_whole_when_it_says_why_it_ended(tmp_path):
    answer, _ = asked(tmp_path, [HEAD, text(" a"), FINISH, usage(7, 1), END])
    assert answer.tokens == 1
    assert answer.decode is None


def test_the_servers_own_figures_are_kept_when_they_are_numbers(tmp_path):
    timings = {
        "prompt_ms": 12.5,
        "predicted_n": 3,
        "note": "x",
        "odd": float("nan"),
        "at_ns": 1.7e18,
    }
    end = event({"choices": [], "timings": timings})
    answer, _ = asked(tmp_path, [*WHOLE[:-2], end, DONE, END])
    assert answer.timings == {"prompt_ms": 12.5, "predicted_n": 3.0}


# no output: a list of many small ones where a number is expected
LISTS = [[]] * 50_000


@pytest.mark.parametrize(
    "document",
    [
        {"timings": {"k0": LISTS}},
        {"timings": {"prompt_ms": LISTS, "note": "x" * 100_000}},
        {"usage": {"prompt_tokens": 7, "completion_tokens": 3, "x": LISTS}},
        {"usage": {"prompt_tokens": LISTS}},
        {"usage": {"prompt_tokens_details": {"cached_tokens": LISTS, "x": LISTS}}},
        {"model": LISTS},
        {"choices": [{"text": " a", "finish_reason": LISTS}]},
    ],
    ids=lambda document: json.dumps(document)[:50],
)
def test_of_an_event_the_figures_that_are_known_are_kept_and_are_short(document):
    reader = StreamReader("/v1/completions")
    with suppress(StreamError):
        reader.feed(payload(event(document)), 1.0)
    assert len(str(vars(reader))) < 2000


@pytest.mark.parametrize("names", [("mine", "other", "mine"), ("other", "", "mine")])
def test_a_stream_of_two_models_is_no_answer_of_one(tmp_path, names):
    # hand-made: tokens of a router that changes the model (form: tests/fixtures/openai-streams)
    tokens = [event({"model": name, "choices": [{"text": " a"}]}) for name in names]
    with pytest.raises(StreamError, match="'mine' .*'other'|'other' .*'mine'"):
        asked(tmp_path, [HEAD, *tokens, FINISH, usage(7, 3), DONE, END])


def test_without_usage_more_chunks_than_tokens_asked_for_count_nothing(tmp_path):
    with pytest.raises(StreamError, match="The server does not count: .* 5.* at most 4"):
        asked(tmp_path, [HEAD, *[text(" a")] * 5, FINISH, DONE, END])
    counted, _ = asked(tmp_path, [HEAD, *[text(" a")] * 5, FINISH, usage(7, 4), DONE, END])
    assert counted.tokens == 4


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (
            # no output: a fault
            plain("500 Internal Server Error", '{"error": "no slot"}'),
            "answered 500 to POST /v1/completions: 'no slot'.",
        ),
        (plain("503 Service Unavailable", ""), "answered 503 to POST /v1/completions: 'nothing'"),
        # no output: a fault
        (plain("200 OK", '{"id": 1}'), 'streamed what is no event of /v1/completions: \'{"id": 1}'),
        # no output: a fault
        ([HEAD, text(" a"), chunk(b"data: {not json\n\n"), END], "no event of /v1/completions"),
        ([HEAD, text(" a"), chunk(b"<html>oops\n\n"), END], "no event of /v1/completions: '<html>"),
        ([HEAD, chunk(b"data: [1, 2]\n\n"), END], "no event of"),
        ([HEAD, chunk(b"data: " + b"[" * 100_000 + b"\n\n"), END], "no event of"),
        ([HEAD, event({"choices": "ab"}), END], "no event of"),
        ([HEAD, event({"choices": [{"delta": 3}]}), END], "no event of"),
        (
            # no output: a count that is none
            [HEAD, *WHOLE[1:4], event({"usage": {"prompt_tokens": None}}), DONE, END],
            "The server does not count: prompt_tokens is None",
        ),
        ([HEAD, *WHOLE[1:4], event({"usage": 7}), END], "no event of"),
        ([HEAD, chunk(b"\xff\xfe\x00\n\n"), END], "no event of"),
        (
            [HEAD, text(" a"), event({"error": {"code": 500, "message": "boom"}}), END],
            "reported an error in its stream: 'boom'",
        ),
        (
            # hand-made: older builds of llama-server that fail in the middle
            # (form: https://github.com/ggml-org/llama.cpp/blob/b6000/tools/server/utils.hpp)
            [HEAD, text(" a"), chunk(b'error: {"message": "boom"}\n\n'), END],
            "reported an error in its stream: 'boom'",
        ),
        ([HEAD, text(" a"), text(" b")], "broke after 2 chunks of an answer: peer closed"),
        ([HEAD, text(" a")[:-9]], "broke after 0 chunks of an answer: peer closed"),
        ([HEAD, text(" a"), b"zz\r\n"], "broke after 1 chunks of an answer:"),
        ([], "broke after 0 chunks of an answer: Server disconnected"),
        ([HEAD, text(" a"), END], "closed its stream after 1 chunks, unfinished"),
        ([HEAD, END], "closed its stream after 0 chunks, unfinished"),
        ([HEAD, FINISH, usage(7, 0), DONE, END], "ended without any text"),
    ],
)
def test_a_broken_answer_is_one_sentence(tmp_path, pieces, words):
    with pytest.raises(StreamError) as caught:
        asked(tmp_path, pieces)
    assert words in caught.value.message
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message


def test_a_server_that_closes_late_loses_no_request(tmp_path):
    async def go():
        async with (
            serving(tmp_path, lambda request: [*WHOLE, 0.3]) as endpoint,
            endpoint.async_client() as client,
        ):
            request = body("completions", "m", "the and", 3, 1)
            for _ in range(3):
                await ask(client, PATHS["completions"], request, lambda: None)

    asyncio.run(go())


def test_an_endpoint_that_is_not_there_is_one_sentence(tmp_path):
    async def go():
        async with serving(tmp_path, lambda request: []) as endpoint:
            endpoint.socket.unlink()
            async with endpoint.async_client() as client:
                await ask(client, PATHS["chat"], body("chat", "m", "x", 1, 1), lambda: None)

    with pytest.raises(StreamError, match="broke after 0 chunks of an answer"):
        asyncio.run(go())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("choices", "usage", "timings", "delta", "text", "content", "prompt_tokens"),
                    *("completion_tokens", "finish_reason", "prompt_tokens_details", "error"),
                )
            ),
            inner,
        )
    ),
)


@settings(deadline=None)
@given(st.lists(st.binary() | JSON.map(lambda value: f"data: {json.dumps(value)}\n".encode())))
def test_whatever_comes_is_an_answer_or_one_sentence(pieces):
    reader = StreamReader("/v1/completions")
    with suppress(StreamError):
        for piece in pieces:
            reader.feed(piece, 1.0)
        assert reader.answer(0.0).came
