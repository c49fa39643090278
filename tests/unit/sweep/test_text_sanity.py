"""What a run's text beside few nodes' makes of it: ok, a warning at a near tie, or gibberish."""

import math

import pytest

from judged_text import Model, damaged_from, distribution, judging
from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.runtime.openai import TokensOnly
from nixwulf.sweep import references


@pytest.fixture
def judge(tmp_path):
    return judging(tmp_path)


def test_equal_texts_are_ok_and_the_record_has_what_each_prompt_gave(judge):
    found, warnings = judge(Model(), Model())
    text = found.sanity["text"]
    assert (found.outcome, warnings, text["agrees"]) == ("ok", [], True)
    assert [one["tokens"] for one in text["prompts"]] == [64, 4096]
    assert [one["positions"] for one in text["prompts"]] == [32, 16]
    assert text["judged_by"] == "log-probabilities"
    assert text["left_out"] == [
        {"tokens": 16384, "reason": "the nodes may have too little memory for it"}
    ]


def near_tie(tokens, place, repeated):
    return {8: math.log(0.4), 9: math.log(0.4001), 1000: -3.0} if place == 4 else None


def tied(tokens, place, repeated):
    return {8: math.log(0.4001), 9: math.log(0.4), 1000: -3.0} if place == 4 else None


def test_greedy_texts_that_part_at_a_near_tie_are_a_warning_with_both(judge):
    found, (warning,) = judge(Model(change=tied), Model(change=near_tie))
    text = found.sanity["text"]
    assert (found.outcome, text["agrees"], text["first_difference"]) == ("ok", False, 4)
    assert "Greedy token 4 is 9, and one node gave 8" in warning
    assert " ".join(map(str, text["expected"])) in warning
    assert " ".join(map(str, text["observed"])) in warning


def test_another_text_is_gibberish_from_the_token_where_it_begins(judge):
    found, _ = judge(Model(), Model(change=damaged_from(64, 7)))
    assert found.outcome == "gibberish"
    reason = found.failure["reason"]
    assert reason.startswith(
        "After a prompt of 64 tokens the text is another one from token 7 on: "
    )
    assert reason.endswith("Greedy token 7 is 5, and one node gave 14.")


def test_damage_of_long_contexts_only_is_gibberish_with_that_length(judge):
    found, _ = judge(Model(), Model(change=damaged_from(4096, 0)))
    assert found.outcome == "gibberish"
    assert "After a prompt of 4,096 tokens" in found.failure["reason"]
    text = found.sanity["text"]
    assert (text["prompt_tokens"], text["first_difference"]) == (4096, 0)
    assert [one["tokens"] for one in text["prompts"]] == [64, 4096]


def test_after_a_wrong_short_text_no_long_one_is_asked(judge):
    several = Model(change=damaged_from(64, 0))
    judge(Model(), several)
    assert several.prompts == [64]


def noisy(by):
    def change(tokens, place, repeated):
        return distribution(place, by if repeated else 0.0)

    return change


def tilted(tokens, place, repeated):
    return distribution(place, 0.05)


def test_an_exact_engine_may_not_be_as_far_apart_as_one_that_rounds(judge):
    exact, _ = judge(Model(), Model(change=tilted))
    assert exact.outcome == "gibberish"


def test_an_engine_that_contradicts_itself_is_gibberish_though_it_repeats_that(judge):
    broken = Model(change=lambda tokens, place, given: {5: -0.01} if given else None)
    found, _ = judge(broken, broken)
    assert found.outcome == "gibberish"
    assert "the text of one node contradicts itself" in found.failure["reason"]


def test_the_limit_is_ten_times_the_floor_of_the_engines_own_repeat(judge):
    found, _ = judge(Model(change=noisy(0.025)), Model(change=tilted))
    (short, _) = found.sanity["text"]["prompts"]
    assert found.outcome == "ok"
    assert short["limit"] == pytest.approx(10 * short["floor"])
    assert short["floor"] > 3e-4


def test_an_engine_without_log_probabilities_is_judged_by_tokens_and_says_so(judge):
    one, other = (TokensOnly(lambda count, t=t: ["a", t, "c"]) for t in "bx")
    found, _ = judge(one, other)
    assert found.outcome == "gibberish"
    assert found.failure["reason"] == "Greedy token 1 is x, and one node gave b."
    assert found.sanity["text"]["judged_by"] == "tokens"
    assert "prompts" not in found.sanity["text"]


def test_long_prompts_are_left_out_by_name(judge):
    several = Model()
    found, _ = judge(Model(), several, long_prompts=False)
    assert several.prompts == [64]
    reasons = {one["reason"] for one in found.sanity["text"]["left_out"]}
    assert reasons == {"the sweep has sanity: short"}


def test_a_reference_is_asked_once_a_folder(judge):
    one = Model()
    judge(one, Model())
    asked = list(one.prompts)
    found, _ = judge(one, Model())
    assert one.prompts == asked == [64, 4096]
    assert found.sanity["text"]["prompts"][0]["mean_divergence"] == 0


def test_a_long_prompt_that_would_take_too_long_is_left_out_with_the_seconds(judge, monkeypatch):
    now = 0.0

    def pass_by(tokens):
        nonlocal now
        now += tokens / 100

    monkeypatch.setattr(references.time, "monotonic", lambda: now)
    several = Model(seconds=pass_by)
    found, _ = judge(Model(), several)
    assert several.prompts == [64]
    reasons = {one["tokens"]: one["reason"] for one in found.sanity["text"]["left_out"]}
    assert reasons[4096] == "it would take 41 s, and 20 s are left for it"


@pytest.mark.parametrize(
    "content",
    [
        *("7", "{}", "null", '["a", 1, null]', "[" * 50 + "]" * 50, "x", '{"64": {}}'),
        '{"64": {"floor": 0, "tokens": [1], "log_probabilities": []}}',
        '{"64": {"floor": -1, "tokens": [1], "log_probabilities": [[[1, -1]]]}}',
        '{"64": {"floor": 0, "tokens": [[1]], "log_probabilities": [[[1, -1]]]}}',
        '{"64": {"floor": 0, "tokens": [1], "log_probabilities": [[[1, "high"]]]}}',
        '{"4096": {"floor": 0, "tokens": [1], "log_probabilities": [[[1, -1]]]}}',
    ],
)
def test_a_damaged_reference_is_a_sentence_that_names_the_file(judge, tmp_path, content):
    judge(Model(), Model())
    (path,) = (tmp_path / "references").glob("*.json")
    path.write_text(content)
    with pytest.raises(NixwulfError, match=path.name):
        judge(Model(), Model())


def test_a_server_that_was_there_is_held_against_its_own_repeat_alone(judge, monkeypatch):
    monkeypatch.setattr("judged_text.Of.elsewhere", True)
    found, _ = judge(NotAsked(), Model())
    text = found.sanity["text"]
    assert (found.outcome, text["agrees"]) == ("ok", True)
    assert text["reference"] == "not compared: the endpoint itself, asked twice"
    assert [one["tokens"] for one in text["prompts"]] == [64, 4096, 16384]


class NotAsked(Model):
    """A completer of one node, which several are not held against here."""

    def complete(self, prompt, given, count):
        raise AssertionError("one node was asked")


def test_a_server_that_was_there_and_contradicts_itself_is_gibberish(judge, monkeypatch):
    monkeypatch.setattr("judged_text.Of.elsewhere", True)
    found, _ = judge(
        Model(), Model(change=lambda tokens, place, repeated: {3: -0.01} if repeated else None)
    )
    assert found.outcome == "gibberish"
    assert "the text of the endpoint itself contradicts itself" in found.failure["reason"]
