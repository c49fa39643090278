"""The gate `versions`: one build of an engine on all nodes, and one that the driver can drive."""

import dataclasses

import pytest

from healthy_pair import FW1, FW2, context, facts_of, held, refusal
from launch_plan import planned
from nixwulf.plugins.engines import find
from nixwulf.plugins.gates import all_gates, context_of_run
from tool_outputs import fixture

VERSION = fixture("llama-bench/version.txt").strip()


@pytest.mark.parametrize(
    ("places", "versions", "state"),
    [
        (("/nix/store/a-llama/bin/x",) * 2, ("", ""), "ok"),
        (("/usr/bin/x", "/usr/local/bin/x"), (VERSION, VERSION), "ok"),
        (("/nix/store/a/bin/x", "/nix/store/b/bin/x"), (VERSION, VERSION), "ok"),
        (("/usr/bin/x",) * 2, (VERSION, VERSION.replace("commit ", "commit b")), "refused"),
        (("/usr/bin/x",) * 2, (VERSION, "no library"), "unknown"),
    ],
)
def test_engines_are_one_build_by_store_path_or_by_version(places, versions, state):
    # no output: what the driver's script prints around a version
    first, second = (
        f"{place}\n{text}\n--rpc" for place, text in zip(places, versions, strict=True)
    )
    assert held("versions", printed(first, second), FW2).state == state


def printed(*lines, engine="llama.cpp", **changes):
    """A case's nodes, or without an engine a cluster's, that printed these of llama.cpp."""
    # no output: a line of the driver's script before what programs print
    texts = [f"nixwulf-engine:llama.cpp\n{text}" for text in lines]
    answers = {"versions": dict(zip(("fw1", "fw2"), texts, strict=False))}
    against = context(engine=engine and find(engine), answers=answers, **changes)
    return dataclasses.replace(against, nodes=against.nodes[: len(lines)])


# hand-made: no builds of these two numbers are at hand; LAB is what the lab's build printed
# (form: https://github.com/ggml-org/llama.cpp/blob/b9270/common/arg.cpp)
OLD, NEW, LAB = (
    f"/usr/bin/llama-bench\nversion: {version}\n--rpc"
    for version in ("6521 (3a4a4f3)", "6522 (be79d9f)", "0.5.0-dev (build 0, commit 0c1e570)")
)


def test_a_version_without_a_word_that_the_driver_uses_is_refused_on_one_node_too():
    sentence = refusal("versions", printed(OLD))
    assert "has llama.cpp '6521', and nixwulf needs b6522 or later" in sentence
    assert "'--list-devices' of llama-bench (https://" in sentence
    assert "install build b6522 on every node." in sentence
    several = refusal("versions", printed(NEW, NEW))
    assert "has llama.cpp '6522', and nixwulf needs b6688 or later for '-d'" in several
    assert held("versions", printed(NEW)).state == "ok"
    assert held("versions", printed(LAB)).state == "ok"


def test_a_build_without_rpc_is_refused_where_there_are_several_nodes():
    without = LAB.removesuffix("--rpc")
    assert "no '--rpc'; deploy the flake's, or build it with" in refusal(
        "versions", printed(without, without), FW2
    )
    assert held("versions", printed(without)).state == "ok"


# no output: places of programs
LLAMA = "/usr/bin/llama-bench\n/usr/bin/llama-server\n/usr/bin/rpc-server\n"


def test_without_a_case_every_engine_on_path_is_looked_at():
    programs = {p.rpartition("/")[2]: p for p in LLAMA.split()} | {"ray": "/usr/bin/ray"}
    facts = {n: dataclasses.replace(each, programs=programs) for n, each in facts_of().items()}
    both = printed(NEW, OLD, engine=None, facts=facts)
    result = held("versions", both, FW2)
    assert result.state == "refused"
    assert "'fw2' has llama.cpp 'version: 6521" in result.sentences[0]
    assert "needs b6688" in result.sentences[1]
    script = all_gates()["versions"].command(both, FW1)[-1]
    assert "echo nixwulf-engine:llama.cpp; readlink -f /usr/bin/llama-bench" in script
    assert "ray" not in script


def test_a_part_of_an_engine_is_refused_without_a_case():
    programs = {"llama-server": "/usr/bin/llama-server", "llama-bench": "/usr/bin/llama-bench"}
    facts = {n: dataclasses.replace(each, programs=programs) for n, each in facts_of().items()}
    sentence = refusal("versions", printed(LAB, LAB, engine=None, facts=facts))
    assert "has a part of llama.cpp and lacks 'ggml-rpc-server' on PATH" in sentence


def on_sparks(tmp_path, nccl, nodes=3, transport="rdma", fabric="ring", cluster="dgx-spark-3"):
    """The first node of a case of vLLM whose Python has an NCCL, or lists none."""
    matrix = {"engine": ["vllm"], "benchmark": ["serve"], "nodes": [nodes], "fabric": [fabric]}
    matrix |= {"transport": [transport], "parallelism": ["pipeline"]}
    matrix["parameters"] = {"executor": ["mp"], "n_prompt": [16], "requests": [2]}
    run = planned(tmp_path, cluster, {"id": "a/b"}, matrix, vllm="/opt/bin/vllm")
    against = context_of_run(run, None)
    # no output: a line of the driver's script, and lines of devices.py
    text = f"nixwulf-engine:vllm\n/opt/bin/vllm\nvllm version 0.33.0\n{nccl}"
    answers = {"versions": dict.fromkeys(run.facts, text)}
    against = dataclasses.replace(against, answers=answers)
    return held("versions", against, against.nodes[0])


def test_an_nccl_that_takes_any_port_is_refused_over_cables_between_three_nodes(tmp_path):
    found = on_sparks(tmp_path, "nvidia-nccl-cu13 version 2.28.9")
    assert found.state == "refused"
    (sentence,) = found.sentences
    assert sentence.startswith(
        "Node 'spark1' has nccl '2.28.9', and nixwulf needs 2.30.7 or later for "
        "'NCCL_IB_SUBNET_AWARE_ROUTING' (https://"
    )
    assert "run 'pip install --no-deps nvidia-nccl-cu13==2.30.7'" in sentence


@pytest.mark.parametrize(
    ("nccl", "case"),
    [
        ("nvidia-nccl-cu13 version 2.30.7", {}),
        ("nvidia-nccl-cu12 version 2.31.1", {}),
        ("", {}),
        ("nvidia-nccl-cu13 version 2.28.9", {"nodes": 2}),
        ("nvidia-nccl-cu13 version 2.28.9", {"transport": "tcp", "fabric": "lan"}),
        (
            "nvidia-nccl-cu13 version 2.28.9",
            {"nodes": 2, "fabric": "qsfp-a", "cluster": "dgx-spark-2"},
        ),
    ],
)
def test_any_nccl_is_accepted_that_is_new_or_unknown_or_not_on_such_cables(tmp_path, nccl, case):
    assert on_sparks(tmp_path, nccl, **case).state == "ok"
