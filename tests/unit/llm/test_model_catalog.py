"""The table of language models: its facts add up to what was published of them."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.llm.catalog import find, parse, table

BILLION = 1e9
MODELS = pytest.mark.parametrize("model", table(), ids=lambda model: model["name"])


def counted(model) -> float:
    """Parameters of all matrices, 1e9: layers times widths, as the comment of models.toml says."""
    hidden, layers = model["hidden"], model["layers"]
    linear, moe = model.get("linear_layers", 0), model.get("moe_layers", 0)
    matrices = 3 if model.get("gated", True) else 2
    cached = model.get("latent_width", 2 * model["kv_heads"] * model["head_dim"])
    attention = model.get("attention_width", 2 * model["heads"] * model["head_dim"] + cached)
    mixers = (layers - linear) * attention + linear * model.get("linear_width", 0)
    networks = matrices * (
        model.get("width", 0) * model.get("dense_layers", layers - moe)
        + model.get("shared_width", 0) * moe
    )
    embeddings = model["vocabulary"] * (1 if model.get("tied") else 2)
    experts, seen = model.get("experts", 0), model.get("expert_input", hidden)
    routers = moe * experts
    # Experts that see less than the hidden vector have a matrix to it, and one back.
    narrowing = 2 * seen * moe if seen != hidden else 0
    routed = matrices * moe * experts * seen * model.get("expert_width", 0)
    whole = hidden * (mixers + networks + embeddings + routers + narrowing) + routed
    return whole / BILLION + model.get("unread_b", 0)


@MODELS
def test_layers_and_widths_of_a_model_add_up_to_its_parameters(model):
    # Norms and biases are not in the sum, and parameters_b is rounded: a twentieth of a percent. Of
    # hyper-connections and of the rest of what nobody reads only the size is known: half a percent.
    rest = 0.006 if "unread_b" in model and "streams" in model else 0.0005
    assert counted(model) == pytest.approx(model["parameters_b"], rel=rest, abs=0.006)


@MODELS
def test_what_a_token_reads_is_what_its_makers_say(model):
    if "experts" not in model:
        return
    facts = parse(model)
    active, table_of_words = facts.active / BILLION, facts.vocabulary * facts.hidden / BILLION
    # They round (A3B: 2.5 to 3.5), some count the embeddings, and some not even the output.
    assert active - table_of_words - 0.5 <= model["active_b"] <= active + table_of_words + 0.5


@MODELS
def test_a_model_is_found_by_its_own_name_and_by_each_alias(model):
    assert find(model["name"]).name == model["name"]
    assert all(find(alias).name == model["name"] for alias in model.get("aliases", ()))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA-Nemotron-3-Super-120B-A12B-UD-Q4_K_XL", "Nemotron-3-Super-120B-A12B"),
        ("nemotron-3-nano-omni-30b-a3b-reasoning", "Nemotron-3-Nano-30B-A3B"),
        ("Ministral-3-14B-Instruct-2512-BF16", "Ministral-3-14B"),
        ("tulu-3-405b", "Llama-3.1-405B"),
        ("Hermes-4-70B-FP8", "Llama-3.1-70B"),
        ("kat-coder-v2.5", "Qwen3.6-35B-A3B"),
        ("qwen-3.5-2b", "Qwen3.5-2B"),
        ("Qwen3.5-27B-Q4_0", "Qwen3.6-27B"),
        ("MiniMax-M2.7", "MiniMax-M2"),
        ("DeepSeek-V3.2-Exp", "DeepSeek-V3.2"),
        ("GLM-4.7-Flash-GGUF", "GLM-4.7-Flash"),
        ("gemma3:27b", "gemma-3-27b"),
    ],
)
def test_a_model_is_found_by_the_name_of_its_files(name, found):
    assert find(name).name == found


@pytest.mark.parametrize("name", ["Qwen 30B MoE", "small dense model (Qwen 7B)", "GLM-4.6V", ""])
def test_a_name_that_may_be_another_model_is_not_known(name):
    with pytest.raises(InputError, match="is not known"):
        find(name)


def test_experts_of_a_latent_mixture_are_two_small_matrices():
    model = find("Nemotron-3-Super-120B-A12B")

    assert model.routed == 2 * 40 * 512 * 1024 * 2688
    assert (model.layers, model.linear_layers, model.state_width) == (48, 40, 40 * 128 * 64 * 128)
    # Of 48 mixers, eight are attention: two heads of 128 values, keys and values.
    assert model.cache_width == 8 * 2 * 2 * 128


def test_embeddings_of_each_layer_are_in_memory_and_not_read():
    model = find("gemma-4-E2B")

    assert model.parameters / BILLION == pytest.approx(4.65)
    assert model.active / BILLION == pytest.approx(2.3)


def test_layers_with_and_without_experts_may_alternate():
    model = find("Llama-4-Maverick")

    assert model.layers == 48
    assert model.routed == 3 * 24 * 128 * 5120 * 8192
