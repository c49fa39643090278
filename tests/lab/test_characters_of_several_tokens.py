"""Characters of several tokens, of which llama-server gives log-probabilities for the last alone.

A grammar makes a real llama-server write them: random weights have a token for each byte.
"""

from dataclasses import replace

import pytest
from quality_servers import ONE, completer

from nixwulf.llm import gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.plugins.runtime.run import RunFailure

COUNT = 8


@pytest.fixture(scope="module")
def server():
    with completer(gguf.ensure(RandomModel(layers=2)), ONE, 512) as found:
        yield found


def writing(server, text):
    grammar = f'root ::= "{text}" [a-z]*'
    return replace(server, request={**server.request, "grammar": grammar})


@pytest.mark.parametrize(
    ("text", "known"), [("aébcdefgh", 1), ("abcd😀xyz", 4), ("abcdefgé", 7), ("abcdefg", COUNT)]
)
def test_of_a_text_is_known_what_comes_before_a_character_of_several_tokens(server, text, known):
    asked = writing(server, text)
    answer = asked.complete(asked.prompt(64), (), COUNT)
    assert len(answer) == known
    assert all(position.top for position in answer)


def test_a_text_that_begins_with_one_has_nothing_to_judge(server):
    asked = writing(server, "éabcdefg")
    prompt = asked.prompt(64)
    assert asked.complete(prompt, prompt[:1], COUNT) == ()
    with pytest.raises(RunFailure, match="asked for 8 tokens and gave 7"):
        asked.complete(prompt, (), COUNT)
