"""What conversations say, what their answers give, and what a reader of them is warned of."""

import asyncio

import pytest

from broken_endpoint import DONE, END, FINISH, HEAD, event, serving
from nixwulf.plugins.benchmarks.session import (
    Conversations,
    Lines,
    Script,
    SessionBenchmark,
    _converse,
    conditions,
    metrics,
    warnings,
)
from nixwulf.plugins.runtime.openai import context
from nixwulf.plugins.runtime.openai_stream import Answer
from nixwulf.plugins.runtime.request_load import Load, LoadTarget
from nixwulf.plugins.runtime.texts import Counting

ASKED = {name: parameter.default for name, parameter in SessionBenchmark.parameters.items()}
SCRIPT = Script(turns=2, system=100, message=20, insertion=50, every=2, n_gen=3, cache="hit")
COUNTING = Counting(1, 1)


def answer(sent=0.0, came=(1.0, 1.25, 1.75), *, prompt=120, cached=1, timings=None):
    return Answer(sent, came, prompt, 3, cached, "length", timings or {}, " said")


SECOND = answer(2.0, (2.5, 2.75, 3.5), prompt=193, cached=122)


def a_pass(*sessions, client_seconds=0.1):
    return Conversations(sessions or ((answer(), SECOND),), client_seconds)


def found(*passes):
    return metrics(passes, SCRIPT, "warm", {"cache": "hit"})


def of(name, *passes):
    return {one.conditions.get("turn"): one.samples for one in found(*passes) if one.name == name}


def test_a_script_says_how_long_each_prompt_is():
    script = Script.of(ASKED | {"turns": 4, "system": 1000, "message": 10, "insertion": 500})
    assert [script.said(turn) for turn in (1, 2, 3, 4)] == [10, 510, 10, 510]
    assert [script.prompt(turn) for turn in (1, 2, 3)] == [1010, 1010 + 64 + 510, 1584 + 64 + 10]


@pytest.mark.parametrize("turns", [2, 3, 6])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_slot_has_room_for_the_last_answer_of_a_session(turns, every):
    asked = ASKED | {"turns": turns, "every": every}
    longest = Script.of(asked).prompt(turns) + asked["n_gen"]
    assert context(asked) == longest + 128 * turns


def test_a_turn_has_all_that_was_said_before_as_it_was_said():
    texts = Lines(("sys", "sys"), ("one", "two"))
    assert texts.prompt("completions", []) == "sys one"
    assert texts.prompt("completions", [" yes"]) == "sys one yes two"
    assert texts.prompt("chat", [" yes"]) == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": " yes"},
        {"role": "user", "content": "two"},
    ]


def test_metrics_of_turns_are_told_apart_by_the_turn_alone():
    two = a_pass((answer(), SECOND), (answer(sent=0.5), SECOND))
    assert of("ttft", two) == {1: (1000, 500), 2: (500, 500)}
    assert of("turn_decode", two) == {1: (2.6667, 2.6667), 2: (2, 2)}
    assert of("cached_share", two) == {1: (0.8333, 0.8333), 2: (63.2124, 63.2124)}
    assert of("session_time", two) == {None: (3.5, 3.0)}
    assert of("throughput", two) == {None: (round(12 / 3.5, 4),)}
    for one in found(two):
        assert one.conditions.keys() - {"turn"} == {"cache"}
    shares = [one for one in found(two) if one.name == "cached_share"]
    assert shares[1].observed == {"prompt_tokens": 193, "cached_tokens": 122}


def test_a_server_that_does_not_tell_of_its_cache_has_no_share_and_a_warning():
    silent = a_pass((answer(cached=None), answer(2.0, (2.5, 3.5), cached=None)))
    assert of("cached_share", silent) == {}
    assert any("does not tell" in words for words in warnings([silent], SCRIPT, COUNTING))


def test_a_server_that_tells_of_full_hits_alone_had_nothing_in_the_first_turn():
    assert of("cached_share", a_pass((answer(cached=None), SECOND)))[1] == (0,)


def test_a_clean_run_has_no_warning():
    assert warnings([a_pass()], SCRIPT, COUNTING) == []


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (answer(2.0, prompt=193, cached=60), "Of 1 turns after the first 1 had less in the cache"),
        (answer(2.0, prompt=240, cached=122), "the first 240 tokens instead of 193"),
        (answer(2.0, (2.5, 2.50001, 2.50002), prompt=193, cached=122), "turn_decode of those"),
    ],
)
def test_what_is_odd_is_a_warning(second, words):
    told = warnings([a_pass((answer(), second))], SCRIPT, COUNTING)
    assert any(words in one for one in told), told


def test_without_a_cache_no_turn_is_missed_in_it():
    script = Script(**{**vars(SCRIPT), "cache": "miss"})
    odd = a_pass((answer(), answer(2.0, prompt=193, cached=0)))
    assert warnings([odd], script, COUNTING) == []


def test_prompts_that_the_server_does_not_count_are_in_words_and_have_no_share():
    uncounted = a_pass((answer(prompt=None), answer(2.0, prompt=None)))
    assert of("cached_share", uncounted) == {}
    holds = conditions(ASKED | {"ignore_eos": True}, [uncounted], None)
    assert (holds["prompts_in"], holds["counted_by"]) == ("words", "chunks")


def test_natural_texts_are_told_apart_by_their_digest():
    assert "text_digest" not in conditions(ASKED | {"ignore_eos": True}, [a_pass()], COUNTING)
    prose = conditions(ASKED | {"text": "prose", "ignore_eos": True}, [a_pass()], COUNTING)
    assert len(prose["text_digest"]) == 12


def conversed(folder, cache):
    """The prompts that two sessions of three turns send; the server is a form, not an engine."""
    asked = []

    def reply(request):
        asked.append(request["prompt"])
        # hand-made: text with its usage (form: tests/fixtures/openai-streams)
        said = event({"choices": [{"text": f" reply{len(asked)}", "finish_reason": None}]})
        return [HEAD, said, FINISH, DONE, END]

    async def go():
        async with serving(folder, reply) as endpoint, endpoint.async_client() as client:
            load = Load(
                [LoadTarget(client, "m", lambda: None)], "completions", 1, 4, keeps_text=True
            )
            script = Script(3, 8, 4, 6, 2, 2, cache)
            return await _converse(load, COUNTING, script, 2)

    return asyncio.run(go()), asked


def test_every_turn_goes_on_from_the_one_before_with_what_was_answered(tmp_path):
    passed, asked = conversed(tmp_path, "hit")
    begun = [f"{prompt} reply{number}" for number, prompt in enumerate(asked, start=1)]
    later = [[one for one in asked if one.startswith(before)] for before in begun]
    assert sorted(map(len, later)) == [0, 0, 1, 1, 2, 2]
    assert {one.text for answers in passed.answers for one in answers} == {""}
    firsts = {one.split()[0] for one in asked}
    assert len(firsts) == 2, "sessions begin alike"


def test_without_the_cache_no_two_prompts_of_a_session_begin_alike(tmp_path):
    _, asked = conversed(tmp_path, "miss")
    assert len({one.split()[0] for one in asked}) == len(asked) == 6
