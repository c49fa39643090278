"""What names say: facts that add up to what was published of a model, and bits of a weight."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.llm.catalog import find, parse, table, weights_of
from nixwulf.llm.model_facts import Weights
from round_models import DENSE

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
        ("deepseek-r1:1.5b", "Qwen2.5-1.5B"),
        ("DeepSeek-R1-Distill-Llama-8B-Q4_K_M", "Llama-3.1-8B"),
        ("deepseek-r1:671b", "DeepSeek-R1-671B"),
        ("TinyLlama-1.1B-Chat-v1.0", "TinyLlama-1.1B"),
        ("QwQ-32B-Q4_K_M", "Qwen2.5-32B"),
        ("Mistral-7B-Instruct-v0.3", "Mistral-7B"),
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


@pytest.mark.parametrize(
    ("name", "found", "active"),
    [
        ("MiniMax-M2-UD-Q6_K_XL", "MiniMax-M2", 10.4),
        ("Llama 3.1:70b", "Llama-3.1-70B", 69.5),
        ("DeepSeek R1 14b", "DeepSeek-R1-Distill-Qwen-14B", 14.0),
        ("deepseek-r1:671b", "DeepSeek-R1-671B", 36.6),
        ("gpt-oss-20b-GGUF", "gpt-oss-20b", 3.6),
        ("Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF", "Qwen3-30B-A3B", 3.0),
        ("Kimi K2 Thinking", "Kimi-K2", 31.7),
    ],
)
def test_a_model_is_found_by_the_names_it_goes_by(name, found, active):
    model = find(name)

    assert model.name == found
    assert model.active / 1e9 == pytest.approx(active, abs=0.1)


def test_every_model_of_the_table_has_a_source_and_parses():
    for entry in table():
        assert entry["source"].startswith("https://")
        assert entry["checked"] in {"read", "public"}
        model = parse(entry)
        assert 0 < model.active <= model.parameters


def test_an_unknown_model_says_which_facts_to_give():
    with pytest.raises(
        InputError, match="'Lama2-7B' is not known; did you mean 'Llama-2-7B'.*layers, hidden"
    ):
        find("Lama2-7B")


def test_bits_of_a_weight_by_name_or_by_size():
    dense, mixture = find("Llama 2 7B"), find("MiniMax-M2")

    assert weights_of("Q4_0", dense).other_bits == 4.5
    assert [weights_of(name, dense).other_bits for name in ("4bit", "4-bit", "8bit")] == [
        4.5,
        4.5,
        8.5,
    ]
    assert weights_of("BF16", mixture) == Weights(
        16, 16, ("16 bits a weight, the usual of 'BF16'",)
    )
    sized = weights_of("UD-Q6_K_XL", mixture, size_gib=180.94)
    assert sized.other_bits == 8.5
    assert mixture.quantized(sized).weight_bytes / 2**30 == pytest.approx(180.94)
    # NVIDIA's own files have few layers in 16 bits, most others' all that are no experts.
    assert weights_of("NVFP4", find("Nemotron-3-Nano-30B-A3B")).other_bits == 9
    assert weights_of("NVFP4", mixture).other_bits == 16
    # The experts of gpt-oss were published in four bits; no file has finer ones.
    assert weights_of("F16", find("gpt-oss-20b")).routed_bits == 4.25


def test_files_for_vllm_have_their_output_in_16_bits_and_a_size_goes_by_that_layout():
    mixture = find("MiniMax-M2")
    four = weights_of("AWQ-4bit", mixture)

    assert (four.routed_bits, four.form) == (4.25, "int4")
    assert 4.25 < four.other_bits < 8.5
    # Experts in 4.5 bits a weight, and what is left of the file is all else.
    sized = weights_of("NVFP4", mixture, size_gib=123)
    assert sized.routed_bits == pytest.approx(4.5)
    assert 8 < sized.other_bits <= 16
    assert weights_of("Q4_K_M", mixture, size_gib=129.3).routed_bits != 4.5


@pytest.mark.parametrize(
    "name",
    [
        "MiniMax-M2.5-REAP",
        "Qwen3-235B-A22B-REAP-118B",
        "Llama-3.1-8B-draft-1B",
        "tiny-Llama-3.1-8B",
        "gpt-oss-120b-pruned-64e",
        "Qwen3-30B-A3B-15B",
    ],
)
def test_a_name_with_a_word_or_a_size_of_another_model_is_refused(name):
    with pytest.raises(InputError, match=f"{name!r} is another model than"):
        find(name)


def test_what_was_not_understood_of_a_name_is_named():
    assert "'qwopus'" in find("Qwopus-Qwen3.6-27B").assumptions[0]
    assert find("unsloth/Qwen3-30B-A3B-Instruct-2507-UD-Q4_K_XL.gguf").assumptions == ()


def test_the_kernels_of_weights_are_those_of_their_form_or_of_their_bits():
    assert find("gpt-oss-20b").quantized(
        weights_of("F16", find("gpt-oss-20b"))
    ).weights.kernels == ("mxfp4")
    names = {"Q2_K": "two", "Q4_K_M": "four", "Q6_K": "six", "Q8_0": "eight", "BF16": "sixteen"}
    dense = find("Llama 2 7B")
    assert {name: weights_of(name, dense).kernels for name in names} == names


def test_an_unknown_quantization_asks_for_a_name_or_a_size():
    with pytest.raises(InputError, match="'XYZ' is not known.*'Q4_K_M' or.*in GiB"):
        weights_of("XYZ", DENSE)
