"""How llama-server and vLLM are given a draft, and what of a log is the model's own."""

import json

import pytest

from launch_plan import planned
from nixwulf.plugins.engines import find
from nixwulf.plugins.engines.llama_cpp import devices, options
from nixwulf.plugins.engines.vllm import ENGINE as VLLM
from nixwulf.plugins.runtime.run import RunFailure

FLAGS = ("--spec-type",)
# hand-made: a server that loads a draft on the CPU beside a GPU (form: llama-server 0c1e570 -lv 4)
LOG = """load_tensors: offloaded 33/33 layers to GPU
common_speculative_init_result: loading draft model '/m/small.gguf'
load_tensors: offloaded 0/9 layers to GPU
"""


def words(draft, model="", gpus=(), tokens=0):
    parameters = {"draft": draft, "draft_tokens": tokens}
    return " ".join(options.of_draft(parameters, model, gpus, FLAGS))


def test_a_draft_model_is_on_the_heads_gpus_else_on_its_cpu():
    given = "--spec-type draft-simple -md /m/small.gguf -devd"
    assert words("small", "/m/small.gguf", ("Vulkan0", "Vulkan1")) == (
        f"{given} Vulkan0,Vulkan1 -ngld 999"
    )
    assert words("small", "/m/small.gguf") == f"{given} none -ngld 0"


def test_each_kind_has_a_flag_of_its_own_for_the_tokens():
    assert words("ngram", tokens=8) == "--spec-type ngram-simple --spec-ngram-simple-size-m 8"
    assert words("mtp", tokens=2) == "--spec-type draft-mtp --spec-draft-n-max 2"
    assert words("none") == ""


def test_a_build_that_would_draft_nothing_in_silence_is_unsupported():
    with pytest.raises(RunFailure, match="has no '--spec-type'") as failure:
        options.of_draft({"draft": "ngram"}, "", (), ("--model-draft",))
    assert failure.value.outcome == "unsupported"


def test_the_layers_of_a_draft_are_not_those_of_the_model():
    assert devices.server_problem(("Vulkan0",), "n1", LOG) is None
    fewer = LOG.replace("33/33", "28/33")
    assert "offloaded 28 of 33 layers" in devices.server_problem(("Vulkan0",), "n1", fewer)


# no output: values of the parameter, and vLLM's JSON of them
@pytest.mark.parametrize(
    ("draft", "config"),
    [
        ("ngram", {"method": "ngram", "num_speculative_tokens": 3}),
        ("mtp", {"method": "mtp", "num_speculative_tokens": 3}),
        ("/models/small", {"model": "/models/small", "num_speculative_tokens": 3}),
    ],
)
def test_vllm_is_given_a_draft_as_json_under_a_name_of_its_own(tmp_path, draft, config):
    matrix = {
        "engine": ["vllm"],
        "benchmark": ["serve"],
        "nodes": [1],
        "parallelism": ["single"],
        "parameters": {"draft": [draft]},
    }
    run = planned(tmp_path, "dgx-spark-2", {"path": "/models/m"}, matrix, vllm="/bin/vllm")
    run.draft = config.get("model", "")
    VLLM.launch(run, "vllm-draft-1-single")
    argv = run.started[0].argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == config


def test_mlx_drafts_on_one_node_only():
    point = {
        "nodes": 2,
        "parallelism": "tensor",
        "transport": "tcp",
        "fabric_kind": "ethernet",
        "parameters": {"draft": "small"},
    }
    assert find("mlx").unsupported(point) == "mlx_lm.server drafts on one node only"
