"""What mesh-llm is started with, that it never is public, its events; not yet run on hardware."""

import json

import pytest

from launch_plan import planned
from nixwulf.engines.mesh_llm import ENGINE, PUBLIC, argv, events, launch, model_name, wait_for
from nixwulf.errors import InputError
from nixwulf.run import RunFailure

MODEL = {"path": "/models/llama.gguf"}
EVENTS = [
    {"event": "invite_token", "token": "eyJhIjoxfQ", "mesh_id": "m1", "message": "Invite: eyJ"},
    {"event": "llama_ready", "model": "llama", "port": 40123, "message": "ready"},
    {"event": "model_ready", "model": "llama", "port": 40123, "message": "ready"},
    {"event": "ready", "api_url": "http://localhost:9337", "api_port": 9337, "message": "ready"},
]


@pytest.fixture
def plan(tmp_path):
    def make(nodes=2, **parameters):
        matrix = {
            "engine": ["mesh-llm"],
            "benchmark": ["serve"],
            "nodes": [nodes],
            "fabric": ["switch"],
            "parallelism": ["single" if nodes == 1 else "pipeline"],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        run = planned(tmp_path, "pi-cm5-4", MODEL, matrix, **{"mesh-llm": "/bin/mesh-llm"})
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
        ("blade2", f"{COMMON} --join eyJhIjoxfQ --split"),
        ("blade3", f"{COMMON} --join eyJhIjoxfQ --split"),
    ]
    assert model_name(run, head) == "llama"


def test_one_node_neither_joins_nor_splits_and_options_come_last(plan):
    run = plan(nodes=1, llama_flavor="vulkan", max_vram_gb=60, mesh_options="--ctx-size 4096")
    said_by(run, *EVENTS)
    launch(run)
    (started,) = run.started
    assert " ".join(started.argv) == (
        f"{COMMON} --llama-flavor vulkan --max-vram 60 --ctx-size 4096"
    )


def test_no_command_line_has_an_option_that_reaches_a_public_mesh(plan):
    run = plan(mesh_options="--device CPU")
    for node in run.nodes:
        line = argv(run, node, "token")
        assert not {"--auto", "--publish", "--discover", "--nostr-relay"} & set(line)
        assert line[line.index("--relay") + 1] == "https://127.0.0.1:1/"


@pytest.mark.parametrize("option", PUBLIC)
@pytest.mark.parametrize("form", ["{}", "--ctx-size 4096 {}", "{}=eu", "'{}' x"])
def test_a_users_option_that_does_is_refused_in_one_sentence(plan, option, form):
    with pytest.raises(InputError, match=f"mesh_options has '{option}', which leaves the cluster"):
        plan(mesh_options=form.format(option))


def test_options_that_are_no_words_are_refused(plan):
    with pytest.raises(InputError, match="cannot be read: No closing quotation"):
        plan(mesh_options="--name 'x")


def test_an_error_event_and_an_early_end_are_told_with_the_node(plan):
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
    text = 'noise\n{"event": "ready"}\n[1]\n{"level": 1}\n{"event": 3}\n{"event": "rea'
    assert events(text) == [{"event": "ready"}]


def test_what_mesh_llm_does_not_do_is_left_out_with_the_reason():
    point = {"parallelism": "pipeline", "transport": "tcp", "parameters": {"mesh_options": ""}}
    assert ENGINE.unsupported(point) is None
    assert "layers" in ENGINE.unsupported({**point, "parallelism": "tensor"})
    assert "IP only" in ENGINE.unsupported({**point, "transport": "rdma"})
