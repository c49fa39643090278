"""How a load learns what an endpoint can do, and what it says of one that cannot."""

import asyncio
import json

import pytest

from broken_endpoint import DONE, END, FINISH, HEAD, plain, serving, text, usage
from nixwulf.plugins.runtime import request_load
from nixwulf.plugins.runtime.openai_stream import Answer, StreamError
from nixwulf.plugins.runtime.request_load import Load, LoadTarget
from nixwulf.plugins.runtime.texts import Counting


def streamed(prompt_tokens, tokens=1):
    pieces = [text(" a")] * tokens
    return [HEAD, *pieces, FINISH, usage(prompt_tokens, tokens), DONE, END]


def prompt_tokens(request):
    """A word is a token, and three are the server's own."""
    return 3 + len(request["prompt"].split())


def prepared(folder, answer, n_prompt=64):
    async def go():
        async with serving(folder, answer) as endpoint, endpoint.async_client() as client:
            load = Load([LoadTarget(client, "m", lambda: None)], "completions", 1, n_prompt)
            return await load.prepare(), load.extra

    return asyncio.run(go())


def test_a_server_that_refuses_ignore_eos_is_asked_without_it(tmp_path):
    def answer(request):
        if "ignore_eos" in request:
            return plain("422 Unprocessable Entity", "extra fields not permitted")
        return streamed(len(request["prompt"].split()))

    assert prepared(tmp_path, answer) == (Counting(0, 1), {})


def test_a_server_that_refuses_every_request_is_quoted(tmp_path):
    with pytest.raises(StreamError, match="answered 400 .*: 'no such model'"):
        prepared(tmp_path, lambda request: plain("400 Bad Request", "no such model"))


def test_an_error_of_the_server_is_not_taken_for_a_refusal(tmp_path):
    asked = []

    def answer(request):
        asked.append(request)
        return plain("500 Internal LoadTarget Error", "boom")

    with pytest.raises(StreamError, match="answered 500"):
        prepared(tmp_path, answer)
    assert len(asked) == 1


UNCOUNTED = [HEAD, text(" a"), FINISH, DONE, END]


def test_a_server_that_counts_in_unstreamed_answers_only_is_asked_for_those(tmp_path):
    def answer(request):
        if request.get("stream"):
            return UNCOUNTED
        assert "stream_options" not in request
        return plain("200 OK", json.dumps({"usage": {"prompt_tokens": prompt_tokens(request)}}))

    assert prepared(tmp_path, answer)[0] == Counting(3, 1)


@pytest.mark.parametrize(
    "whole",
    [
        plain("400 Bad Request", "streams only"),
        # no output: a fault
        plain("200 OK", '{"usage": null}'),
        plain("200 OK", "[]"),
        [],
    ],
    ids=["refused", "no usage", "another document", "no answer"],
)
def test_a_server_that_counts_nowhere_gets_as_many_words_as_tokens_were_asked_for(tmp_path, whole):
    asked = []

    def answer(request):
        asked.append(request)
        return UNCOUNTED if request.get("stream") else whole

    async def go():
        async with serving(tmp_path, answer) as endpoint, endpoint.async_client() as client:
            load = Load([LoadTarget(client, "m", lambda: None)], "completions", 1, 16)
            assert await load.prepare() is None
            return await load.send(None, 2, 1, 1)

    sent = asyncio.run(go())
    assert [len(request["prompt"].split()) for request in asked[-2:]] == [16, 16]
    assert sent.tokens == 2


def test_a_server_that_does_not_count_words_is_refused(tmp_path):
    with pytest.raises(StreamError, match="counts 9 tokens in 4 short words and 9 in 12"):
        prepared(tmp_path, lambda request: streamed(9))


def test_a_prompt_shorter_than_a_chats_template_is_refused_with_the_least(tmp_path):
    def answer(request):
        return streamed(62 + len(request["prompt"].split()))

    with pytest.raises(StreamError, match="n_prompt is 63, but .* have 64 tokens, 62 of them"):
        prepared(tmp_path, answer, n_prompt=63)


def test_one_broken_stream_among_many_ends_the_load_with_its_reason(tmp_path):
    def answer(request):
        if len(request["prompt"].split()) < 16:
            return streamed(len(request["prompt"].split()))
        if request["prompt"].startswith("was"):
            return [HEAD, text(" a"), END]
        return [HEAD, text(" a"), 30.0]

    async def go():
        async with serving(tmp_path, answer) as endpoint, endpoint.async_client() as client:
            load = Load([LoadTarget(client, "m", lambda: None)], "completions", 1, 16)
            found = await load.prepare()
            await asyncio.wait_for(load.send(found, 16, 16, 4), 20)

    with pytest.raises(StreamError, match="closed its stream after 1 chunks, unfinished"):
        asyncio.run(go())


@pytest.mark.parametrize("tokenizes", [True, False])
def test_natural_prompts_have_their_length_by_the_tokenizer_or_else_by_usage(tmp_path, tokenizes):
    counted, asked = [], []

    def answer(request):
        if "content" in request:
            words = [0] * len(request["content"].split())
            # hand-made: the numbers of tokens (form: llama-server's /tokenize)
            known = json.dumps({"tokens": words})
            counted.append(request)
            return plain("200 OK", known) if tokenizes else plain("404 Not Found", "no such path")
        asked.append(request)
        return streamed(prompt_tokens(request))

    async def go():
        async with serving(tmp_path, answer) as endpoint, endpoint.async_client() as client:
            load = Load([LoadTarget(client, "m", lambda: None)], "completions", 1, 400, "prose")
            found = await load.prepare()
            return await load.send(found, 5, 2, 1)

    sent = asyncio.run(go())
    assert [one.prompt_tokens for one in sent.answers] == [400] * 5
    assert (len(asked) == 2 + 5) == tokenizes
    assert len(counted) > 2 if tokenizes else len(counted) == 2


def test_a_beginning_is_sent_once_and_all_prompts_of_a_slot_go_on_from_it(tmp_path):
    async def go():
        asked = ([], [])

        def answering(place):
            def answer(request):
                asked[place].append(request["prompt"])
                return streamed(prompt_tokens(request))

            return answer

        (tmp_path / "0").mkdir()
        (tmp_path / "1").mkdir()
        async with (
            serving(tmp_path / "0", answering(0)) as one,
            serving(tmp_path / "1", answering(1)) as other,
            one.async_client() as first,
            other.async_client() as second,
        ):
            targets = [LoadTarget(client, "m", lambda: None) for client in (first, second)]
            load = Load(targets, "completions", 1, 20, depth=50)
            found = await load.prepare()
            for place in asked:
                place.clear()
            await load.fill(found, 2)
            return asked, await load.send(found, 8, 2, 1)

    asked, sent = asyncio.run(go())
    for beginning, *prompts in asked:
        assert len(beginning.split()) == 50 - 3
        assert all(prompt.startswith(f"{beginning} ") for prompt in prompts)
    assert [one.prompt_tokens for one in sent.answers] == [50 + 20] * 8
    firsts = [prompt.split()[47:49] for _, *prompts in asked for prompt in prompts]
    assert len({tuple(words) for words in firsts}) == 8


# Moments of the chunks of an answer of n tokens, a token each 0.01 s after 0.1 s for the prompt.
# hand-made: ways in which a server or what is before it sends (form: (moments, held back))
WAYS = {
    "streams": (lambda n: [0.1 + at * 0.01 for at in range(n)], False),
    "streams several": (lambda n: [0.1 + at * 0.01 for at in range(0, n, 5)], False),
    "streams after a wait": (lambda n: [9.0 + at * 0.01 for at in range(n)], False),
    "at the end": (lambda n: [0.1 + n * 0.01 + at * 0.002 for at in range(n)], True),
    "in two pieces": (lambda n: [0.1 + n * 0.01, 0.102 + n * 0.01], True),
    "in one piece": (lambda n: [0.1 + n * 0.01], True),
    "too fast to tell": (lambda n: [0.1 + n * 0.0001, 0.1001 + n * 0.0001], False),
}


@pytest.mark.parametrize(("came", "held"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("foreign", [True, False])
def test_a_server_of_others_is_seen_to_stream_before_its_chunks_are_times(
    came, held, foreign, monkeypatch
):
    async def ask(client, path, request, on_event, **_):
        count = request["max_tokens"]
        return Answer(0.0, tuple(came(count)), prompt_tokens(request), count, 0, "length", {})

    async def go():
        target = LoadTarget(None, "m", lambda: None, foreign=foreign)
        load = Load([target], "completions", 1, 16)
        await load.prepare()
        return await load.ask(0, "the and", 16)

    monkeypatch.setattr(request_load, "ask", ask)
    assert asyncio.run(go()).held == (held and foreign)


def test_a_machine_that_stood_still_once_holds_nothing_back(monkeypatch):
    late = iter([1.0])

    async def ask(client, path, request, on_event, **_):
        count = request["max_tokens"]
        wait = next(late, 0.0) if count > 1 else 0.0
        came = tuple(wait + 0.1 + at * 0.01 for at in range(count))
        return Answer(0.0, came, prompt_tokens(request), count, 0, "length", {})

    async def go():
        load = Load([LoadTarget(None, "m", lambda: None, foreign=True)], "completions", 1, 16)
        await load.prepare()
        return await load.ask(0, "the and", 16)

    monkeypatch.setattr(request_load, "ask", ask)
    assert not asyncio.run(go()).held


def test_a_clock_of_the_run_is_read_while_texts_are_made():
    async def go():
        load = Load([LoadTarget(None, "m", lambda: None)], "completions", 1, 16)
        sending = asyncio.create_task(load.send(None, 1000, 1, 2))
        for _ in range(3):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait({sending})
        return next(load._numbers)

    assert asyncio.run(go()) < 10
