"""The answers of servers with log-probabilities, in the forms that each of them has.

llama-server's is one of build 0.5.0-dev of the lab; vLLM's and mlx_lm.server's are written by the
protocols of their sources (vLLM 0.15's CompletionLogProbs, mlx-lm's server.py): neither runs here.
"""

import pytest

from nixwulf.plugins.runtime.openai import Completions, Position, positions
from nixwulf.plugins.runtime.run import RunFailure

LLAMA = {
    "choices": [
        {
            "text": " boru cadi",
            "logprobs": {
                "content": [
                    {
                        "id": 703,
                        "token": " boru",
                        "logprob": -0.36168816685676575,
                        "top_logprobs": [
                            {"id": 703, "token": " boru", "logprob": -0.36168816685676575},
                            {"id": 943, "token": " cefu", "logprob": -2.093034267425537},
                        ],
                    },
                    {
                        "id": 841,
                        "token": " cadi",
                        "logprob": -0.48080798983573914,
                        "top_logprobs": [
                            {"id": 841, "token": " cadi", "logprob": -0.48080798983573914}
                        ],
                    },
                ]
            },
        }
    ]
}


def test_llama_server_gives_numbers_of_tokens():
    first, second = positions(LLAMA)
    assert (first.token, second.token) == (703, 841)
    assert first.top == {703: -0.36168816685676575, 943: -2.093034267425537}


def asked_by(context, **wanted):
    """A completer of a server that is pretended, and what it was asked."""
    asked = []

    def post(path, request):
        asked.append((path, request))
        return LLAMA if path == "/v1/completions" else {"tokens": [*range(1000)]}

    return Completions(post, {"model": "m", "temperature": 0, "seed": 3}, context, wanted), asked


def test_a_server_that_tokenizes_is_asked_for_the_expected_text_on_top_of_its_cache():
    completions, asked = asked_by(512, logprobs=20)
    prompt = completions.prompt(64)
    completions.complete(prompt, (703,), 2)
    (_, tokenize), (_, complete) = asked
    assert prompt == [*range(64)]
    assert len(tokenize["content"]) >= 64
    assert complete["prompt"] == [*range(64), 703]
    assert (complete["cache_prompt"], complete["seed"], complete["logprobs"]) == (True, 3, 20)


def test_one_that_does_not_is_asked_a_text_and_cannot_be_given_a_beginning():
    completions, asked = asked_by(0, logprobs=True, top_logprobs=10)
    prompt = completions.prompt(64)
    assert isinstance(prompt, str)
    assert completions.complete(prompt, (703,), 1) is None
    assert completions.complete(prompt, (), 1) is not None
    ((path, request),) = asked
    assert (path, request["top_logprobs"]) == ("/v1/completions", 10)


@pytest.mark.parametrize("answer", [{}, [], None, 7, {"tokens": None}, {"tokens": ["a"]}])
def test_a_server_that_does_not_tokenize_a_text_fails_the_run(answer):
    completions = Completions(lambda path, request: answer, {"model": "m", "seed": 3}, 512, {})
    with pytest.raises(RunFailure, match="gave no tokens"):
        completions.prompt(64)


VLLM = {
    "choices": [
        {
            "text": " a b",
            "token_ids": [12, 13],
            "logprobs": {
                "text_offset": [0, 2],
                "token_logprobs": [-0.1, -0.2],
                "tokens": ["token_id:12", "token_id:13"],
                "top_logprobs": [
                    {"token_id:12": -0.1, "token_id:99": -3.5},
                    {"token_id:13": -0.2, "token_id:12": -2.5},
                ],
            },
        }
    ]
}


def test_vllm_gives_numbers_of_tokens_where_it_is_asked_for_them():
    first, second = positions(VLLM)
    assert (first.token, first.top) == (12, {12: -0.1, 99: -3.5})
    assert (second.token, second.top) == (13, {13: -0.2, 12: -2.5})


def test_an_older_vllm_has_them_in_the_texts_of_the_tokens():
    (choice,) = VLLM["choices"]
    older = {key: value for key, value in choice.items() if key != "token_ids"}
    assert positions({"choices": [older]}) == positions(VLLM)


def mlx(*tops):
    parts = [{**top[0], "top_logprobs": list(top)} for top in tops]
    return {"choices": [{"text": "", "logprobs": {"content": parts}}]}


def test_the_greedy_token_of_mlx_is_the_likeliest_of_a_list_without_order():
    top = ({"id": 5, "logprob": -4.0}, {"id": 9, "logprob": -0.1}, {"id": 7, "logprob": -3.0})
    (position,) = positions(mlx(top))
    assert (position.token, position.top) == (9, {5: -4.0, 9: -0.1, 7: -3.0})


TIED = ({"id": 5, "logprob": -0.7}, {"id": 9, "logprob": -0.7})


def test_of_equal_tokens_the_one_that_llama_server_names_was_taken():
    part = {"id": 9, "logprob": -0.7, "top_logprobs": list(TIED)}
    (position,) = positions({"choices": [{"logprobs": {"content": [part]}}]})
    assert position.token == 9


def test_behind_equal_tokens_nothing_of_mlx_is_compared():
    sure = ({"id": 5, "logprob": -0.1}, {"id": 9, "logprob": -3.0})
    answer = mlx(sure, TIED, sure)
    fixed = {"model": "m", "temperature": 0, "seed": 3}
    short, whole = (Completions(lambda path, request: answer, fixed, room, {}) for room in (0, 99))
    assert len(short.complete("text", (), 3)) == 2
    assert len(whole.complete([1], (), 3)) == 3


def test_an_mlx_that_gives_only_the_token_is_without_probabilities():
    content = [{"id": 4, "logprob": -0.5}]
    (position,) = positions({"choices": [{"logprobs": {"content": content}}]})
    assert (position.token, position.top) == (4, {})


@pytest.mark.parametrize(
    "answer",
    [
        *({}, [], None, "hello", 7, {"tokens": None}, {"tokens": ["a", "b"]}, {"choices": []}),
        *({"tokens": [[1]]}, {"choices": [{"logprobs": None}]}, {"choices": [{"logprobs": []}]}),
    ],
)
def test_an_answer_without_tokens_is_a_failure_of_the_run(answer):
    with pytest.raises(RunFailure, match="gave no tokens"):
        positions(answer)


@pytest.mark.parametrize(("number", "logprob"), [(-1, -1.0), (1, 7.0), (1, float("nan"))])
def test_a_number_below_0_or_what_is_no_probability_is_a_failure_of_the_run(number, logprob):
    position = {"id": number, "top_logprobs": [{"id": number, "logprob": logprob}]}
    with pytest.raises(RunFailure, match="gave no tokens"):
        positions({"choices": [{"logprobs": {"content": [position]}}]})


def test_a_server_that_gives_fewer_tokens_than_it_was_asked_for_fails_the_run():
    completions, _ = asked_by(512, logprobs=20)
    with pytest.raises(RunFailure, match="asked for 3 tokens and gave 2"):
        completions.complete([1, 2], (), 3)


def forced(answer):
    server = Completions(lambda path, request: answer, {"model": "m", "seed": 1}, 512, {})
    return server.forced([1, 2], 703)


def one_token(**changes):
    (first, _) = LLAMA["choices"][0]["logprobs"]["content"]
    return {"choices": [{"logprobs": {"content": [{**first, **changes}]}}]}


def test_a_forced_token_has_its_own_logarithm_beside_those_of_the_likeliest():
    unlikely = one_token(logprob=-9.5, top_logprobs=[{"id": 943, "logprob": -0.1}])
    assert forced(unlikely) == Position(703, {703: -9.5, 943: -0.1})


def test_of_the_first_part_of_a_character_llama_server_gives_nothing():
    assert forced({"choices": [{"text": "\ufffd", "logprobs": None}]}) == Position(703, {})


def test_a_server_that_takes_another_token_than_the_forced_one_is_unsupported():
    with pytest.raises(RunFailure, match="takes no 'logit_bias'"):
        forced(one_token(id=5))


@pytest.mark.parametrize("answer", [None, {}, {"choices": []}, {"choices": [{"logprobs": {}}]}])
def test_an_answer_to_a_forced_token_that_has_none_is_a_failure_of_the_run(answer):
    with pytest.raises(RunFailure, match="gave no tokens"):
        forced(answer)
