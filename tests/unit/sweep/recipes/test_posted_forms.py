"""Forms in which recipes of clusters are posted: each says what it says wherever it stands."""

import json

import pytest

from nixwulf.sweep.recipes.command_lines import lines
from tool_outputs import FIXTURES

VLLM = "vllm serve org/m -tp 2"
EXO = "http://localhost:52415"
PLACED = '{"model_id":"org/m-4bit","sharding":"Tensor","instance_meta":"MlxJaccl","min_nodes":3}'
QUOTES = "'\""
NEVER = "commands of a shell are never run here"


def matrix(imported, text, name="recipe.txt"):
    document, named = imported(text, name)
    return document["matrix"], named


@pytest.mark.parametrize(
    "before",
    [
        "",
        "conda run -n x ",
        "uv run ",
        "sudo -E ",
        "env A=1 ",
        "nohup ",
        "docker exec box ",
        "ssh a ",
    ],
)
@pytest.mark.parametrize(
    "program",
    ["mlx_lm.generate", "/opt/bin/mlx_lm.server", "$(which python) -m mlx_lm server"],
)
def test_a_launcher_keeps_its_own_dashes_behind_what_wraps_it(imported, before, program):
    text = f"{before}mlx.launch --backend ring --hosts a,b -- {program} --model org/m-4bit -m 32\n"
    block, _ = matrix(imported, text)
    assert (block["nodes"], block["transport"]) == ([2], ["tcp"])
    block["parameters"].pop("environment", None)
    assert block["parameters"] == {"n_gen": [32]}


def test_what_a_launched_program_stands_in_is_left_out_too(imported):
    text = "mlx.launch --hosts a,b -- conda run -n x mlx_lm.server --model org/m-4bit -m 32\n"
    block, named = matrix(imported, text)
    assert (block["nodes"], block["parameters"]) == ([2], {"n_gen": [32]})
    assert any(one.startswith("conda run -n x: ") for one in named)


# hand-made: requests that place a model (form: https://github.com/exo-explore/exo/blob/b5375f8/docs/api.md)
REQUESTS = [
    f"curl -X POST {EXO}/place_instance -d '{PLACED}'",
    f'curl -s -X POST "{EXO}/place_instance" -d {json.dumps(PLACED)} | jq .',
    f"ssh mac1 curl -X POST {EXO}/place_instance -d '{PLACED}'",
    f"curl {EXO}/place_instance \\\n  -d '{json.dumps(json.loads(PLACED), indent=2)}'",
    "http POST :52415/place_instance model_id=org/m-4bit sharding=Tensor "
    "instance_meta=MlxJaccl min_nodes:=3",
    f"Invoke-RestMethod -Method Post -Uri {EXO}/place_instance -Body '{PLACED}'",
    f"curl '{EXO}/instance/placement?model_id=org%2Fm-4bit&sharding=Tensor"
    "&instance_meta=MlxJaccl&min_nodes=3'",
    f"M=org/m-4bit\ncurl {EXO}/place_instance -d " + json.dumps(PLACED.replace("org/m-4bit", "$M")),
]


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("before", ["", "uv run exo\n", "exo -v\n"])
def test_a_request_to_exo_places_what_its_command_does_not_name(imported, request_, before):
    asks = f"curl '{EXO}/instance/previews?model_id=other'\n"
    document, named = imported(f"{before}{asks}{request_}\n")
    block = document["matrix"]
    assert list(document["models"].values()) == [{"id": "org/m-4bit"}]
    assert (block["nodes"], block["parallelism"], block["transport"]) == ([3], ["tensor"], ["rdma"])
    assert "include" not in document
    assert any("in line 1: a request of the text to its API" in one for one in named)


@pytest.mark.parametrize("asks", ["instance/previews?model_id=org/m-4bit", "v1/chat/completions"])
def test_a_request_that_places_nothing_says_the_model(imported, asks):
    sent = f"curl '{EXO}/{asks}' -d '{json.dumps({'model': 'org/m-4bit', 'messages': []})}'"
    document, named = imported(f"exo\n{sent}\n")
    assert list(document["models"].values()) == [{"id": "org/m-4bit"}]
    assert document["matrix"]["nodes"] == [1]
    assert any("it is a guess: the request has no min_nodes" in one for one in named)


def test_two_requests_are_two_cases_and_a_deletion_is_none(imported):
    two = PLACED.replace("m-4bit", "n-4bit").replace("Tensor", "Pipeline")
    sent = [f"curl -X POST {EXO}/place_instance -d '{one}'\n" for one in (PLACED, two)]
    document, named = imported(f"exo\n{''.join(sent)}curl -X DELETE {EXO}/instance/abc\n")
    assert [one["parallelism"] for one in document["include"]] == [["pipeline"]]
    assert f"curl ... in line 4: {NEVER}" in named


@pytest.mark.parametrize("text", ["uv run exo\n", "exo run org/m-4bit\n"])
def test_one_node_of_exo_is_a_guess_that_is_named(imported, text):
    document, named = imported(text, model="org/m-4bit")
    assert document["matrix"]["nodes"] == [1]
    assert any(one.startswith("a number of nodes, read as 1 node: it is a guess") for one in named)


# hand-made: files of hosts (form: Hostfile of mlx/python/mlx/_distributed_utils/common.py)
HOSTS = """[
  {"ssh": "a", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en5"]},
  {"ssh": "b"},
  {"ssh": "c"}
]"""
LAUNCH = (
    "mlx.launch --backend jaccl --hostfile ~/x/hosts.json -- mlx_lm.server --model org/m-4bit\n"
)


@pytest.mark.parametrize(
    "text",
    [
        f"{LAUNCH}\nhosts.json:\n\n```json\n{HOSTS}\n```\n",
        f"cat > hosts.json <<EOF\n{HOSTS}\nEOF\n{LAUNCH}",
        f"echo '{' '.join(HOSTS.split())}' > hosts.json\n{LAUNCH}",
        f'one.json:\n[{{"ssh": "a"}}]\nhosts.json:\n{HOSTS}\n{LAUNCH}',
        f'hosts.json\n{{"backend": "jaccl", "hosts": {HOSTS}}}\n'
        + LAUNCH.replace(" --backend jaccl", ""),
        f"{HOSTS}\n{LAUNCH.replace('--hostfile ', '--hostfile=')}",
    ],
)
def test_a_file_of_hosts_in_the_text_says_how_many_nodes(imported, text):
    block, named = matrix(imported, text)
    assert (block["nodes"], block["transport"]) == ([3], ["rdma"])
    assert not [one for one in named if "guess" in one or '"' in one or "]" in one]


def test_another_file_of_hosts_says_nothing(imported):
    block, named = matrix(imported, f"other.json:\n{HOSTS}\n{LAUNCH}")
    assert block["nodes"] == [2]
    assert any("2 nodes are a guess" in one for one in named)


@pytest.mark.parametrize(
    ("text", "executor"),
    [
        (f"ray start --head\nray start --address a:6379\n{VLLM}\n", "ray"),
        (f"docker exec n1 ray start --head\nssh b 'ray start --address a:6379'\n{VLLM}\n", "ray"),
        (f"bash run_cluster.sh vllm/vllm-openai 10.0.0.1 --head /root\n{VLLM}\n", "ray"),
        (f"bash -c 'multi-node-serving.sh leader --ray_cluster_size=2; {VLLM}'\n", "ray"),
        (f"ray symmetric-run --address a:6379 --min-nodes 2 -- {VLLM}\n", "ray"),
        (f"ray start --head\n{VLLM} --distributed-executor-backend mp\n", "mp"),
        (f"ray start --head\n{VLLM} --nnodes 2 --node-rank 0\n", "mp"),
        (f"# ray start --head\n{VLLM}\n", "mp"),
    ],
)
def test_vllm_takes_the_cluster_of_ray_that_the_text_starts(imported, text, executor):
    block, _ = matrix(imported, text)
    assert block["parameters"]["executor"] == [executor]


def test_a_cluster_of_ray_is_nothing_to_one_node(imported):
    block, _ = matrix(imported, "ray start --head\nvllm serve org/m\n")
    assert block["parameters"] == {"eager": [False]}


@pytest.mark.parametrize(
    "flags",
    ["-fmoe", "-mla 3", "-amb 512", "-rtr", "-ser 7,1", "--run-time-repack", "-ger", "-khad"],
)
@pytest.mark.parametrize("program", ["llama-server", "llama-bench"])
def test_a_flag_of_a_fork_alone_is_named_and_not_handed_on(imported, program, flags):
    block, named = matrix(imported, f"{program} -m /m/a.gguf {flags} -ot exps=CPU\n")
    assert block["parameters"]["arguments"] == ["-ot exps=CPU"]
    assert any(one.startswith(f"{flags}: it is of the fork ik_llama.cpp") for one in named)


def test_no_flag_of_the_fork_is_one_that_llama_cpp_prints():
    folder = FIXTURES / "llama.cpp"
    printed = {
        word.strip(",")
        for path in folder.glob("*/llama-*.help.txt")
        for word in path.read_text().split()
    }
    flags = {name for line in lines() for name, flag in line.flags.items() if "fork" in flag.why}
    assert len(flags) > 50
    assert flags & printed == set()


# hand-made: a Makefile (form: https://www.gnu.org/software/make/manual/make.html)
MAKE = """\
BIN = /opt/bin
MODEL ?= /m/a.gguf
MODEL ?= /m/b.gguf
RPC := 10.0.0.2:50052
FLAGS = -ub 1024 \\
\t-fa on
FLAGS += --jinja # more
export GGML_X := 1

.PHONY: all serve
all: serve

serve: build
\t@echo $$HOME
\t-@$(BIN)/llama-server -m ${MODEL} --rpc $(RPC) \\
\t-ngl 99 $(FLAGS)
"""


def test_variables_of_a_makefile_stand_in_its_recipes(imported):
    document, named = imported(MAKE, "Makefile")
    block = document["matrix"]
    assert (block["nodes"], document["models"]) == ([2], {"a": {"path": "/m/a.gguf"}})
    assert block["parameters"] == {
        "n_ubatch": [1024],
        "flash_attn": ["on"],
        "arguments": ["--jinja"],
        "environment": [{"GGML_X": "1"}],
    }
    assert [one for one in named if NEVER in one] == [f"echo ... in line 14: {NEVER}"]


def test_what_a_makefile_does_not_define_is_refused(refused):
    assert "line 2 has an expansion: 'vllm serve ${MODEL}" in refused("a:\n\tvllm serve $(MODEL)\n")


def test_commands_that_a_tab_sets_in_keep_the_shells_variables(imported):
    text = "M=/m/a.gguf\nRun it:\n\tdocker run -v a:b img \\\n\tllama-bench -m $M \\\n\t-p 512\n"
    document, _ = imported(text)
    assert list(document["models"].values()) == [{"path": "/m/a.gguf"}]
    assert document["matrix"]["parameters"]["n_prompt"] == [512]


def test_variables_and_names_of_a_justfile_are_no_commands(imported):
    command = f"{VLLM.replace('org/m', '{{m}}')} --port {{{{port}}}}"
    text = f'm := "org/m"\n\nserve port="1":\n    @{command}\n'
    _, named = imported(text)
    assert [one for one in named if NEVER in one] == []


DRAFTS = '{"method": "mtp", "num_speculative_tokens": 1}'


@pytest.mark.parametrize(
    "items",
    [
        [f"--speculative-config={DRAFTS}"],
        ["--speculative-config", DRAFTS],
        [f"--speculative-config={DRAFTS.replace(' ', '')}", "--enable-prefix-caching --jinja"],
    ],
)
@pytest.mark.parametrize("key", ["command", "args"])
def test_items_of_a_list_keep_their_quotes(imported, items, key):
    listed = json.dumps(["--model=org/m", "-tp", "2", *items])
    container = f'"image": "vllm/vllm-openai:v1", "{key}": {listed}'
    text = f"services:\n  a: {{{container}}}\n"
    if key == "args":
        text = f'kind: Pod\nspec:\n  containers:\n  - {{"name": "a", {container}}}\n'
    block, _ = matrix(imported, text, "file.yaml")
    given = block["parameters"]
    assert (given["draft"], given["draft_tokens"]) == (["mtp"], [1])


# hand-made: lines of pages and of files that are no commands (form: docs/share.md)
@pytest.mark.parametrize(
    "line",
    [
        "# Running it on four boxes",
        "Hello everyone, I'm running this on 2 boxes",
        "Results: 12 t/s with -fa on, which is the best of it",
        "then on the head",
        "und auf dem Hauptrechner:",
        "Kommt auf ca. 12 Token/s. Ohne `-fa on` wird's deutlich langsamer.",
        "两台机器直连 步骤",
        "**On spark-2:**",
        "1. Build it on every box",
        "- the second of a list",
        "| a | b |",
        "[link](https://example.org)",
        "Ask me for the password, it is Xw9pass today.",
        '{"a": [1,\n  2],\n"b": "c"}',
        '"key": "value",',
        "hosts.json:",
        "Steps\n-----",
        "where the file is as above",
    ],
)
def test_prose_and_data_are_no_commands(imported, line):
    _, named = imported(f"{line}\n\n{VLLM}\n")
    assert named == []


@pytest.mark.parametrize(
    "line",
    [
        "git pull origin main",
        "apt install foo",
        "./build.sh",
        "echo the end of it.",
        "Set-ExecutionPolicy Bypass",
        "sudo sysctl -w a=1",
        "nmcli con up spark",
        "docker pull vllm/vllm-openai:latest",
        "cmake ..",
    ],
)
def test_a_command_that_is_not_run_is_named(imported, line):
    _, named = imported(f"{line}\n{VLLM}\n")
    assert len(named) == 1
    assert named[0].startswith(line.split()[0])


@pytest.mark.parametrize("folder", ["~/m", "$HOME/m", '"$(pwd)/m', "${M}", "'$HOME/m'"])
def test_a_folder_of_a_container_is_named_as_it_is_written(imported, folder):
    end = '"' if folder[0] == '"' else ""
    _, named = imported(f"docker run -v {folder}:/m{end} image {VLLM}\n")
    assert named[0].startswith(f"docker run -v {folder.strip(QUOTES)}:/m image: ")


def test_a_playbook_is_refused_by_the_line_of_its_command(refused):
    # no output: a playbook
    text = "- hosts: a\n  tasks:\n    - name: llama-bench\n      shell: /b/llama-bench -m {{ m }}\n"
    sentence = refused(text, "play.yaml")
    assert sentence.startswith("it is a playbook of Ansible; paste the command of line 4 into")
