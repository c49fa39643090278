"""Cases that nixwulf serve keeps on a lab's nodes, and what the watch does when they break."""

import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from lab_under_test import cluster_of

from nixwulf.core.errors import EXIT_GATE, EXIT_RUN_FAILED, EXIT_USAGE
from nixwulf.core.files import cache_dir
from nixwulf.core.schema import check
from nixwulf.inventory.cluster import Shape
from nixwulf.plugins.engines import find

NIXWULF = Path(sys.executable).parent / "nixwulf"
LAB = "served"
# A look, and what evidence takes: stacks of three processes.
LATE_S = 40
STATE = "$HOME/.local/state/nixwulf/serve"


def sweep(parallelism, concurrency=2):
    return f"""
name: {parallelism}
models: {{tiny: {{random: {{layers: 4}}}}}}
matrix:
  engine: [llama.cpp]
  benchmark: [serve]
  model: [tiny]
  nodes: [2]
  fabric: [cable]
  parallelism: [{parallelism}]
  parameters:
    threads: [1]
    n_prompt: [512]
    n_gen: [32]
    concurrency: [{concurrency}]
    requests: [{concurrency}]
samples: 1
limits: {{wall_s: 200, progress_s: 60}}
"""


@pytest.fixture(scope="module")
def lab(bring_up):
    programs = find("llama.cpp").install_local(lambda step, share: None).programs.values()
    path = [*sorted({program.parent for program in programs}), cache_dir() / "nginx/usr/sbin"]
    running = bring_up(cluster_of(2, cable=Shape()), LAB, path=path)
    yield running.lab
    running.lab.down()


@pytest.fixture(scope="module")
def asked(lab, tmp_path_factory):
    """Runs nixwulf in a folder of its own, with the one lab that is up."""
    folder = tmp_path_factory.mktemp("served")
    for parallelism, concurrency in (("pipeline", 2), ("replicas", 4)):
        (folder / f"{parallelism}.yaml").write_text(sweep(parallelism, concurrency))

    def ask(*words, code=0):
        command = [str(NIXWULF), *words]
        environment = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return ask


@pytest.fixture(scope="module")
def chat(asked):
    """A model in a pipeline over two nodes, served under the name chat."""
    said = asked("serve", "pipeline.yaml", "--name", "chat", "--port", "18080")
    assert "chat answers on node n1: http://127.0.0.1:18080/v1" in said
    assert "Nobody watches it" not in said
    yield partial(happened, asked, "chat")
    asked("serve", "stop", "chat", "--forget")


def happened(asked, name, since=0):
    """The events of a service, each valid, but for the first ones."""
    lines = asked("serve", "events", name, "--format", "json").splitlines()
    found = [json.loads(line) for line in lines]
    for event in found:
        check(event, "event", name)
    return found[since:]


def until(asked, name, action, since, seconds):
    """The event of an action that comes within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = [one for one in happened(asked, name, since) if one["action"] == action]
        if found:
            return found[0]
        assert time.monotonic() < deadline, happened(asked, name)
        time.sleep(0.5)


# $1 is the URL, $2 how many tokens.
ASK = """curl -s -m 100 "$1/v1/completions" -d \
"{\\"prompt\\":\\"The quick brown\\",\\"max_tokens\\":$2,\\"ignore_eos\\":true}\""""


def ask_for(node, port, tokens):
    words = node.run(["sh", "-c", ASK, "sh", f"http://127.0.0.1:{port}", str(tokens)]).stdout
    return '"text"' in words


def kill(node, signal, program):
    assert node.run(["pkill", f"-{signal}", "-f", f"^[^ ]*/{program} "]).returncode == 0


def test_a_service_goes_on_when_its_command_has_ended(chat, asked, nodes):
    assert ask_for(nodes["n1"], 18080, 8)
    assert [one["action"] for one in chat()] == ["started"]
    status = json.loads(asked("serve", "status", "chat", "--format", "json"))
    assert status["watched"]
    assert "chat: llama.cpp, 1 server, on n1: http://127.0.0.1:18080/v1" in asked("serve", "ls")
    assert "n2 n2-ggml-rpc-server: " in asked("serve", "logs", "chat")


def test_engines_listen_on_the_loopback_and_the_fabric_alone(chat, nodes):
    fabric = {"n1": "10.90.0.11", "n2": "10.90.0.12"}
    for name, node in nodes.items():
        listening = node.run(["ss", "-tlnH"]).stdout.splitlines()
        ends = {line.split()[3] for line in listening if not line.split()[3].endswith(":22")}
        of_head = {"127.0.0.1:18080", "127.0.0.1:18081"}  # the URL, and /metrics of the watch
        own = {f"{fabric[name]}:50052"} | (of_head if name == "n1" else set())
        assert ends == own


def test_metrics_and_top_tell_what_the_watch_sees(chat, asked, nodes):
    stop = threading.Event()

    def load():
        while not stop.is_set():
            ask_for(nodes["n1"], 18080, 480)

    asking = threading.Thread(target=load, daemon=True)
    asking.start()
    deadline, seen = time.monotonic() + 90, {}
    while not seen.get("servers", {}).get("n1", {}).get("decode_per_s"):
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)
        (seen,) = json.loads(asked("top", "--once", "--format", "json"))["services"]
    stop.set()
    assert seen["servers"]["n1"]["state"] == "decoding"
    assert seen["nodes"]["n2"]["fabric_per_s"] > 0
    assert seen["nodes"]["n2"]["units"]["n2-ggml-rpc-server"]["running"]
    assert "chat: llama.cpp, 1 server" in asked("top", "--once")
    text = nodes["n1"].run(["curl", "-s", "127.0.0.1:18081/metrics"]).stdout
    assert 'nixwulf_server_state{server="n1",service="chat",state="decoding"} ' in text
    asking.join()


def test_only_its_user_may_look_into_what_it_keeps(chat, nodes):
    for node in nodes.values():
        modes = node.run(["sh", "-c", f"stat -c '%a %n' {STATE}/chat {STATE}/chat/*.run"]).stdout
        assert {line.split()[0] for line in modes.splitlines()} <= {"700", "600"}


def test_nothing_is_measured_beside_what_is_served(chat, asked):
    deadline = time.monotonic() + 20
    while not json.loads(asked("serve", "status", "chat", "--format", "json")).get("held"):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    said = asked("serve", "pipeline.yaml", "--name", "second", code=EXIT_GATE)
    assert "is in use: service 'chat'" in said


def test_a_name_is_given_once(chat, asked):
    said = asked("serve", "replicas.yaml", "--name", "chat", code=EXIT_USAGE)
    assert "'chat' is here already; end it by 'nixwulf serve stop chat --forget'" in said


@pytest.mark.parametrize(("where", "program"), [("n1", "llama-server"), ("n2", "ggml-rpc-server")])
def test_a_killed_process_is_noticed_and_all_are_started_again(chat, asked, nodes, where, program):
    since = len(chat())
    kill(nodes[where], "KILL", program)
    event = until(asked, "chat", "restarted", since, LATE_S)
    assert event["state"] == "dead"
    assert event["why"] == f"'{where}-{program}' on node {where!r} has ended."
    kept = f"{STATE}/chat/{event['evidence']}"
    assert "== the kernel" in nodes["n1"].run(["sh", "-c", f"cat {kept}/{where}.txt"]).stdout
    assert until(asked, "chat", "healed", since, LATE_S)["why"] == "It answers again."
    assert ask_for(nodes["n1"], 18080, 8)


def test_a_stopped_worker_is_a_stall_while_a_request_is_held_and_then_it_stays_down(
    chat, asked, nodes
):
    since = len(chat())
    asking = threading.Thread(target=ask_for, args=(nodes["n1"], 18080, 600), daemon=True)
    asking.start()
    time.sleep(1)
    kill(nodes["n2"], "STOP", "ggml-rpc-server")
    event = until(asked, "chat", "restarted", since, 30 + LATE_S)
    assert event["state"] == "stalled"
    assert event["why"].startswith("'n2-ggml-rpc-server' on node 'n2' is stopped, and no token")
    assert event["restarts"] == 3
    until(asked, "chat", "healed", since, LATE_S)
    kill(nodes["n1"], "KILL", "llama-server")
    down = until(asked, "chat", "down", since, LATE_S)
    assert down["why"].endswith("It stays down, for 3 restarts in 60 min did not help.")
    deadline = time.monotonic() + 20
    while "n1: down" not in asked("serve", "status", "chat", code=EXIT_RUN_FAILED):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_person_starts_what_stayed_down_again_and_a_model_that_is_gone_is_no_loop(
    chat, asked, nodes
):
    asked("serve", "restart", "chat")
    assert ask_for(nodes["n1"], 18080, 8)
    since = len(chat())
    (model,) = {
        word
        for word in nodes["n1"]
        .run(["sh", "-c", f"cat {STATE}/chat/n1-llama-server.run"])
        .stdout.split()
        if word.endswith(".gguf")
    }
    nodes["n1"].run(["mv", model, f"{model}.away"])
    try:
        kill(nodes["n1"], "KILL", "llama-server")
        down = until(asked, "chat", "down", since, LATE_S)
        assert f"Node 'n1' has no '{model}' any more; bring it back there." in down["why"]
    finally:
        nodes["n1"].run(["mv", f"{model}.away", model])


def test_a_port_in_use_is_refused_and_nothing_stays_behind(lab, asked, nodes, chat):
    asked("serve", "stop", "chat")
    taken = "import socket, time; s = socket.create_server(('127.0.0.1', 18080)); time.sleep(100)"
    nodes["n1"].run(["sh", "-c", f'setsid {sys.executable} -c "{taken}" >/dev/null 2>&1 &'])
    try:
        said = asked("serve", "restart", "chat", code=EXIT_GATE)
        assert "Port 18080 of node 'n1' is in use" in said
    finally:
        nodes["n1"].run(["pkill", "-f", "[c]reate_server"])
    left = nodes["n1"].run(["pgrep", "-f", "[l]lama-server|[r]pc-server|[s]erve watch"])
    assert left.stdout == ""


def test_on_a_network_only_who_has_the_key_is_answered(asked, nodes, tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    said = asked("serve", "pipeline.yaml", "--address", "10.90.0.11", code=EXIT_USAGE)
    assert "--api-key-file" in said
    words = ("--name", "shut", "--port", "18070", "--address", "10.90.0.11")
    said = asked("serve", "pipeline.yaml", *words, "--api-key-file", str(key))
    assert "shut answers on node n1: http://10.90.0.11:18070/v1" in said
    try:
        status = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "20"]
        url = "http://10.90.0.11:18070/v1/models"
        secret = key.read_text().strip()
        for given, code in (("", "401"), ("Bearer 0123", "401"), (f"Bearer {secret}", "200")):
            header = ["-H", f"Authorization: {given}"] if given else []
            assert nodes["n2"].run([*status, *header, url]).stdout == code, given
        everything = f"ps -eo args; cat {STATE}/shut/*.log {STATE}/shut/*.json* {STATE}/shut/*.run"
        for node in nodes.values():
            assert secret not in node.run(["sh", "-c", everything]).stdout
    finally:
        asked("serve", "stop", "shut", "--forget")


def test_of_two_replicas_one_is_killed_and_no_request_is_lost(chat, asked, nodes):
    asked("serve", "stop", "chat")
    asked("serve", "replicas.yaml", "--name", "pair", "--port", "18090")
    answers = []
    stop = threading.Event()

    def load():
        while not stop.is_set():
            answers.append(ask_for(nodes["n1"], 18090, 64))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(3)
        kill(nodes["n2"], "KILL", "llama-server")
        healed = until(asked, "pair", "healed", 2, 2 * LATE_S)
        assert healed["server"] == "n2"
        time.sleep(3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(answers) > 20
    assert all(answers), f"{answers.count(False)} of {len(answers)} were lost"
    asked("serve", "stop", "pair", "--forget")
