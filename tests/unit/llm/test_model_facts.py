"""What is known of a language model: its name, its header, and the bits of its weights."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.llm import random_gguf
from nixwulf.llm.catalog import find, parse, table
from nixwulf.llm.header_facts import of_gguf, of_safetensors
from nixwulf.llm.model_facts import Weights
from nixwulf.llm.quantization import weights_of
from nixwulf.llm.random_model import RandomModel
from nixwulf.llm.sizes import TensorSize, parse_gguf
from nixwulf.perf.inputs import PlatformFacts, Strategy
from nixwulf.perf.predict import predict
from round_models import DENSE


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
        InputError, match="'Lama2-7B' is not known.*layers, hidden.*to Llama-2-7B, "
    ):
        find("Lama2-7B")


TENSORS = {
    "token_embd.weight": TensorSize(2000, 1000),
    "output.weight": TensorSize(1000, 1000),
    "blk.0.attn_q.weight": TensorSize(1000, 1000),
    "blk.0.ffn_up_exps.weight": TensorSize(4000, 8000),
}
FIELDS = {
    "general.architecture": "x",
    "x.block_count": 2,
    "x.embedding_length": 100,
    "x.attention.head_count": 4,
    "x.attention.head_count_kv": 2,
    "x.expert_count": 8,
    "x.expert_used_count": 2,
}


def test_a_gguf_tells_its_own_bits_of_each_part():
    model = of_gguf("mine", FIELDS, TENSORS)

    assert model.weights == Weights(4.0, 8.0)
    assert model.active == 2000 + 8000 * 2 / 8
    assert model.cache_width == 2 * 2 * 2 * 25


def test_layers_of_a_gguf_without_heads_of_a_cache_have_a_state():
    model = of_gguf("mine", FIELDS | {"x.attention.head_count_kv": [0, 2]}, TENSORS)

    assert (model.linear_layers, model.cache_width) == (1, 2 * 2 * 25)


def test_a_folder_of_safetensors_tells_the_same():
    tensors = {
        "model.embed_tokens.weight": TensorSize(2000, 1000),
        "lm_head.weight": TensorSize(1000, 1000),
        "model.layers.0.self_attn.q_proj.weight": TensorSize(1000, 1000),
        "model.layers.0.mlp.experts.0.up_proj.weight": TensorSize(4000, 8000),
    }
    config = {
        "num_hidden_layers": 2,
        "hidden_size": 100,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 10,
    }
    model = of_safetensors("mine", config, tensors)

    assert model == of_gguf("mine", FIELDS, TENSORS)


def test_a_random_model_of_the_driver_is_predicted_from_its_own_header(tmp_path):
    random = RandomModel(
        architecture="qwen3moe", layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96,
        vocabulary=400, experts=3, experts_used=2,
    )  # fmt: skip
    random_gguf.write(random, tmp_path / "a.gguf")
    model = of_gguf("tiny", *parse_gguf((tmp_path / "a.gguf").read_bytes()))

    assert (model.layers, model.experts, model.experts_used) == (2, 3, 2)
    assert model.parameters == random.parameters
    # The driver counts a row of the embedding for nothing, as the model does.
    assert model.active == pytest.approx(random.active_parameters, rel=0.2)
    node = PlatformFacts("box", "amd", bandwidth_gbs=100)
    assert predict([node], model, Strategy("vllm")).value > 0


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


def test_an_unknown_quantization_asks_for_a_name_or_a_size():
    with pytest.raises(InputError, match="'XYZ' is not known.*'Q4_K_M' or.*in GiB"):
        weights_of("XYZ", DENSE)
