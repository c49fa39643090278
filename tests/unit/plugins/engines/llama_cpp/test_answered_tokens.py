"""What llama-server answers is text only where it is as many tokens as were asked for."""

from types import SimpleNamespace

import pytest

from nixwulf.plugins.engines.llama_cpp import _complete
from nixwulf.plugins.runtime.run import RunFailure


def answering(tokens):
    run = SimpleNamespace(case=SimpleNamespace(seed=1))
    return SimpleNamespace(run=run, post=lambda _path, _request: {"tokens": tokens})


@pytest.mark.parametrize("tokens", [[], [1], [-1] * 4, [5, 6, 7, 8, 9]])
def test_another_number_of_tokens_or_one_below_0_is_a_failed_run(tokens):
    with pytest.raises(RunFailure, match="was asked for 4 tokens"):
        _complete(answering(tokens), 4)


def test_as_many_tokens_as_were_asked_for_are_taken():
    assert _complete(answering([5, 6, 7.0, 8]), 4) == [5, 6, 7, 8]
