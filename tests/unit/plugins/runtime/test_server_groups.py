"""Servers of several nodes each: what runs, what is refused, predicted, ranked and served."""

import shlex
from dataclasses import replace

import pytest

from launch_plan import planned
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster, with_lab_nodes
from nixwulf.perf.explain.subject import RunPlan, subject_of
from nixwulf.perf.scenarios.candidates import Candidate, Question
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.perf.scenarios.forecast import answer, forecast, sizes_of
from nixwulf.perf.scenarios.render import how
from nixwulf.plugins.engines.llama_cpp import devices
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.memory import TokenDemand, needs
from nixwulf.plugins.runtime.run import of_one_server, replicas
from nixwulf.results.identity import OVER_NODES, same
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.tune.options import GOALS, Request, read_subject
from nixwulf.tune.render import serve_commands, serving
from nixwulf.tune.search import begin

MODEL = "gpt-oss-20b"


def matrix_of(servers=2, nodes=4, parallelism="pipeline", concurrency=6, engine="llama.cpp"):
    return {
        "engine": [engine],
        "benchmark": ["serve"],
        "nodes": [nodes],
        "fabric": ["rdma-like"],
        "parallelism": [parallelism],
        "parameters": {"servers": [servers], "concurrency": [concurrency], "requests": [12]},
    }


def plan_of(cluster="lab", **asked):
    document = {
        "name": "groups",
        "models": {"tiny": {"random": {}}},
        "matrix": {"model": ["tiny"], **matrix_of(**asked)},
    }
    return make_plan(parse_sweep(document, "groups.yaml"), load_cluster(cluster))


def test_each_group_is_a_run_of_its_own_nodes_with_its_part_of_the_requests(tmp_path):
    run = planned(tmp_path, "lab", {"random": {}}, matrix_of(concurrency=5))
    first, second = replicas(run)
    assert [node.node.name for node in first.nodes] == ["n1", "n2"]
    assert [node.node.name for node in second.nodes] == ["n3", "n4"]
    assert (second.case.nodes, second.case.parallelism) == (2, "pipeline")
    assert second.case.fabric == run.case.fabric == "rdma-like"
    assert second.case.parameters["concurrency"] == 3
    process = second.start(second.workers[0], "rpc-server", ["ggml-rpc-server"], {})
    assert run.owned == second.owned == [process]
    assert first.owned == []
    assert len({run.name, first.name, second.name}) == 3
    assert [(a.node.name, b.node.name) for one in replicas(run) for a, b in one.links] == [
        ("n1", "n2"), ("n3", "n4"),
    ]  # fmt: skip


def test_a_case_of_one_server_is_as_it_was():
    (case,) = plan_of(servers=1).cases
    assert of_one_server(case) is case


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"servers": 3}, "4 nodes are no 3 groups of as many nodes, two or more each"),
        ({"servers": 4}, "4 nodes are no 4 groups of as many nodes, two or more each"),
        ({"servers": 5}, "4 nodes are no 5 groups of as many nodes, two or more each"),
        ({"servers": 2, "nodes": 1, "parallelism": "single"}, "replicas have a server on each"),
        ({"servers": 2, "parallelism": "replicas"}, "replicas have a server on each node"),
        ({"servers": 2, "concurrency": 1}, "1 requests at once leave one of 2 servers without"),
    ],
)
def test_what_cannot_be_is_left_out_with_a_sentence(asked, words):
    with pytest.raises(InputError, match=words):
        plan_of(**asked)


def test_an_engine_is_asked_for_the_nodes_of_a_group():
    # distributed-llama runs on 1, 2, 4, 8 nodes: six are three groups of two.
    document = {
        "name": "groups",
        "models": {"tiny": {"random": {"weights": "f32"}}},
        "matrix": {
            "model": ["tiny"],
            **matrix_of(nodes=6, engine="distributed-llama", parallelism="tensor"),
        },
    }
    document["matrix"]["parameters"] |= {
        "api": ["chat"],
        "servers": [1, 3],
        "buffer_float_type": ["f32"],
    }

    plan = make_plan(parse_sweep(document, "groups.yaml"), with_lab_nodes(load_cluster("lab"), 6))
    assert [case.parameters["servers"] for case in plan.cases] == [3]
    assert any("1, 2, 4, 8, ... nodes, not 6" in left.reason for left in plan.left_out)


def test_the_memory_of_each_group_is_that_of_the_whole_model_on_its_nodes(tmp_path):
    run = planned(tmp_path, "lab", {"random": {}}, matrix_of())
    sizes = sizes_of(read_model(MODEL).facts, 1024)
    demand = TokenDemand.of(of_one_server(run.case).parameters)
    most = max(need.total for need in needs(sizes, demand, "pipeline", [1, 1]))
    nodes = [node.node for node in run.nodes]

    def problem(each):
        has = {"memory_total": 4 * each, "memory_available": 4 * each}  # shared by four in the lab
        facts = {name: replace(one, **has) for name, one in run.facts.items()}
        return memory.problem(sizes, run.case, nodes, facts)

    assert problem(most) is None
    assert "use more nodes" in problem(most - 2**20)


def question(**others):
    return Question(load_cluster("ms-s1-max-4"), read_model(MODEL), **others)


def test_groups_are_predicted_as_the_sum_of_their_servers():
    asked = question(batch=4)
    cluster = asked.cluster
    name, fabric = next((n, f) for n, f in cluster.fabrics.items() if len(cluster.joined(n, 4)))
    nodes = cluster.joined(name, 4)
    whole = Candidate(nodes, "pipeline", fabric, "tcp", groups=2)
    half = forecast(question(batch=2), Candidate(nodes[:2], "pipeline", fabric, "tcp"))
    assert forecast(asked, whole).decode.value == pytest.approx(2 * half.decode.value)
    assert forecast(asked, whole).room.needs_gib == pytest.approx(half.room.needs_gib)
    assert "4 nodes in 2 servers, pipeline" in how(whole)


def test_groups_are_candidates_where_there_is_a_request_for_each_of_them():
    def groups(**others):
        found = answer(question(**others)).forecasts
        return {(len(one.candidate.nodes), one.candidate.groups) for one in found}

    assert (4, 2) in groups(batch=2)
    assert all(count == 1 for _, count in groups())
    assert all(nodes == 4 for nodes, count in groups(batch=8) if count > 1)


def test_tune_ranks_groups_under_a_load_and_has_their_case():
    subject = read_subject(f"/models/{MODEL}.gguf")
    cluster = load_cluster("ms-s1-max-4")
    state = begin(Request(cluster, subject, GOALS["throughput"], ("llama.cpp",), 512, 128, 8, 3))
    cases = [one.case for one in state.options if one.candidate.groups == 2]
    assert cases
    assert {(case.nodes, case.parameters["servers"]) for case in cases} == {(4, 2)}


def test_an_explanation_of_groups_names_what_to_explain_in_their_place():
    case = {"engine": "llama.cpp", "model": MODEL, "nodes": 4, "parallelism": "pipeline"}
    record = {"kind": "run", "case": {**case, "parameters": {"servers": 2}}}
    with pytest.raises(InputError, match="each a server of 2 nodes; explain a run of 2 nodes"):
        subject_of(record, RunPlan())


def test_one_node_is_what_groups_are_held_against():
    # no output: columns of the table
    row = {"nodes": 4, "parallelism": "pipeline", "parameters": '{"servers": 2}'}
    # no output: columns of the table
    one = {"nodes": 1, "parallelism": "single", "parameters": '{"servers": 1}'}
    assert same(row, without=OVER_NODES) == same(one, without=OVER_NODES)
    assert same(row) != same({**row, "parameters": one["parameters"]})


def test_each_group_is_served_by_its_own_lines_and_its_head_answers():
    cluster = load_cluster("ms-s1-max-4")
    fabric = next(name for name in cluster.fabrics if len(cluster.joined(name, 4)))
    names = [node.name for node in cluster.joined(fabric, 4)]

    def ran(node, *argv):
        return {"node": node, "argv": list(argv), "environment": {}, "seconds": 1.0}

    server = ("/bin/llama-server", "-m", "/m.gguf", "--host", "/tmp/x.sock", "-np", "2", "-c", "9")
    record = {
        "case": {
            "engine": "llama.cpp", "nodes": 4, "fabric": fabric, "parallelism": "pipeline",
            "parameters": {"n_prompt": 512, "n_gen": 128, "servers": 2},
        },
        "commands": [
            *(ran(name, "/bin/ggml-rpc-server", "-p", "50052") for name in (names[1], names[3])),
            *(ran(name, *server) for name in (names[0], names[2])),
        ],
    }  # fmt: skip
    lines = serve_commands(serving(record, cluster, 4), cluster, "ms-s1-max-4").servers
    started = list(map(shlex.split, lines))
    targets = {node.name: node.ssh for node in cluster.nodes}
    assert [line[-2] for line in started] == [targets[names[n]] for n in (1, 0, 3, 2)]
    assert [("-L" in line) for line in started] == [False, True, False, True]


def test_what_llama_cpp_placed_is_known_of_the_nodes_of_all_groups(tmp_path):
    run = planned(tmp_path, "lab", {"random": {}}, matrix_of())
    for node in run.nodes:
        run.engine_found["devices", node.node.name] = ()
    for size, group in enumerate(replicas(run), start=1):
        addresses = [group.data_address(node) for node in group.nodes]
        # hand-made: a line a node (form: load_tensors of
        # https://github.com/ggml-org/llama.cpp/blob/master/src/llama-model.cpp)
        lines = (f"RPC0[{one}:50052] model buffer size = {size}.00 MiB\n" for one in addresses)
        devices.record_placed(group, "".join(lines))
    assert run.engine_facts["placed"] == "n1: 1.0 MiB, n2: 1.0 MiB, n3: 2.0 MiB, n4: 2.0 MiB"
