"""What a sweep prints while it goes on, where there is no terminal: plain lines."""

import io
from dataclasses import replace

from rich.console import Console

import record_factory as factory
from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import load_sweep, make_plan
from nixwulf.sweep.recording import TerminalProgress


def printed(only, seconds):
    sweep = replace(load_sweep("lab/demo"), repetitions=2)
    plan = make_plan(sweep, load_cluster("lab"), only)
    runs = list(plan.runs())
    out = io.StringIO()
    with TerminalProgress(Console(file=out, width=40)) as progress:
        progress.sweep_starts(runs)
        for (case, repetition), took in zip(runs, seconds, strict=False):
            progress.run_starts(case, repetition)
            progress.phase_starts("measure")
            progress.run_ends(factory.ok(factory.case(), {"decode": [20.0]}), took)
    return out.getvalue().splitlines()


def test_the_line_of_a_run_has_what_differs_from_the_others_and_its_outcome():
    first, second, third, fourth = printed("nodes=2 fabric=gbe5", [10, 30, 12, 28])
    assert (
        first
        == "[1/4] 2 nodes gbe5 pipeline (pass 1): decode 20.0 tok/s (10.0 s, about 00:30 left)"
    )
    assert second.startswith("[2/4] 2 nodes gbe5 tensor (pass 1): ")
    assert fourth.endswith("(28.0 s)")
    assert third.endswith("(12.0 s, about 00:10 left)"), "the case took 10 s before"


def test_the_line_of_a_run_has_no_parameter_that_is_the_same_for_all_of_its_engine():
    engines = {
        "llama.cpp": {"n_prompt": 512, "threads": 1},
        "vllm": {"n_prompt": 512, "eager": False},
    }
    case = make_plan(load_sweep("smoke"), load_cluster("lab"), "nodes=1").cases[0]
    runs = [
        (replace(case, engine=engine, parameters={**parameters, "depth": depth}), 0)
        for engine, parameters in engines.items()
        for depth in (0, 4096)
    ]
    out = io.StringIO()
    progress = TerminalProgress(Console(file=out, width=40))
    progress.sweep_starts(runs)
    progress.run_starts(*runs[-1])
    progress.run_ends(factory.ok(factory.case(), {"decode": [20.0]}), 1.0)
    assert out.getvalue().startswith("[1/4] vllm 1 node depth=4096: decode")


def test_a_failed_run_says_why():
    out = io.StringIO()
    plan = make_plan(load_sweep("smoke"), load_cluster("lab"), "nodes=1")
    progress = TerminalProgress(Console(file=out, width=40))
    progress.sweep_starts(list(plan.runs()))
    progress.run_starts(plan.cases[0], 0)
    progress.run_ends(factory.failed(factory.case(), "hang", reason="It was silent."), 3.0)
    assert out.getvalue() == "[1/1] 1 node: hang: It was silent. (3.0 s)\n"
