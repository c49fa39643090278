import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.secrets import is_secret, named_secrets
from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins import engines
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.passthrough import (
    ARGUMENTS,
    ENVIRONMENT,
    active,
    environment,
    environment_text,
    problem,
)
from nixwulf.sweep.plan import make_plan, parse_sweep

NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: not is_secret(name, "x")
)
PRINTABLE = st.text(st.characters(min_codepoint=32, codec="utf-8"))


def plan(engine="llama.cpp", only="", **parameters):
    # no output: a sweep
    document = {
        "name": "flags",
        "models": {"m": {"path": "/models/m.gguf" if engine == "llama.cpp" else "/models/m"}},
        "matrix": {
            "engine": [engine],
            "benchmark": ["serve"],
            "model": ["m"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": parameters,
        },
    }
    return make_plan(parse_sweep(document, "flags.yaml"), load_cluster("dgx-spark-2"), only)


def test_arguments_and_environments_are_axes_and_an_empty_one_is_the_case_of_before():
    (before,) = plan().cases
    cases = plan(
        arguments=["", "--poll 0"], environment=[{}, {"GGML_CUDA_DISABLE_GRAPHS": 1}]
    ).cases
    assert [(c.parameters.get("arguments"), c.parameters.get("environment")) for c in cases] == [
        (None, None),
        (None, "GGML_CUDA_DISABLE_GRAPHS=1"),
        ("--poll 0", None),
        ("--poll 0", "GGML_CUDA_DISABLE_GRAPHS=1"),
    ]
    assert len({case.id for case in cases}) == 4
    assert cases[0] == before


def test_the_same_words_written_otherwise_are_one_case():
    cases = plan(
        arguments=["--poll  0 --name 'a b'", '--poll 0 --name "a b"'],
        environment=[{"B": 2, "A": "x"}, "A=x B=2"],
    ).cases
    assert [case.parameters["arguments"] for case in cases] == ["--poll 0 --name 'a b'"]
    assert [case.parameters["environment"] for case in cases] == ["A=x B=2"]


@given(st.dictionaries(NAMES, PRINTABLE, max_size=4))
def test_an_environment_is_read_back_as_it_was_written(variables):
    text = environment_text(variables, "s.yaml")
    assert environment({"environment": text}) == variables


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"arguments": ["--x 'y"]}, "'arguments' is \"--x 'y\": no closing quotation; close it"),
        ({"arguments": [3]}, "arguments is 3, expected text as in a shell"),
        ({"environment": [{"HF_TOKEN": "hf_abc"}]}, "write 'HF_TOKEN: null' and export HF_TOKEN"),
        ({"environment": [{"A B": "1"}]}, "'A B', which is no variable's name"),
        ({"environment": [{"A": True}]}, 'quote it, as in A: "1"'),
        ({"environment": [{"A": "x\ny"}]}, "A in environment has a control character"),
        ({"environment": ["HF_TOKEN=hf_abc"]}, "write 'HF_TOKEN: null'"),
        ({"environment": [{"PATH": "/x"}]}, "the driver sets PATH itself"),
        ({"environment": [{"GGML_RDMA_DEV": "mlx5_0"}]}, "the driver sets GGML_RDMA_DEV itself"),
    ],
)
def test_what_is_no_argument_or_variable_is_refused_in_a_sentence(given, words):
    with pytest.raises(InputError) as error:
        plan(**given)
    assert words in error.value.message


def test_a_secret_is_taken_from_the_drivers_environment_and_its_name_alone_is_kept(monkeypatch):
    (case,) = plan(environment=[{"HF_TOKEN": None}]).cases
    assert case.parameters["environment"] == "HF_TOKEN"
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_real_one")
    assert environment(case.parameters) == {"HF_TOKEN": "hf_not_a_real_one"}
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(NixwulfError, match=r"run 'export HF_TOKEN=\.\.\.'"):
        environment(case.parameters)


def every_reserved_flag():
    for engine in engines.all_engines().values():
        for flags in engine.reserved_arguments:
            yield from ((engine, flag) for flag in flags.split())


@pytest.mark.parametrize("form", ["{} 1", "{}=1", "--other 2 {} 1", "'{}' 1"])
def test_every_flag_that_the_driver_sets_is_refused_with_what_to_use(form):
    for engine, flag in every_reserved_flag():
        point = {"arguments": form.format(flag)}
        found = passthrough.problem(point, engine.reserved_arguments, {})
        assert found, (engine.name, form.format(flag))
        assert "itself; use " in found


@pytest.mark.parametrize(
    "arguments",
    ["--tensor_parallel_size 2", "--tensor-parallel=2", "-tp=2", "--Tensor-Parallel-Size 2"],
)
def test_vllms_other_spellings_of_a_flag_are_refused(arguments):
    taken = passthrough.problem(
        {"arguments": arguments}, engines.find("vllm").reserved_arguments, {}
    )
    assert (taken is None) == (arguments[2] == "T")  # argparse knows no capital letters


@pytest.mark.parametrize(
    "arguments",
    [
        "--kv-cache-dtype fp8",
        "--compilation-config.level 3",
        "--enable-prefix-caching --max-num-batched-tokens 8192",
        "--attention-backend TRITON_ATTN -O3",
    ],
)
def test_flags_of_recipes_are_passed_on(arguments):
    engine = engines.find("vllm")
    assert passthrough.problem({"arguments": arguments}, engine.reserved_arguments, {}) is None
    assert passthrough.arguments({"arguments": arguments}) == shlex.split(arguments)


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_AUDIT",
        "PYTHONPATH",
        "VLLM_PLUGINS",
        "HTTP_PROXY",
        "https_proxy",
        "BASH_ENV",
    ],
)
def test_a_variable_that_decides_which_code_runs_is_no_sweeps(name):
    parameters = {ENVIRONMENT: f"{name}=x"}
    assert name in (problem(parameters, {}, {}) or "")


@pytest.mark.parametrize(
    "words",
    [
        "--hf-token hf_abcdefghijklmnopqrstuvwxyz01234567",
        "--api-key=sk-secret",
        "--ssl-keyfile-password x",
        "-x ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "--headers 'Authorization: Bearer x'",
        "--headers='X-Api-Key: x'",
        """--extra '{"Cookie": "x"}'""",
        "--header Bearer%20x",
        "--headers.authorization x",
        "--hf-token-value x",
        "--api-key2 x",
    ],
)
def test_a_secret_in_arguments_is_refused_as_in_the_environment(words):
    assert "null" in (problem({ARGUMENTS: words}, {}, {}) or "")


@pytest.mark.parametrize(
    "name",
    ["HF_HUB_TOKEN_VALUE", "MY_SECRETS_JSON", "GITHUB_PAT2", "DB_PASSWORD_PLAIN", "A_TOKENS_B"],
)
def test_the_word_of_a_secret_may_be_anywhere_in_its_name(name):
    with pytest.raises(InputError, match=f"'{name}: null'"):
        environment_text({name: "abc"}, "s.yaml")
    assert named_secrets([f"{name}=abc"], {}) == {"abc"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "512"),
        ("VLLM_TOKEN_POOL", "2"),
        ("TOKENIZERS_PARALLELISM", "x"),
        ("RAY_AUTH_MODE", "token"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/run/t"),
        ("USE_TOKEN_TREE", "true"),
        ("COMPASS_PATH_X", "author"),
    ],
)
def test_what_is_no_secret_keeps_its_value(name, value):
    assert environment_text({name: value}, "s.yaml") == f"{name}={value}"


def test_a_header_in_a_variable_is_a_secret():
    parameters = {ENVIRONMENT: "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20x"}
    assert "OTEL_EXPORTER_OTLP_HEADERS" in (problem(parameters, {}, {}) or "")


def test_a_key_of_a_known_family_is_refused_under_any_name():
    parameters = {ENVIRONMENT: "GH=ghp_0123456789abcdefghijklmnopqrstuvwxyz"}
    assert "GH" in (problem(parameters, {}, {}) or "")


def test_plain_arguments_and_variables_are_handed_on():
    words = "--max-num-seqs 4 --trust-remote-code --n-tokens 5 -ub 512 --token-pool 2"
    words += """ --hf-overrides '{"eos_token": "</s>"}' --speculative-token-map a/b"""
    parameters = {ARGUMENTS: words, ENVIRONMENT: "HSA_OVERRIDE_GFX_VERSION=11.5.1 VLLM_USE_V1=1"}
    assert problem(parameters, {}, {}) is None


def test_what_runs_code_or_takes_what_is_the_users_is_named():
    parameters = {
        ARGUMENTS: "--trust-remote-code --middleware=evil --slot-save-path / --temp 0",
        ENVIRONMENT: "AWS_SECRET_ACCESS_KEY A=1",
    }
    named = active(parameters)
    wanted = ("--trust-remote-code", "--middleware", "--slot-save-path", "AWS_SECRET_ACCESS_KEY")
    assert [one.split()[0].rstrip(":") for one in named] == list(wanted)


@pytest.mark.parametrize(
    "arguments",
    [
        "--webui-config-file /etc/shadow",
        "--lora-modules a=../x",
        "--kv_events_config=tcp://evil",
        """-O '{"backend": "evil.mod.fn"}'""",
        """--hf-overrides '{"auto_map": {"AutoModel": "evil/repo--x.Y"}}'""",
        """--structured '{"reasoning_parser_plugin": "x"}'""",
        "--trust-remote-cod",
        "--tools all",
    ],
)
def test_arguments_that_name_code_files_or_addresses_are_named(arguments):
    (said,) = passthrough.active({"arguments": arguments})
    assert said.startswith(arguments.split()[0].partition("=")[0])


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ("GGML_BACKEND_PATH=x CC=y NCCL_TUNER_PLUGIN=z", 3),
        ("CUDA_INJECTION64_PATH=x OMP_TOOL_LIBRARIES=y GIT_SSH_COMMAND=z", 3),
        ("ANY=/tmp/x OTHER=~/x THIRD=http://evil", 3),
        ("NCCL_IB_HCA=rocep1s0f1:1 VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 OMP_NUM_THREADS=8", 0),
    ],
)
def test_variables_that_name_code_files_or_addresses_are_named(environment, names):
    assert len(passthrough.active({"environment": environment})) == names


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *(
            ("llama.cpp", f"LLAMA_ARG_{flag}")
            for flag in ("RPC", "HF_REPO", "MODEL_URL", "HOST", "TOOLS")
        ),
        ("mesh-llm", "LLAMA_ARG_RPC"),
        ("vllm", "VLLM_PORT"),
        ("vllm", "VLLM_NIXL_SIDE_CHANNEL_HOST"),
        ("vllm", "VLLM_DP_MASTER_IP"),
        ("vllm", "VLLM_USE_MODELSCOPE"),
        ("sglang", "SGLANG_USE_MODELSCOPE"),
    ],
)
def test_a_variable_that_is_a_reserved_flag_in_other_clothes_is_refused(engine, name):
    reserved = engines.find(engine).reserved_variables
    assert name in (problem({ENVIRONMENT: f"{name}=x"}, {}, reserved) or "")
    assert passthrough.instead_of_variable(name, reserved)


@pytest.mark.parametrize(
    "name", ["GGML_BACKEND_PATH", "OMP_TOOL_LIBRARIES", "CUDA_INJECTION64_PATH", "HSA_TOOLS_LIB"]
)
def test_a_variable_that_names_a_library_to_load_is_no_sweeps(name):
    assert name in (problem({ENVIRONMENT: f"{name}=x"}, {}, {}) or "")


@pytest.mark.parametrize(
    "given",
    [
        {"arguments": f"{flag} x"}
        for flag in (
            "--webui-mcp-proxy",
            "--lora-modules",
            "--generation-config",
            "--additional-config",
        )
    ]
    + [
        {"environment": f"{name}=1"}
        for name in ("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE")
    ],
)
def test_flags_and_variables_that_open_an_engine_are_named(given):
    (text,) = given.values()
    (said,) = passthrough.active(given)
    assert said.startswith(text.partition(" ")[0].partition("=")[0])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"arguments": "--otlp-traces-endpoint http://evil.example:4317"}, ["evil.example:4317"]),
        ({"arguments": "--otlp-traces-endpoint=evil:4317"}, ["evil:4317"]),
        ({"arguments": """--x '{"endpoint": "tcp://evil:5557"}'"""}, ["evil:5557"]),
        ({"arguments": r"""--x '{"e": "tcp:\/\/ev\u0069l"}'"""}, ["evil"]),
        ({"arguments": "--x http://localhost@evil/"}, ["localhost", "evil"]),
        (
            {"arguments": "--data-parallel-address 192.0.2.1 --y [2001:db8::1]:80"},
            ["192.0.2.1", "[2001:db8::1]"],
        ),
        ({"environment": "OTEL_EXPORTER_OTLP_ENDPOINT=http://evil.example"}, ["evil.example"]),
        (
            {"environment": "VLLM_USAGE_STATS_SERVER=evil NCCL_COMM_ID=evil.example:1"},
            ["evil.example", "evil"],
        ),
        ({"draft": '{"method": "x", "url": "https://evil"}'}, ["evil"]),
        ({"url": "http://box:8000/v1"}, ["http://box:8000/v1"]),
    ],
)
def test_the_addresses_in_arguments_and_variables_are_found(given, found):
    assert set(found) <= set(passthrough.addresses(given)) <= {*found, "box:8000"}


def test_numbers_devices_and_versions_are_no_addresses():
    given = {
        "arguments": "--tensor-split 1.5,2 -ot blk.1=CPU --lora-scaled x.gguf:0.5 --host-cache 4",
        "environment": "NCCL_IB_HCA=mlx5_0:1 HSA_OVERRIDE_GFX_VERSION=11.5.1 A_SERVER=1 B_HOST=on",
        "n_gen": 16,
    }
    assert passthrough.addresses(given) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "--max-model-len 131072 --gpu-memory-utilization 0.85 -ctk q8_0 -ot blk.1=CPU",
        """--compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "level": 3}'""",
        """--hf-overrides '{"rope_scaling": {"factor": 4.0, "type": "yarn"}}'""",
        "--tool-call-parser qwen3_coder --served-model-name a/b --split-mode row",
    ],
)
def test_plain_arguments_are_not_named(arguments):
    assert passthrough.active({"arguments": arguments}) == []
