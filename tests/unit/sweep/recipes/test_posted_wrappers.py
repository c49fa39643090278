"""What stands around a posted command: containers, shells in quotes, labels, files of variables."""

import re

import pytest

from nixwulf.sweep.recipes.pasted import recognises

NEVER = "commands of a shell are never run here"
OTHER = "is no engine that nixwulf starts"
IN_TOOLBOX = "the parameter toolbox takes an image, else the engine on PATH of each node"
RANKS = "see that nodes and parallelism of the sweep are those that it starts"


def model(document):
    (one,) = document["models"].values()
    return one["id"]


@pytest.mark.parametrize(
    "command",
    [
        "docker run --rm img bash -c 'pip install x && vllm serve org/m'",
        "docker run --rm --entrypoint /bin/bash img -c 'pip install x && vllm serve org/m'",
        "docker run --entrypoint=bash --rm img -lc 'pip install x; vllm serve org/m'",
        "bash -c 'pip install x && exec vllm serve org/m'",
        "ssh a 'pip install x && vllm serve org/m'",
        "ssh a docker exec b bash -c 'pip install x && vllm serve org/m'",
    ],
)
def test_what_a_shell_in_quotes_runs_before_the_engine_is_named(imported, command):
    document, named = imported(f"# how\n{command}\n")
    assert model(document) == "org/m"
    assert f"pip install ... in line 2: {NEVER}" in named
    assert " img" not in command or any(" img" in one for one in named)


def test_what_a_longer_text_in_quotes_runs_has_its_own_line(imported):
    lines = ["docker run img \\", "  bash -c '", "pip install x", "export A=1 B=$(c)", "N=3"]
    _, named = imported("\n".join([*lines, "vllm serve org/m'", ""]))
    assert f"pip install ... in line 3: {NEVER}" in named
    assert any(one.startswith("export A B") for one in named)
    assert "N: it is not exported, and no command uses it" in named


@pytest.mark.parametrize(
    ("options", "rest"),
    [
        ("--entrypoint vllm -e A=1 img", "serve org/m"),
        ("-it --entrypoint=/usr/bin/vllm --gpus all --ipc=host img:1", "serve org/m"),
        (
            "--entrypoint python3 -v /a:/b img",
            "-m vllm.entrypoints.openai.api_server --model org/m",
        ),
        ("--init --privileged --entrypoint '' img", "vllm serve org/m"),
        ("--entrypoint /bin/bash img", "-c 'vllm serve org/m'"),
        ("--entrypoint /x/nvidia_entrypoint.sh img", "vllm serve org/m"),
    ],
)
@pytest.mark.parametrize("program", ["docker run", "sudo podman run", "nerdctl container run"])
def test_an_entrypoint_is_the_program_of_a_container(imported, program, options, rest):
    document, named = imported(f"{program} {options} {rest}\n")
    assert model(document) == "org/m"
    (around,) = [one for one in named if one.endswith(IN_TOOLBOX)]
    assert " img" in around
    assert "vllm" not in around


@pytest.mark.parametrize(
    "launcher",
    [
        "trtllm-llmapi-launch",
        "mpirun -n 2 trtllm-llmapi-launch",
        "timeout 60",
        "docker run --entrypoint trtllm-llmapi-launch img",
    ],
)
@pytest.mark.parametrize("quoted", ["{}", "bash -c '{}'", "mpirun -x A bash -c '{}'"])
def test_a_launcher_hides_no_other_server(refused, launcher, quoted):
    if not quoted.startswith("{") and launcher.startswith("docker"):
        launcher = launcher.replace("run", "run --rm")
    text = quoted.format(f"{launcher} trtllm-serve org/m --tp_size 2")
    assert refused(f"{text}\n").startswith(f"line 1: 'trtllm-serve' {OTHER}")


@pytest.mark.parametrize(
    "program", ["ollama serve", "A=1 lms load m", "docker run img tritonserver -x"]
)
@pytest.mark.parametrize("line", ["3. `{}`", "Start it with `{}`:", "- `{}`, then wait"])
def test_another_server_is_seen_in_backticks(refused, program, line):
    sentence = refused(f"# Steps\n{line.format(program)}\n")
    assert sentence.startswith("line 2: ")
    assert OTHER in sentence


def test_the_name_of_another_server_in_backticks_is_no_command(imported):
    _, named = imported("Unlike `ollama`, or `lms`, it is quick.\nvllm serve org/m\n")
    assert named == []


@pytest.mark.parametrize(
    "around",
    [
        "docker exec -it $BOX",
        'docker exec -it "${BOX}" /bin/bash -c',
        "docker exec $(docker ps -qf name=x) bash -c",
        "ssh $USER@$HOST",
        "ssh $HOST docker exec \\\n  $BOX",
        "kubectl exec $POD --",
        "docker run --network $NET --name x-$N img",
        "mpirun -np $N",
        "docker run --rm -v $PWD:/m -e A=$A $IMG bash -ec",
    ],
)
def test_what_is_left_out_may_have_what_only_a_shell_knows(imported, around):
    command = (
        '"pip install $X &&\n  vllm serve org/m --port $PORT"'
        if around.endswith(("-c", "-ec"))
        else "vllm serve org/m"
    )
    document, named = imported(f"{around} {command}\n")
    assert model(document) == "org/m"
    assert any("$" in one and one.endswith((IN_TOOLBOX, RANKS)) for one in named)


@pytest.mark.parametrize(
    "command",
    [
        "docker exec $BOX vllm serve $M",
        "docker exec $BOX bash -c 'vllm serve $M'",
        'docker run -e "A=$B/x" img vllm serve org/m',
        "docker run -e A=$(hostname) img vllm serve org/m",
        "A=$(hostname) vllm serve org/m",
        "A=$B docker exec $BOX vllm serve org/m",
        "ssh $HOST 'A=$B vllm serve org/m'",
    ],
)
def test_what_is_kept_may_not(refused, command):
    assert "shell" in refused(f"{command}\n")


# hand-made: lines between commands (form: docs/share.md)
@pytest.mark.parametrize(
    "line",
    [
        "just run",
        "simply do",
        "(EngineCore_DP0 pid=12) INFO 11-20 09:11:05 [core.py:1] -x init",
        "INFO 11-20 09:11:02 [__init__.py:216] Detected --platform cuda",
        "INFO:     Started server process [12]",
        "[2026-01-02 03:04:05 TP0] Load weight end. -x",
        "2026-01-02 03:04:05,678 INFO worker.py:1 -- x",
        "llama_model_loader: - kv 0: x -y",
        "srv  update_slots: all slots idle",
        "main: server -x listening",
    ],
)
def test_prose_and_logs_are_no_commands(imported, line):
    _, named = imported(f"{line}\n\nvllm serve org/m\n")
    assert named == []


def test_a_word_of_a_whole_file_is_read_in_no_time():
    assert not recognises("a" * 60_000)


@pytest.mark.parametrize("line", ["just serve", "just build -x", "(cd a; b)", "time x"])
def test_a_command_like_prose_is_named(imported, line):
    _, named = imported(f"{line}\n\nvllm serve org/m\n")
    assert [one for one in named if one.endswith(NEVER)]


@pytest.mark.parametrize(
    "label",
    [
        "node A: ",
        "Head: ",
        "Node 0 (head): ",
        "**Spark-1:** ",
        "- worker: ",
        "spark-1$ ",
        "spark-1: $ ",
        "root@box:/# ",
        "gx10-b3: ",
        "On the head node: ",
        "1) ",
    ],
)
@pytest.mark.parametrize(
    "command", ["vllm serve org/m -tp 2", "docker run img \\\n vllm serve org/m"]
)
def test_a_label_in_front_of_a_command_is_none_of_it(imported, label, command):
    document, named = imported(f"{label}{command}\n")
    assert model(document) == "org/m"
    assert [one for one in named if "docker run img" not in one] == []


@pytest.mark.parametrize("text", ["Note: vllm serve is slow", "Node 1: vllm serve as above"])
def test_a_label_in_front_of_prose_stays(imported, text):
    document, named = imported(f"{text}\nvllm serve org/m\n")
    assert (model(document), named) == ("org/m", [])


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("bin/rpc-server -p 50052", f"bin/rpc-server ... in line 1: {NEVER}"),
        ("ray start --head", f"ray start ... in line 1: {NEVER}"),
        ("docker exec a ray start --head", f"docker exec ... in line 1: {NEVER}"),
        ("export B=$(x)", f"export B: {NEVER}"),
    ],
)
def test_another_command_behind_a_label_is_named_by_its_program(imported, command, named):
    _, found = imported(f"Node 2 (worker): {command}\nHead: export A=1\nvllm serve org/m\n")
    assert found == [named]


CONFIG = "mlx.distributed_config --hosts a,b,c --over thunderbolt"
LAUNCHED = "mlx.launch --backend jaccl --hostfile x/m.json -- mlx_lm.server --model org/m"


@pytest.mark.parametrize(
    "text",
    [
        f"{CONFIG} --output-hostfile m.json\n{LAUNCHED}\n",
        f"{CONFIG} \\\n  --output-hostfile=y/m.json\n{LAUNCHED}\n",
        f"{CONFIG.replace('hosts ', 'hosts=')}\n{LAUNCHED}\n",
        f"uv run {CONFIG} --output m.json\n{LAUNCHED}\n",
    ],
)
def test_hosts_that_a_file_is_made_of_say_how_many_nodes(imported, text):
    document, named = imported(text)
    assert document["matrix"]["nodes"] == [3]
    assert not [one for one in named if "guess" in one]


def test_hosts_of_another_file_say_nothing(imported):
    document, _ = imported(f"{CONFIG} --output-hostfile other.json\n{LAUNCHED}\n")
    assert document["matrix"]["nodes"] == [2]


# hand-made: a file of variables and a unit that names it (form: man systemd.exec, EnvironmentFile=)
VARIABLES = "MODEL=org/m\nLEN='4096'\nVLLM_X=1\n"
UNIT = """\
[Unit]
Description=x
[Service]
EnvironmentFile=/etc/x.env
Environment=VLLM_X=0
ExecStart=/opt/vllm serve ${MODEL} --max-model-len $LEN
"""


@pytest.mark.parametrize(
    "text",
    [
        f"# /etc/x.env\n{VARIABLES}\n# x.service\n{UNIT}",
        f"{UNIT}\n/etc/x.env:\n{VARIABLES}",
        f"x.env\n```\n{VARIABLES}```\nand\n```ini\n{UNIT}```\n",
    ],
)
def test_a_units_file_of_variables_fills_it(imported, text):
    document, _ = imported(text)
    assert model(document) == "org/m"
    given = document["matrix"]["parameters"]
    assert given["environment"][0]["VLLM_X"] == "1"


def test_without_its_file_a_unit_is_refused(refused):
    assert "has an expansion" in refused(UNIT)


def test_hosts_of_mpi_for_mlx_are_nodes_and_its_arguments_are_the_launchers(imported):
    begin = "mpirun -np 2 -H mac1,mac2 --mca btl_tcp_if_include bridge0"
    document, named = imported(f"{begin} python -m mlx_lm.generate --model org/m -m 200\n")
    assert document["matrix"]["nodes"] == [2]
    assert document["matrix"]["parallelism"] == ["tensor"]
    assert document["matrix"]["parameters"] == {"n_gen": [200]}
    assert any("--mca btl_tcp_if_include bridge0" in one for one in named)
    _, named = imported("mpirun -np 4 -hostfile hosts vllm serve org/m\n")
    assert [one for one in named if one.startswith("mpirun -np 4") and one.endswith(RANKS)]


def test_the_flake_of_nix_run_is_named(imported):
    _, named = imported("nix run github:ggml-org/llama.cpp#vulkan -- -m /m/a.gguf -ngl 99\n")
    begin = "nix run github:ggml-org/llama.cpp#vulkan: "
    assert [one for one in named if one.startswith(begin) and one.endswith(IN_TOOLBOX)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("docker run -e A=$(b | awk '{print $1}') vllm/vllm-openai:v0.23.1 --model org/m\n", 1),
        ("export A=1; for i in 1 2; do vllm serve org/m; done\n", 1),
    ],
)
def test_what_only_a_shell_can_follow_is_refused_with_its_line(refused, text, line):
    assert re.match(f"line {line} has an? (expansion|loop)", refused(text))


EUGR = """\
recipe_version: "1"
name: one
model: org/m
container: vllm-node
defaults:
  tensor_parallel: 2
  max_model_len: 4096
command: |
  vllm serve org/m --max-model-len {max_model_len} -tp {tensor_parallel}
"""


PAGE = f"Use this:\n\n```yaml\n{EUGR}```\n"


@pytest.mark.parametrize(
    ("text", "name"), [(EUGR, "recipe.txt"), (EUGR, "recipe.yaml"), (PAGE, "page.md")]
)
def test_a_recipe_of_a_registry_needs_no_suffix(imported, text, name):
    document, _ = imported(text, name)
    assert document["matrix"]["nodes"] == [2]
    assert document["matrix"]["parameters"]["max_model_len"] == [4096]
