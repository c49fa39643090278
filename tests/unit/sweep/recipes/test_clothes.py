"""Recipes in the clothes people wear: the same case, and what is left out by name."""

import pytest

from tool_outputs import fixture

VLLM = "vllm serve org/model -tp 2 --max-model-len 8192"
LLAMA = "llama-server -m /m/a.gguf -ub 1024 --rpc 10.0.0.2:50052"


def case(imported, text, name="recipe.txt"):
    document, named = imported(text, name)
    return document["matrix"], named


@pytest.mark.parametrize(
    "around",
    [
        "docker run --rm --gpus all -e HF_TOKEN -v /m:/m image:latest {}",
        "docker exec -it vllm {}",
        "podman exec box {}",
        "toolbox run -c llama {}",
        "distrobox enter box -- {}",
        "sudo -E {}",
        "uv run --with vllm {}",
        "nohup {} > log.txt 2>&1 &",
        "env A=1 {}",
        "time {}",
        "numactl --cpunodebind=0 {}",
        "srun -N2 {}",
        "cd /srv && {}",
        "source /venv/bin/activate\n{}",
        "user@host:~/models$ {}",
        "root@spark:/# {}",
        "(venv) me@box:~$ {}",
        "{} | tee log",
        "Then run it, that's all:\n\n```\n{}\n```\nIt's fast.",
        "ssh node1 {}",
        "pdsh -w spark[1-2] '{}'",
        "ansible sparks -b -m shell -a '{}'",
        "FROM ubuntu:24.04\nRUN apt-get update\nCMD {}",
        "bash -c '{}'",
        "alias run='{}'\nrun --port 8000",
        "docker run --gpus all \\\n  -v $HOME/m:/m \\\n  image:latest \\\n  {}\nsleep 5 || true",
        "uv run --with vllm==0.12.0 {}",
        "systemd-run --user -p MemoryMax=110G {}",
        "\u2b22 [me@toolbx ~]$ {}",
        "{} \\\n  > server.log 2> server.err < /dev/null &",
        "# a comment\n{}",
        "> ```\n> {}\n> ```\n",
        "mpirun -np 2 --host a,b {}",
        'tmux send-keys -t box "{}" C-m',
        "tmux new-session -d -s box\ntmux send-keys -t box '{}' Enter",
        "for n in 1 2 3; do {}; done",
        "for n in 1 2 3\ndo\n  {}\ndone",
        "while true; do\n  {}\n  sleep 5\ndone",
    ],
)
@pytest.mark.parametrize("command", [VLLM, LLAMA])
def test_what_stands_around_a_command_changes_no_case(imported, around, command):
    plain, _ = case(imported, command)
    block, _ = case(imported, around.format(command))
    given = block["parameters"].pop("environment", [{}])
    assert given in ([{}], [{"A": "1"}], [{"HF_TOKEN": None}])
    assert block == plain
    assert block["nodes"] == [2]


@pytest.mark.parametrize(
    "end",
    [" \\\n> ", " ^\n  ", " \\\r  ", " \\\r\n", " `\n>>  ", " \\\n # a\n# b \\\n ", " \\ \n "],
)
@pytest.mark.parametrize("command", [VLLM, LLAMA])
def test_lines_that_go_on_in_other_shells_are_one_command(imported, end, command):
    plain, _ = case(imported, command)
    first, *rest = command.split(" -")
    block, _ = case(imported, f"$ {first}" + "".join(f"{end}-{one}" for one in rest) + "\n")
    assert block == plain


def test_a_path_of_windows_is_a_guess_that_is_named(imported):
    document, named = imported(r"llama-server.exe -m C:\models\a.gguf -ub 512")
    assert document["models"]["a"]["path"].endswith("/models/a.gguf")
    assert any("is a guess" in one for one in named)


def test_variables_of_a_container_are_those_of_its_engine(imported):
    text = (
        "docker run -e VLLM_USE_V1=1 --env FOO=bar vllm/vllm-openai:v0.11 --model org/model -tp 2"
    )
    block, named = case(imported, text)
    assert block["engine"] == ["vllm"]
    assert block["parameters"]["environment"] == [{"VLLM_USE_V1": "1", "FOO": "bar"}]
    assert any(one.startswith("docker run") for one in named)


def test_values_that_the_text_itself_sets_stand_for_their_names(imported):
    text = "MODEL=/m/a.gguf\nexport UB=1024\nllama-server -m $MODEL -ub ${UB} -t ${T:-8}\n"
    block, _ = case(imported, text)
    assert (block["parameters"]["n_ubatch"], block["parameters"]["threads"]) == ([1024], [8])


def test_context_slots_shares_and_peers_have_their_key(imported):
    text = "llama-server -m /a.gguf --rpc 10.0.0.2:1,127.0.0.1:1 -c 100000 -np 2 -ts 1,1"
    block, named = case(imported, text)
    found = block["parameters"]
    assert block["nodes"] == [2]
    assert (found["concurrency"], found["split"]) == ([2], ["even"])
    assert found["depth"] == [50000 - 128 - 64]
    assert any("read as 2 nodes" in one for one in named)


def test_a_ray_cluster_of_two_commands_is_one_case(imported):
    text = f"ray start --head --port=6379\nray start --address=10.0.0.1:6379\n{VLLM}\n"
    block, named = case(imported, text)
    assert block["nodes"] == [2]
    assert sum(one.startswith("ray start") for one in named) == 2


@pytest.mark.parametrize("flags", ["--nnodes 2 --node-rank {}", "--nnodes=2 --node-rank={}"])
def test_the_ranks_of_two_nodes_are_one_case(imported, flags):
    command = "python3 -m sglang.launch_server --model-path org/model --tp 2 " + flags
    block, named = case(imported, f"{command.format(0)}\n\n{command.format(1)}\n")
    assert (block["engine"], block["nodes"]) == (["sglang"], [2])
    assert any("the driver starts the other nodes" in one for one in named)


# no output: a compose file of two ranks
COMPOSE = """\
services:
  head:
    image: lmsysorg/sglang:latest
    command: python3 -m sglang.launch_server --model-path org/model --tp 2 --nnodes 2 --node-rank 0
    environment: {A: "1"}
  worker:
    image: lmsysorg/sglang:latest
    command: python3 -m sglang.launch_server --model-path org/model --tp 2 --nnodes 2 --node-rank 1
  web:
    image: open-webui
"""


def test_services_of_two_ranks_are_one_case_and_others_are_named(imported):
    document, named = imported(COMPOSE, "docker-compose.yml")
    assert "include" not in document
    assert document["matrix"]["nodes"] == [2]
    assert document["matrix"]["parameters"]["environment"] == [{"A": "1"}]
    assert any(one.startswith("services web") for one in named)


def test_a_service_that_is_an_image_with_flags_starts_its_engine(imported):
    text = (
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.11\n    command: [--model, org/model]\n"
    )
    block, _ = case(imported, text, "compose.yaml")
    assert block["engine"] == ["vllm"]


def test_a_unit_of_systemd_is_its_command_with_its_environment(imported):
    text = f"""\
[Unit]
Description=model
[Service]
Environment="A=1" B=2
ExecStart=/usr/bin/{LLAMA} \\
  --host 0.0.0.0
Restart=always
"""
    block, named = case(imported, text, "llama.service")
    assert block["parameters"]["environment"] == [{"A": "1", "B": "2"}]
    assert "Restart=always: it is of what starts the service" in named


def test_programs_of_supervisord_are_cases_with_their_own_variables(imported):
    text = f"""\
[program:one]
command=/usr/bin/{LLAMA} --port 8081
environment=A="1",B="two words"
autorestart=true

[program:two]
command={VLLM}
"""
    document, named = imported(text, "models.conf")
    assert document["matrix"]["parameters"]["environment"] == [{"A": "1", "B": "two words"}]
    assert "environment" not in document["include"][0]["parameters"]
    assert "autorestart=true: it is of what starts the service" in named


@pytest.mark.parametrize(
    "lines",
    [
        'ENTRYPOINT ["/app/llama-server"]\nCMD ["-m", "/m/a.gguf", "-ub", "1024"]',
        "CMD ./llama-server -m /m/a.gguf \\\n  -ub 1024",
    ],
)
def test_a_dockerfile_is_what_its_image_starts(imported, lines):
    text = f"FROM ghcr.io/ggml-org/llama.cpp:full AS run\nENV A=1 B=2\nEXPOSE 8080\n{lines}\n"
    block, named = case(imported, text, "Dockerfile")
    assert (block["engine"], block["model"]) == (["llama.cpp"], ["a"])
    assert block["parameters"]["n_ubatch"] == [1024]
    assert block["parameters"]["environment"] == [{"A": "1", "B": "2"}]
    assert "EXPOSE 8080: it is of the image's build" in named


def test_the_image_of_a_dockerfile_stands_behind_its_options(imported):
    text = 'ARG A=1\nFROM --platform=linux/amd64 vllm/vllm-openai:v0.11\nCMD ["--model", "org/m"]\n'
    assert case(imported, text, "Dockerfile")[0]["engine"] == ["vllm"]


def test_only_the_last_stage_of_a_dockerfile_starts_something(imported):
    """A stage has what the stage has that it is made from; another stage's variables are named."""
    text = """\
FROM golang:1.22 AS build
ENV FOO=1
CMD ["make", "test"]
FROM ghcr.io/ggml-org/llama.cpp:server AS base
ENV A=1
FROM base
ENV B=2
CMD ["-m", "/m/a.gguf", "-ub", "1024"]
"""
    block, named = case(imported, text, "Dockerfile")
    assert (block["engine"], block["model"]) == (["llama.cpp"], ["a"])
    assert block["parameters"]["environment"] == [{"A": "1", "B": "2"}]
    assert [one for one in named if "FOO" in one]


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("sglang serve --model-path org/m --tp 16 --dp 8", "--enable-dp-attention"),
        ("vllm serve org/m -tp 1 -dp 2", "--enable-expert-parallel"),
    ],
)
def test_replicas_that_share_something_are_no_servers_of_their_own(refused, text, flag):
    assert flag in refused(f"{text} {flag}\n")


def test_experts_are_parallel_within_tensors(imported):
    block, _ = case(imported, "vllm serve org/m -tp 2 --enable-expert-parallel\n")
    assert (block["nodes"], block["parallelism"]) == ([2], ["tensor"])
    assert block["parameters"]["arguments"] == ["--enable-expert-parallel"]


def test_a_sentence_about_exo_is_no_command(refused):
    assert "no file of a server's flags" in refused("exo 1.0 on 2x M4 Pro mini\n", "post.yaml")


def test_lists_of_a_compose_file_take_its_defaults(imported):
    text = """\
services:
  a:
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path
      - ${MODEL:-org/m}
      - --context-length=${CTX:-32768}
"""
    block, _ = case(imported, text, "compose.yaml")
    assert (block["engine"], block["model"]) == (["sglang"], ["m"])
    assert block["parameters"]["max_model_len"] == [32768]


def test_macros_of_llama_swap_may_have_hyphens(imported):
    text = """\
macros:
  latest-llama: llama-server --port ${PORT}
models:
  small: {cmd: "${latest-llama} -m /m/a.gguf -ub 512"}
"""
    assert case(imported, text, "swap.yaml")[0]["engine"] == ["llama.cpp"]


def test_the_line_of_a_program_that_is_no_engine_is_named_in_a_unit(refused):
    text = "[Unit]\nDescription=x\n[Service]\nExecStart=/opt/rpc-server -H 0.0.0.0\n"
    assert refused(text, "a.service").startswith("line 4: ")


def test_a_dockerfile_without_an_image_is_one_sentence(refused):
    assert "no engine" in refused('ARG A=1\nCMD ["vllm", "serve", "org/model"]\n')


def test_where_the_servers_of_replicas_meet_is_named_and_no_argument(imported):
    text = f"{VLLM.replace('-tp 2', '-dp 2')} --data-parallel-address 10.0.0.1 -dpp 13345"
    block, named = case(imported, text)
    assert (block["nodes"], block["parallelism"]) == ([2], ["replicas"])
    assert "arguments" not in block["parameters"]
    assert len([one for one in named if "starts a server on each node" in one]) == 2


def test_models_of_llama_swap_are_cases(imported):
    text = """\
macros:
  srv: llama-server --port ${PORT}
models:
  small:
    cmd: |
      ${srv}
      -m /m/a.gguf -ub 512
    ttl: 300
  large:
    cmd: llama-server -m /m/b.gguf --port ${PORT}
"""
    document, named = imported(text, "config.yaml")
    blocks = [document["matrix"], *document["include"]]
    assert [block["model"] for block in blocks] == [["a"], ["b"]]
    assert any(one.startswith("ttl: ") for one in named)


def test_a_model_of_litellm_is_an_endpoint(imported):
    text = """\
model_list:
  - model_name: qwen
    litellm_params: {model: openai/qwen3, api_base: "http://10.0.0.5:8000/v1", api_key: none}
"""
    block, named = case(imported, text, "litellm.yaml")
    assert block["engine"] == ["endpoint"]
    assert block["parameters"]["url"] == ["http://10.0.0.5:8000/v1"]
    assert any(one.startswith("api_key") for one in named)


def test_a_launcher_of_mlx_keeps_its_transport_and_environment(imported):
    text = (
        "mlx.launch --verbose --backend jaccl --hosts a,b,c,d --env MLX_METAL_FAST_SYNCH=1 -- "
        "/opt/server.py --model org/model-4bit"
    )
    block, _ = case(imported, text)
    assert (block["engine"], block["nodes"], block["transport"]) == (["mlx"], [4], ["rdma"])
    assert block["parameters"]["environment"] == [{"MLX_METAL_FAST_SYNCH": "1"}]


def test_dllama_has_a_node_for_each_worker_and_its_root(imported):
    text = (
        "./dllama inference --model /m/a.m --tokenizer /m/a.t --buffer-float-type q80 --steps 64 "
        "--nthreads 4 --workers 10.0.0.2:9998 10.0.0.3:9998 10.0.0.4:9998 --prompt 'Hi'"
    )
    document, _ = imported(text)
    block = document["matrix"]
    assert (block["engine"], block["nodes"]) == (["distributed-llama"], [4])
    assert document["models"] == {"a.m": {"path": "/m/a.m", "tokenizer": "/m/a.t"}}


def test_a_program_that_is_no_engine_is_named_behind_its_launcher(refused):
    text = "mpirun -np 2 --host a,b trtllm-llmapi-launch trtllm-serve org/model --tp_size 2"
    assert "'trtllm-serve' is no engine" in refused(text)


@pytest.mark.parametrize("program", ["trtllm-serve org/model", "./ds4 -m a.gguf", "ollama run x"])
def test_a_program_that_is_no_engine_is_named(refused, program):
    sentence = refused(program)
    assert repr(program.split()[0]) in sentence
    assert "'endpoint'" in sentence


@pytest.mark.parametrize(
    "text",
    [
        'distrobox enter rocm -- bash -lc "llama-bench -m /a.gguf',
        "podman exec vllm bash -c 'vllm serve $MODEL'",
    ],
)
def test_what_only_a_shell_can_read_is_one_sentence(refused, text):
    assert "; a recipe is never given to a shell: write the command alone." in refused(text)


def test_a_compose_file_whose_shell_starts_ray_and_vllm_is_one_case_of_vllm(imported):
    block, named = case(imported, fixture("posted/compose-becomes-a-flag.yaml"), "compose.yaml")
    assert (block["engine"], block["nodes"], block["parallelism"]) == (["vllm"], [2], ["tensor"])
    found = block["parameters"]
    assert (found["executor"], found["gpu_memory_percent"]) == (["ray"], [75])
    assert found["max_model_len"] == [196608]
    assert "--services" not in found["arguments"][0]
    assert {one.split(":")[0] for one in named} >= {"image", "network_mode", "NCCL_IB_DISABLE"}


def test_a_launcher_with_a_file_of_hosts_is_of_mlx_by_rdma(imported):
    block, named = case(imported, fixture("posted/launchers-not-recipes.txt"))
    assert (block["engine"], block["transport"]) == (["mlx"], ["rdma"])
    assert block["parallelism"] == ["tensor"]
    assert block["parameters"]["environment"] == [{"MLX_METAL_FAST_SYNCH": "1"}]
    assert any("2 nodes are a guess" in one for one in named)


def test_what_a_page_exports_is_of_its_command(imported):
    text = f"Node B first:\n\nrpc-server -H ::1 $(x)\n\nexport GGML_A=0\n{LLAMA}\nThat's it.\n"
    block, named = case(imported, text)
    assert block["parameters"]["environment"] == [{"GGML_A": "0"}]
    never = [one for one in named if "commands of a shell are never run here" in one]
    assert never == ["rpc-server ... in line 3: commands of a shell are never run here"]


def test_a_container_over_several_lines_keeps_its_variables(imported):
    text = f"echo it's on\ndocker run \\\n  -e FOO=bar \\\n  image \\\n  {VLLM}\nsleep 5 || true\n"
    block, _ = case(imported, text)
    assert block["parameters"]["environment"] == [{"FOO": "bar"}]


def test_a_program_of_others_is_named_in_a_script_of_a_container(refused):
    text = "docker exec -it box bash -c '\n  mpirun -x A trtllm-serve $MODEL \\\n   --tp_size 2'\n"
    assert "line 2: 'trtllm-serve' is no engine" in refused(text)


def test_aliases_and_merges_of_a_compose_file_are_written_out(imported):
    # no output: https://docs.docker.com/reference/compose-file/fragments/
    text = """\
x-all: &all
  image: image
  environment: &env {A: "1"}
services:
  head:
    <<: *all
    environment: {<<: *env, B: "2"}
    command: vllm serve org/model -tp 2 --nnodes 2 --node-rank 0
  worker:
    <<: *all
    command: vllm serve org/model -tp 2 --nnodes 2 --node-rank 1
"""
    block, _ = case(imported, text, "compose.yaml")
    assert block["nodes"] == [2]
    assert block["parameters"]["environment"] == [{"A": "1", "B": "2"}]


@pytest.mark.parametrize(
    "text",
    [
        "services: &a\n  b: *a\n",
        "services: *a\n",
        "a: &a [x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n"
            for old, new in ["ab", "bc", "cd", "de", "ef"]
        ),
    ],
)
def test_aliases_without_end_are_refused(refused, text):
    assert "an alias of itself, of nothing, or of more than" in refused(text, "compose.yaml")


def test_a_server_that_has_its_flags_as_variables_is_a_case(imported):
    text = """\
services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-vulkan
    environment: {LLAMA_ARG_MODEL: /m/a.gguf, LLAMA_ARG_N_PARALLEL: 4, LLAMA_ARG_JINJA: 1}
"""
    document, named = imported(text, "compose.yaml")
    assert document["matrix"]["parameters"]["concurrency"] == [4]
    assert document["models"]["a"] == {"path": "/m/a.gguf"}
    assert any(one.startswith("LLAMA_ARG_JINJA") for one in named)


def test_a_line_of_a_drop_in_replaces_that_of_its_unit(imported):
    unit = "[Service]\nEnvironment=A=1\nExecStart=llama-server -m /old.gguf\n"
    text = f"{unit}\n# override.conf\n[Service]\nExecStart=\nExecStart={LLAMA}\n"
    document, named = imported(text, "llama.service")
    assert "include" not in document
    assert document["matrix"]["parameters"]["environment"] == [{"A": "1"}]
    assert any("old.gguf: a later line replaces it" in one for one in named)


def test_a_unit_of_podman_is_the_command_of_its_container(imported):
    image = "Image=ghcr.io/ggml-org/llama.cpp:server"
    text = f"[Container]\n{image}\nAddDevice=/dev/dri\nEnvironment=A=1\nExec=-m /a.gguf -ub 512\n"
    block, named = case(imported, text, "llama.container")
    assert block["engine"] == ["llama.cpp"]
    assert block["parameters"] == {"n_ubatch": [512], "environment": [{"A": "1"}]}
    assert any(one.startswith("AddDevice") for one in named)


@pytest.mark.parametrize(
    ("begins", "rest"),
    [
        ("python3 -m sglang.launch_server", '["--model-path", "org/model", "--tp", "2"]'),
        ("[python3, -m, sglang.launch_server]", "--model-path org/model --tp 2"),
        ("python3 -m", "sglang.launch_server --model-path org/model --tp 2"),
        ("[bash, -c]", "python3 -m sglang.launch_server --model-path org/model --tp 2"),
    ],
)
def test_an_entrypoint_and_a_command_are_one_line(imported, begins, rest):
    text = f"services:\n  a:\n    image: image\n    entrypoint: {begins}\n    command: {rest}\n"
    block, _ = case(imported, text, "compose.yaml")
    assert (block["engine"], block["nodes"]) == (["sglang"], [2])


def test_a_model_that_another_replaces_is_named(imported):
    document, named = imported("llama-bench -m /m/a.gguf -m /m/b.gguf -p 64\n")
    assert list(document["models"]) == ["b"]
    assert "-m /m/a.gguf: a case has one" in named


def test_a_unit_without_an_engine_is_refused_by_its_program(refused):
    text = "[Service]\nExecStart=/usr/bin/ggml-rpc-server -H ::1 -p 50052\n"
    assert "'/usr/bin/ggml-rpc-server -H', which starts no engine" in refused(text, "rpc.service")


def test_a_loop_over_values_that_are_written_out_is_a_case_of_each(imported):
    text = (
        "for m in /m/a.gguf /m/b.gguf; do\n  for ub in 512 1024; do\n"
        "    llama-bench -m $m \\\n      -ub ${ub} -p 512\n  done\ndone\n"
    )
    document, _ = imported(text)
    blocks = [document["matrix"], *document["include"]]
    found = [(one["model"][0], one["parameters"]["n_ubatch"][0]) for one in blocks]
    assert found == [("a", 512), ("a", 1024), ("b", 512), ("b", 1024)]


def test_a_package_of_nix_is_its_main_program(imported):
    plain, _ = case(imported, VLLM)
    assert case(imported, VLLM.replace("vllm serve", "nix run nixpkgs#vllm -- serve"))[0] == plain
    llama, _ = case(imported, "nix run nixpkgs#llama-cpp -- -m /m/a.gguf -ub 1024")
    assert (llama["engine"], llama["parameters"]) == (["llama.cpp"], {"n_ubatch": [1024]})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for n in $(seq 4); do vllm serve org/model -tp $n; done", 1),
        ("# two\nfor n in {1..4}; do vllm serve org/model -tp $n; done", 2),
    ],
)
def test_a_loop_that_only_a_shell_can_count_is_refused_as_a_loop(refused, text, line):
    assert f"line {line} has a loop" in refused(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("vllm serve org/model --api-key mysecretvalue1 $(hostname)", "mysecretvalue1"),
        ("vllm serve org/model --api-key s3cret $(hostname)", "s3cret"),
        ("HF_TOKEN=abcdefghijkl vllm serve org/model `hostname`", "abcdefghijkl"),
        (f"vllm serve org/model --api-key {'v' * 70} $(hostname)", "vvvv"),
        (f"run hf_{'aB3' * 12} $(vllm serve org/model)", "aB3aB3"),
    ],
)
def test_a_refusal_shows_no_secret_of_the_line_that_it_quotes(refused, text, secret):
    assert secret not in refused(text)


# hand-made: mlx_lm's benchmark under its launcher (form: mlx/distributed_run/launch.py)
BENCHMARK = "mlx_lm.benchmark --model org/m -p 2048 -g 256 -n 5"


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [
        ("", 1),
        ("mlx.launch -n 3 ", 3),
        ("mlx.launch --hosts a,b,c,d ", 4),
        ("mlx.launch --hosts a,b -n 4 ", 2),
        ("mlx.launch --hostfile hosts.json --backend jaccl -- ", 2),
        ("mlx.launch --hostfile hosts.json -- python3 -m ", 2),
    ],
)
def test_a_program_behind_its_launcher_keeps_its_own_flags(imported, launcher, nodes):
    """-n is the number of trials of the one, and of ranks of the other."""
    block, _ = case(imported, f"{launcher}{BENCHMARK}\n")
    assert (block["benchmark"], block["nodes"]) == (["mlx_lm.benchmark"], [nodes])
    assert block["parameters"] == {"n_prompt": [2048], "n_gen": [256]}


# hand-made: a manifest (form: docs.vllm.ai/en/latest/deployment/k8s)
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: mine}
spec:
  replicas: 2
  selector: {matchLabels: {app: mine}}
  template:
    metadata: {labels: {app: mine}}
    spec:
      hostNetwork: true
      initContainers: [{name: get, image: alpine}]
      containers:
        - {name: a, image: "vllm/vllm-openai:v1", args: ["--model", "org/m"]}
"""


def test_what_stands_above_the_containers_of_a_manifest_is_named(imported):
    _, named = case(imported, MANIFEST, "mine.yaml")
    paths = {one.partition(":")[0] for one in named}
    above = {"spec.replicas", "spec.template.spec.hostNetwork", "spec.template.spec.initContainers"}
    assert paths == {*above, "image"}


def test_the_image_of_a_unit_and_of_a_dockerfile_is_named(imported):
    unit = "[Container]\nImage=vllm/vllm-openai:v1\nExec=--model org/m\n"
    assert any("Image=vllm" in one for one in case(imported, unit, "a.container")[1])
    text = 'FROM vllm/vllm-openai:v1\nCMD ["--model", "org/m"]\n'
    assert any("FROM vllm" in one for one in case(imported, text, "Dockerfile")[1])


@pytest.mark.parametrize(
    "text",
    [
        "> vllm serve org/m \\\n>   --max-model-len 4096\n\nworks for me\n",
        "look:\n> vllm serve org/m --max-model-len 4096\n",
        "$ vllm serve org/m \\\n>   --max-model-len 4096\n",
        "&gt; vllm serve org/m --max-model-len 4096 &amp;&amp; echo done\n",
        "<pre><code>vllm serve org/m --max-model-len 4096</code></pre>\n",
        "<pre>vllm serve org/m --max-model-len &quot;4096&quot;</pre>\n",
        "./launch-cluster.sh -n a,b exec vllm serve org/m --max-model-len 4096\n",
    ],
)
def test_a_command_is_read_out_of_what_a_page_or_a_mail_puts_around_it(imported, text):
    assert case(imported, text)[0]["parameters"]["max_model_len"] == [4096]


def test_a_recipe_that_is_started_by_its_name_is_asked_for_as_a_file(refused):
    assert "import the file of that recipe" in refused("sparkrun run qwen3-8b --tp 2\n")
