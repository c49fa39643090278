"""Facts from headers: what layers remember by, and which tensors decoding never reads."""

import pytest

from nixwulf.llm.catalog import find
from nixwulf.llm.header_facts import of_gguf, of_safetensors
from nixwulf.llm.sizes import TensorSize

SIXTEEN = TensorSize(2000, 1000)
NAMES = {
    "attention": ["attn_q", "attn_k", "attn_v"],
    "delta": ["attn_qkv", "attn_gate", "ssm_a", "ssm_out"],  # linear attention of Qwen3.5
    "mamba": ["ssm_in", "ssm_out"],
    "conv": ["shortconv.in_proj", "shortconv.out_proj"],
    "experts": ["ffn_up_exps", "ffn_down_exps", "ffn_gate_inp"],
    "dense": ["ffn_up", "ffn_down"],
}


def gguf(*blocks, kv_heads=2, more=(), **fields):
    """A model of blocks, each some of NAMES, of 1000 weights a tensor."""
    names = ["token_embd.weight", "output.weight", *more]
    for index, parts in enumerate(blocks):
        names += [f"blk.{index}.attn_norm.weight"]
        names += [f"blk.{index}.{name}.weight" for part in parts.split() for name in NAMES[part]]
    known = {
        "general.architecture": "x",
        "x.block_count": len(blocks),
        "x.embedding_length": 100,
        "x.attention.head_count": 4,
        "x.attention.head_count_kv": kv_heads,
        "x.expert_count": 8,
        "x.expert_used_count": 2,
        "x.ssm.inner_size": 64,
        "x.ssm.state_size": 16,
    } | {f"x.{key}": value for key, value in fields.items()}
    return of_gguf("mine", known, dict.fromkeys(names, SIXTEEN))


def test_a_layer_with_tensors_of_a_state_has_one_though_the_heads_of_a_cache_are_one_number():
    model = gguf(*["delta dense"] * 3, "attention dense")

    assert (model.layers, model.linear_layers) == (4, 3)
    assert model.state_width == 3 * 64 * 16
    assert model.cache_width == 2 * 2 * 25


def test_networks_that_are_layers_of_their_own_are_not_counted_as_layers():
    model = gguf("mamba", "experts", "mamba", "dense", "attention", kv_heads=[0, 0, 0, 0, 2])

    assert (model.layers, model.linear_layers) == (3, 2)
    assert model.routed == 2 * 1000
    assert model.cache_width == 2 * 2 * 25


def test_short_convolutions_keep_next_to_nothing():
    model = gguf("conv dense", "attention dense", kv_heads=[0, 2], **{"ssm.inner_size": 0})

    assert (model.layers, model.linear_layers, model.state_width) == (2, 1, 0)


def test_blocks_that_guess_ahead_are_in_memory_and_not_read():
    plain = gguf("attention experts", "attention experts")
    guessing = gguf(*["attention experts"] * 3, nextn_predict_layers=1)

    assert guessing.parameters - plain.parameters == 7000
    assert guessing.active == plain.active
    assert (guessing.layers, guessing.cache_width) == (plain.layers, plain.cache_width)


def test_a_row_is_read_of_the_embeddings_of_each_layer():
    plain = gguf("attention dense")
    embedded = gguf("attention dense", more=["per_layer_token_embd.weight"])

    assert embedded.parameters - plain.parameters == 1000
    assert embedded.active == plain.active


def folder(config, *names):
    known = {"hidden_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2}
    return of_safetensors("mine", known | config, dict.fromkeys(names, SIXTEEN))


def test_a_folder_says_by_its_kinds_of_layers_what_they_remember_by():
    model = folder(
        {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "linear_num_value_heads": 32,
            "linear_value_head_dim": 128,
            "linear_key_head_dim": 128,
        },
        "lm_head.weight",
    )

    assert (model.layers, model.linear_layers, model.state_width) == (4, 3, 3 * 32 * 128 * 128)
    assert model.cache_width == 2 * 2 * 25


@pytest.mark.parametrize("listed", [True, False])
def test_a_folder_of_nemotron_h_has_the_layers_of_the_table(listed):
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    kinds = {"layers_block_type": [words[one] for one in pattern]}
    model = folder(
        {
            "num_hidden_layers": 52,
            "mamba_num_heads": 64,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "head_dim": 128,
        }
        | (kinds if listed else {"hybrid_override_pattern": pattern}),
        "lm_head.weight",
    )
    known = find("Nemotron-3-Nano-30B-A3B")

    for fact in ("layers", "linear_layers", "state_width", "cache_width"):
        assert getattr(model, fact) == getattr(known, fact)


def test_decoding_reads_no_pictures_no_sound_and_nothing_that_guesses_ahead():
    read = ("lm_head.weight", "model.layers.0.self_attn.q_proj.weight")
    model = folder(
        {"num_hidden_layers": 1, "num_experts": 4, "top_k_experts": 1},
        *read,
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.language_model.embed_tokens.weight",
        "model.language_model.embed_tokens_per_layer.weight",
        "model.visual.blocks.0.attn.qkv.weight",
        "vision_tower.encoder.weight",
        "audio_tower.conv.weight",
        "mtp.layers.0.mlp.experts.0.up_proj.weight",
    )

    assert model.parameters == 9000
    assert model.routed == 1000
    assert model.active == 2000 + 1000 / 4


def test_a_tied_embedding_is_read_as_the_matrix_of_the_output():
    model = folder({"num_hidden_layers": 1}, "model.embed_tokens.weight", "model.norm.weight")

    assert model.active == model.parameters == 2000
