"""Natural texts of exact lengths: whatever a token is, they are as long as asked for."""

import asyncio
import hashlib
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.plugins.runtime.openai_stream import StreamError
from nixwulf.plugins.runtime.texts import KINDS, NUMBER_WORDS, Counting, Cutter

PARTS = re.compile(r" ?[A-Za-z]{1,5}|\d{1,3}| ?[^\sA-Za-z\d]+|\s")


def parts_server(text):
    """As vocabularies of bytes pairs do it: a word keeps its space, long words are several."""
    return 1 + len(PARTS.findall(text))


def bytes_server(text):
    """The lab's: each byte is a token, a space is three, and one is put before the text."""
    return 1 + len(f" {text}".replace(" ", "___"))


def chat_server(text):
    """A template around the text takes tokens too."""
    return 50 + parts_server(text)


SERVERS = {
    parts_server: Counting(1, 1),
    bytes_server: Counting(1, 6),
    chat_server: Counting(51, 1),
}
# no output: digests of what is sent
DIGESTS = {"prose": "49c5a6fc31ac", "code": "ad2058546e1f", "extraction": "799148eb0ccd"}
SENT = "73816e8b1243"
kinds = st.sampled_from(sorted(KINDS))


def cutter(kind, server, asked=None):
    async def count(text):
        if asked is not None:
            asked.append(text)
        return server(text)

    return Cutter(KINDS[kind], SERVERS[server], 1, count)


def text_of(kind, server, number, tokens):
    return asyncio.run(cutter(kind, server).text(number, tokens))


@pytest.mark.parametrize("server", SERVERS)
@settings(deadline=None, max_examples=60)
@given(kind=kinds, tokens=st.integers(260, 6000), number=st.integers(0, 5000))
def test_a_text_has_as_many_tokens_as_asked_for_whatever_a_token_is(server, kind, tokens, number):
    assert server(text_of(kind, server, number, tokens)) == tokens


@settings(deadline=None, max_examples=60)
@given(kind=kinds, tokens=st.integers(400, 6000), number=st.integers(0, 2000))
def test_most_of_a_text_is_natural(kind, tokens, number):
    text = text_of(kind, parts_server, number, tokens)
    row, passage = text.split("\n\n", 1)
    whole = KINDS[kind].passage(number, 10_000)
    # Or the next word, with the white space before it, is longer than what is left.
    word = max(len(PARTS.findall(one)) for one in re.findall(r"\s+\S+", whole))
    assert len(row.split()) <= NUMBER_WORDS + max(16 + 1, tokens // 50 + 1, word)
    body = passage.partition("\n\nThe text above once more")[0]
    assert whole.startswith(body)


@given(kind=kinds, numbers=st.sets(st.integers(0, 2499), min_size=2, max_size=2))
@settings(deadline=None, max_examples=60)
def test_no_two_begin_alike(kind, numbers):
    one, other = (text_of(kind, parts_server, number, 300) for number in numbers)
    assert one.split()[:NUMBER_WORDS] != other.split()[:NUMBER_WORDS]


def test_texts_that_follow_each_other_are_other_passages_too():
    found = [text_of("prose", parts_server, number, 300).split("\n\n")[2] for number in range(10)]
    assert all(one != other for one, other in itertools.pairwise(found))


def test_texts_are_the_same_on_every_machine():
    digests = {name: kind.digest for name, kind in KINDS.items()}
    assert digests == DIGESTS, "other texts are another measurement: text_digest keeps them apart"
    sent = [text_of(kind, parts_server, number, 900) for kind in sorted(KINDS) for number in (0, 7)]
    assert hashlib.sha256("\0".join(sent).encode()).hexdigest()[:12] == SENT


def test_a_kind_that_asks_otherwise_has_another_digest():
    prose = KINDS["prose"]
    found = {prose.digest, replace(prose, before="").digest, replace(prose, copied=True).digest}
    assert len(found) == 3


def test_an_extraction_ends_with_the_beginning_of_the_copy():
    text = text_of("extraction", parts_server, 3, 900)
    # no output: what the driver writes
    body, copy = text.split("\n\nThe text above once more, word for word:\n\n")
    assert len(copy.split()) == 8
    assert " ".join(body.split("\n\n", 1)[1].split()).startswith(copy)


def test_few_counts_find_a_length_and_none_asks_for_much_more_than_it():
    asked = []
    cut = cutter("code", parts_server, asked)

    async def several():
        return [await cut.text(number, 2000) for number in range(10)]

    asyncio.run(several())
    assert len(asked) <= 10 * 4
    assert max(map(parts_server, asked)) <= 2000 + 128, "a server with little room refuses it"


def test_a_length_that_a_kind_does_not_go_into_is_refused_with_what_it_needs():
    with pytest.raises(StreamError, match=r"text of 20 tokens is too short .* have \d+; ask"):
        text_of("extraction", parts_server, 0, 20)
