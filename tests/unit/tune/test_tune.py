"""Choosing a way to run a model: what is ranked, learnt, measured next, and when it stops."""

import io
import json
import re
from math import log
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from nixwulf.cli.main import cli
from nixwulf.core.errors import GateError
from nixwulf.core.text import Band
from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import load_platform
from nixwulf.perf.inputs import Strategy as ModelWay
from nixwulf.perf.inputs import fabric_facts, platform_facts
from nixwulf.perf.predict import QUANTILE_80, predict
from nixwulf.perf.scenarios.candidates import Question
from nixwulf.perf.scenarios.forecast import answer
from nixwulf.perf.work import PARTS
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.tune import options, render
from nixwulf.tune.options import (
    GOALS,
    Measurement,
    PredictedTime,
    Request,
    read_subject,
    sweep_document,
    widened,
)
from nixwulf.tune.search import (
    Decision,
    OptionModel,
    Ranked,
    begin,
    best,
    contenders,
    decide,
    order,
    update,
)
from record_factory import case, failed, ok

SMALL = "/models/gpt-oss-20b.gguf"
BIG = "/models/MiniMax-M2-UD-Q6_K_XL.gguf"


def plan(*arguments, cluster="framework-2"):
    """Exit code and output of a dry run."""
    command = ["tune", "--cluster", cluster, "--dry-run", *map(str, arguments)]
    done = CliRunner().invoke(cli, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def refused(*arguments, cluster="framework-2"):
    """The sentence of what is refused: one line, exit code 2."""
    code, output = plan(*arguments, cluster=cluster)
    assert code == 2, output
    (line,) = output.splitlines()
    return line


def request(model=SMALL, goal="decode", cluster="ms-s1-max-4", engines=("llama.cpp",), size=0.0):
    subject = read_subject(model, size_gib=size)
    return Request(load_cluster(cluster), subject, GOALS[goal], engines, 512, 128, 8, 3)


def a_run(option, speed, **others):
    """A record of a way that gave a decode speed."""
    fabric = option.candidate.fabric
    of = case(option.count, fabric.name if fabric else "lan", option.candidate.parallelism)
    return ok(of, {"decode": [speed]}, **others)


def test_a_dry_run_is_json_with_the_numbers_of_the_table():
    _, text = plan("--model", SMALL)
    _, output = plan("--model", SMALL, "--format", "json")
    found = json.loads(output)
    first = found["strategies"][0]
    assert (found["goal"], found["unit"], found["budget_s"]) == ("decode", "tok/s", 1800)
    assert f"1  {first['strategy']}" in text
    assert Band(**first["predicted"]).text in text
    assert first["predicted"] == first["now"]
    values = [one["now"]["value"] for one in found["strategies"]]
    assert values == sorted(values, reverse=True)
    assert first["case"]["nodes"]
    assert {one["order"] for one in found["strategies"]} >= {1}
    assert not any(one["measured"] for one in found["strategies"])


def test_a_dry_run_ranks_the_ways_and_says_what_does_not_fit_and_by_how_much():
    code, output = plan("--model", BIG, "--size-gib", "180.94", "--engine", "llama.cpp")

    assert code == 0
    assert "1 node, framework-desktop: 61.5 GiB too little on a node" in output
    lines = [line for line in output.splitlines() if line[:1].isdigit()]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert "pipeline" in lines[0]
    assert "tensor" in lines[3]
    assert lines[3].split()[-1] == "-"
    assert "those with - could not be" in output


def test_what_is_predicted_at_first_is_what_predict_says():
    state = begin(request())
    told = answer(Question(state.request.cluster, state.request.subject.model)).forecasts

    assert len(told) == len(state.options)
    for one, estimate in zip(told, state.first, strict=True):
        assert estimate.value == pytest.approx(one.plain.decode.value)
        assert estimate.low == pytest.approx(one.plain.decode.low, rel=0.02)
        assert estimate.high == pytest.approx(one.plain.decode.high, rel=0.02)


def test_throughput_is_what_the_model_calls_serve():
    state = begin(request(goal="throughput"))
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    platform = platform_facts(load_platform("minisforum-ms-s1-max"))
    way = ModelWay("llama.cpp", n_prompt=512, n_gen=128, batch=8, backend="vulkan")
    facts = state.request.subject.model.facts

    expected = predict([platform], facts, way, metric="serve").value
    assert state.first[single].value == pytest.approx(expected)


@pytest.mark.slow
def test_the_plan_of_a_search_has_exactly_the_cases_of_its_strategies():
    for goal in GOALS:
        state = begin(request(goal=goal))
        cases = tuple(option.case for option in state.options)
        document = sweep_document(state.request, cases, "tune", 1800.0)
        made = make_plan(parse_sweep(document, "a test"), state.request.cluster)
        assert made.cases == cases
        assert made.left_out == ()


def test_a_way_that_the_engine_cannot_run_with_this_model_is_left_out_with_the_reason():
    code, output = plan("--model", "random", "--engine", "mlx", cluster="mac-studio-4")
    assert code == 0
    assert "others): mlx-lm splits a llama by tensors only." in output
    assert not [line for line in output.splitlines() if line[:1].isdigit() and "pipeline" in line]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", SMALL, "--budget", "10s"), "A budget of 10 s measures no strategy"),
        (("--model", SMALL, "--budget", "soon"), "--budget 'soon' is no time"),
        (("--model", SMALL, "--budget", "0m"), "is no time up to a week"),
        (("--model", SMALL, "--engine", "vllm"), "--engine 'vllm' does not read"),
        (
            ("--model", SMALL, "--n-gen", "100000", "--samples", "1000"),
            "takes more than a week; ask for fewer tokens",
        ),
        (("--model", "gpt-oss-20b"), "is neither 'random', nor a path on the nodes"),
        (
            ("--model", "random", "--quant", "Q4_K_M"),
            "'random' has its own facts; leave --facts-of",
        ),
        (("--model", "/m/llama3.m", "--facts-of", "gpt-oss-20b"), "--tokenizer /path/to/file.t"),
        (("--model", SMALL, "--tokenizer", "/m/x.t"), "--tokenizer goes with a model of"),
        (("--model", "/models/of-nobody.gguf"), "--facts-of NAME|FILE"),
        (
            ("--model", "/models/Kimi-K2-Q8_0.gguf", "--engine", "llama.cpp"),
            "fits no strategy on 'framework-2'",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments, words):
    assert words in refused(*arguments)


def test_what_no_engine_of_it_runs_is_refused_with_the_engines_reason():
    assert refused("--model", "random", "--engine", "exo", cluster="lab") == (
        "Error: No strategy to run 'a random llama of 8 layers' on 'lab' for decode: exo takes a "
        "model by its name on Hugging Face, not random weights (1 node, lab (and 24 others))."
    )


def test_engines_that_answer_chats_alone_are_asked_for_chats():
    for engine, model, cluster in (
        ("exo", "openai/gpt-oss-120b", "mac-studio-4"),
        ("distributed-llama", "/m/llama.m", "pi-cm5-4"),
    ):
        facts = ("--facts-of", "Llama-3.2-3B", "--quant", "Q4_0", "--tokenizer", "/m/llama.t")
        asked = ("--model", model, *(facts if model.endswith(".m") else ()), "--engine", engine)
        for goal in ("decode", "throughput"):
            code, output = plan(*asked, "--goal", goal, cluster=cluster)
            assert code == 0, output
            assert [line for line in output.splitlines() if line.startswith("1 ")]


def test_a_folder_that_holds_something_is_refused_before_anything_is_ranked(tmp_path):
    (tmp_path / "mine").write_text("")
    command = ["tune", "--model", "random", "--engine", "llama.cpp", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert (
        done.output
        == f"Error: {str(tmp_path)!r} is not empty and not a run; choose another with --out.\n"
    )


def test_nodes_that_do_not_answer_leave_no_folder_that_looks_like_a_run(tmp_path, monkeypatch):
    def nobody(*_):
        raise GateError("Node 'fw1' cannot be reached: no route; try 'ssh fw1 true'.")

    monkeypatch.setattr("nixwulf.tune.search.measure", nobody)
    folder = tmp_path / "run"
    command = ["tune", "--cluster", "framework-2", "--model", SMALL, "--out", str(folder)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 3
    assert done.output.splitlines()[-1].startswith("Error: Node 'fw1' cannot be reached")
    assert not folder.exists()


def test_on_a_narrow_terminal_words_are_whole_and_a_way_is_one_line():
    state = begin(request(model="random", cluster="lab"))
    texts = []
    for width, terminal in ((80, True), (170, False)):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
        render.print_ranking(console, state, 60.0)
        texts.append(file.getvalue())
    narrow, wide = texts
    assert narrow.split() == wide.split()
    lines = narrow.splitlines()
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if line[:1].isdigit()]) == len(state.options)


def test_an_unknown_goal_is_a_usage_error_that_names_the_goals():
    code, output = plan("--model", SMALL, "--goal", "fastest")
    assert code == 2
    assert "'decode', 'prompt', 'throughput', 'ttft', 'efficiency'" in output


def test_one_node_measured_moves_and_narrows_the_others():
    state = begin(request())
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    slower = state.first[single].value / 1.05
    state.add(single, a_run(state.options[single], slower), 30.0)

    for n, estimate in enumerate(state.estimates()):
        if n != single:
            assert estimate.value < state.first[n].value
            assert estimate.high / estimate.low < state.first[n].high / state.first[n].low


def test_a_measured_pipeline_moves_pipelines_more_than_tensors():
    state = begin(request())
    first = next(n for n, o in enumerate(state.options) if o.candidate.parallelism == "pipeline")
    state.add(first, a_run(state.options[first], state.first[first].value * 0.8), 30.0)
    moved = [one.value / before.value
             for one, before in zip(state.estimates(), state.first, strict=True)]  # fmt: skip
    split = [option.candidate.parallelism for option in state.options]

    pipelines = [m for n, m in enumerate(moved) if split[n] == "pipeline" and n != first]
    tensors = [m for n, m in enumerate(moved) if split[n] == "tensor"]
    assert max(pipelines) < min(tensors)


def test_of_a_machine_whose_compute_nobody_knows_only_what_computes_is_in_doubt(monkeypatch):
    known = dict.fromkeys(PARTS, 0.05)
    assert widened(known, ["framework-desktop"])[0] == known
    monkeypatch.setattr(
        "nixwulf.perf.scenarios.facts.lacks", lambda _, key: key == "compute_tflops"
    )
    doubts = {part for part, one in widened(known, ["framework-desktop"])[0].items() if one > 0.05}
    assert doubts == {"compute", "attention"}


def test_what_is_far_outside_of_its_interval_widens_all_others():
    way = OptionModel("llama.cpp", {"weights": 0.01}, dict.fromkeys(PARTS, 0.05), 0.01)

    def width(speed):
        _, other = update([way, way], {0: Measurement(speed, 0.02)})
        return log(other.high / other.low)

    assert width(100) == pytest.approx(width(105))
    assert width(300) > 3 * width(100)


def test_a_link_that_was_measured_replaces_the_usual_one():
    state = begin(request(cluster="framework-2"))
    n = next(n for n, o in enumerate(state.options) if o.candidate.parallelism == "tensor")
    fabric = state.options[n].candidate.fabric
    usual = state.priors[n].model.parts["latency"]
    trip = fabric_facts(fabric.kind, "tcp", fabric.speed_gbps).rtt_us
    record = a_run(state.options[n], 3.0, rtt_us=10 * trip)
    state.add(n, record, 30.0)

    assert state.priors[n].model.parts["latency"] == pytest.approx(10 * usual)


def test_a_way_that_fails_is_out_and_the_search_goes_on():
    state = begin(request())
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    state.add(single, failed(case(1), outcome="hang"), 30.0)
    ranked = state.ranked()

    assert state.out[single].startswith("hang: ")
    assert decide(ranked, 3600.0).next not in {None, single}
    assert best(ranked) is None


def test_a_run_that_the_budget_ended_is_not_reported_as_a_fault_of_its_strategy():
    state = begin(request())
    state.add(0, failed(case(1), outcome="timeout"), 30.0)
    assert state.out[0] == "the budget ended before its run"


@pytest.mark.slow
def test_where_the_budget_ended_a_run_the_best_measured_one_is_not_called_the_best_of_all():
    state = begin(request())
    for n, option in enumerate(state.options[1:], 1):
        state.add(n, a_run(option, state.first[n].value), 30.0)
    assert state.decide(0.0).why == "the budget is used up"
    state.add(0, failed(case(1), outcome="timeout"), 30.0)
    assert state.decide(3600.0).why == "the budget is used up"


def test_what_the_budget_left_is_one_line_that_says_how_to_go_on():
    state = begin(request(model="random", cluster="lab"))
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    state.add(single, a_run(state.options[single], 20.0), 30.0)
    state.records[single] |= {"commands": served()}
    text = io.StringIO()
    decision = Decision(None, "the budget is used up")
    render.print_result(
        Console(file=text, width=170), state, decision, Path("run"), "lab", Path("b.yaml")
    )
    output = text.getvalue()
    (line,) = re.findall(r"Not measured, could be better: \d+ strategies, (.*)", output)
    assert re.fullmatch(r"about [\d.]+ min more; a larger --budget measures them\.", line)
    assert "predicted now" in output


def served():
    """The commands of a record of one node."""
    argv = ["/bin/llama-server", "-m", "x.gguf", "--host", "/tmp/x.sock"]
    return [{"node": "n1", "argv": argv, "seconds": 1.0}]


def test_sentences_about_options_of_predict_are_left_out_here():
    code, output = plan("--model", "random", "--engine", "llama.cpp", cluster="lab")
    assert code == 0
    assert "whether the model fits" in output
    assert "--what-if" not in output


def test_efficiency_without_watts_stops_and_says_why():
    state = begin(request(goal="efficiency"))
    assert state.unit == "tok/s a node"
    assert not state.lacks_watts
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    record = a_run(state.options[single], 60.0)
    state.add(single, record, 30.0)

    assert state.lacks_watts
    assert options.no_watts({**record, "power": {"absent": "No meter."}}) == "No meter."


def test_efficiency_with_watts_is_predicted_by_the_watts_of_a_node():
    state = begin(request(goal="efficiency"))
    (single,) = [n for n, option in enumerate(state.options) if option.count == 1]
    entry = {"metric": 0, "name": "decode", "source": "wall", "watts": 120.0, "value": 0.5}
    record = a_run(state.options[single], 60.0)
    power = {"efficiency": [{**entry, "unit": "tok/s/W"}]}
    state.add(single, {**record, "power": power}, 30.0)

    assert state.unit == "tok/s/W"
    assert state.estimates()[single].value == pytest.approx(0.5)
    speeds = update([one.model for one in state.priors], state.measurements)
    for n, option in enumerate(state.options):
        expected = speeds[n].value / (120.0 * option.count)
        assert state.estimates()[n].value == pytest.approx(expected)


def test_the_model_of_an_engine_with_several_benchmarks_is_compared_by_one():
    alone = options.benchmark(GOALS["decode"], "llama.cpp", alone=True)
    assert alone == "llama-bench"
    assert options.benchmark(GOALS["decode"], "llama.cpp", alone=False) == "serve"
    assert options.benchmark(GOALS["decode"], "vllm", alone=True) == "serve"
    assert "no benchmark" in options.unmeasured(GOALS["prompt"], "vllm")


ranked = st.lists(
    st.builds(
        lambda value, width, seconds, single, engine, state: Ranked(
            Band(value, value / width, value * width), seconds, single, engine,
            state == "measured", "hang" if state == "out" else "",
        ),
        st.floats(0.1, 1e4), st.floats(1.0, 5.0), st.floats(1, 1e4), st.booleans(),
        st.sampled_from(["llama.cpp", "mlx"]), st.sampled_from(["open", "measured", "out"]),
    ),
    max_size=12,
)  # fmt: skip


@given(ranked, st.floats(0, 1e4))
def test_the_next_way_is_open_and_within_the_time_that_is_left(ways, left):
    decision = decide(ways, left)
    if decision.next is not None:
        assert ways[decision.next].open
        assert ways[decision.next].seconds <= left


@given(ranked)
def test_with_time_enough_it_stops_when_the_best_is_above_the_high_end_of_all_others(ways):
    if decide(ways, 1e9).next is None and best(ways) is not None:
        top = ways[best(ways)].estimate.value
        assert all(one.estimate.high <= top for one in ways if one.open)


@given(ranked)
def test_what_could_be_best_comes_quickest_first_after_one_node_of_its_engine(ways):
    queue = order(ways)
    assert len(queue) == len(set(queue))
    assert set(contenders(ways)) <= set(queue)
    rest = [n for n in queue if not ways[n].single]
    assert [ways[n].seconds for n in rest] == sorted(ways[n].seconds for n in rest)


@pytest.mark.slow
def test_a_search_mostly_finds_the_best_way_and_measures_few():
    """On machines made up: each way gives what is predicted, times what its doubt allows."""
    found, share = [], []
    for seed in range(20):
        random, state = Random(seed), begin(request())  # noqa: S311
        doubts = [(one, random.gauss(0, 1) / QUANTILE_80) for one in state.first]
        truth = [
            one.value * ((one.high if z > 0 else one.low) / one.value) ** abs(z)
            for one, z in doubts
        ]
        decision = decide(state.ranked(), 1e9)
        while decision.next is not None:
            n = decision.next
            state.add(n, a_run(state.options[n], truth[n]), 30.0)
            decision = decide(state.ranked(), 1e9)
        assert decision.why == "no interval of the others reaches the best measured one"
        found.append(truth[best(state.ranked())] / max(truth))
        share.append(len(state.took) / len(truth))

    # 80 % intervals: a way above its own is missed one time in ten.
    assert sum(one == 1 for one in found) >= 15
    assert sum(one > 0.9 for one in found) >= 18
    assert sum(share) / len(share) < 0.4


def test_the_interval_of_a_prompt_is_that_of_its_own_prediction():
    told = (
        answer(Question(load_cluster("framework-2"), read_subject(SMALL).model)).forecasts[0].plain
    )
    assert options.predicted_time(GOALS["prompt"], told, 512, 128, (1,)) == PredictedTime(
        told.prompt.parts, pytest.approx(log(told.prompt.high / told.prompt.value) / QUANTILE_80)
    )
