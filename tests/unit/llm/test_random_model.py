"""Models of random weights: which sizes are accepted, and what they amount to."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.llm.random_model import FIRST_WORD, MIN_WORDS, RandomModel, parse_random_model

MOE = RandomModel(architecture="qwen3moe", feed_forward=768, experts=4, experts_used=2)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("architecture", {"architecture": "gpt2"}),
        ("weights", {"weights": "q4_0"}),
        ("layers", {"layers": 0}),
        ("heads", {"heads": 0}),
        ("kv_heads", {"kv_heads": 0}),
        ("hidden", {"hidden": 380}),
        ("hidden", {"hidden": 36}),
        ("kv_heads", {"kv_heads": 5}),
        ("vocabulary", {"vocabulary": FIRST_WORD + MIN_WORDS - 1}),
        ("seed", {"seed": -1}),
        ("hidden", {"hidden": 408, "weights": "q8_0"}),
        ("feed_forward", {"feed_forward": 1500, "weights": "q8_0"}),
        ("experts", {"experts": 4}),
        ("experts", {"architecture": "qwen3moe", "experts_used": 1}),
        ("experts_used", {"architecture": "qwen3moe", "experts": 4, "experts_used": 5}),
        ("experts_used", {"architecture": "qwen3moe", "experts": 4}),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_their_key_and_value(key, values):
    with pytest.raises(InputError) as caught:
        parse_random_model(values, "sweep.yaml: models.m.random")
    value = getattr(RandomModel(), key) if key not in values else values[key]
    assert caught.value.message.startswith(f"sweep.yaml: models.m.random.{key} is {value!r}, ")
    assert "expected" in caught.value.message


def test_an_entry_without_keys_is_the_default_model():
    assert parse_random_model({}, "sweep.yaml") == RandomModel()


def test_parameters_of_a_dense_model_are_its_matrices_and_norms():
    model = RandomModel(
        layers=2,
        hidden=8,
        heads=4,
        kv_heads=2,
        feed_forward=16,
        vocabulary=400,
        context=64,
    )
    attention = 8 * 8 + 4 * 8 + 4 * 8 + 8 * 8
    layer = attention + 3 * 8 * 16 + 2 * 8
    assert model.parameters == 2 * layer + 2 * 400 * 8 + 8
    assert model.active_parameters == model.parameters - 400 * 8


def test_active_parameters_count_only_the_experts_that_are_used():
    all_used = dataclasses.replace(MOE, experts_used=4)
    one_expert = 3 * MOE.hidden * MOE.feed_forward * MOE.layers
    assert all_used.parameters == MOE.parameters
    assert all_used.active_parameters - MOE.active_parameters == 2 * one_expert


@st.composite
def models(draw: st.DrawFn) -> RandomModel:
    kv_heads = draw(st.integers(1, 4))
    heads = kv_heads * draw(st.integers(1, 4))
    experts = draw(st.integers(0, 6))
    return RandomModel(
        architecture="qwen3moe" if experts else "llama",
        layers=draw(st.integers(1, 4)),
        hidden=heads * 2 * draw(st.integers(1, 8)),
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=draw(st.integers(1, 64)),
        vocabulary=draw(st.integers(FIRST_WORD + MIN_WORDS, 600)),
        experts=experts,
        experts_used=draw(st.integers(1, experts)) if experts else 0,
        seed=draw(st.integers(0, 100)),
    )


@given(models())
def test_tensors_have_names_of_their_own_and_active_is_never_more_than_all(model):
    names = [tensor.name for tensor in model.tensors()]
    assert len(names) == len(set(names))
    assert 0 < model.active_parameters <= model.parameters


@given(models(), models())
def test_models_share_a_file_name_only_when_they_are_the_same(one, other):
    assert (one.file_name == other.file_name) == (one == other)
