"""How far apart two texts are: a divergence of what is known of two distributions, and forcing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from nixwulf.plugins.runtime.openai import (
    Position,
    TokensOnly,
    compare,
    divergence,
    text_of,
)

TOPS = some.dictionaries(some.integers(0, 30), some.floats(-60.0, 0.0), min_size=1, max_size=20)


def top(**probabilities):
    return {token: math.log(value) for token, value in probabilities.items()}


def disjoint(one, other):
    return one, {token + 100: value for token, value in other.items()}


@given(TOPS, TOPS)
def test_a_divergence_is_finite_and_not_negative(one, other):
    assert 0 <= divergence(one, other) < math.inf


@given(TOPS)
def test_equal_lists_do_not_diverge(one):
    assert divergence(one, dict(reversed(one.items()))) == pytest.approx(0, abs=1e-12)


@given(TOPS, TOPS)
def test_lists_without_a_common_token_have_a_finite_divergence(one, other):
    assert math.isfinite(divergence(*disjoint(one, other)))


def test_certain_and_disjoint_lists_diverge_by_much():
    assert divergence(top(a=0.99, b=0.005), top(c=0.99, d=0.005)) > 3


def test_whole_distributions_have_the_divergence_of_the_textbook():
    p, q = top(a=0.5, b=0.3, c=0.2), top(a=0.4, b=0.4, c=0.2)
    expected = 0.5 * math.log(0.5 / 0.4) + 0.3 * math.log(0.3 / 0.4)
    assert divergence(p, q) == pytest.approx(expected, abs=1e-5)


def test_a_token_at_the_end_of_one_list_only_is_taken_for_equal():
    assert divergence(top(a=0.9, b=0.01), top(a=0.9, c=0.01)) < 1e-9


def test_a_rounding_of_log_probabilities_is_far_below_any_damage():
    exact = top(a=0.6, b=0.2, c=0.1)
    rounded = {token: value + 1e-6 for token, value in exact.items()}
    assert divergence(exact, rounded) < 1e-9


class Table:
    """A completer whose next token depends on how many there are, as a table has it."""

    context = 1000

    def __init__(self, *tops, forces=True):
        self.tops, self.forces, self.asked = tops, forces, []

    def prompt(self, tokens):
        return [0] * tokens

    def complete(self, prompt, given, count):
        if given and not self.forces:
            return None
        self.asked.append(tuple(given))
        found = self.tops[len(given) : len(given) + count]
        return tuple(Position(max(one, key=one.get), one) for one in found)


TIE, TIED = top(a=0.5, b=0.49), top(a=0.49, b=0.5)
SURE, OTHER = top(a=0.9, b=0.05), top(b=0.9, a=0.05)


def answer(*tops):
    return Table(*tops).complete([0], (), len(tops))


def test_after_a_near_tie_the_expected_text_is_gone_on_with():
    completer = Table(SURE, TIED, SURE, TIED, SURE)
    found = compare(completer, [0], answer(SURE, TIE, SURE, TIE, SURE))
    assert completer.asked == [(), ("a", "a"), ("a", "a", "a", "a")]
    assert len(found.divergences) == 5
    assert found.first_difference == 1
    assert found.observed == ("a", "b", "a", "b", "a")
    assert found.mean < 1e-3


def test_a_text_that_cannot_be_forced_is_compared_up_to_the_first_difference():
    completer = Table(SURE, TIED, OTHER, forces=False)
    found = compare(completer, [0], answer(SURE, TIE, SURE))
    assert len(found.divergences) == 2


def test_nothing_more_is_asked_once_the_mean_is_above_what_is_enough():
    completer = Table(OTHER, OTHER, OTHER, OTHER)
    found = compare(completer, [0], answer(SURE, SURE, SURE, SURE), enough=0.1)
    assert completer.asked == [()]
    assert found.mean > 0.1


def test_positions_before_the_start_are_given_and_not_compared():
    completer = Table(OTHER, SURE, SURE, SURE)
    found = compare(completer, [0], answer(SURE, SURE, SURE, SURE), start=2)
    assert completer.asked == [("a", "a")]
    assert found.divergences == (0.0, 0.0)


def test_an_answer_that_ends_early_differs_where_it_ends():
    found = compare(Table(SURE, SURE), [0], answer(SURE, SURE, SURE))
    assert found.first_difference == 2


def test_without_probabilities_there_is_a_first_difference_and_no_divergence():
    expected = TokensOnly(lambda count: list("abcd")).complete("", (), 4)
    found = compare(TokensOnly(lambda count: list("abxd")), "", expected)
    assert (found.first_difference, found.divergences) == (2, ())


@given(some.integers(1, 5000), some.integers(0, 2**32))
def test_the_text_is_the_same_for_the_same_seed_and_begins_alike(characters, seed):
    text = text_of(characters, seed)
    assert len(text) >= characters
    assert text_of(2 * characters, seed).startswith(text)


def test_each_line_of_the_text_repeats_one_half_as_far_from_its_beginning():
    lines = text_of(10_000, 1).splitlines()
    own = [line.partition(": ")[2].partition(";")[0] for line in lines]
    assert lines[41].endswith(f"line 21 was {own[20]}.")
    assert len(set(own)) == len(own)
