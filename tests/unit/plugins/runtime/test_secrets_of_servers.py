"""A server that repeats the key gets no part of it into a sentence, wherever that is cut."""

import asyncio
import re
from pathlib import Path

import pytest

from answering_server import Prepared, answering
from broken_endpoint import HEAD, chunk, plain, serving
from nixwulf.core.errors import NixwulfError, one_line, quoted
from nixwulf.core.secrets import cut, without
from nixwulf.plugins.engines.endpoint import answers, server
from nixwulf.plugins.runtime.openai_stream import StreamError, ask, body
from nixwulf.plugins.runtime.run import RunFailure

KEY = "Winter2024-my-long-secret-value-0123"
PARTS = [KEY[at : at + 8] for at in range(len(KEY) - 7)]
# Where the sentences are cut, in characters of a text.
CUTS = (40, 60, 200, 300, 4000)
SOURCES = Path("driver/nixwulf")


@pytest.fixture(params=[at - less for at in CUTS for less in (1, 12, 25)])
def text(request, monkeypatch):
    """The key at a place where it is cut."""
    monkeypatch.setenv(server.KEY, KEY)
    server.headers({"environment": server.KEY})
    return "y" * max(0, request.param - len(KEY) // 2) + KEY


def whole(sentence):
    """As in a record, which hides the keys that are whole."""
    assert not any(part in without(sentence) for part in PARTS)


def of_stream(folder, pieces):
    async def go():
        async with serving(folder, lambda request: pieces) as endpoint:
            client = endpoint.async_client()
            async with client:
                return await ask(client, "/x", body("completions", "m", "a", 4, 1), lambda: None)

    with pytest.raises(StreamError) as error:
        asyncio.run(go())
    return error.value.message


def test_no_part_of_a_key_is_in_what_a_server_refuses(tmp_path, text):
    refusal = {"/v1/models": Prepared(200, text), "/x": Prepared(500, {"error": text})}
    with answering(tmp_path, refusal) as (endpoint, _):
        for asked in (lambda: server.require_model(endpoint), lambda: endpoint.post("/x", {})):
            with pytest.raises(RunFailure) as error:
                asked()
            whole(error.value.reason)
    with pytest.raises(RunFailure) as error:
        answers.positions({"choices": [text]}, 8)
    whole(error.value.reason)


@pytest.mark.parametrize("line", ["data: {}", 'data: {{"error": "{}"}}', "error: {}"])
def test_no_part_of_a_key_is_in_what_a_stream_has(tmp_path, text, line):
    whole(of_stream(tmp_path, [HEAD, chunk(f"{line.format(text)}\n\n".encode())]))
    (tmp_path / "s").unlink(missing_ok=True)
    whole(of_stream(tmp_path, plain("500 No", text)))


def test_no_part_of_a_key_is_in_a_sentence_or_a_value_of_the_driver(text):
    for sentence in (one_line(text + "z" * 5000), one_line("z" * 5000 + text * 90)):
        whole(sentence)
    whole(quoted(text))
    whole(NixwulfError(text * 200).message)
    whole(cut(text * 200, 300))


def test_a_text_from_outside_is_cut_in_one_place():
    cut = re.compile(r"(?:str|repr|dumps|decode|join)\((?:[^()\n]|\([^()\n]*\))*\)\[:[ \w]+\]")
    rooms = ("core", "outputs", "nodes", "ops", "plugins", "sweep")
    paths = [path for room in rooms for path in (SOURCES / room).rglob("*.py")]
    assert not [(path, hit) for path in paths for hit in cut.findall(path.read_text("utf-8"))]
