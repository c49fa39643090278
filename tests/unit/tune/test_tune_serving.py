"""The commands that serve a way: of every engine, from what the driver starts to measure it."""

import json
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from launch_plan import planned
from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins import engines
from nixwulf.plugins.engines import (
    distributed_llama,
    exo,
    mesh_llm,
    mlx,
    vllm,
)
from nixwulf.plugins.engines.mlx import ranks
from nixwulf.plugins.runtime import nccl
from nixwulf.tune.render import serve_commands, serving

FIXTURES = Path("tests/fixtures")
CLIENTS = ("llama-bench", "benchmark", "generate", "inference", "vllm bench", "--prompt")


def matrix(engine, parallelism, transport="tcp", nodes=2, **others):
    """Of one way; parameters by their values."""
    parameters = others.pop("parameters", {})
    return {
        "engine": [engine],
        "benchmark": ["serve"],
        "nodes": [nodes],
        "parallelism": [parallelism],
        "transport": [transport],
        "parameters": {key: [value] for key, value in parameters.items()},
        **others,
    }


def ran(node, *argv, **environment):
    """A command of a record."""
    return {"node": node, "argv": list(argv), "environment": environment, "seconds": 1.0}


def recorded(run, *clients):
    """The record that a planned run leaves, with clients that measured beside its servers."""
    started = [ran(p.node, *p.argv, **p.environment) for p in run.owned]
    model = {"name": "m", "hub": run.model}
    return {"case": run.case.document(), "commands": [*started, *clients], "model": model}


def lines(run, *clients, slots=1):
    """What serves a planned run, and it as lines of nodes."""
    way = serving(recorded(run, *clients), run.cluster, slots)
    return way, [(one.node, one.line) for one in way.servers]


def test_every_engine_of_the_driver_can_be_served():
    for engine in engines.all_engines().values():
        assert engine.api_port or engine.elsewhere, (
            f"{engine.name} does not say where its server answers"
        )


def test_llama_server_gets_an_address_room_for_all_requests_and_its_caches_again():
    case = {"engine": "llama.cpp", "nodes": 2, "parameters": {"n_prompt": 512, "n_gen": 128}}
    record = {
        "case": case,
        "commands": [
            ran("fw1", "/bin/rpc-server", "-H", "10.0.0.1"),
            ran("fw2", "/bin/rpc-server", "-H", "10.0.0.2"),
            ran("fw1", "/bin/llama-server", "-m", "a b.gguf", "--host", "/tmp/x.sock", "-np", "1",
                "-c", "512", LLAMA_ARG_CACHE_RAM="0"),
            ran("fw1", "/bin/llama-server", "-m", "a b.gguf", "--rpc", "10.0.0.2:50052", "--host",
                "/tmp/y.sock", "-np", "1", "-c", "512", "-lv", "4", "--no-webui", "--no-warmup",
                GGML_RPC_NO_RDMA="1", LLAMA_ARG_CACHE_PROMPT="0"),
            ran("fw1", "/bin/llama-bench", "-m", "a b.gguf"),
        ],
    }  # fmt: skip

    way = serving(record, load_cluster("framework-2"), 4)
    assert [(one.node, one.line) for one in way.servers] == [
        ("fw1", "/bin/rpc-server -H 10.0.0.1"),
        ("fw2", "/bin/rpc-server -H 10.0.0.2"),
        (
            "fw1",
            "env GGML_RPC_NO_RDMA=1 /bin/llama-server -m 'a b.gguf' --rpc 10.0.0.2:50052 "
            "--host 127.0.0.1 -np 4 -c 3072 --port 8080",
        ),
    ]
    assert way.notes == (
        "Each request has room for 768 tokens, as it was measured (-c is that of all 4): a larger "
        "-c takes more memory.",
    )


@pytest.fixture
def vllm_run(tmp_path):
    def make(nodes=2, **parameters):
        way = matrix("vllm", "single" if nodes == 1 else "tensor", "rdma", nodes,
                     fabric=["qsfp-a"], parameters=parameters)  # fmt: skip
        # hand-made: no two machines with GPUs for ray are at hand (form: `ray status`)
        answers = {"status": " 1 node_4e1f\n 1 node_77ab\n"}
        programs = {"vllm": "/bin/vllm", "ray": "/bin/ray"}
        run = planned(tmp_path, "dgx-spark-2", {"id": "Qwen/Qwen3-8B"}, way, answers, **programs)
        vllm.ENGINE.launch(run.on_first(1), "vllm-1-single")
        if nodes > 1:
            vllm.ENGINE.start(run)
            vllm.ENGINE.launch(run, "vllm-2-tensor")
        return run

    return make


def test_vllm_over_ray_is_its_daemons_then_its_server_with_a_secret_of_ones_own(vllm_run):
    run = vllm_run()
    client = ran("spark1", "/bin/vllm", "bench", "serve", "--model", "Qwen/Qwen3-8B")
    way, servers = lines(run, client)

    assert [(node, shlex.split(line)) for node, line in servers[:2]] == [
        (p.node, shlex.split(f"env {variables(p)} {shlex.join(p.argv)}")) for p in run.owned[1:3]
    ]
    node, server = servers[2]
    assert node == "spark1"
    assert "/bin/vllm serve Qwen/Qwen3-8B --seed 1 --tensor-parallel-size 2" in server
    assert server.endswith("--host 127.0.0.1 --port 8000 --distributed-executor-backend ray")
    assert "RAY_DEDUP_LOGS" not in server
    assert all("RAY_AUTH_TOKEN=SECRET" in line for _, line in servers)
    assert "SECRET is a long word of yours" in way.notes[0]
    assert '"model": "Qwen/Qwen3-8B"' in way.then[0]


def variables(process):
    """Of a process, as a way that serves has them."""
    hidden = {"RAY_AUTH_TOKEN": "SECRET"}
    return shlex.join(
        f"{name}={hidden.get(name, value)}"
        for name, value in process.environment.items()
        if name != "NCCL_DEBUG"
    )


def test_vllm_without_ray_is_a_rank_a_node_the_heads_last(vllm_run):
    way, servers = lines(vllm_run(executor="mp"))
    assert [node for node, _ in servers] == ["spark2", "spark1"]
    assert servers[0][1].endswith("--headless")
    assert "--port 8000 --nnodes 2 --node-rank 0" in servers[1][1]
    assert way.notes == ()


def test_vllm_on_one_node_is_its_server_alone(vllm_run):
    way, servers = lines(vllm_run(nodes=1))
    ((node, line),) = servers
    assert (node, way.port) == ("spark1", 8000)
    assert line.endswith("--port 8000")
    assert "ray" not in line.lower()


def test_mlx_writes_its_group_on_every_node_then_starts_a_server_a_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "_path", lambda node, answer: "/run/of-the-run.json")
    monkeypatch.setattr(ranks, "run_all", lambda nodes, command: [None for _ in nodes])
    way = matrix("mlx", "tensor", "rdma", fabric=["mesh"])
    programs = {"mlx_lm.server": "/sw/bin/mlx_lm.server"}
    run = planned(tmp_path, "mac-studio-4", {"path": "/models/m"}, way, **programs)
    arguments = [*mlx.ENGINE.arguments(run), "--host", "127.0.0.1", "--port", "50054"]
    with ranks.started(run, "mlx-server", "mlx_lm.server", lambda _: arguments):
        client = ran("mac-a", "/sw/bin/mlx_lm.benchmark", "--model", "/models/m")
        way, servers = lines(run, client)

    text = ranks.group_text(run)
    told = serve_commands(way, run.cluster, "mac-studio-4")
    assert told.first == tuple(
        f"echo {shlex.quote(text)} | ssh {node.node.ssh} 'cat > nixwulf-mlx.json'"
        for node in run.nodes
    )
    common = "PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 MLX_IBV_DEVICES=nixwulf-mlx.json"
    coordinator = run.owned[1].environment["MLX_JACCL_COORDINATOR"]
    serves = f"/sw/bin/mlx_lm.server {shlex.join(arguments)}"
    assert servers == [
        ("mac-b", f"env {common} MLX_JACCL_COORDINATOR={coordinator} MLX_RANK=1 {serves}"),
        ("mac-a", f"env {common} MLX_JACCL_COORDINATOR={coordinator} MLX_RANK=0 {serves}"),
    ]
    assert way.port == 50054


def test_mlx_over_nccl_has_no_group_to_write_and_no_log(tmp_path, monkeypatch):
    way = matrix("mlx", "tensor", "rdma", fabric=["qsfp-a"])
    programs = {"mlx_lm.server": "/sw/bin/mlx_lm.server"}
    run = planned(tmp_path, "dgx-spark-2", {"path": "/models/m"}, way, **programs)
    monkeypatch.setattr(nccl, "collect_logs", lambda run, label: None)
    arguments = [*mlx.ENGINE.arguments(run), "--host", "127.0.0.1", "--port", "50054"]
    with ranks.started(run, "mlx-server", "mlx_lm.server", lambda _: arguments):
        way, servers = lines(run)
    assert serve_commands(way, run.cluster, "dgx-spark-2").first == ()
    assert [node for node, _ in servers] == ["spark2", "spark1"]
    assert "NCCL_HOST_IP=10.100.1.1 NCCL_PORT=50053 MLX_RANK=1 MLX_WORLD_SIZE=2" in servers[0][1]
    assert "NCCL_DEBUG" not in servers[0][1].replace("NCCL_DEBUG_SUBSYS", "")


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
@pytest.mark.parametrize(
    ("release", "meets"),
    [
        ("b5375f8", "/bin/exo {} --namespace nixwulf --zenoh-port"),
        ("v1.0.71", "EXO_LIBP2P_NAMESPACE=nixwulf /bin/exo {} --libp2p-port"),
    ],
)
def test_exo_meets_in_one_namespace_and_is_asked_to_place_the_model(
    tmp_path, release, meets, transport
):
    model = {"id": "mlx-community/Llama-3.3-70B-Instruct-4bit"}
    asked = matrix("exo", "tensor", transport, fabric=["mesh"], parameters={"api": "chat"})
    run = planned(tmp_path, "mac-studio-4", model, asked, exo="/bin/exo")
    help_text = (FIXTURES / "exo" / release / "help.txt").read_text()
    network = exo.network({"mac-a": help_text}, "nixwulf-of-the-run")
    for node in run.nodes:
        environment = {**exo.ENVIRONMENT, **network.environment}
        run.start(node, "exo", exo.argv(run, node, network), environment)
    way, servers = lines(run)

    assert [node for node, _ in servers] == ["mac-b", "mac-a"]
    assert meets.format("").replace("exo  --", "exo --") in servers[0][1]
    assert meets.format("--force-master") in servers[1][1]
    place, ask = map(shlex.split, way.then)
    assert place[1] == "http://127.0.0.1:52415/place_instance"
    assert json.loads(place[-1]) == exo.placement(run.model, "tensor", transport, 2).body
    assert json.loads(ask[-1])["model"] == run.model


def test_mesh_llm_joins_by_the_word_that_its_head_will_print(tmp_path):
    asked = matrix("mesh-llm", "pipeline", fabric=["switch"])
    programs = {"mesh-llm": "/bin/mesh-llm"}
    run = planned(tmp_path, "pi-cm5-4", {"path": "/models/llama.gguf"}, asked, **programs)
    head, worker = run.nodes
    run.start(head, "mesh-llm-0", mesh_llm.argv(run, head), {})
    run.start(worker, "mesh-llm-0", mesh_llm.argv(run, worker, ["--join", "$MESH_LLM_JOIN"]), {})
    way, servers = lines(run)

    assert [node for node, _ in servers] == ["blade1", "blade2"]
    assert "--join TOKEN --split" in servers[1][1]
    assert "of-the-run" not in servers[1][1]
    assert way.notes[0].startswith("TOKEN is what the first line prints")
    first, second = serve_commands(way, run.cluster, "pi-cm5-4").servers
    assert "-L 9337:127.0.0.1:9337" in first
    assert "-L" not in second


@pytest.mark.parametrize("benchmark", ["serve", "dllama"])
def test_distributed_llama_is_its_workers_and_its_api_whatever_measured_it(tmp_path, benchmark):
    model = {"path": "/models/llama3.m", "tokenizer": "/models/llama3.t"}
    parameters = {"threads": 4} | ({"api": "chat"} if benchmark == "serve" else {})
    asked = matrix("distributed-llama", "tensor", fabric=["switch"], parameters=parameters)
    asked["benchmark"] = [benchmark]
    programs = {"dllama": "/bin/dllama", "dllama-api": "/bin/dllama-api"}
    run = planned(tmp_path, "pi-cm5-4", model, asked, **programs)
    run.tokenizer = model["tokenizer"]
    for node in run.workers:
        run.start(node, "dllama-worker", distributed_llama.worker_argv(run, node), {})
    run.start(run.head, "dllama", distributed_llama.infer_argv(run, "The quick", 40), {})
    if benchmark == "serve":
        listen = ["/bin/dllama-api", "--host", "127.0.0.1", "--port", "9990"]
        argv = [*listen, *distributed_llama.root_arguments(run)]
        run.start(run.head, "dllama-api", argv, {})
    _, servers = lines(run)

    address = run.data_address(run.workers[0])
    assert servers == [
        ("blade2", f"/bin/dllama worker --host {address} --port 9999 --nthreads 4"),
        (
            "blade1",
            "/bin/dllama-api --host 127.0.0.1 --port 9990 --model /models/llama3.m --tokenizer "
            f"/models/llama3.t --buffer-float-type q80 --nthreads 4 --workers {address}:9999",
        ),
    ]


def test_lines_are_typed_over_ones_own_ssh_and_the_heads_port_comes_along(vllm_run):
    run = vllm_run(executor="mp")
    way, servers = lines(run)
    told = serve_commands(way, run.cluster, "dgx-spark-2")

    targets = {node.name: node.ssh for node in run.cluster.nodes}
    assert [shlex.split(line) for line in told.servers] == [
        ["ssh", "-t", targets["spark2"], servers[0][1]],
        ["ssh", "-t", "-L", "8000:127.0.0.1:8000", targets["spark1"], servers[1][1]],
    ]
    assert (told.first, told.last) == ((), ())
    assert not any(word in line for line in told.servers for word in CLIENTS)


def test_a_lab_is_brought_up_first_and_its_model_is_where_this_machine_keeps_it(
    monkeypatch, request
):
    # A socket's path is short, tmp_path is not.
    folder = tempfile.mkdtemp(dir="/tmp")
    request.addfinalizer(lambda: shutil.rmtree(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/somebody/.cache")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    model = "/run/lab/home/.cache/nixwulf/models/x.gguf"
    commands = [ran("n1", "/bin/llama-server", "-m", model, "--host", "/tmp/x", "-c", "8")]
    record = {"case": {"engine": "llama.cpp", "parameters": {}}, "commands": commands}
    cluster = load_cluster("lab")
    told = serve_commands(serving(record, cluster, 1), cluster, "my lab.toml")

    assert told.first == ("nixwulf lab up --name serve --cluster 'my lab.toml'",)
    assert told.last == ("nixwulf lab down --name serve",)
    assert "-m /home/somebody/.cache/nixwulf/models/x.gguf" in told.servers[0]
    assert f"-F {folder}/nixwulf/lab/serve/ssh_config" in told.servers[0]
