"""What 'explain' calls a cause, and which faster way it names first."""

import copy
from dataclasses import replace

import pytest

from framework_runs import DECODE, LLAMA, of_frameworks, predicted
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm.catalog import find
from nixwulf.llm.random_model import RandomModel
from nixwulf.perf.explain.explanation import explain_records
from nixwulf.perf.explain.remedies import PredictionInputs, _costs, _runs
from nixwulf.perf.inputs import Strategy, choose, fabric_facts, platform_facts
from nixwulf.results import record
from record_factory import case, metric, ok, plan

SHAPE = {"delay_us": 50.0, "rate_gbps": 0.94}
ONE_NODE = 200.0


def lab(nodes=2, decode=110.0, *, rtt_us=200.0, gbps=0.94, facts=None, lost=0, **changes):
    """A run of a random model in the lab, with one link and what its nodes report."""
    size = RandomModel().parameters
    parameters = {
        "n_prompt": 128,
        "n_gen": 32,
        "depth": 0,
        "threads": 1,
        **changes.pop("parameters", {}),
    }
    of = case(nodes, changes.pop("fabric", "lan"), changes.pop("split", "pipeline"),
              parameters=parameters)  # fmt: skip
    measured = changes.pop("metrics", {"decode": [decode]})
    one = copy.deepcopy(ok(of, measured, rtt_us=rtt_us, gbps=gbps, asked=SHAPE))
    for node in one["nodes"]:
        node["facts"] |= facts or {}
    for link in one.get("fabric", {}).get("links", ()):
        for probe in ("rtt_before", "rtt_after"):
            link[probe] = {**link[probe], "samples": [rtt_us] * (20 - lost), "lost": lost}
    one["model"] = {"name": "tiny", "random_weights": True, "parameters": size, "bytes": 2 * size}
    return record.sealed(one | changes)


def explained(*records, nodes=2, name="decode"):
    """The explanation of the run on so many nodes."""
    the_plan = plan([one["case"] for one in records])
    the_plan["sweep"]["document"]["models"] = {"tiny": {"random": {}}}
    found, _ = explain_records([(one, the_plan) for one in records])
    return next(one for one in found if one.case["nodes"] == nodes and one.metric == name)


def keys(one):
    return [cause.diagnostic.key for cause in one.slows]


@pytest.mark.parametrize(
    ("slow", "key"),
    [
        ({"rtt_us": 4200.0, "decode": 60.0}, "link-latency"),
        ({"lost": 3, "decode": 20.0}, "link-loss"),
        ({"facts": {"busy_cpus": 2.0}}, "load"),
        ({"facts": {"cpu_quota": 0.3}}, "quota"),
    ],
)
def test_a_fact_that_is_off_is_named_where_the_case_depends_on_it(slow, key):
    one = explained(lab(1, ONE_NODE), lab(**slow))
    assert keys(one)[0] == key
    assert one.slows[0].factor > 1.03


def test_a_lab_as_it_was_asked_for_has_no_cause():
    assert not explained(lab(1, ONE_NODE), lab()).causes


def test_a_slow_rate_is_no_cause_of_decoding_and_a_cause_of_prompts():
    both = [metric("decode", [110.0]), metric("prompt", [700.0])]
    alone = [metric("decode", [ONE_NODE]), metric("prompt", [2000.0])]
    records = lab(1, metrics=alone), lab(metrics=both, gbps=0.2)
    decode = explained(*records)
    assert keys(decode) == []
    assert [cause.diagnostic.key for cause in decode.noticed] == ["link-rate"]
    assert keys(explained(*records, name="prompt")) == ["link-rate"]


def test_threads_that_leave_room_for_other_load_are_not_slowed_by_it():
    calm = lab(1, facts={"cpus": 8, "busy_cpus": 2.0})
    assert keys(explained(calm, nodes=1)) == []
    full = lab(1, facts={"cpus": 8, "busy_cpus": 8.0})
    assert keys(explained(full, nodes=1)) == ["load"]


def test_the_dearest_cause_comes_first():
    one = explained(lab(1, ONE_NODE), lab(rtt_us=800.0, facts={"cpu_quota": 0.3}))
    assert keys(one) == ["quota", "link-latency"]
    slow_link = explained(lab(1, ONE_NODE), lab(rtt_us=20000.0, facts={"cpu_quota": 0.5}))
    assert keys(slow_link) == ["link-latency", "quota"]


def test_lost_packets_are_in_the_prediction_and_one_of_them_is_an_accident():
    without = explained(lab(1, ONE_NODE), lab()).prediction
    single = lab()
    single["fabric"]["links"][0]["rtt_before"]["lost"] = 1
    assert explained(lab(1, ONE_NODE), single).prediction.value == without.value
    assert explained(lab(1, ONE_NODE), lab(lost=3)).prediction.value < 0.8 * without.value


def test_a_model_that_is_too_large_for_the_cache_is_held_against_one_that_fits():
    def of(size, speed, name, cache="32768K"):
        one = lab(1, speed, facts={"cpu_cache": cache})
        model = {**one["model"], "name": name, "bytes": size}
        case_ = {**one["case"], "model": name, "id": name}
        return record.sealed({**one, "model": model, "case": case_})

    def causes(*records):
        found, _ = explain_records([(one, None) for one in records])
        return {each.case["model"]: keys(each) for each in found}

    small, large = of(20 << 20, 2000.0, "small"), of(320 << 20, 40.0, "large")
    assert causes(small, large) == {"small": [], "large": ["cache"]}
    assert causes(large) == {"large": []}  # nothing shows what the cache would give
    as_quick = of(320 << 20, 125.0, "large")
    assert causes(small, as_quick) == {"small": [], "large": []}
    assert causes(small, of(320 << 20, 40.0, "large", cache="?")) == {"small": [], "large": []}


def test_facts_of_any_type_are_no_cause():
    odd = {"busy_cpus": "many", "cpu_quota": [1], "cpus_allowed": {"a": 1}, "cpus": "two"}
    assert keys(explained(lab(1, ONE_NODE), lab(facts=odd))) == []


def test_remedies_come_in_the_order_of_their_cost_and_not_of_their_gain():
    records = [
        lab(1, 60.0),
        lab(2, 110.0, fabric="near", rtt_us=60.0),
        lab(2, 90.0, parameters={"threads": 2}),
        lab(2, 80.0),
        lab(2, 40.0, split="tensor"),
    ]
    one = next(
        one
        for one in explain_records([(each, None) for each in records])[0]
        if one.case["parallelism"] == "tensor"
    )
    assert [(found.kind, found.speed) for found in one.remedies] == [
        ("one-node", 60.0),
        ("split", 80.0),
    ]
    assert all(found.measured for found in one.remedies)


def test_a_parameter_that_was_measured_to_be_faster_is_a_remedy():
    one, two = (
        lab(1, speed, parameters={"threads": count}) for count, speed in ((1, 100), (2, 180))
    )
    found, _ = explain_records([(one, None), (two, None)])
    slow = next(each for each in found if each.measured == 100)
    (remedy,) = slow.remedies
    assert (remedy.kind, remedy.what) == ("parameter", "threads 2 in place of 1")
    assert remedy.factor == pytest.approx(1.8)


def by_engine(engine, weights, decode, nodes=2):
    one = lab(nodes, decode)
    one["case"]["engine"] = engine
    one["model"]["weights"] = weights
    one["case"]["id"] = f"{engine:0<12.12}".encode().hex()[:12]
    return record.sealed(one | {"id": f"{one['case']['id']}-r0"})


def test_another_engine_that_was_measured_to_be_faster_is_a_remedy_with_its_weights():
    slow, fast = by_engine("exo", "4-bit", 100.0), by_engine("llama.cpp", "Q4_0", 300.0)
    (one,) = [way for way in explained(slow, fast).remedies if way.kind == "engine"]
    assert (one.measured, one.speed, one.factor) == (True, 300.0, 3.0)
    assert one.what == "llama.cpp with Q4_0 in place of exo with 4-bit"
    on_one, unknown = by_engine("llama.cpp", "Q4_0", 300.0, nodes=1), by_engine("", "", 300.0)
    del unknown["case"]["engine"]
    for other in (on_one, record.sealed(unknown)):
        assert all(way.kind != "engine" for way in explained(slow, other).remedies)


def test_what_was_measured_to_be_no_faster_is_not_predicted_to_be():
    slow = predicted(split="tensor").value
    (alone,) = explain_records([(of_frameworks(slow, split="tensor"), None)])[0]
    assert "one-node" in [one.kind for one in alone.remedies]
    beside = [of_frameworks(slow, split="tensor"), of_frameworks(0.9 * slow, nodes=1)]
    found, _ = explain_records([(one, None) for one in beside])
    several = next(one for one in found if one.case["nodes"] == 2)
    assert "one-node" not in [one.kind for one in several.remedies]


def test_a_difference_within_the_noise_of_the_samples_is_no_remedy():
    calm = explained(lab(1, ONE_NODE), lab(decode=150.0))
    assert [one.kind for one in calm.remedies] == ["one-node"]
    noisy = lab(metrics={"decode": [40.0, 260.0, 90.0, 210.0]})
    assert explained(lab(1, ONE_NODE), noisy).remedies == ()


def test_a_model_that_does_not_fit_one_node_is_not_sent_there():
    huge = {**LLAMA, "name": "Llama-3.1-405B", "bytes": 240_000_000_000}
    one = of_frameworks(0.5, split="tensor", nodes=4)
    big = record.sealed({**one, "model": huge, "case": {**one["case"], "model": huge["name"]}})
    (found,) = explain_records([(big, None)])[0]
    assert "one-node" not in [remedy.kind for remedy in found.remedies]


def test_copies_are_a_remedy_only_where_requests_are_served_at_once():
    conditions = {**DECODE, "concurrency": 8}
    one = of_frameworks(8.0, split="tensor", conditions=conditions)
    (many,) = explain_records([(one, None)])[0]
    copies = next(each for each in many.remedies if each.kind == "replicas")
    assert copies.what == "2 copies, one on each node"
    (single,) = explain_records([(of_frameworks(1.0, split="tensor"), None)])[0]
    assert "replicas" not in [each.kind for each in single.remedies]


def test_replicas_on_fewer_nodes_are_a_remedy_that_crosses_no_fabric():
    four = ok(case(4, "lan", "pipeline"), {"decode": [10.0, 10.1, 9.9]})
    two = copy.deepcopy(ok(case(2, "lan", "pipeline"), {"decode": [20.0, 20.1, 19.9]}))
    two["case"] |= {"parallelism": "replicas"}
    del two["case"]["fabric"], two["case"]["transport"]
    found = explain_records([(four, None), (record.sealed(two), None)])[0]
    what = [each.what for one in found for each in one.remedies]
    assert what == ["2 nodes by replicas"]


def test_fewer_layers_on_the_slower_of_unequal_nodes_are_a_remedy():
    one = copy.deepcopy(of_frameworks(2.0))
    one["case"]["parameters"]["split"] = "auto"
    one["engine"]["placed"] = "a: 20000.0 MiB, b: 20000.0 MiB"
    the_plan = plan([one["case"]])
    speeds = [None, 40.0]  # of the cluster file: the second has a memory of its own
    nodes = [
        {"name": node["name"], **({"memory_bandwidth_gbs": gbs} if gbs else {})}
        for node, gbs in zip(one["nodes"], speeds, strict=True)
    ]

    def of(split, own):
        one["case"]["parameters"]["split"] = split
        the_plan["cluster"]["document"] = {"nodes": own}
        (found,) = explain_records([(record.sealed(one), the_plan)])[0]
        return [each.what for each in found.remedies if each.kind == "parameter"]

    assert of("auto", nodes) == ["split fastest in place of auto"]
    assert of("fastest", nodes) == []
    assert of("auto", []) == []


def test_a_speed_above_its_interval_is_not_explained_either():
    (fast,) = explain_records([(of_frameworks(1.05 * predicted().high), None)])[0]
    assert fast.unexplained
    (usual,) = explain_records([(of_frameworks(predicted().value), None)])[0]
    assert not usual.unexplained


def test_a_cause_too_small_for_what_is_missing_leaves_it_unexplained():
    waived = [{"gate": "governor", "node": "n1", "state": "waived", "sentences": ["It is slow."]}]
    (one,) = explain_records([(of_frameworks(0.5, gates=waived), None)])[0]
    assert not one.unexplained  # by how much a governor slows is not known
    (loaded,) = explain_records(
        [(of_frameworks(0.1, facts={"cpus": 16, "busy_cpus": 16.0}), None)]
    )[0]
    assert loaded.unexplained


def test_a_split_that_the_engine_refuses_is_no_remedy():
    """vLLM gives each node as many of the 64 attention heads: 3 nodes have no such part."""
    node, link = platform_facts(load_platform("minisforum-ms-s1-max")), fabric_facts("roce", "rdma")
    model = find("Qwen3-32B")
    inputs = PredictionInputs(
        (node,) * 4, model, Strategy("vllm", "tensor"), link, choose("vllm", "amd"), "decode"
    )
    of = {"case": {"transport": "rdma"}, "fabric": {"kind": "roce"}}
    assert [_runs(of, inputs, inputs.strategy, nodes) for nodes in (2, 3, 4)] == [True, False, True]


@pytest.mark.parametrize(("build", "can"), [("b7074", False), ("b9049", True), ("", False)])
def test_a_split_that_came_after_the_records_build_is_no_remedy(build, can):
    """llama.cpp splits tensors over RPC from b8738 on; a build that is not stated may be older."""
    node, link = platform_facts(load_platform("framework-desktop")), fabric_facts("ethernet", "tcp")
    model = find("Qwen3-32B")
    inputs = PredictionInputs(
        (node,) * 2, model, Strategy("llama.cpp"), link, choose("llama.cpp", "amd"), "prompt"
    )
    of = {
        "case": {"transport": "tcp"},
        "fabric": {"kind": "ethernet"},
        "engine": {"version": build},
    }
    assert _runs(of, inputs, Strategy("llama.cpp", "tensor"), 2) is can


def test_a_remedy_says_what_it_costs_the_other_of_prompt_and_decode():
    node = platform_facts(load_platform("framework-desktop"))
    link, model = fabric_facts("ethernet", "tcp", 5), find("gpt-oss-20b")
    pipeline = Strategy("llama.cpp", "pipeline", n_prompt=512)
    before = PredictionInputs(
        (node,) * 2, model, pipeline, link, choose("llama.cpp", "amd"), "prompt"
    )
    after = replace(before, strategy=replace(pipeline, parallelism="tensor"))

    assert _costs(before, after) < 0.95
    assert _costs(before, before) is None
