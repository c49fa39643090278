"""A model of the hub that no table knows: its config.json and headers alone are read, and kept."""

import pytest

from hub_server import Hub, serving
from nixwulf.core.errors import InputError
from nixwulf.llm.random_model import RandomModel
from nixwulf.llm.safetensors import write
from nixwulf.perf.scenarios.facts import read_model

MODEL = RandomModel(layers=2, hidden=64, heads=4, kv_heads=4, weights="f16")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(MODEL, tmp_path / "model")
    with serving(
        Hub({path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()})
    ) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def test_it_is_what_the_folder_of_its_files_is(hub, tmp_path):
    found, own = read_model("org/name"), read_model(str(tmp_path / "model"))
    assert found.name == "org/name"
    assert (found.sizes, found.facts.parameters) == (own.sizes, own.facts.parameters)
    kept = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.safetensors"))
    assert kept < sum(path.stat().st_size for path in (tmp_path / "model").glob("*.safetensors"))


def test_it_is_asked_for_once(hub):
    read_model("org/name")
    asked = len(hub.asked)
    hub.refusal = (503, "")
    assert read_model("org/name").name == "org/name"
    assert len(hub.asked) == asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("api/models", b"[" * 100_000),
        ("api/models", b'{"sha": "x", "siblings": [{"rfilename": 5}]}'),
        ("config.json", b'{"hidden_size": 1e999}'),
        (".safetensors", (1 << 62).to_bytes(8, "little")),
        (".safetensors", b""),
    ],
)
def test_a_hub_that_gives_something_else_is_refused_and_nothing_is_kept(hub, tmp_path, path, body):
    hub.instead[path] = lambda handler: handler.answer(200, {}, body)
    with pytest.raises(InputError, match="'org/name'.*give a GGUF"):
        read_model("org/name")
    hub.instead.clear()
    assert read_model("org/name").name == "org/name"


def test_a_redirection_without_end_ends(hub):
    hub.instead["config.json"] = lambda handler: handler.answer(302, {"Location": handler.path})
    with pytest.raises(InputError, match="'org/name'"):
        read_model("org/name")
    assert len(hub.asked) < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../..", "org/..", "./name", "org/.name"])
def test_a_name_that_leads_elsewhere_is_refused(hub, tmp_path, name):
    with pytest.raises(InputError):
        read_model(name)
    assert not list((tmp_path / "cache").rglob("*.json"))
