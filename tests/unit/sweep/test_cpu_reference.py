"""A GPU's text beside that of the CPU: one node, and what is wrong alike on all of them."""

import json
from dataclasses import replace

import pytest

from judged_text import Model, damaged_from, distribution, judging
from launch_plan import planned
from nixwulf.core.errors import NixwulfError
from nixwulf.llm import Model as Named
from nixwulf.llm import PlacedModel
from nixwulf.plugins.engines.llama_cpp import ENGINE, devices
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep.references import CPU_LIMIT, ReferenceFolder

PLACED = PlacedModel(Named("m", path="/m.gguf"), "/m.gguf", 1, sha256="ab" * 32)


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return judging(tmp_path)


def broken():
    return Model(change=damaged_from(64, 3))


def test_what_is_wrong_alike_on_all_nodes_is_gibberish_beside_the_cpus_text(judge):
    assert judge(broken(), broken(), None)[0].outcome == "ok"
    found, _ = judge(broken(), broken(), Model())
    assert found.outcome == "gibberish"
    reason = found.failure["reason"]
    assert reason.startswith("After a prompt of 64 tokens the text is another one from token 3 on")
    assert reason.endswith("Greedy token 3 is 5, and the CPU gave 6.")
    text = found.sanity["text"]
    assert (text["reference"], text["agrees"], text["first_difference"]) == ("the CPU", False, 3)
    assert text["cpu"]["mean_divergence"] > text["cpu"]["limit"] == CPU_LIMIT
    assert [one["tokens"] for one in text["prompts"]] == [64]


def test_a_text_that_is_the_cpus_but_for_roundings_is_ok_with_both_numbers(judge):
    rounding = Model(change=lambda tokens, place, given: distribution(place, 0.03))
    found, warnings = judge(rounding, rounding, Model())
    assert (found.outcome, warnings) == ("ok", [])
    cpu = found.sanity["text"]["cpu"]
    assert 0 < cpu["mean_divergence"] < cpu["limit"]
    assert cpu["positions"] == 32
    assert found.sanity["text"]["prompts"][0]["mean_divergence"] == 0


def test_of_nodes_that_differ_the_reason_says_which_of_them_the_cpu_is_near(judge):
    found, _ = judge(broken(), Model(), Model())
    assert found.outcome == "gibberish"
    assert "from those of one node" in found.failure["reason"]
    assert found.failure["reason"].endswith("From the CPU's text it is 0 nats apart.")


def test_the_cpu_is_asked_once_a_sweep_and_of_a_file_with_a_hash_once_a_user(judge):
    cpu = Model()
    for references in ("one", "one", "other"):
        judge(Model(), Model(), cpu, references=references)
    assert cpu.prompts == [64, 64]
    known = Model()
    for references in ("third", "fourth"):
        found, _ = judge(Model(), Model(), known, model=PLACED, references=references)
        assert found.sanity["text"]["cpu"]["mean_divergence"] == 0
    assert known.prompts == [64]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (RunFailure("The run took longer.", "timeout"), "the CPU of node 'n1' took longer than 60"),
        (RunFailure("'llama-server' ended."), "'llama-server' ended."),
    ],
)
def test_where_the_cpu_gives_no_text_the_record_says_so_and_it_is_not_asked_again(
    judge, failure, words
):
    for cpu in (failure, Model()):
        found, _ = judge(Model(), Model(), cpu, model=PLACED)
        assert found.outcome == "ok"
        assert found.sanity["text"]["cpu"]["left_out"].startswith(words)
    found, _ = judge(Model(), Model(), Model(), model=PLACED, references="another sweep")
    assert found.sanity["text"]["cpu"]["positions"] == 32


def test_a_damaged_text_of_the_cpu_is_a_sentence_that_names_the_file(judge, tmp_path):
    judge(Model(), Model(), Model(), model=PLACED)
    for path in (tmp_path / "cache").rglob("*-texts.json"):
        path.write_text(json.dumps({"64": 7}))
        with pytest.raises(NixwulfError, match=path.name):
            judge(Model(), Model(), Model(), model=PLACED, references="another sweep")


def of_llama_cpp(tmp_path, **parameters):
    matrix = {
        "nodes": [2],
        "fabric": ["gbe5"],
        "parallelism": ["pipeline"],
        "parameters": {key: [value] for key, value in parameters.items()},
    }
    return planned(tmp_path, "lab", {"path": "/m.gguf"}, matrix)


def test_llama_cpps_cpu_computes_nothing_by_a_gpu_and_has_the_cases_cache(tmp_path):
    run = of_llama_cpp(tmp_path, type_k="q8_0", n_ubatch=96, flash_attn="on")
    for node, own in zip(run.nodes, ((), ("Vulkan0",)), strict=True):
        run.engine_found["devices", node.node.name] = own
    own = ENGINE.on_cpu(run)
    assert devices.arguments(own, ",") == ["-dev", "none", "-ngl", "0"]
    assert own.case.parameters == {"type_k": "q8_0", "type_v": "f16", "backend": "cpu"}
    assert (own.case.nodes, own.nodes) == (1, run.nodes[:1])
    assert devices.gpus(run, run.nodes[1]) == ("Vulkan0",)


def test_a_cache_of_few_bits_says_why_it_is_not_held_against_the_cpu(tmp_path):
    run = of_llama_cpp(tmp_path, type_v="q4_0")
    for node in run.nodes:
        run.engine_found["devices", node.node.name] = ("Vulkan0",)
    assert ENGINE.on_cpu(run) == "a cache of q4_0 makes of another rounding another text"


def test_a_run_by_cpus_alone_has_no_reference_of_the_cpu(tmp_path):
    run = of_llama_cpp(tmp_path)
    for node in run.nodes:
        run.engine_found["devices", node.node.name] = ()
    assert ENGINE.on_cpu(run) is None


def test_cases_whose_caches_have_other_types_have_other_references(tmp_path):
    folder = ReferenceFolder(tmp_path)
    case = of_llama_cpp(tmp_path).case
    folder.put(case, 1, {})
    for other in ({"type_k": "q8_0"}, {"type_v": "q4_0"}, {"backend": "cpu"}):
        assert folder.get(replace(case, parameters={**case.parameters, **other}), 1) is None
    threads = replace(case, parameters={**case.parameters, "threads": 2})
    with pytest.raises(NixwulfError):  # it is there, and has no texts
        folder.get(threads, 1)
