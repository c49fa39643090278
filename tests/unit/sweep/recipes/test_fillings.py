"""Values that a template, a range or another shell has in a recipe: taken, or refused by name."""

import pytest

from nixwulf.sweep.plan import MOST_POINTS

VLLM = "vllm serve org/model"


def parameters(imported, text, name="recipe.txt"):
    return imported(text, name)[0]["matrix"]["parameters"]


# no output: flags of vLLM's parser
@pytest.mark.parametrize(
    "words",
    [
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 5",
        "--speculative_config.method=ngram -sc.num_speculative_tokens=5",
        "-sc.num_speculative_tokens 5 -tp 1 -sc.method ngram",
        '-sc \'{"method": "mtp"}\' -sc.method ngram -sc.num_speculative_tokens \'"5"\'',
    ],
)
def test_dotted_flags_of_a_draft_are_its_json(imported, words):
    given = parameters(imported, f"{VLLM} {words}")
    assert (given["draft"], given["draft_tokens"]) == (["ngram"], [5])
    assert "arguments" not in given


def test_dotted_flags_keep_their_types_and_others_stay_as_they_are(imported):
    # no output: a command
    words = "-sc.method eagle3 -sc.model org/head -sc.x.y true -sc.z+ a,b -cc.mode 3"
    document, _ = imported(f"{VLLM} {words}")
    given = document["matrix"]["parameters"]
    assert given["draft"] == [
        {"method": "eagle3", "model": "head", "x": {"y": True}, "z": ["a", "b"]}
    ]
    assert given["arguments"] == ["-cc.mode 3"]


# no output: what one writes for values that somebody else fills
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("llama-server -m {{model}}", "{{model}}"),
        ("llama-server -m /m/{{ name }}.gguf", "{{ name }}"),
        ("llama-server -m {{ .Values.model | quote }} -ub 512", "{{ .Values.model | quote }}"),
        ('llama-server -m "${{ inputs.model }}"', "${{ inputs.model }}"),
        ("llama-server -m <path to model>.gguf -ub 512", "<path to model>"),
        ("llama-server -m '<model>'", "<model>"),
        (f"{VLLM} -tp <N>", "<N>"),
        (f"{VLLM} --quantization <QUANT>", "<QUANT>"),
        ("vllm serve <org/model> --max-model-len 8192", "<org/model>"),
        ("vllm serve YOUR_MODEL_HERE", "YOUR_MODEL_HERE"),
        ("vllm serve @serverArgs", "@serverArgs"),
        ("llama-server -m /a.gguf `\n  @rest", "@rest"),
        (f"FOO={{{{ foo }}}} {VLLM}", "{{ foo }}"),
        ("model := other()\nserve model:\n  llama-server -m {{model}}", "{{model}}"),
    ],
)
def test_a_placeholder_is_refused_by_what_it_is(refused, command, shown):
    sentence = refused(command)
    assert f"'{shown}' stands for a value that the recipe does not have" in sentence
    assert sentence.endswith("; write the value there.")


def test_a_variable_of_cmd_without_a_value_is_refused_as_it_is_written(refused):
    assert "'llama-server -m %MODEL%'" in refused("@echo off\nllama-server -m %MODEL%\n")


def test_a_placeholder_of_what_the_driver_sets_and_texts_of_a_model_stay(imported):
    # no output: a command
    words = "--host <ip> --api-key <key> --reasoning-end-str '<think>' --chat-template '{{ x }}'"
    given = parameters(imported, f"{VLLM} {words}")
    assert given["arguments"] == ["--reasoning-end-str '<think>' --chat-template '{{ x }}'"]


# no output: justfiles
@pytest.mark.parametrize(
    ("text", "models"),
    [
        ('model := "/m/a.gguf"\n\nserve:\n    llama-server -m {{model}}\n', ["/m/a.gguf"]),
        ("serve:\n    @llama-server -m '{{ the-model }}' -ub 8\nthe-model := '/a'\n", ["/a"]),
        ('serve m="/m/a.gguf" n="2":\n    llama-server -m {{m}} -np {{n}}\n', ["/m/a.gguf"]),
        (
            'm := "/a"\none m="/b" $n="1": two\n  llama-cli -m {{m}}\ntwo:\n  llama-cli -m {{m}}\n',
            ["/b", "/a"],
        ),
    ],
)
def test_a_justfile_has_the_values_of_its_variables_and_parameters(imported, text, models):
    document, _ = imported(text, "justfile")
    assert [one["path"] for one in document["models"].values()] == models


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_script_of_powershell_goes_on_behind_a_backtick(imported, end):
    # no output: a script
    lines = ['$env:FOO = "1"', r".\llama-server.exe `", r"  -m C:\m\a.gguf `", "  -ub 512", ""]
    document, _ = imported(end.join(lines), "serve.ps1")
    assert document["models"]["a"] == {"path": "/C:/m/a.gguf"}
    assert document["matrix"]["parameters"] == {"n_ubatch": [512], "environment": [{"FOO": "1"}]}


# no output: sentences
@pytest.mark.parametrize(
    "sentence",
    [
        "Then run `{}` on the head.",
        "- start it with ``$ {}``, then ask",
        "| head | `{}` | and `curl x` |",
        "See `x` there\nand `{}\n--max-num-seqs 4` here.",
        "Then <code>{}</code> is it.",
        "Not `vllm serve`, nor `vllm serve <model>`, nor `vllm serve MODEL`: `sudo {}`",
    ],
)
def test_a_command_in_a_sentence_is_read(imported, sentence):
    document, _ = imported(f"# A page\n\n{sentence.format(f'{VLLM} -tp 2')}\nIt is fast.\n")
    assert document["matrix"]["nodes"] == [2]
    assert "include" not in document


def test_two_commands_in_a_sentence_are_two_and_a_worker_is_none(imported):
    # no output: a sentence
    ranks = [f"`{VLLM} -tp 2 --nnodes 2 --node-rank {n} --master-addr $HEAD:1`" for n in (0, 1)]
    document, named = imported(f"Head: {ranks[0]}, then {ranks[1]}, or `llama-cli -m /a.gguf`.\n")
    assert [one["engine"] for one in document["include"]] == [["llama.cpp"]]
    assert any("the driver starts the other nodes" in one for one in named)


def test_a_placeholder_in_a_list_of_a_manifest_is_refused_by_what_it_is(refused):
    # no output: a manifest
    text = 'services:\n  a:\n    image: llama.cpp:server\n    command: ["-m", "{{ .Values.x }}"]\n'
    assert "'{{ .Values.x }}' stands for a value" in refused(text, "compose.yaml")


def test_a_command_in_a_comment_and_a_mention_are_no_case(imported):
    # no output: a script
    text = f"# or `{VLLM}`\nSee `llama-server --jinja`.\nllama-server -m /a.gguf\n"
    document, _ = imported(text)
    assert (list(document["models"]), "include" in document) == (["a"], False)


# no output: ranges as in https://github.com/ggml-org/llama.cpp/tree/master/tools/llama-bench
@pytest.mark.parametrize(
    ("words", "key", "values"),
    [
        ("-n 16-64+16", "n_gen", [16, 32, 48, 64]),
        ("-p 512-2048*2", "n_prompt", [512, 1024, 2048]),
        ("-p 512-2000*2,7", "n_prompt", [512, 1024, 7]),
        ("-d 0-8192+4096", "depth", [0, 4096, 8192]),
        ("-t 4-6", "threads", [4, 5, 6]),
        ("-ub 256-512+256", "n_ubatch", [256, 512]),
    ],
)
def test_a_range_of_llama_bench_is_its_values(imported, words, key, values):
    assert parameters(imported, f"llama-bench -m /a.gguf {words}")[key] == values


# no output: flags whose values nobody can read
@pytest.mark.parametrize(
    "command",
    [
        "llama-bench -m /a.gguf -n 64-16",
        "llama-bench -m /a.gguf -n 0-64*2",
        "llama-bench -m /a.gguf -n 16..64",
        f"llama-bench -m /a.gguf -n 1-{MOST_POINTS + 1}",
        "llama-bench -m /a.gguf -r 3-5",
        "llama-bench -m /a.gguf -ctk q9",
        "llama-server -m /a.gguf -lm fast",
        "llama-server -m /a.gguf -md /d.gguf --draft-max many",
        f"{VLLM} --max-num-seqs 8x",
        f"{VLLM} --gpu-memory-utilization 90%",
        f"{VLLM} --gpu-memory-utilization auto",
        f"{VLLM} --dtype fp4",
        f"{VLLM} --speculative-config '[1]'",
        f"{VLLM} --speculative-config '{{}}'",
        f"{VLLM} -sc.method ngram -sc.num_speculative_tokens five",
    ],
)
def test_a_value_that_cannot_be_read_is_never_the_default(refused, command):
    sentence = refused(command)
    assert sentence.startswith("line 1: -")
    assert sentence.endswith("; write another value, or leave it out.")


def test_an_expression_of_a_shell_is_never_the_default(refused):
    assert "-c $((4*1024))" in refused("llama-server -m /a.gguf -c $((4*1024))")


def test_servers_and_drafts_by_their_other_names(imported):
    # no output: commands
    assert imported("llama-bench -m /a.gguf -rpc a:1,b:1")[0]["matrix"]["nodes"] == [3]
    given = parameters(imported, "llama-server -m /a.gguf -hfd org/d-GGUF:Q8_0")
    assert given["draft"] == ["/models/d-GGUF-Q8_0.gguf"]


@pytest.mark.parametrize("head", ["", "Environment=FOO=1\n", "In my unit:\n\n"])
def test_a_line_of_a_unit_without_its_head_is_its_command(imported, head):
    # no output: a line of a unit
    line = "ExecStart=-/usr/bin/podman run --rm docker.io/vllm/vllm-openai --model org/model"
    document, _ = imported(f"{head}{line} \\\n  --max-num-seqs 4\n", "line.service")
    given = document["matrix"]["parameters"]
    assert given["max_num_seqs"] == [4]
    assert given.get("environment", [{}]) == [{"FOO": "1"} if "FOO" in head else {}]


def test_a_wrapper_behind_a_plain_one_and_lines_for_a_queue_are_named(imported):
    # no output: a job
    text = f"#!/bin/bash\n#SBATCH --nodes=2\nnohup distrobox enter box -- {VLLM}\n"
    _, named = imported(text)
    assert any(one.startswith("distrobox enter box: ") for one in named)
    assert any(one.startswith("#SBATCH --nodes=2: ") for one in named)


def test_a_model_that_is_given_beside_a_recipe_fills_its_placeholder(imported):
    # no output: commands
    for command in ("vllm serve <model>", "llama-server -m {{model}}", "sglang serve --model <m>"):
        document, _ = imported(command, model="/m/own.gguf")
        assert list(document["models"].values()) == [{"path": "/m/own.gguf"}]
