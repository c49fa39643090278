import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.plugins.runtime.texts import (
    NUMBER_WORDS,
    PROBES,
    WORDS,
    Counting,
    counting,
    row,
)


def words_server(text):
    """Each word is a token, and the server puts a beginning before them."""
    return 1 + len(text.split())


def bytes_server(text):
    """The lab's: each byte is a token, a space is three, and one is put before the text."""
    return 1 + len(f" {text}".replace(" ", "___"))


def chat_server(text):
    """A template around the text takes tokens too."""
    return 50 + words_server(text)


def counted(server, seed=1):
    few, many = (server(row(number, words, seed)) for number, words in enumerate(PROBES))
    return counting(few, many)


@pytest.mark.parametrize("server", [words_server, bytes_server, chat_server])
@settings(deadline=None)
@given(tokens=st.integers(1, 5000), number=st.integers(0, 10_000), seed=st.integers(0, 99))
def test_a_prompt_has_as_many_tokens_as_asked_for_whatever_a_token_is(server, tokens, number, seed):
    found = counted(server)
    if tokens >= found.least:
        assert server(found.prompt(number, tokens, seed)) == tokens


def test_a_word_and_what_the_server_adds_are_distinguished():
    assert counted(words_server) == Counting(own=1, word=1)
    assert counted(bytes_server) == Counting(own=1, word=6)
    assert counted(chat_server) == Counting(own=51, word=1)


@pytest.mark.parametrize(("few", "many"), [(5, 5), (13, 5), (5, 14), (2, 18)])
def test_a_server_that_does_not_count_by_words_is_noticed(few, many):
    assert counting(few, many) is None


def test_no_two_of_the_first_2500_prompts_begin_with_the_same_two_words():
    beginnings = {tuple(row(n, 8, 1).split()[:NUMBER_WORDS]) for n in range(len(WORDS) ** 2)}
    assert len(beginnings) == 2500


def test_prompts_that_follow_each_other_differ_in_the_first_word():
    firsts = [row(number, 8, 1).split()[0] for number in range(100)]
    assert all(one != other for one, other in itertools.pairwise(firsts))


def test_the_seed_decides_the_words():
    assert row(3, 50, 1) == row(3, 50, 1) != row(3, 50, 2)
    random.seed(5)
    assert row(3, 50, 1) == row(3, 50, 1), "the state of the process's own generator matters"


def test_every_word_is_another_one_of_three_letters():
    assert len(set(WORDS)) == len(WORDS)
    assert {len(word) for word in WORDS} == {3}
