"""Recipes: what each flag becomes, what is left out with its reason, and what is refused."""

import shlex
import textwrap

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.sweep.plan import parse_sweep
from nixwulf.sweep.recipes.as_sweep import read_recipes, sweep_text
from nixwulf.sweep.recipes.command_lines import ShellError, commands, tables

# no output: a recipe of sparkrun's form
SPARKRUN = """\
model: org/model
container: image
defaults:
  port: 8000
  tensor_parallel: 2
command: |
  vllm serve {model} \\
    --port {port} \\
    -tp {tensor_parallel}
"""


def judged(path):
    """The sweep of a file, or None where one sentence refuses it."""
    try:
        found = sweep_text(read_recipes(path), path.stem, str(path))
    except InputError as refusal:
        sentence = refusal.format_message()
    else:
        return parse_sweep(yaml.safe_load(found), str(path))
    assert len(sentence.splitlines()) == 1
    return None


@pytest.mark.parametrize(
    ("words", "key", "values"),
    [
        ("-np 4", "concurrency", [4]),
        ("--parallel=4", "concurrency", [4]),
        ("-b 1024", "n_batch", [1024]),
        ("--ubatch-size 256", "n_ubatch", [256]),
        ("-ctk q8_0", "type_k", ["q8_0"]),
        ("-ctv q4_0", "type_v", ["q4_0"]),
        ("-fa", "flash_attn", ["on"]),
        ("-fa 0", "flash_attn", ["off"]),
        ("--flash-attn auto", "flash_attn", ["auto"]),
        ("--no-mmap", "load", ["none"]),
        ("-lm dio", "load", ["dio"]),
        ("-t 8", "threads", [8]),
        ("-n 256", "n_gen", [256]),
        ("-ngl 0", "backend", ["cpu"]),
        ("--jinja -ot 'exps=CPU'", "arguments", ["--jinja -ot exps=CPU"]),
    ],
)
def test_a_flag_of_llama_server_is_a_parameter_or_an_argument(imported, words, key, values):
    document, _ = imported(f"llama-server -m /models/a.gguf {words}")
    assert document["matrix"]["parameters"][key] == values


@pytest.mark.parametrize(
    ("words", "key", "values"),
    [
        ("--gpu-memory-utilization 0.85", "gpu_memory_percent", [85]),
        ("--gpu-memory-util 0.85", "gpu_memory_percent", [85]),
        ("--gpu_memory_utilization=0.85", "gpu_memory_percent", [85]),
        ("--max-model-len 32k", "max_model_len", [32_000]),
        ("--max-model-len 32K", "max_model_len", [32_768]),
        ("--dtype half", "dtype", ["float16"]),
        ("--enforce-eager", "eager", [True]),
        ("--trust-remote-code", "eager", [False]),
        ("--kv-cache-dtype fp8", "arguments", ["--kv-cache-dtype fp8"]),
        (
            "-cc.mode 0 --hf-overrides '{}'",
            "arguments",
            ["-cc.mode 0 --hf-overrides '{}'"],
        ),
    ],
)
def test_a_flag_of_vllm_is_a_parameter_or_an_argument(imported, words, key, values):
    document, _ = imported(f"vllm serve org/model {words}")
    assert document["matrix"]["parameters"][key] == values


@pytest.mark.parametrize(
    ("words", "nodes", "parallelism"),
    [
        ("vllm serve org/model -tp 2", 2, "tensor"),
        ("vllm serve org/model -tp 1 -pp 3", 3, "pipeline"),
        ("vllm serve org/model -dp 4", 4, "replicas"),
        ("vllm serve org/model", 1, "single"),
        ("llama-server -m /a.gguf --rpc 10.0.0.2:50052,10.0.0.3:50052", 3, "pipeline"),
        ("llama-server -m /a.gguf --rpc 10.0.0.2:50052 -sm tensor", 2, "tensor"),
        ("llama-bench -m /a.gguf --rpc 10.0.0.2:50052,10.0.0.3:50052", 3, "pipeline"),
    ],
)
def test_gpus_and_peers_are_nodes(imported, words, nodes, parallelism):
    matrix = imported(words)[0]["matrix"]
    assert (matrix["nodes"], matrix["parallelism"]) == ([nodes], [parallelism])


def test_lists_of_llama_bench_are_axes_and_what_it_measures_by_itself_stays_so(imported):
    document, _ = imported("llama-bench -m /a.gguf -p 512,2048 -d 0 -d 4096 -r 3")
    parameters = document["matrix"]["parameters"]
    assert (parameters["n_prompt"], parameters["depth"]) == ([512, 2048], [0, 4096])
    assert (parameters["n_gen"], document["samples"]) == ([128], 3)
    assert imported("llama-bench -m /a.gguf")[0]["samples"] == 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "-c 8192",
            "-c 8192: read as depth 8000: a slot's context without prompt and answer",
        ),
        ("--port 8000", "--port 8000: the driver asks it"),
        ("-ngl 99", "-ngl 99: all layers are always on the GPU"),
        ("-ts 1,1", "split even: it is of one node"),
        (
            "-ts 2,1",
            "-ts 2,1: the parameter split shares out evenly, or by memory or bandwidth",
        ),
        ("-np -1", "-np -1: the engine chooses it"),
        ("-sm layer", "a split by pipeline: it is of one node, which splits nothing"),
        ("--seed -1", "--seed -1: the engine chooses it"),
        (
            "-p 'a few words' --color on",
            "--color on: requests are the benchmark's, and nobody types",
        ),
    ],
)
def test_what_no_sweep_has_is_named_with_its_reason(imported, words, sentence):
    document, named = imported(f"llama-server -m /a.gguf {words}")
    assert sentence in named
    assert "arguments" not in document["matrix"].get("parameters", {})


def test_a_secret_is_in_no_sweep_and_in_no_sentence(imported):
    key = "ghp_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    words = f"HF_TOKEN=hf_aaaa GH={key} llama-server -m /a.gguf --api-key sk-bbbb"
    document, named = imported(f"export OTHER_TOKEN\n{words}")
    assert document["matrix"]["parameters"]["environment"] == [
        {"OTHER_TOKEN": None, "HF_TOKEN": None, "GH": None}
    ]
    printed = yaml.safe_dump(document) + "\n".join(named)
    assert "hf_aaaa" not in printed
    assert key not in printed
    assert "sk-bbbb" not in printed
    assert "--api-key ...: the driver asks it" in named


@pytest.mark.parametrize(
    "around",
    [
        'docker run --env "HF_TOKEN=hf_aaaa" image llama-server -m /a.gguf',
        "curl --api-key hf_aaaa x\nllama-server -m /a.gguf",
        "export HF_TOKEN=hf_aaaa; x\nllama-server -m /a.gguf",
        "curl -H 'Authorization: Bearer hf_aaaabbbbccccddddeeeeffff' x\nllama-server -m /a.gguf",
    ],
)
def test_a_secret_of_what_stands_around_a_command_is_in_no_sentence(imported, around):
    document, named = imported(around)
    assert "hf_aaaa" not in yaml.safe_dump(document) + "\n".join(named)
    assert any("..." in one for one in named)


def test_a_list_of_which_a_part_has_no_key_is_named_whole(imported):
    document, named = imported("llama-bench -m /a.gguf -ngl 99,0 -fa 0,1")
    assert "backend" not in document["matrix"]["parameters"]
    assert document["matrix"]["parameters"]["flash_attn"] == ["off", "on"]
    assert any(one.startswith("-ngl 99,0: ") for one in named)


def test_variables_that_the_driver_sets_are_named_and_others_stay(imported):
    words = "NCCL_DEBUG=INFO VLLM_USE_V1=1 vllm serve org/model -tp 2"
    document, named = imported(words)
    assert document["matrix"]["parameters"]["environment"] == [{"VLLM_USE_V1": "1"}]
    assert any(one.startswith("NCCL_DEBUG: ") for one in named)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("llama-server -m /m/a.gguf", {"path": "/m/a.gguf"}),
        ("llama-server -m models/a.gguf", {"path": "/models/a.gguf"}),
        ("llama-server -m ~/a.gguf", {"path": "/a.gguf"}),
        (
            "llama-server -hf org/a-GGUF:Q4_K_M",
            {"path": "/models/a-GGUF-Q4_K_M.gguf", "hub": "org/a-GGUF"},
        ),
        ("vllm serve org/a", {"id": "org/a"}),
        ("vllm serve --model org/a", {"id": "org/a"}),
        ("vllm serve /m/a", {"path": "/m/a"}),
        ("python3 -m vllm.entrypoints.openai.api_server --model org/a", {"id": "org/a"}),
    ],
)
def test_a_model_is_by_path_or_by_name(imported, words, model):
    document, named = imported(words)
    assert list(document["models"].values()) == [model]
    told = [one for one in named if model.get("path", "-") in one]
    assert bool(told) == ("path" in model and model["path"] not in words.split())


def test_a_long_list_of_values_or_flags_takes_no_long(imported):
    numbers = ",".join(map(str, range(1, 9000)))
    document, _ = imported(f"llama-bench -m /a.gguf -ub {numbers} {'-x ' * 5000}")
    assert len(document["matrix"]["parameters"]["n_ubatch"]) == 8999


def test_a_bare_name_is_no_model_of_an_engine_that_takes_names(refused):
    assert refused("vllm serve gpt2").startswith("line 1: the model 'gpt2' is no ORG/NAME")


def test_several_commands_are_blocks_of_one_sweep(imported):
    text = """\
    # the first
    ```sh
    $ llama-bench -m /a.gguf -r 2
    $ /usr/bin/llama-server -m /b/a.gguf \\
        -np 2
    $ toolbox run -c llama-vulkan -- llama-bench -m /a.gguf -p 1024 -r 4
    ```
    """
    document, named = imported(textwrap.dedent(text))
    blocks = [document["matrix"], *document["include"]]
    assert [block["model"] for block in blocks] == [["a"], ["a-2"], ["a"]]
    assert [block["benchmark"] for block in blocks] == [["llama-bench"], ["serve"], ["llama-bench"]]
    assert document["samples"] == 2
    assert "samples 4: all cases of a sweep have one, 2" in named
    assert any(one.startswith("toolbox run -c llama-vulkan: ") for one in named)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("llama-server -m /a.gguf; rm -rf /", 1, "a second command"),
        ("llama-server -m /a.gguf & true", 1, "a second command"),
        ("llama-server \\\n -m /a.gguf | sh", 2, "a pipe"),
        ("llama-server -m /a.gguf < log", 1, "a redirection"),
        ("llama-server -m $MODEL", 1, "an expansion"),
        ("llama-server -m /a.gguf -t $(nproc)", 1, "an expansion"),
        ('llama-server -m "/a\n$(id).gguf"', 2, "an expansion"),
        ("llama-server -m `ls`", 1, "a command in a command"),
        ("(llama-server -m /a.gguf)", 1, "a subshell"),
        ("llama-server -m /a.gguf --alias 'x", 1, "a quote (') that is not closed"),
    ],
)
def test_a_shells_work_is_refused_with_the_line(refused, text, line, what):
    shown = text.splitlines()[line - 1].strip()
    sentence = refused(text)
    assert sentence.startswith(f"line {line} has {what}: ")
    assert repr(shown)[1:-1] in sentence or repr(shown)[1:-1].replace("\\", "") in sentence
    assert "a recipe is never given to a shell" in sentence


def test_quotes_are_a_shells_and_what_is_in_single_ones_is_text():
    (found,) = commands("a 'b $c' \"d \\\" \\\\ e\" f\\ g 'h'i # j\n")
    assert found.words == ("a", "b $c", 'd " \\ e', "f g", "hi")
    with pytest.raises(ShellError):
        commands('a "$b"')


def test_a_template_is_filled_of_its_own_defaults(imported):
    document, named = imported(SPARKRUN, "recipe.yaml")
    matrix = document["matrix"]
    assert (matrix["engine"], matrix["nodes"]) == (["vllm"], [2])
    assert named == [
        "container: 'image': the parameter toolbox takes an image, else the engine on PATH of each "
        "node",
        "--port 8000: the driver starts it and asks it",
    ]


def test_without_a_command_it_is_made_of_the_defaults_for_the_runtime(imported):
    # no output: a recipe
    text = (
        "model: org/a-GGUF:Q8_0\nruntime: llama-cpp\ndefaults: {ctx_size: 8192, n_gpu_layers: 99}\n"
    )
    document, named = imported(text, "recipe.yaml")
    assert document["matrix"]["engine"] == ["llama.cpp"]
    assert any(one.startswith("--ctx-size 8192: read as depth 8000: ") for one in named)
    # no output: a recipe
    text = "model: org/a\nruntime: vllm\ndefaults: {tensor_parallel: 2, max_model_len: 4096}\n"
    matrix = imported(text, "recipe.yaml")[0]["matrix"]
    assert (matrix["nodes"], matrix["parameters"]["max_model_len"]) == ([2], [4096])


def test_in_the_first_version_two_braces_are_one(imported):
    # no output: a recipe
    text = SPARKRUN.replace("-tp", "--hf-overrides '{{\"n\":{port}}}' -tp")
    text = f'recipe_version: "1"\n{text}'
    document, _ = imported(text, "recipe.yaml")
    assert document["matrix"]["parameters"]["arguments"] == ["""--hf-overrides '{"n":8000}'"""]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("{port}", "{ports}", "line 6: the command has {ports}; defaults have: port, "),
        ("{port}", "$PORT", "line 8 has an expansion: '--port $PORT \\\\'"),
        ("port: 8000", "port: 1; id", "line 6 has a second command: '--port 1; id"),
        (
            "port: 8000",
            "port: '{port}{port}{port}'",
            "line 6: values of defaults have placeholders without end",
        ),
        ("model: org", "env: {A: $HOME/x}\nmodel: org", "line 7: '$HOME/x' is for a shell"),
        ("model: org", "env: {A: true}\nmodel: org", "environment has A: True; quote it"),
        ("model: org", "env: [A]\nmodel: org", "env is ['A'], expected names with values."),
        ("vllm serve", "trtllm-serve", "line 6: the command begins with 'trtllm-serve"),
        ("-tp", "-pp 2 -tp", "line 6: it splits the model in two ways at once, pipeline 2"),
    ],
)
def test_a_recipe_that_no_sweep_can_say_is_refused(refused, old, new, sentence):
    assert sentence in refused(SPARKRUN.replace(old, new), "recipe.yaml")


def test_a_value_that_grows_without_end_is_refused(refused):
    text = SPARKRUN.replace("port: 8000", f"port: '{'{port}' * 400}'")
    assert "longer than 64 KiB" in refused(text, "recipe.yaml")


def test_an_engine_that_this_version_lacks_is_a_sentence(refused, monkeypatch):
    monkeypatch.setattr(engines, "all_engines", lambda: {"other": None})
    assert refused("vllm serve org/a") == "line 1: unknown engine 'vllm'; known: other."


def test_each_table_names_parameters_that_are_there_and_no_flag_twice():
    for table in tables():
        for line in table.commands:
            engine = engines.all_engines().get(line.engine)
            if engine is None:
                continue
            known = {*engine.parameters, *benchmarks.find(line.benchmark).parameters}
            known |= {
                *speculation.PARAMETERS,
                "model",
                "hub",
                "nodes",
                "parallelism",
                "transport",
                "served",
                "tokenizer",
                "seed",
                "samples",
                "warm_up",
                "",
            }
            # A draft's keys are its own, and the engine's.
            keys = {flag.key for flag in line.flags.values() if flag.reads != "draft"}
            assert keys <= known
            assert {*line.otherwise, *line.otherwise_on_several} <= known


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(engines.all_engines()))
def test_a_flag_that_the_driver_sets_is_in_no_argument(name, recipe):
    engine = engines.find(name)
    lines = [line for table in tables() for line in table.commands if line.engine == name]
    flags = [flag for group in engine.reserved_arguments for flag in group.split()]
    model = "/m/a.gguf" if engine.model_suffixes else "org/a"
    for line in lines:
        models = [f for f, known in line.flags.items() if known.key in ("model", "served")]
        own = next(flag for flag in models if line.flags[flag].reads != "draft")
        for flag in flags:
            found = [
                judged(recipe(f"{line.begins[0]} {words} {own} {model}"))
                for words in (f"{flag} 2", f"{flag}=2", flag)
            ]
            known = line.flag(flag)
            assert any(found) or (known and known.key)
            for sweep in filter(None, found):
                given = sweep.blocks[0].get("parameters", {}).get("arguments", [""])[0]
                assert (
                    passthrough.problem({"arguments": given}, engine.reserved_arguments, {}) is None
                )
                assert flag not in given.split()


# Of each: programs, flags, values that are odd, and a shell's signs.
WORDS = st.lists(
    st.sampled_from(
        [
            *(
                "vllm serve",
                "llama-server",
                "llama-bench",
                "toolbox run --",
                "env",
                "export",
                "A=1",
            ),
            *(flag for table in tables() for line in table.commands for flag in line.flags),
            *("--port", "--jinja", "-1", "2", "1,2", "0.5", "auto", "org/model", "/a.gguf", "''"),
            *("'{\"a\": 1}'", "~/x", "#", "\\\n", "\n", "$X", ";", '"', "=", "--", "-", "{port}"),
        ]
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
def test_any_command_is_a_sweep_or_one_sentence(tmp_path, words):
    path = tmp_path / "recipe.txt"
    path.write_text(" ".join(words))
    judged(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text_is_a_sweep_or_one_sentence(tmp_path, text):
    for name in ("recipe.txt", "recipe.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        judged(tmp_path / name)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    document=st.dictionaries(
        st.sampled_from(
            [
                *("model", "command", "defaults", "env", "runtime", "recipe_version", "metadata"),
                *("features", "variants", "opt_in_features", "max-model-len", "port", "container"),
            ]
        ),
        st.one_of(
            VALUES,
            WORDS.map(" ".join),
            st.just({"model_id": "org/a", "base_args": ["-tp", "2"]}),
            st.dictionaries(st.sampled_from(["port", "default", "A"]), VALUES, max_size=3),
        ),
    )
)
@example(document={"model": "org/a", "command": "vllm serve {model}", "defaults": None})
@example(document={"model": {"model_id": "org/a", "base_env": []}, "variants": {"default": 1}})
def test_any_document_is_a_sweep_or_one_sentence(tmp_path, document):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(document))
    judged(path)


def test_arguments_are_text_as_in_a_shell(imported):
    document, _ = imported("""llama-server -m /a.gguf --alias 'a "b" c' """)
    (text,) = document["matrix"]["parameters"]["arguments"]
    assert shlex.split(text) == ["--alias", 'a "b" c']
