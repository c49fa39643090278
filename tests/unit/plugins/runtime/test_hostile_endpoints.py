"""What a hostile endpoint counts and streams is refused; the numbers of an honest one stay."""

import asyncio
import threading
from contextlib import nullcontext, suppress

import pytest

from hostile_endpoint import misbehaving
from nixwulf.core import web
from nixwulf.plugins.runtime import openai_stream as stream


@pytest.fixture
def answer():
    servers = []

    def asked(name):
        server = misbehaving(name, 0)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        request = stream.body("completions", "mine", "a b c", 16, 1)

        async def ask():
            async with web.client(url) as client, asyncio.timeout(30):
                return await stream.ask(client, "/v1/completions", request, lambda: None)

        return asyncio.run(ask())

    yield asked
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["honest", "trailing data"])
def test_an_honest_answer_has_what_was_asked_for(answer, name):
    found = answer(name)
    assert found.tokens == 16
    assert found.counted


@pytest.mark.parametrize(
    "name",
    [
        "a million tokens",
        "twice the tokens",
        "negative tokens",
        "tokens of NaN",
        "tokens of Infinity",
        "cached more than the prompt",
        "negative cached",
        "accepted more than drafted",
        "timings of 1e308",
        "timings of NaN",
        "decoded longer than it took",
        "decoded in no time",
        "prompt in no time",
        "prompt in no time, uncounted",
        "endless large tokens",
        "wide tokens",
        "new figures without end",
        "endless usage",
    ],
)
def test_numbers_that_no_server_can_have_counted_are_told_as_such(answer, name):
    with pytest.raises(stream.StreamError) as failure:
        answer(name)
    if name not in ("endless usage", "new figures without end"):
        assert "The server does not count" in failure.value.message


@pytest.mark.parametrize("name", ["model of 1 MB", "finish of 1 MB"])
def test_what_is_kept_of_an_answer_is_short(answer, name):
    with suppress(stream.StreamError):
        assert len(str(answer(name))) < 2000


@pytest.mark.parametrize("name", ["500 without end to a stream", "gzip bomb", "307 to a stream"])
def test_an_answer_that_is_no_stream_is_refused(answer, name):
    with pytest.raises(stream.StreamError):
        answer(name)


@pytest.mark.parametrize(("steps", "possible"), [(15, True), (9, False)])
def test_a_server_may_leave_the_first_token_out_of_its_speed(steps, possible):
    timings = {"predicted_n": 16, "predicted_ms": 7600.0, "predicted_per_second": steps / 7.6}
    with nullcontext() if possible else pytest.raises(stream.StreamError):
        stream.require_possible({}, timings, 16, seconds=7.7)
