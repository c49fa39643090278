"""Files and pages that hold a recipe: units, manifests, fences, and the shells of Windows."""

import pytest

BENCH = "llama-bench -m /m/a.gguf -b 64"

# no output: https://kubernetes.io/docs/concepts/workloads/pods/
POD = """\
# two of them
apiVersion: v1
kind: Service
metadata: {name: entry}
---
apiVersion: batch/v1
kind: Job
metadata: {name: run}
spec:
  template:
    spec:
      initContainers:
        - {name: fetch, image: curl, command: [curl, -O, host]}
      containers:
        - name: web
          image: nginx
        - name: model
          image: vllm/vllm-openai:v9
          args: [--model, $(MODEL), --tensor-parallel-size, "2", "--served-model-name=x y"]
          env:
            - {name: MODEL, value: org/a}
            - {name: VLLM_X, value: "1"}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
            - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
          resources: {limits: {gpu: 1}}
"""


def parameters(document):
    return document["matrix"].get("parameters", {})


def test_each_document_of_a_file_is_looked_at(imported):
    document, named = imported(POD, "job.yaml")
    assert document["models"] == {"a": {"id": "org/a"}}
    assert (document["matrix"]["nodes"], document["matrix"]["engine"]) == ([2], ["vllm"])
    found = parameters(document)["environment"]
    assert found == [{"MODEL": "org/a", "VLLM_X": "1", "HF_TOKEN": None}]
    assert "POD_IP=$(POD_IP): its value stands elsewhere; write it" in named
    assert "containers web: it starts no engine that is known" in named
    assert "kind: Service: it starts no engine that is known" in named
    assert any(one.startswith("resources: ") for one in named)


def test_a_container_has_its_variables_in_the_text_of_its_shell(imported):
    text = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: a
      image: image
      command: [sh, -c]
      args: ["sleep 1; llama-server -m $FILE -b $(BATCH)"]
      env: [{name: FILE, value: /m/a.gguf}, {name: BATCH, value: "64"}]
"""
    document, _ = imported(text, "pod.yml")
    assert document["models"] == {"a": {"path": "/m/a.gguf"}}
    assert parameters(document)["n_batch"] == [64]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: nginx}]}\n",
            "Kubernetes",
        ),
        (f"- hosts: all\n  tasks:\n    - command: {BENCH}\n", "a playbook of Ansible"),
        ("a: 1\n---\n- 2\n", "no recipe of sparkrun"),
    ],
)
def test_a_file_without_a_recipe_is_called_what_it_is(refused, text, what):
    if what == "no recipe of sparkrun":
        text = text.replace("a: 1", "[1]")
    assert what in refused(text, "file.yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("services: {}\n", "none of its services starts an engine"),
        ("services: [1]\nmodel_list: []\n", "services 0 is 1, expected a table"),
        ("services:\n  a: {environment: x, command: vllm}\n", "a: environment is 'x', expected"),
        ("models: {a: {cmd: vllm}}\nmacros: 3\n", "a: macros is 3, expected names with values"),
    ],
)
def test_a_key_of_another_type_than_its_own_is_named(refused, text, problem):
    assert problem in refused(text, "own.yaml")


def test_a_line_of_a_sentence_is_one_of_the_file(refused):
    text = (
        "services:\n  a:\n    image: i\n    command: vllm serve org/a -tp 2\n"
        "  b:\n    image: i\n    command:\n      - bash\n      - -c\n      - |\n"
        "        cd /srv\n        vllm serve org/b --max-model-len $(n)\n"
    )
    assert "line 12 has an expansion: 'vllm serve org/b" in refused(text, "compose.yaml")
    text = "[Unit]\nA=1\n\n[Service]\nExecStart=/usr/bin/llama-server \\\n  -m ${MODEL}\n"
    assert "line 5 has an expansion" in refused(text, "a.service")
    text = "ls\npodman run image \\\n  bash -c 'cd /srv\n  vllm serve org/a -tp $N'\n"
    assert refused(text).startswith("line 4 has an expansion: 'vllm serve org/a")


def test_lines_that_go_on_within_a_script_of_yaml_are_one_command(imported):
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai:v9\n    entrypoint: [bash, -c]\n"
        "    command:\n      - |\n        ray start --head &&\n        vllm serve org/a \\\n"
        "          -tp 3 \\\n          --max-model-len 4096\n"
        "  b:\n    image: vllm/vllm-openai:v9\n    entrypoint: [bash, -c]\n"
        "    command: [ray start --address=a --block]\n"
    )
    document, named = imported(text, "compose.yaml")
    assert (document["matrix"]["nodes"], parameters(document)["max_model_len"]) == ([3], [4096])
    assert "include" not in document
    assert any(one.startswith("services b") for one in named)


def test_two_signs_in_a_compose_file_are_the_containers_variable(imported, refused):
    text = (
        "services:\n  a:\n    image: i\n    environment: {N: 2}\n"
        "    command: sh -c 'vllm serve org/a -tp $$N'\n"
    )
    assert imported(text, "compose.yaml")[0]["matrix"]["nodes"] == [2]
    assert "line 5 has an expansion" in refused(text.replace("$$", "$"), "compose.yaml")


def test_a_units_own_variables_stand_in_what_it_starts(imported):
    text = (
        '[Service]\nEnvironment="M=/m/a.gguf" "N=2 "\nEnvironment=GGML_A=1\n'
        "ExecStart=llama-server -m ${M} -np $N --alias x\n"
    )
    document, _ = imported(text, "a.service")
    assert document["models"] == {"a": {"path": "/m/a.gguf"}}
    assert parameters(document)["concurrency"] == [2]
    assert parameters(document)["environment"][0]["GGML_A"] == "1"


FENCES = """\
First the variables:

```sh
# .env
FILE=/m/a.gguf
export BATCH="64"
HF_TOKEN=hf_abcdefgh
```

~~~yaml
services:
  a:
    image: ghcr.io/ggml-org/llama.cpp:server
    environment: {HF_TOKEN: "${HF_TOKEN}"}
    command: -m ${FILE} -b $BATCH -np ${SLOTS:-3}
~~~

Then measure, it's easy:

```
llama-bench -m /m/b.gguf
```
"""


def test_fences_of_a_page_are_read_by_what_they_are(imported):
    document, named = imported(FENCES, "page.md")
    assert [*document["models"]] == ["a", "b"]
    found = parameters(document)
    assert (found["n_batch"], found["concurrency"]) == ([64], [3])
    assert found["environment"] == [{"HF_TOKEN": None}]
    assert "hf_abcdefgh" not in str(named)


def test_a_unit_and_a_manifest_in_fences_are_read(imported):
    text = f"# A\n```ini\n[Service]\nExecStart={BENCH}\n```\n```yaml\n{POD}```\n"
    document, _ = imported(text, "page.md")
    assert [*document["models"]] == ["a", "a-2"]


@pytest.mark.parametrize(
    "text",
    [
        '$env:A = "1"\n$m = "/m/a.gguf"\n& "/b/llama-bench.exe" `\n  -m $m `\n  -b 64\n',
        "$env:A=1\n$batch = '64'\n& llama-bench -m /m/a.gguf -b $batch | Tee-Object -FilePath x\n",
        "$Env:A = '1'\n.\\llama-bench.exe -m /m/a.gguf -b 64 | Out-Null\n".replace("Env", "env"),
        '@echo off\r\nset A=1\r\nset "M=/m/a.gguf"\r\nllama-bench ^\r\n -m %M% ^\r\n -b 64\r\n',
        "set A=1\nset D=/m\nset M=%D%\\a.gguf\nllama-bench -m %M% -b 64\n",
        'SET A=1\nSET B=64\nllama-bench.exe -m "/m/a.gguf" -b %B%\n',
    ],
)
def test_variables_of_the_shells_of_windows_have_their_values(imported, text):
    document, _ = imported(text, "run.cmd")
    assert document["models"] == {"a": {"path": "/m/a.gguf"}}
    found = parameters(document)
    assert (found["n_batch"], found["environment"]) == ([64], [{"A": "1"}])


def test_a_variable_of_cmd_that_nobody_sets_is_no_path(refused):
    assert refused("llama-bench -m %HOME%/a.gguf").startswith("line 1 has an expansion")


@pytest.mark.parametrize("prompt", ["node1$ ", "node-1:~/m$ ", "box# ", "[me@box m]$ "])
def test_a_prompt_without_a_user_is_one(imported, prompt):
    document, _ = imported(f"{prompt}{BENCH}\n")
    assert parameters(document)["n_batch"] == [64]


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("nix run github:ggml-org/llama.cpp -- -m /m/a.gguf -b 64", "llama.cpp"),
        ("nix run --impure github:ggml-org/llama.cpp/b9#cuda -- -m /m/a.gguf -b 64", "llama.cpp"),
        ("nix run github:ggml-org/llama.cpp#llama-server -- -m /m/a.gguf -b 64", "llama.cpp"),
        ("nix shell github:ggml-org/llama.cpp -c llama-server -m /m/a.gguf -b 64", "llama.cpp"),
    ],
)
def test_a_flake_of_an_engines_project_is_its_program(imported, command, engine):
    document, _ = imported(command)
    assert document["matrix"]["engine"] == [engine]
    assert parameters(document)["n_batch"] == [64]


@pytest.mark.parametrize("flag", ["-kvu", "--kv-unified"])
def test_slots_with_one_context_share_it(imported, flag):
    document, named = imported(f"llama-server -m /m/a.gguf -c 8192 -np 4 {flag}")
    assert parameters(document)["depth"] == [8192 - 128 - 64]
    assert any("the context that all slots share" in one for one in named)


def test_the_whole_context_of_a_model_is_no_depth(imported):
    document, named = imported("llama-server -m /m/a.gguf --ctx-size 0")
    assert "depth" not in parameters(document)
    assert any(one.startswith("--ctx-size 0: it is the model's whole context") for one in named)


def test_what_is_named_is_written_so_in_the_file(imported):
    text = (
        "services:\n  a:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    environment:\n"
        "      {LLAMA_ARG_MODEL: /m/a.gguf, LLAMA_ARG_CTX_SIZE: 8192, LLAMA_ARG_N_GPU_LAYERS: 9}\n"
    )
    _, named = imported(text, "compose.yaml")
    assert any(one.startswith("LLAMA_ARG_CTX_SIZE=8192: read as depth 8000") for one in named)
    assert any(one.startswith("LLAMA_ARG_N_GPU_LAYERS=9: ") for one in named)
    text = "models:\n  a:\n    cmd: llama-server -m /m/a.gguf --port ${PORT}\n"
    assert "--port ...: the driver asks it" in imported(text, "swap.yaml")[1]


def test_a_number_of_requests_that_the_driver_chose_is_named(imported):
    document, named = imported("llama-server -m /m/a.gguf -np 2")
    chosen = parameters(document)["requests"][0]
    sentence = f"the recipe has none; requests {chosen} is the driver's choice"
    assert f"a number of requests: {sentence}" in named
