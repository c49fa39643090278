"""Headers of models: what memory needs, what layers remember by, what decoding never reads."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import gguf, safetensors, sizes_on
from nixwulf.llm.catalog import find
from nixwulf.llm.model_facts import Sizes, TensorSize, Weights
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.ssh import Connection
from nixwulf.perf.inputs import PlatformFacts, Strategy
from nixwulf.perf.predict import predict
from nixwulf.perf.scenarios.facts import read_model
from tool_outputs import fixture

MIB = 2**20
EXPERTS = RandomModel(
    "qwen3moe", layers=4, kv_heads=6, feed_forward=768, experts=16, experts_used=4
)


class Here(Connection):
    """This machine in the place of a node: its commands run without ssh."""

    def argv(self, command=()):
        return list(command)


HERE = Here(load_cluster("lab").nodes[0], ())


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / EXPERTS.file_name
    gguf.write(EXPERTS, path)
    return path


def test_a_gguf_has_its_sizes_in_its_first_bytes(experts):
    sizes = sizes_on(HERE, str(experts))
    assert len(sizes.layers) == EXPERTS.layers
    assert sizes.feed_forward == EXPERTS.feed_forward * EXPERTS.experts_used
    assert sizes.cache_widths == ((192, 192),) * 4
    assert (sizes.vocabulary, sizes.hidden, sizes.heads) == (1024, 384, 12)
    assert not sizes.tied
    weights = sum(sizes.layers) + sizes.embedding + sizes.output
    assert 0 <= experts.stat().st_size - weights < MIB


@pytest.mark.slow
@given(cut=st.integers(min_value=0, max_value=30_000))
def test_a_gguf_that_is_cut_anywhere_says_only_that(experts, cut):
    start = experts.read_bytes()[:40_000]
    with pytest.raises(EOFError):
        gguf.parse(start[: min(cut, 20_000)])


@given(text=st.binary(max_size=300))
def test_what_is_no_gguf_is_refused_as_a_value(text):
    with pytest.raises((ValueError, KeyError, IndexError, TypeError, EOFError, struct.error)):
        gguf.parse(text)


# no output: the config of a model, as its file has it
CONFIG = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128,
}  # fmt: skip


def file_of(tensors):
    entries, at = {}, 0
    for name, shape in tensors.items():
        count = 2
        for side in shape:
            count *= side
        entries[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return len(text).to_bytes(8, "little") + text


def test_safetensors_tell_their_sizes_with_their_config():
    tensors = safetensors.parse(
        file_of(
            {
                "model.embed_tokens.weight": [1000, 64],
                "model.layers.0.mlp.up_proj.weight": [128, 64],
                "model.layers.1.mlp.up_proj.weight": [128, 64],
                "model.norm.weight": [64],
            }
        )
    )
    assert safetensors.interpret(CONFIG, tensors).sizes == Sizes(
        layers=(16384, 16384), embedding=128_000, output=128, tied=128_000, vocabulary=1000,
        cache_widths=((32, 32),) * 2, windows=(0, 0), hidden=64, feed_forward=128, heads=4,
        kv_heads=2,
    )  # fmt: skip


def test_a_gguf_in_parts_is_the_sum_of_its_parts(tmp_path):
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1)
    writer.add_block_count(2)
    writer.add_embedding_length(384)
    writer.add_head_count(12)
    writer.add_feed_forward_length(1536)
    for name in ("token_embd.weight", "blk.0.w", "blk.1.w", "output.weight"):
        writer.add_tensor(name, np.zeros((384, 10), np.float16))
    for step in ("header_to_file", "kv_data_to_file", "tensors_to_file"):
        getattr(writer, f"write_{step}")()
    writer.close()
    assert len(list(tmp_path.iterdir())) == 4
    sizes = sizes_on(HERE, str(tmp_path / "m-00001-of-00004.gguf"))
    assert (sizes.layers, sizes.embedding, sizes.output) == ((7680, 7680), 7680, 7680)
    (tmp_path / "m-00003-of-00004.gguf").unlink()
    assert sizes_on(HERE, str(tmp_path / "m-00001-of-00004.gguf")) is None


def test_a_folder_of_safetensors_is_the_sum_of_its_files(tmp_path):
    for number in (0, 1):
        names = {f"model.layers.{number}.mlp.up_proj.weight": [128, 64]}
        names |= {"model.embed_tokens.weight": [10, 64]} if number == 0 else {}
        (tmp_path / f"model-{number}.safetensors").write_bytes(file_of(names))
    assert sizes_on(HERE, str(tmp_path)) is None, "it has no config"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    sizes = sizes_on(HERE, str(tmp_path))
    assert (sizes.layers, sizes.embedding, sizes.tied) == ((16384, 16384), 1280, 1280)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"junk" * 100])
def test_a_file_that_is_no_model_has_no_sizes(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert sizes_on(HERE, str(path)) is None
    assert sizes_on(HERE, str(tmp_path / "nowhere.gguf")) is None
    assert sizes_on(HERE, str(tmp_path / "nowhere")) is None


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


def test_the_bits_of_each_part_are_read_from_a_gguf():
    model = gguf.interpret(FIELDS, TENSORS).facts("mine")

    assert model.weights == Weights(4.0, 8.0)
    assert model.active == 2000 + 8000 * 2 / 8
    assert model.cache_width == 2 * 2 * 2 * 25


def test_layers_of_a_gguf_without_heads_of_a_cache_have_a_state():
    model = gguf.interpret(FIELDS | {"x.attention.head_count_kv": [0, 2]}, TENSORS).facts("mine")

    assert (model.linear_layers, model.cache_width) == (1, 2 * 2 * 25)


def test_the_same_is_read_from_a_folder_of_safetensors():
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
    model = safetensors.interpret(config, tensors).facts("mine")

    assert model == gguf.interpret(FIELDS, TENSORS).facts("mine")


def test_a_random_model_of_the_driver_is_predicted_from_its_own_header(tmp_path):
    random = RandomModel(
        architecture="qwen3moe", layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96,
        vocabulary=400, experts=3, experts_used=2,
    )  # fmt: skip
    gguf.write(random, tmp_path / "a.gguf")
    model = gguf.interpret(*gguf.parse((tmp_path / "a.gguf").read_bytes())).facts("tiny")

    assert (model.layers, model.experts, model.experts_used) == (2, 3, 2)
    assert model.parameters == random.parameters
    # The driver counts a row of the embedding for nothing, as the model does.
    assert model.active == pytest.approx(random.active_parameters, rel=0.2)
    node = PlatformFacts("box", "amd", bandwidth_gbs=100)
    assert predict([node], model, Strategy("vllm")).value > 0


SIXTEEN = TensorSize(2000, 1000)
NAMES = {
    "attention": ["attn_q", "attn_k", "attn_v"],
    "delta": ["attn_qkv", "attn_gate", "ssm_a", "ssm_out"],  # linear attention of Qwen3.5
    "mamba": ["ssm_in", "ssm_out"],
    "conv": ["shortconv.in_proj", "shortconv.out_proj"],
    "experts": ["ffn_up_exps", "ffn_down_exps", "ffn_gate_inp"],
    "dense": ["ffn_up", "ffn_down"],
}


def blocks(*all_parts, kv_heads=2, more=(), **fields):
    """A model of blocks, each some of NAMES, of 1000 weights a tensor."""
    names = ["token_embd.weight", "output.weight", *more]
    for index, parts in enumerate(all_parts):
        names += [f"blk.{index}.attn_norm.weight"]
        names += [f"blk.{index}.{name}.weight" for part in parts.split() for name in NAMES[part]]
    known = {
        "general.architecture": "x",
        "x.block_count": len(all_parts),
        "x.embedding_length": 100,
        "x.attention.head_count": 4,
        "x.attention.head_count_kv": kv_heads,
        "x.expert_count": 8,
        "x.expert_used_count": 2,
        "x.ssm.inner_size": 64,
        "x.ssm.state_size": 16,
    } | {f"x.{key}": value for key, value in fields.items()}
    return gguf.interpret(known, dict.fromkeys(names, SIXTEEN)).facts("mine")


def test_a_layer_with_tensors_of_a_state_has_one_though_the_heads_of_a_cache_are_one_number():
    model = blocks(*["delta dense"] * 3, "attention dense")

    assert (model.layers, model.linear_layers) == (4, 3)
    assert model.state_width == 3 * 64 * 16
    assert model.cache_width == 2 * 2 * 25


def test_networks_that_are_layers_of_their_own_are_not_counted_as_layers():
    model = blocks("mamba", "experts", "mamba", "dense", "attention", kv_heads=[0, 0, 0, 0, 2])

    assert (model.layers, model.linear_layers) == (3, 2)
    assert model.routed == 2 * 1000
    assert model.cache_width == 2 * 2 * 25


def test_short_convolutions_keep_next_to_nothing():
    model = blocks("conv dense", "attention dense", kv_heads=[0, 2], **{"ssm.inner_size": 0})

    assert (model.layers, model.linear_layers, model.state_width) == (2, 1, 0)


def test_blocks_that_guess_ahead_are_in_memory_and_not_read():
    plain = blocks("attention experts", "attention experts")
    guessing = blocks(*["attention experts"] * 3, nextn_predict_layers=1)

    assert guessing.parameters - plain.parameters == 7000
    assert guessing.active == plain.active
    assert (guessing.layers, guessing.cache_width) == (plain.layers, plain.cache_width)


def test_a_row_is_read_of_the_embeddings_of_each_layer():
    plain = blocks("attention dense")
    embedded = blocks("attention dense", more=["per_layer_token_embd.weight"])

    assert embedded.parameters - plain.parameters == 1000
    assert embedded.active == plain.active


def folder(config, *names):
    known = {"hidden_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2}
    return safetensors.interpret(known | config, dict.fromkeys(names, SIXTEEN)).facts("mine")


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


def test_a_table_of_rows_for_each_layer_is_no_vocabulary():
    tensors = TENSORS | {"per_layer_token_embd.weight": TensorSize(9000, 9000)}
    sizes = gguf.interpret(FIELDS, tensors).sizes

    assert sizes.vocabulary == 10
    assert sizes.embedding == 2000 + 9000
    assert sizes.tied == 0

    del tensors["output.weight"]
    assert gguf.interpret(FIELDS, tensors).sizes.tied == 2000
    rows = "model.language_model.embed_tokens_per_layer.weight"
    names = {rows: TensorSize(9000, 9000), "model.embed_tokens.weight": TensorSize(2000, 1000)}
    assert safetensors.interpret(CONFIG, names).sizes.tied == 2000


def test_packed_weights_are_as_many_for_memory_as_for_the_prediction(tmp_path):
    """As of MLX: eight of four bits in a word, and their scales beside them in whole floats."""
    entries = {
        "model.embed_tokens.weight": {
            "dtype": "U32",
            "shape": [1000, 8],
            "data_offsets": [0, 32000],
        },
        "model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [32000, 32256]},
    }
    text = json.dumps(entries).encode()
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization": {"bits": 4}}))
    found, sizes = read_model(str(tmp_path)), sizes_on(HERE, str(tmp_path))

    assert sizes == found.sizes
    assert (sizes.vocabulary, sizes.embedding) == (1000, 32000)
    assert found.facts.vocabulary == 1000
    assert found.facts.parameters == 64_000 + 64


LATENT = {
    "x.attention.head_count_kv": 1, "x.attention.key_length": 576,
    "x.attention.value_length": 512, "x.attention.kv_lora_rank": 512, "x.rope.dimension_count": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "widths"),
    [
        (LATENT | {"x.attention.key_length_mla": 192}, (576, 0)),
        # Of before llama.cpp kept the latent: it keeps the keys and values of every head.
        (LATENT | {"x.attention.head_count_kv": 4, "x.attention.key_length": 192}, (768, 2048)),
    ],
)
def test_a_gguf_of_latent_attention_keeps_what_llama_cpp_keeps(fields, widths):
    header = gguf.interpret(FIELDS | fields, TENSORS)

    assert header.sizes.cache_widths == (widths, widths)
    assert header.facts("mine").cache_width == 2 * sum(widths)


def test_memory_and_prediction_know_the_same_layers_with_a_cache():
    config = CONFIG | {"layer_types": ["linear_attention", "full_attention"]}
    header = safetensors.interpret(config, {"lm_head.weight": SIXTEEN})

    assert header.sizes.cache_widths == ((0, 0), (32, 32))
    assert header.facts("mine").cache_width == 64


def windows_of(header):
    """What memory and the prediction take the windows of layers to be."""
    facts = header.facts("mine")
    return header.sizes.windows, facts.window, facts.window_layers, facts.assumptions


def test_a_window_that_is_not_used_is_none():
    config = CONFIG | {"sliding_window": 4096, "use_sliding_window": False}
    header = safetensors.interpret(config, {"lm_head.weight": SIXTEEN})

    assert windows_of(header) == ((0, 0), 0, 0, ())


def test_config_json_lists_the_layers_that_have_the_window():
    config = json.loads(fixture("model-headers/gpt-oss-20b.config.json"))
    header = safetensors.interpret(config, {"lm_head.weight": SIXTEEN})
    known = find("gpt-oss-20b")

    assert windows_of(header) == ((128, 0) * 12, 128, 12, ())
    for fact in ("cache_width", "window_width", "window", "window_layers"):
        assert getattr(header.facts("mine"), fact) == getattr(known, fact)


def test_a_gguf_lists_the_layers_that_have_the_window_and_their_own_widths():
    fields = json.loads(fixture("model-headers/gemma-4-26b-a4b.gguf.json"))
    header = gguf.interpret(fields, {"token_embd.weight": TensorSize(2 * 2816, 2816)})
    known = find("gemma-4-26B-A4B")

    assert windows_of(header) == (((1024,) * 5 + (0,)) * 5, 1024, 25, ())
    for fact in ("cache_width", "window_width", "window", "window_layers"):
        assert getattr(header.facts("mine"), fact) == getattr(known, fact)


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [(3, (8, 8, 0, 8)), ("LG", (8, 0, 8, 0)), (1, (0, 0, 0, 0))],
)
def test_a_pattern_of_config_json_says_which_layers_have_the_window(pattern, windows):
    config = CONFIG | {"num_hidden_layers": 4, "sliding_window": 8}
    header = safetensors.interpret(
        config | {"sliding_window_pattern": pattern}, {"lm_head.weight": SIXTEEN}
    )
    assert header.sizes.windows == windows


@pytest.mark.parametrize(
    ("architecture", "pattern", "windows"),
    [
        ("gemma3", {}, (8, 8, 8, 8, 8, 0, 8)),
        ("smallthinker", {}, (0, 8, 8, 8, 0, 8, 8)),
        ("phi3", {}, (0,) * 7),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": 3}, (8, 8, 0, 8, 8, 0, 8)),
        ("x", {"x.attention.sliding_window_pattern": 0}, (8,) * 7),
    ],
)
def test_a_period_says_which_layers_of_a_gguf_have_the_window(architecture, pattern, windows):
    fields = {key.replace("x.", f"{architecture}."): value for key, value in FIELDS.items()}
    fields |= {"general.architecture": architecture, f"{architecture}.block_count": 7}
    fields |= {f"{architecture}.attention.sliding_window": 8, **pattern}
    assert gguf.interpret(fields, TENSORS).sizes.windows == windows


def test_where_no_header_says_which_layers_have_the_window_all_keep_every_token():
    for header in (
        gguf.interpret(FIELDS | {"x.attention.sliding_window": 8}, TENSORS),
        safetensors.interpret(CONFIG | {"sliding_window": 8}, {"lm_head.weight": SIXTEEN}),
    ):
        windows, window, layers, (assumption,) = windows_of(header)
        assert (windows, window, layers) == ((0, 0), 0, 0)
        assert assumption.startswith("which layers have the sliding window is not in the header")


@pytest.mark.parametrize("start", [b"", b"GGUF" + bytes(20), bytes.fromhex("cdab000aff0000000100")])
def test_a_model_of_distributed_llama_without_its_header_has_no_sizes(tmp_path, start):
    (tmp_path / "x.m").write_bytes(start)
    assert sizes_on(HERE, str(tmp_path / "x.m")) is None
