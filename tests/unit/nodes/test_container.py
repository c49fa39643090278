import json
import re

import pytest

from launch_plan import Answering, planned
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import container
from nixwulf.nodes.container import Toolbox
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep.plan import make_plan, parse_sweep

IMAGE = f"docker.io/kyuz0/vllm-therock-gfx1151@sha256:{'a' * 64}"
MATRIX = {"nodes": [1], "parallelism": ["single"]}
# no output: what a script of the driver's own prints
FRAMEWORK = """/dev/dri
/dev/kfd
/dev/infiniband
memlock
model:/models
cache:/home/bench/.cache/nixwulf/toolboxes/aaaa:/root/.cache
cache:/home/bench/.cache/huggingface/hub:/root/.cache/huggingface/hub:ro
--
/usr/bin/llama-bench
/opt/venv/bin/vllm
"""


@pytest.fixture
def node():
    def answering(text):
        (first, *_) = load_cluster("framework-2").nodes
        return Answering(first, (), {"script": text})

    return answering


def toolbox(node, model="/models/big.gguf"):
    found = container.look(node, IMAGE, model, ["vllm"])
    assert isinstance(found, Toolbox)
    return found


def test_podman_runs_the_command_with_the_nodes_devices_and_the_model_read_only(node):
    argv = toolbox(node(FRAMEWORK)).argv(
        "nixwulf-r0-vllm-1-fw1", ["vllm", "serve"], ["NCCL_DEBUG"], "/tmp/nixwulf-1"
    )
    assert " ".join(argv) == (
        "podman run --rm --init --name=nixwulf-r0-vllm-1-fw1 --entrypoint= --log-driver=none "
        "--cgroups=disabled --network=host --ipc=host --security-opt=seccomp=unconfined "
        "--group-add=keep-groups --ulimit=memlock=-1 "
        "--device=/dev/dri --device=/dev/kfd --device=/dev/infiniband "
        "--volume=/tmp/nixwulf-1:/tmp/nixwulf-1 "
        "--volume=/home/bench/.cache/nixwulf/toolboxes/aaaa:/root/.cache "
        "--volume=/home/bench/.cache/huggingface/hub:/root/.cache/huggingface/hub:ro "
        "--volume=/models:/models:ro --env=TRITON_CACHE_DIR=/root/.cache/triton "
        f"--env=NCCL_DEBUG {IMAGE} vllm serve"
    )


def test_a_node_gives_only_what_it_has(node):
    argv = " ".join(toolbox(node("--\n")).argv("name", ["true"], (), "/tmp/nixwulf-1"))
    assert "--device" not in argv
    assert "memlock" not in argv
    assert "--volume=/models" not in argv


def test_an_nvidia_gpu_is_given_by_its_cdi_specification(node):
    # no output: what our own question to the node prints, a word a line (nodes/container.py)
    found = toolbox(node("/dev/dri\nnvidia.com/gpu=all\nmemlock\n--\n"))
    argv = found.argv("name", ["nvidia-smi"], (), "/tmp/nixwulf-1")
    assert "--device=nvidia.com/gpu=all" in argv


def test_the_programs_are_those_inside(node):
    assert toolbox(node(FRAMEWORK)).programs == {
        "llama-bench": "/usr/bin/llama-bench",
        "vllm": "/opt/venv/bin/vllm",
    }


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("podman\n", "Node 'fw1' lacks podman; install it."),
        # no output: what our own question to the node prints, a word a line (nodes/container.py)
        (
            "/dev/dri\ncdi\n",
            "Node 'fw1' has no CDI specification, without which a container does not see its "
            "NVIDIA GPU; deploy it with nixwulf.toolboxes, or run 'sudo nvidia-ctk cdi generate "
            "--output=/etc/cdi/nvidia.yaml' there.",
        ),
        ("image\n", f"Node 'fw1' lacks the image {IMAGE!r}; run 'podman pull {IMAGE}' there."),
    ],
)
def test_what_a_node_lacks_is_named_with_the_fix(node, answer, reason):
    assert container.look(node(answer), IMAGE, "", ["vllm"]) == reason


def test_a_name_is_the_digest_that_the_lock_file_pins():
    assert re.fullmatch(
        r"docker\.io/kyuz0/vllm-therock-gfx1151@sha256:[0-9a-f]{64}",
        container.resolve("vllm", "s.yaml", "mine.toml"),
    )
    assert container.resolve(IMAGE, "s.yaml", "mine.toml") == IMAGE


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("docker.io/kyuz0/vllm-therock-gfx1151:stable", "has no digest yet"),
        ("vlm", "is shipped; did you mean 'vllm'?"),
        ("llama-vulkan-radv", "engines install --cluster mine.toml --toolbox llama-"),
        ("-v/host@sha256:" + "0" * 64, "is neither IMAGE:TAG nor IMAGE@sha256:DIGEST"),
        ("-v/host:tag", "is neither IMAGE:TAG"),
    ],
)
def test_a_tag_is_refused_with_the_fix(name, message):
    with pytest.raises(InputError) as caught:
        container.resolve(name, "s.yaml", "mine.toml")
    assert caught.value.message.startswith("s.yaml: the toolbox")
    assert message in caught.value.message


def test_what_is_held_beside_the_cluster_file_goes_before_what_is_shipped(tmp_path):
    cluster = str(tmp_path / "mine.toml")
    image, digest = "docker.io/kyuz0/amd-strix-halo-toolboxes", f"sha256:{'b' * 64}"
    entry = {"image": image, "tag": "vulkan-radv", "digest": digest}
    lock = tmp_path / "mine.lock.json"
    lock.write_text(json.dumps({"version": 1, "images": {"llama-vulkan-radv": entry}}))
    assert container.resolve("llama-vulkan-radv", "s.yaml", cluster) == f"{image}@{digest}"
    assert container.resolve("vllm", "s.yaml", cluster).startswith("docker.io/kyuz0/vllm")
    lock.write_text(json.dumps({"images": {"vllm": {**entry, "digest": "latest"}}}))
    with pytest.raises(InputError, match=r"mine.lock.json: 'vllm' has no image with a digest"):
        container.resolve("vllm", "s.yaml", cluster)


def sweep(**parameters):
    matrix = {"model": ["m"], "nodes": [1], "parallelism": ["single"], "parameters": parameters}
    return parse_sweep(
        {"name": "boxed", "models": {"m": {"path": "/models/m.gguf"}}, "matrix": matrix}, "s.yaml"
    )


def test_a_sweep_varies_the_toolbox_beside_none():
    lab = load_cluster("lab")
    plan = make_plan(sweep(toolbox=["none", IMAGE]), lab)
    assert [case.image for case in plan.cases] == [None, IMAGE]
    assert [case.parameters.get("toolbox") for case in plan.cases] == [None, IMAGE]
    assert plan.cases[0].id == make_plan(sweep(), lab).cases[0].id
    with pytest.raises(InputError, match="has no digest yet"):
        make_plan(sweep(toolbox=["llama-vulkan-radv"]), lab)


def test_vllm_in_a_toolbox_takes_its_own_ranks_and_not_ray(tmp_path):
    matrix = {
        "engine": ["vllm"],
        "benchmark": ["vllm-bench"],
        "nodes": [2],
        "fabric": ["qsfp-a"],
        "parallelism": ["tensor"],
        "parameters": {"toolbox": ["vllm"], "executor": ["mp"]},
    }
    run = planned(tmp_path, "dgx-spark-2", {"id": "org/m"}, matrix)
    assert run.case.image == container.resolve("vllm", "s.yaml", "mine.toml")
    matrix["parameters"]["executor"] = ["ray"]
    with pytest.raises(InputError, match="Ray is not driven in toolboxes"):
        planned(tmp_path, "dgx-spark-2", {"id": "org/m"}, matrix)


def test_a_process_of_a_run_with_a_toolbox_is_a_container_that_is_removed(
    node, tmp_path, monkeypatch
):
    run = planned(tmp_path, "framework-2", {"path": "/models/m.gguf"}, MATRIX)
    run.toolboxes["fw1"] = toolbox(node(FRAMEWORK))
    kept = {}
    monkeypatch.setattr(
        "nixwulf.plugins.runtime.run.OwnedProcess.start",
        lambda node, name, argv, environment, folder, **rest: kept.update(
            argv=argv, environment=environment, **rest
        ),
    )
    Run.start(run, run.head, "rpc-server", ["ggml-rpc-server"], {"GGML_NO_BACKTRACE": "1"})
    name = "nixwulf-run-rpc-server-fw1"
    assert kept["argv"][:2] == ["podman", "run"]
    assert f"--name={name}" in kept["argv"]
    assert "--env=GGML_NO_BACKTRACE" in kept["argv"]
    assert kept["environment"] == {"GGML_NO_BACKTRACE": "1"}
    assert kept["after"] == ["podman", "rm", "--force", "--ignore", "--time=0", name]
