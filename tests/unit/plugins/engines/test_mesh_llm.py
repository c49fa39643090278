"""What mesh-llm is started with, that it never is public, its events; not yet run on hardware."""

import json

import pytest

from launch_plan import planned
from nixwulf.core.errors import InputError
from nixwulf.plugins.engines import mesh_llm
from nixwulf.plugins.engines.mesh_llm import (
    ENGINE,
    NO_LOGPROBS,
    argv,
    completed,
    events,
    invitation,
    launch,
    model_name,
    tokens,
    wait_for,
)
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import RunFailure

# These join or advertise public meshes, or choose what carries data beside the fabric.
PUBLIC = ("--auto", "--publish", "--discover", "--nostr-relay", "--relay")
MODEL = {"path": "/models/llama.gguf"}
# hand-made: mesh-llm is Rust whose crates cannot be had here (form:
# https://github.com/Mesh-LLM/mesh-llm/blob/2ddd399/crates/skippy-server/src/frontend/request.rs)
REFUSAL = (
    "'mesh-llm' did not answer '/v1/completions': 400 completion logprobs are parsed by "
    "openai-frontend but not yet implemented by skippy runtime."
)
# hand-made: mesh-llm is Rust whose crates cannot be had here (form:
# https://github.com/Mesh-LLM/mesh-llm/blob/0809252/mesh-llm/src/cli/output/EVENTS.md and
# https://github.com/Mesh-LLM/mesh-llm/blob/76d7ca8/crates/mesh-llm-tui/src/output/EVENTS.md)
EVENTS = [
    {"event": "invite_token", "token": "eyJhIjoxfQ", "mesh_id": "m1", "message": "Invite: eyJ"},
    {"event": "llama_ready", "model": "llama", "port": 40123, "message": "ready"},
    {"event": "model_ready", "model": "llama", "port": 40123, "message": "ready"},
    {"event": "ready", "api_url": "http://localhost:9337", "api_port": 9337, "message": "ready"},
]


@pytest.fixture
def plan(tmp_path):
    def make(nodes=2, answers=None, **parameters):
        matrix = {
            "engine": ["mesh-llm"],
            "benchmark": ["serve"],
            "nodes": [nodes],
            "fabric": ["switch"],
            "parallelism": ["single" if nodes == 1 else "pipeline"],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        run = planned(tmp_path, "pi-cm5-4", MODEL, matrix, answers, **{"mesh-llm": "/bin/mesh-llm"})
        run.raw.mkdir()
        return run

    return make


def said_by(run, *lines):
    """What the process on the head will have printed when it is asked."""
    path = run.raw / f"mesh-llm-0-{run.head.node.name}.stdout"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


COMMON = (
    "/bin/mesh-llm serve --gguf /models/llama.gguf --headless --log-format json --port 9337 "
    "--console 3131 --bind-port 7842 --relay https://127.0.0.1:1/ --no-enumerate-host"
)


def test_the_others_join_by_the_token_that_the_head_prints(plan):
    run = plan(nodes=3)
    said_by(run, *EVENTS)
    head, *_ = launch(run)
    assert [(started.node, " ".join(started.argv)) for started in run.started] == [
        ("blade1", f"{COMMON} --split"),
        ("blade2", f"{COMMON} --join $MESH_LLM_JOIN --split"),
        ("blade3", f"{COMMON} --join $MESH_LLM_JOIN --split"),
    ]
    assert [started.environment.get("MESH_LLM_JOIN") for started in run.started] == [
        None,
        "eyJhIjoxfQ",
        "eyJhIjoxfQ",
    ]
    assert model_name(run, head) == "llama"


def test_a_release_that_reads_the_token_elsewhere_shows_it_on_no_command_line(plan):
    run = plan(nodes=2, answers={"script": "      --join-file <PATH>  Read the token of"})
    said_by(run, *EVENTS)
    launch(run)
    joined = run.started[1]
    assert " ".join(joined.argv) == f"{COMMON} --split"
    assert joined.environment == {"MESH_LLM_JOIN": "eyJhIjoxfQ"}


def test_one_node_neither_joins_nor_splits_and_options_come_last(plan):
    run = plan(nodes=1, llama_flavor="vulkan", max_vram_gb=60, arguments="--ctx-size 4096")
    said_by(run, *EVENTS)
    launch(run)
    (started,) = run.started
    assert " ".join(started.argv) == (
        f"{COMMON} --llama-flavor vulkan --max-vram 60 --ctx-size 4096"
    )


def test_no_command_line_has_an_option_that_reaches_a_public_mesh(plan):
    run = plan(arguments="--device CPU")
    for node in run.nodes:
        line = argv(run, node, ["--join", "token"])
        assert not {"--auto", "--publish", "--discover", "--nostr-relay"} & set(line)
        assert line[line.index("--relay") + 1] == "https://127.0.0.1:1/"


@pytest.mark.parametrize("option", PUBLIC)
@pytest.mark.parametrize("form", ["{}", "--ctx-size 4096 {}", "{}=eu", "'{}' x"])
def test_a_users_option_that_does_is_refused_in_one_sentence(plan, option, form):
    with pytest.raises(InputError, match=f"the driver sets {option} itself; use none of them"):
        plan(arguments=form.format(option))


@pytest.mark.parametrize("flavor", ["vulkan", "cuda-blackwell"])
def test_any_flavor_of_upstream_is_passed_on(plan, flavor):
    run = plan(nodes=1, llama_flavor=flavor)
    assert argv(run, run.head)[-2:] == ["--llama-flavor", flavor]


@pytest.fixture
def asked(plan, monkeypatch):
    """Asks for a completion; each of the answers is a reply, or a refusal as a text."""

    def ask(*answers):
        left, requests = list(answers), []

        def post(endpoint, path, request):
            requests.append("logprobs" in request)
            answer = left.pop(0)
            if isinstance(answer, str):
                raise RunFailure(answer)
            return answer

        monkeypatch.setattr(Endpoint, "post", post)
        run = plan()
        endpoint = Endpoint(run, run.raw / "socket", "llama", None)
        return completed(endpoint, 32), requests, run.warnings

    return ask


def completion(text, logprobs=None):
    return {"choices": [{"index": 0, "text": text, "logprobs": logprobs}]}


def test_tokens_are_compared_where_mesh_llm_gives_them(asked):
    logprobs = {"content": [{"token": " a"}, {"token": " b"}]}
    assert asked(completion(" a b", logprobs)) == ([" a", " b"], [True], [])


def test_the_text_is_compared_where_logprobs_are_refused_and_the_record_says_so(asked):
    assert asked(REFUSAL, completion("no, 1")) == (list("no, 1"), [True, False], [NO_LOGPROBS])


def test_the_text_is_compared_where_logprobs_are_absent_and_the_record_says_so(asked):
    assert asked(completion("ab")) == (["a", "b"], [True], [NO_LOGPROBS])


@pytest.mark.parametrize("answer", [completion(""), {"choices": []}, [], None])
def test_an_answer_without_text_is_a_failure(answer):
    with pytest.raises(RunFailure, match="mesh-llm answered no text"):
        tokens(answer)


def test_another_refusal_is_no_reason_to_compare_texts(asked):
    with pytest.raises(RunFailure, match="503 no capacity"):
        asked("'mesh-llm' did not answer '/v1/completions': 503 no capacity.")


def test_a_token_that_the_event_withholds_is_asked_of_the_heads_api(plan, monkeypatch):
    run = plan()
    withheld = {key: value for key, value in EVENTS[0].items() if key != "token"}
    said_by(run, withheld | {"token_withheld": True})
    monkeypatch.setattr(mesh_llm, "status", lambda run, head: {"token": "eyJhIjoxfQ"})
    assert invitation(run, run.start(run.head, "mesh-llm-0", argv(run, run.head), {})) == (
        "eyJhIjoxfQ"
    )
    monkeypatch.setattr(mesh_llm, "status", lambda run, head: {"version": "0.70.0"})
    with pytest.raises(RunFailure, match="withholds its token .* take another release"):
        invitation(run, run.owned[0])


def test_a_fatal_event_ends_the_wait_as_an_error_does(plan):
    run = plan()
    said_by(run, {"event": "fatal", "message": "no native runtime"})
    with pytest.raises(RunFailure, match="node 'blade1' says: no native runtime"):
        launch(run)


def test_an_error_event_and_an_early_end_are_reported_with_the_node(plan):
    run = plan()
    said_by(run, {"event": "error", "message": "rpc-server exited"})
    with pytest.raises(RunFailure, match="node 'blade1' says: rpc-server exited"):
        launch(run)
    process = run.owned[0]
    process.stdout.write_text("")
    process.returncode = 134
    with pytest.raises(RunFailure, match="node 'blade1' was ended by SIGABRT: it printed nothing"):
        wait_for(run, process, "ready")


def test_lines_that_are_no_events_are_passed_over():
    # no output: an event among lines that are none
    text = 'noise\n{"event": "ready"}\n[1]\n{"level": 1}\n{"event": 3}\n{"event": "rea'
    assert events(text) == [{"event": "ready"}]


def test_what_mesh_llm_does_not_do_is_left_out_with_the_reason():
    point = {
        "nodes": 2,
        "parallelism": "pipeline",
        "transport": "tcp",
        "parameters": {},
    }
    assert ENGINE.unsupported(point) is None
    assert "pipeline only" in ENGINE.unsupported({**point, "parallelism": "tensor"})
    assert "tcp only" in ENGINE.unsupported({**point, "transport": "rdma"})
