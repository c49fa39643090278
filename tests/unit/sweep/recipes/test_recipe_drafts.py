"""Drafts of recipes, by flags and by JSON, are the parameters draft and draft_tokens."""

import re

import pytest


@pytest.mark.parametrize(
    ("words", "drafts", "named"),
    [
        ('{"method": "ngram", "num_speculative_tokens": 5}', {"draft": ["ngram"]}, []),
        ('{"method": "deepseek_mtp", "num_speculative_tokens": 2}', {"draft": ["mtp"]}, []),
        ('{"method": "eagle3", "model": "org/head"}', {"draft": ["head"]}, []),
        (
            '{"method": "ngram", "prompt_lookup_max": 4}',
            {"draft": ["ngram"]},
            ["prompt_lookup_max 4 of --speculative-config: the parameter draft has no such option"],
        ),
        (
            '{"method": "suffix", "num_speculative_tokens": 5}',
            {},
            [
                '--speculative-config \'{"method": "suffix", "num_speculative_tokens": 5}\': '
                'the parameter draft has no such method, "suffix"'
            ],
        ),
        ("[1]", {}, ["--speculative-config: its value is no JSON object"]),
    ],
)
def test_drafts_of_a_servers_configuration_are_parameters(imported, words, drafts, named):
    # no output: a command
    document, said = imported(f"vllm serve org/model --speculative-config '{words}'")
    given = document["matrix"]["parameters"]
    tokens = re.findall(r"num_speculative_tokens\": (\d)", words) if drafts else []
    assert {key: given[key] for key in given.keys() & {"draft"}} == drafts
    assert given.get("draft_tokens", []) == [int(one) for one in tokens]
    assert [one for one in said if "draft" in one or "speculative" in one] == named
    if drafts == {"draft": ["head"]}:
        assert document["models"]["head"] == {"id": "org/head"}


def test_drafts_of_llama_server_are_parameters_and_tokens_of_none_are_named(imported):
    # no output: a command
    document, _ = imported("llama-server -m /a.gguf -md /d.gguf --draft-max 8")
    assert document["matrix"]["parameters"] == {"draft": ["/d.gguf"], "draft_tokens": [8]}
    # no output: a command
    document, named = imported("llama-server -m /a.gguf --draft-max 8")
    assert "parameters" not in document["matrix"]
    assert named == ["8 tokens of a draft: it has no draft that the parameter draft has"]
