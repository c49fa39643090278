import copy
import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.core.registry import Parameter
from nixwulf.inventory.cluster import load_cluster
from nixwulf.perf.scenarios.candidates import NO_SPLIT
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines import Engine
from nixwulf.results.record import sealed
from nixwulf.sweep.plan import (
    load_plan,
    load_sweep,
    make_plan,
    parse_sweep,
    plan_to_resume,
    save_plan,
)

MANY = list(range(1, 3000))

# no output: a sweep
SWEEP = {
    "name": "mine",
    "models": {"tiny": {"random": {"layers": 4}}},
    "matrix": {
        "model": ["tiny"],
        "nodes": [1, 2, 4],
        "fabric": ["gbe5", "gbe2g5"],
        "parallelism": ["single", "pipeline", "tensor"],
        "parameters": {"n_gen": [8, 16]},
    },
    "repetitions": 2,
}


def sweep_with(**changes):
    document = copy.deepcopy(SWEEP)
    for key, value in changes.items():
        document["matrix" if key in SWEEP["matrix"] else key] = (
            {**document["matrix"], key: value} if key in SWEEP["matrix"] else value
        )
    return parse_sweep(document, "mine.yaml")


@pytest.fixture(scope="module")
def lab():
    return load_cluster("lab")


def test_one_node_is_one_case_whatever_the_fabric(lab):
    plan = make_plan(sweep_with(), lab)
    singles = [case for case in plan.cases if case.nodes == 1]
    assert [(case.fabric, case.parallelism) for case in singles] == [(None, "single")] * 2
    assert len(plan.cases) == 2 + 2 * 2 * 2 * 2


def test_without_fabrics_a_case_takes_every_one_that_as_many_nodes_share():
    document = copy.deepcopy(SWEEP)
    del document["matrix"]["fabric"]
    macs = load_cluster("mac-studio-4")
    plan = make_plan(parse_sweep(document, "mine.yaml"), macs)
    fabrics = {n: {case.fabric for case in plan.cases if case.nodes == n} for n in (2, 4)}
    assert fabrics == {2: set(macs.fabrics), 4: set(macs.fabrics)}
    assert not [left for left in plan.left_out if "are on the fabric" in left.reason]


def macs_cabled(*pairs):
    """The shipped Macs on cables alone, those between these pairs of their letters."""
    macs = load_cluster("mac-studio-4")
    nodes = tuple(
        replace(
            node,
            links={
                "mesh": {
                    other: end
                    for other, end in node.links["mesh"].items()
                    if "".join(sorted(node.name[-1] + other[-1])) in pairs
                }
            },
        )
        for node in macs.nodes
    )
    return replace(macs, nodes=nodes, fabrics={"mesh": macs.fabrics["mesh"]})


@pytest.mark.parametrize("pairs", [("ab", "bc", "cd"), ("ab", "ac", "ad"), ("ab", "cd")])
def test_more_nodes_than_the_cables_join_are_left_out_with_one_reason(pairs):
    document = copy.deepcopy(SWEEP)
    del document["matrix"]["fabric"]
    plan = make_plan(parse_sweep(document, "mine.yaml"), macs_cabled(*pairs))
    assert {case.nodes for case in plan.cases} == {1, 2}
    assert {left.reason for left in plan.left_out if left.what["nodes"] == 4} == {
        "the cables of mesh do not connect 4 nodes, fully or as a ring",
        "'single' needs one node, other splits need several",
    }


def test_in_a_ring_runs_what_has_to_reach_its_neighbours_only():
    document = copy.deepcopy(SWEEP)
    document["matrix"] |= {
        "engine": ["mlx", "llama.cpp"],
        "benchmark": ["serve"],
        "nodes": [4],
        "fabric": ["mesh"],
        "transport": ["tcp", "rdma"],
        "parallelism": ["tensor"],
    }
    ring = macs_cabled("ab", "bc", "cd", "ad")
    plan = make_plan(parse_sweep(document, "mine.yaml"), ring)
    assert {(case.engine, case.transport) for case in plan.cases} == {("mlx", "tcp")}
    assert [node.name[-1] for node in plan.cases[0].nodes_of(ring)] == ["a", "b", "c", "d"]
    needs = "needs a cable between each two nodes, and these are in a ring"
    reasons = {left.reason for left in plan.left_out}
    assert {f"mlx by rdma {needs}", f"llama.cpp by tcp {needs}"} <= reasons


def test_without_nodes_a_benchmark_of_machines_takes_all_that_each_fabric_joins():
    sweep = parse_sweep({"name": "x", "matrix": {"benchmark": ["iperf3"]}}, "x.yaml")
    found = {
        (name, case.fabric, case.nodes)
        for name in ("mac-studio-4", "dgx-spark-2")
        for case in make_plan(sweep, load_cluster(name)).cases
    }
    assert found == {
        *(("mac-studio-4", fabric, 4) for fabric in ("office", "mesh")),
        *(("dgx-spark-2", fabric, 2) for fabric in ("qsfp-a", "qsfp-b")),
    }
    pairs = make_plan(sweep, macs_cabled("ab", "bc", "cd"))
    assert [case.nodes for case in pairs.cases] == [2]


def test_what_measures_an_engine_needs_a_number_of_nodes():
    document = copy.deepcopy(SWEEP)
    del document["matrix"]["nodes"]
    with pytest.raises(InputError, match=r"measures an engine; add nodes: \[\.\.\.\]"):
        make_plan(parse_sweep(document, "mine.yaml"), load_cluster("lab"))


def test_an_engine_that_would_compute_beside_the_gpu_is_left_out():
    document = copy.deepcopy(SWEEP)
    document["matrix"] |= {
        "engine": ["mlx", "llama.cpp"],
        "benchmark": ["serve"],
        "fabric": ["cable"],
    }
    document["matrix"]["parameters"] = {"n_gen": [8]}
    plan = make_plan(parse_sweep(document, "mine.yaml"), load_cluster("framework-2"))
    assert {case.engine for case in plan.cases} == {"llama.cpp"}
    reason = "mlx has no kernels for the GPU of framework-desktop and would compute on its CPU"
    assert any(left.reason.startswith(reason) for left in plan.left_out)


def test_cases_that_cannot_be_are_left_out_with_the_reason(lab):
    plan = make_plan(sweep_with(nodes=[1, 2, 8]), lab)
    reasons = {left.reason for left in plan.left_out}
    assert NO_SPLIT in reasons
    assert "the cluster has 4 nodes, not 8" in reasons


def test_rdma_over_plain_ethernet_is_left_out(lab):
    sweep = parse_sweep(
        {**SWEEP, "matrix": {**SWEEP["matrix"], "transport": ["tcp", "rdma"]}},
        "mine.yaml",
    )
    reasons = {left.reason for left in make_plan(sweep, lab).left_out}
    assert "the fabric gbe5 (ethernet) carries no rdma" in reasons


def test_excluded_points_are_left_out_and_listed(lab):
    plan = make_plan(sweep_with(exclude=[{"nodes": 4, "fabric": "gbe2g5"}]), lab)
    assert not [case for case in plan.cases if (case.nodes, case.fabric) == (4, "gbe2g5")]
    assert "the sweep excludes nodes 4, fabric gbe2g5" in {left.reason for left in plan.left_out}


def test_an_engine_has_parameters_beside_those_of_the_benchmark(lab):
    plan = make_plan(sweep_with(parameters={"threads": [1, 2], "n_gen": [8]}), lab, "nodes=1")
    assert [case.parameters["threads"] for case in plan.cases] == [1, 2]


def test_no_engine_shares_the_name_of_a_parameter_with_a_benchmark_that_measures_it():
    for benchmark in benchmarks.all_benchmarks().values():
        for engine in engines.all_engines().values():
            if benchmark.engines is None or engine.name in benchmark.engines:
                shared = benchmark.parameters.keys() & engine.parameters.keys()
                assert not shared, f"{benchmark.name} and {engine.name} share {shared}"


def test_every_engine_and_benchmark_has_what_the_driver_asks_of_one():
    for engine in engines.all_engines().values():
        for name in [*Engine.__annotations__, "start", "greedy_tokens", "endpoint"]:
            assert hasattr(engine, name), f"{engine} has no {name}"
    for benchmark in benchmarks.all_benchmarks().values():
        for name in Benchmark.__annotations__:
            assert hasattr(benchmark, name), f"{benchmark} has no {name}"


def test_a_model_by_its_name_is_for_engines_that_take_one(lab):
    sweep = sweep_with(
        models={"tiny": {"random": {}}, "big": {"id": "org/big"}}, model=["tiny", "big"]
    )
    plan = make_plan(sweep, lab)
    assert {case.model for case in plan.cases} == {"tiny"}
    reason = "llama.cpp reads a file, not a model by its name on Hugging Face"
    assert reason in {left.reason for left in plan.left_out}


def test_a_parameter_of_one_name_in_both_is_refused(lab, monkeypatch):
    monkeypatch.setattr(
        engines.find("llama.cpp"), "parameters", {"n_gen": Parameter(1)}, raising=False
    )
    with pytest.raises(InputError, match="both have a parameter 'n_gen'; rename one"):
        make_plan(sweep_with(), lab)


def test_an_include_adds_its_own_product(lab):
    extra = {
        "model": ["tiny"],
        "nodes": [2],
        "fabric": ["thunderbolt"],
        "parallelism": ["tensor"],
    }
    plan = make_plan(sweep_with(include=[extra]), lab)
    assert [case.nodes for case in plan.cases if case.fabric == "thunderbolt"] == [2]


def test_passes_are_interleaved(lab):
    plan = make_plan(sweep_with(), lab)
    runs = list(plan.runs())
    assert [repetition for _, repetition in runs] == [0] * len(plan.cases) + [1] * len(plan.cases)


def test_each_pass_is_the_other_way_round_than_the_one_before(lab):
    runs = list(make_plan(sweep_with(), lab).runs())
    assert [case.id for case, _ in runs] == [case.id for case, _ in reversed(runs)]


def test_a_query_names_the_cases_that_the_others_are_compared_with(lab):
    plan = make_plan(sweep_with(), lab)
    found = plan.baseline("fabric=gbe5")
    assert found.over == ("fabric",)
    assert {case.fabric for case in plan.cases if case.id in found.ids} == {"gbe5"}
    three = make_plan(sweep_with(parameters={"n_gen": [8, 16, 32]}), lab)
    with pytest.raises(InputError, match="leaves several values of n_gen on a side"):
        three.baseline("n_gen=8")


@pytest.mark.parametrize("query", ["nodes=1", "fabric=none", "nodes<=4", "model=tiny"])
def test_a_baseline_without_a_case_to_compare_with_is_refused_before_a_run(lab, query):
    with pytest.raises(InputError, match=r"none of the others differs from one in \w+ alone"):
        make_plan(sweep_with(), lab).baseline(query)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": [8]}, "the sweep yields no case on cluster 'lab'"),
        ({"nodes": ["2"]}, "matrix.nodes.0 is '2', expected integer"),
        ({"fabric": ["token-ring"]}, "the fabric 'token-ring' is not in"),
        ({"model": ["big"]}, "the model 'big' is not among models; known: tiny"),
        ({"engine": ["llama"]}, "unknown engine 'llama'; did you mean 'llama.cpp'?"),
        (
            {"parameters": {"n_gens": [1]}},
            "no benchmark or engine of the block has a parameter 'n_gens'; did you mean 'n_gen'?",
        ),
        (
            {"parameters": {"n_gen": [-1]}},
            "the parameter 'n_gen' is -1, expected int of at least 0",
        ),
        (
            {"parameters": {"n_gen": [2**63 - 1]}},
            f"the parameter 'n_gen' is {2**63 - 1}, expected int of at most {2**31 - 1}",
        ),
        ({"parameters": {"n_gen": ["1"]}}, "the parameter 'n_gen' is '1'"),
        (
            {"repetition": 3},
            "unknown key 'repetition' in the top level; did you mean 'repetitions'",
        ),
    ],
)
def test_a_bad_sweep_is_refused_with_file_and_key(lab, changes, message):
    document = copy.deepcopy(SWEEP)
    for key, value in changes.items():
        (document["matrix"] if key in {*SWEEP["matrix"], "engine"} else document)[key] = value
    with pytest.raises(InputError) as caught:
        make_plan(parse_sweep(document, "mine.yaml"), lab)
    assert message in caught.value.message
    assert caught.value.message.startswith("mine.yaml")


def test_only_chooses_cases_and_says_when_none_is_left(lab):
    plan = make_plan(sweep_with(), lab, "nodes<=2 parallelism!=tensor n_gen=8")
    assert {(case.nodes, case.parallelism) for case in plan.cases} == {
        (1, "single"),
        (2, "pipeline"),
    }
    with pytest.raises(InputError, match="--only 'nodes=3' leaves no case"):
        make_plan(sweep_with(), lab, "nodes=3")
    with pytest.raises(InputError, match="Unknown key 'node'"):
        make_plan(sweep_with(), lab, "node=3")
    with pytest.raises(InputError, match="Cannot read 'nodes'"):
        make_plan(sweep_with(), lab, "nodes")


def test_a_saved_plan_loads_as_itself(lab, tmp_path):
    plan = make_plan(sweep_with(), lab, "nodes=2")
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").document() == plan.document()


def test_resuming_with_another_plan_is_refused(lab, tmp_path):
    save_plan(make_plan(sweep_with(), lab), tmp_path / "plan.json")
    with pytest.raises(InputError, match="was started with another plan"):
        plan_to_resume(tmp_path, make_plan(sweep_with(repetitions=3), lab))


def test_a_plan_edited_by_hand_is_refused(lab, tmp_path):
    path = tmp_path / "plan.json"
    save_plan(make_plan(sweep_with(), lab), path)
    document = json.loads(path.read_text())
    document["repetitions"] = 5
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="the plan was edited"):
        load_plan(path)


@pytest.mark.parametrize(
    "case",
    [{"parameters": "n_gen"}, {"parameters": {"n_gen": [1]}}, {"nodes": {}}, {"model": None}],
)
def test_a_point_that_is_none_is_refused_whatever_the_digest_is(lab, tmp_path, case):
    document = make_plan(sweep_with(), lab).document()
    document["left_out"][0]["case"] |= case
    (tmp_path / "plan.json").write_text(json.dumps(sealed(document)))
    with pytest.raises(InputError, match=r"plan\.json: left_out\.0\.case"):
        load_plan(tmp_path / "plan.json")


def test_a_plan_of_the_same_cases_goes_on_whatever_the_reasons_were_called_then(lab, tmp_path):
    document = make_plan(sweep_with(), lab).document()
    document.pop("digest")
    document["left_out"][0]["reason"] = "what an older version said"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(sealed(document)))
    assert load_plan(path).cases == make_plan(sweep_with(), lab).cases
    document["cases"].pop()
    path.write_text(json.dumps(sealed(document)))
    with pytest.raises(InputError, match="plans other cases than the one that started the run"):
        load_plan(path)


def test_a_sweep_that_is_not_yaml_is_refused_with_the_line(tmp_path):
    path = tmp_path / "bad.yaml"
    # no output: a sweep that is damaged on purpose
    path.write_text("name: x\nmatrix: [1,\n")
    with pytest.raises(InputError, match=r"bad.yaml: line 3: not YAML"):
        load_sweep(path)


@pytest.mark.slow
@given(
    nodes=st.sets(st.integers(1, 6), min_size=1),
    parallelism=st.sets(st.sampled_from(["single", "pipeline", "tensor"]), min_size=1),
    fabrics=st.sets(st.sampled_from(["gbe5", "gbe2g5", "thunderbolt"]), min_size=1),
)
def test_every_point_is_a_case_or_left_out_and_ids_differ(nodes, parallelism, fabrics):
    lab = load_cluster("lab")
    sweep = sweep_with(nodes=sorted(nodes), parallelism=sorted(parallelism), fabric=sorted(fabrics))
    distributed = [
        (n, f, p) for n in nodes - {1} for f in fabrics for p in parallelism - {"single"} if n <= 4
    ]
    expected = 2 * (len(distributed) + (1 in nodes and "single" in parallelism))
    if expected == 0:
        with pytest.raises(InputError):
            make_plan(sweep, lab)
        return
    plan = make_plan(sweep, lab)
    assert len(plan.cases) == expected
    assert len({case.id for case in plan.cases}) == expected
    assert yaml.safe_load(yaml.safe_dump(plan.document())) == plan.document()


def test_waived_gates_are_in_the_plan_and_a_resumed_one_keeps_them(lab, tmp_path):
    plan = make_plan(sweep_with(), lab, waived=["governor", "clock", "governor"])
    assert plan.document()["waived"] == ["clock", "governor"]
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").waived == ("clock", "governor")
    assert [case.id for case in plan.cases] == [c.id for c in make_plan(sweep_with(), lab).cases]
    with pytest.raises(InputError, match="another plan"):
        plan_to_resume(tmp_path, make_plan(sweep_with(), lab))


def test_a_plan_without_waived_gates_does_not_speak_of_them(lab):
    assert "waived" not in make_plan(sweep_with(), lab).document()


def test_a_matrix_whose_product_is_endless_is_refused_at_once():
    sweep = sweep_with(parameters={"n_prompt": MANY, "n_gen": MANY})
    with pytest.raises(InputError, match="more than 10000 points; take fewer values"):
        make_plan(sweep, load_cluster("lab"))


def test_why_no_case_is_left_is_told_by_the_commonest_reasons():
    few = MANY[:100]
    excluded = [{"parameters": {"n_gen": value}} for value in few]
    sweep = sweep_with(parameters={"n_gen": few}, exclude=excluded)
    with pytest.raises(InputError, match=r"yields no case .*; \.\.\.\.$") as caught:
        make_plan(sweep, load_cluster("lab"))
    assert len(caught.value.message) < 1000


def test_a_parameter_that_came_later_is_in_a_case_only_where_it_is_not_the_default(lab):
    axes = {"nodes": [2], "fabric": ["gbe5"], "parallelism": ["pipeline"]}
    (before,) = make_plan(sweep_with(**axes, parameters={"n_gen": [8]}), lab).cases
    sweep = sweep_with(**axes, parameters={"n_gen": [8], "split": ["auto", "even"]})
    plan = make_plan(sweep, lab)
    assert [case.parameters.get("split") for case in plan.cases] == [None, "even"]
    assert plan.cases[0] == before
    assert make_plan(sweep, lab, "split=auto").cases == (before,)
