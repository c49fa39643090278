"""Predicting a model of one's own: a file, a folder, a table of facts, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.core.schema import problems
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import gguf, safetensors
from nixwulf.llm.catalog import table
from nixwulf.perf.scenarios.candidates import Question
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.perf.scenarios.forecast import answer
from predict_command import MOE, SMALL, predict, refused, ways


def test_a_gguf_and_a_folder_of_the_same_weights_are_the_same_model(tmp_path):
    model = replace(MOE, weights="f32")
    gguf.write(model, tmp_path / "a.gguf")
    safetensors.write(model, tmp_path / "a")
    one, other = read_model(str(tmp_path / "a.gguf")), read_model(str(tmp_path / "a"))
    for name in ("layers", "hidden", "experts", "experts_used", "heads", "kv_heads", "cache_width"):
        assert getattr(one.facts, name) == getattr(other.facts, name), name
    assert other.facts.active == pytest.approx(one.facts.active, rel=0.02)
    assert one.sizes.layers == pytest.approx(other.sizes.layers, rel=0.02)
    code, output = predict("--model", tmp_path / "a.gguf")
    assert code == 0, output


def test_a_file_that_is_cut_short_or_no_model_is_refused(tmp_path):
    gguf.write(MOE, tmp_path / "a.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "a.gguf").read_bytes()[:500])
    assert "is no GGUF of a language model, or is cut short" in refused(
        "--model", tmp_path / "cut.gguf"
    )
    assert "holds no *.safetensors" in refused("--model", tmp_path)


def test_facts_of_an_own_table_are_a_model(tmp_path):
    entry = next(one for one in table() if one["name"] == "Llama-3.1-70B")
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if key != "aliases"]
    (tmp_path / "mine.toml").write_text("[[models]]\n" + "\n".join(lines))
    mine = ways("--model", tmp_path / "mine.toml", "--quant", "Q4_K_M")
    assert mine == ways("--model", "Llama-3.1-70B", "--quant", "Q4_K_M")


(FACTS,) = re.findall(r"```toml\n(.*?)```", Path("docs/predict.md").read_text(), re.DOTALL)
EXPERTS = "experts = 8\nexperts_used = 2\nmoe_layers = 32\nexpert_width = "


def test_a_model_that_is_not_known_is_predicted_with_the_facts_that_are_asked_for(tmp_path):
    """The sentence names every key that a file needs."""
    told = refused("--model", "Foo-7B")
    assert all(line.split(" = ")[0] in told for line in FACTS.splitlines()[2:])
    (tmp_path / "foo.toml").write_text(FACTS)
    (one, *_) = ways("--model", tmp_path / "foo.toml", "--quant", "Q4_K_M")
    assert 1 < one["decode"]["predicted"] < 256 / (7.2 * 4.8 / 8)


def test_a_model_with_a_name_like_it_is_named():
    assert "did you mean 'DeepSeek-R1-671B'" in refused("--model", "DeepSeek-R1-67B")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (FACTS.replace("= 32\nhidden", '= "32"\nhidden'), "models.0.layers is '32', expected int"),
        (FACTS.replace("layers = 32", "layers = 0"), "0 is less than the minimum of 1"),
        (
            FACTS.replace("hidden", "hiden"),
            "unknown key 'hiden' in models.0; did you mean",
        ),
        (f"{FACTS}experts = 8", "has the key 'experts' and lacks 'experts_used', which belongs to"),
        (f"{FACTS}{EXPERTS}51200", "of 7.2 billion parameters the experts of 'Foo-7B' have 161 b"),
        (f"{FACTS}linear_layers = 33", "linear_layers and window_layers are more than 32 layers"),
        (f"{FACTS}{FACTS}", "has 2 [[models]], expected one"),
        ("models = [3]", "models.0 is 3, expected object"),
        ("", "lacks the key 'models'"),
    ],
)
def test_facts_that_are_wrong_are_refused_with_the_key(tmp_path, facts, why):
    (tmp_path / "foo.toml").write_text(facts)
    assert why in refused("--model", tmp_path / "foo.toml", "--quant", "Q4_K_M")


def test_the_table_of_models_meets_the_schema_that_files_of_facts_are_held_to():
    assert problems({"models": list(table())}, "models") == []


@pytest.mark.parametrize("size", ["nan", "inf", "0.001", "1e9"])
def test_a_size_that_no_weights_have_is_refused(size):
    assert "bits for each of the weights of 'gpt-oss-20b'" in refused(*SMALL, "--size-gib", size)


def test_the_quantization_in_the_name_of_a_model_that_was_published_in_few_bits_counts():
    named, plain, f16 = (
        ways("--model", f"gpt-oss-120b{more}", "--nodes", "1")[0]["decode"]["predicted"]
        for more in ("-MXFP4", "", "-F16")
    )
    assert named == plain > 1.2 * f16
    one, *_ = ways("--model", "DeepSeek-V4-Flash")
    assert "4.25 and 8.7 bits a weight, as first published" in one["assumptions"]


def test_a_folder_whose_header_cannot_be_is_refused(tmp_path):
    safetensors.write(MOE, tmp_path / "a")
    (path,) = (tmp_path / "a").glob("*.safetensors")
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    assert "is no folder of a language model that can be read" in refused("--model", tmp_path / "a")
    assert "is no GGUF and no TOML file of facts" in refused("--model", path)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(0, 4000), st.integers(0, 255), min_size=1, max_size=4))
def test_a_gguf_with_bytes_that_were_lost_is_a_model_or_a_sentence(tmp_path_factory, lost):
    folder = tmp_path_factory.getbasetemp()
    if not (folder / "a.gguf").exists():
        gguf.write(MOE, folder / "a.gguf")
    damaged = bytearray((folder / "a.gguf").read_bytes())
    for place, value in lost.items():
        damaged[place] = value
    (folder / "lost.gguf").write_bytes(damaged)
    said = ""
    try:
        found = read_model(str(folder / "lost.gguf"))
        answer(Question(load_cluster("framework-2"), found))
    except InputError as error:
        said = error.message
    assert "\n" not in said


@pytest.mark.parametrize("layers", [10**9, 10**30, -1, "x", None])
def test_a_config_with_a_count_of_layers_that_cannot_be_is_refused(tmp_path, layers):
    safetensors.write(MOE, tmp_path / "a")
    place = tmp_path / "a" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "num_hidden_layers": layers}))
    assert "is no folder of a language model" in refused("--model", tmp_path / "a")


def test_packed_weights_are_counted_one_by_one(tmp_path):
    """A word of 32 bits has eight weights of four bits, as config.json says."""
    folder = tmp_path / "packed"
    safetensors.write(replace(MOE, weights="f32"), folder)
    whole = read_model(str(folder)).facts
    (weights,) = folder.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes().replace(b'"F32"', b'"U32"'))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"bits": 4}}))
    packed = read_model(str(folder)).facts
    assert packed.parameters > 7 * whole.parameters
    assert packed.weight_bytes == pytest.approx(whole.weight_bytes)
