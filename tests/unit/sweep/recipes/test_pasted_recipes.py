"""Commands in the forms in which people paste them."""

import pytest

# no output: recipes in the forms of public threads
MLX = "mlx.launch --backend jaccl --hostfile h.json --env A=1 -- {} --model org/model --port 80\n"


@pytest.mark.parametrize(
    "program",
    ["/opt/homebrew/bin/python3 -m mlx_lm server", "python3.12 -m mlx_lm.server", "mlx_lm.server"],
)
def test_what_mlx_launch_starts_is_the_drivers_own(imported, program):
    document, _ = imported(MLX.format(program))
    assert document["models"] == {"model": {"id": "org/model"}}
    assert document["matrix"]["parameters"]["environment"] == [{"A": "1"}]


def test_a_comment_behind_a_backslash_ends_no_command(imported):
    document, _ = imported("llama-server -m /a.gguf \\  # experts\n  -t 32 \\ # cores\n -np 2\n")
    parameters = document["matrix"]["parameters"]
    assert (parameters["threads"], parameters["concurrency"]) == ([32], [2])
    assert "arguments" not in parameters


def test_a_variable_in_what_the_driver_sets_refuses_nothing(imported):
    document, named = imported('vllm serve org/a --api-key $KEY --port "$PORT" --max-model-len 9\n')
    assert document["matrix"]["parameters"]["max_model_len"] == [9]
    assert "KEY" not in str(named)


def test_what_a_script_is_called_with_is_named(imported):
    document, named = imported('#!/bin/bash\nset -e\nexec llama-server -m /a.gguf -np 3 "$@"\n')
    assert document["matrix"]["parameters"]["concurrency"] == [3]
    assert any(one.startswith("$@: ") for one in named)


def test_variables_of_a_container_are_those_of_the_text_that_its_shell_runs(imported):
    document, _ = imported("docker run -e A=1 img bash -c 'B=2 vllm serve org/a'\n")
    assert document["matrix"]["parameters"]["environment"] == [{"A": "1", "B": "2"}]


CLIENT = (
    "vllm bench serve --model org/a --random-input-len 9 --random-output-len 7 --num-prompts 40"
)


def test_the_client_of_vllm_is_its_benchmark(imported):
    document, _ = imported(f"{CLIENT} --max-concurrency 4 --dataset-name random\n")
    assert document["matrix"]["benchmark"] == ["vllm-bench"]
    parameters = document["matrix"]["parameters"]
    found = [parameters[key] for key in ("n_prompt", "n_gen", "requests", "concurrency")]
    assert found == [[9], [7], [40], [4]]


def test_beside_the_command_of_its_server_it_is_left_out(imported):
    document, named = imported(f"vllm serve org/a -tp 2\n{CLIENT}\n")
    assert document["matrix"]["benchmark"] == ["serve"]
    assert any(one.startswith("vllm bench serve ") for one in named)


@pytest.mark.parametrize(
    "text",
    [
        'docker run -e TOKEN=$HF -p $PORT:8000 vllm/vllm-openai --model org/a --api-key "$K"',
        "tmux new-session -d -s llm 'vllm serve org/a --api-key $K'",
        "mlx.launch -n 2 -- python3 -m mlx_lm generate --model org/a -p 'hello' -m 256",
    ],
)
def test_what_the_callers_shell_hands_on_refuses_nothing(imported, text):
    document, _ = imported(text)
    assert document["models"] == {"a": {"id": "org/a"}}
    assert ("256" in text) == (document["matrix"].get("parameters", {}).get("n_gen") == [256])
