import pytest

from nixwulf.core.errors import InputError
from nixwulf.core.schema import schema
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.plugins.engines.llama_cpp import options

# no output: a file of a platform
FACTS = """
name = "mine"
description = "A machine"
system = "x86_64-linux"
[memory_gib]
value = 128
source = "https://example.org"
[gpu]
vendor = "amd"
backends = ["vulkan", "rocm"]
source = "https://example.com"
"""


@pytest.mark.parametrize("name", platform_names())
def test_every_platform_has_a_source_for_each_fact(name):
    facts = load_platform(name)
    for key, fact in facts.items():
        if isinstance(fact, dict) and "value" in fact:
            assert fact["source"], key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value = 128", 'value = "128"', "memory_gib.value is '128', expected number"),
        ("value = 128", "value = -1", "memory_gib.value"),
        (
            '["vulkan", "rocm"]',
            '["opencl"]',
            "gpu.backends.0 is 'opencl', expected one of 'vulkan'",
        ),
        ('["vulkan", "rocm"]', "[]", "gpu.backends: [] should be non-empty"),
        ('backends = ["vulkan", "rocm"]', "", "gpu lacks the key 'backends'"),
        ('source = "https://example.org"', "", "memory_gib lacks the key 'source'"),
        ("[memory_gib]", "[memory_gb]", "unknown key 'memory_gb' in the top level; did you mean"),
        ('name = "mine"', 'name = "yours"', "name is 'yours', expected 'mine'"),
        ('"x86_64-linux"', '"amd64"', "system is 'amd64', expected one of"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(FACTS.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_platform(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert message in caught.value.message


def test_a_platforms_backends_are_those_that_the_driver_can_ask_llama_cpp_for():
    backends = schema("platform")["properties"]["gpu"]["properties"]["backends"]
    assert set(backends["items"]["enum"]) == set(options.DEVICE_PREFIXES)


def test_strix_halo_has_both_backends_and_computes_by_vulkan_unless_asked():
    gpus = {name: load_platform(name).get("gpu", {}) for name in platform_names()}
    both = [name for name, gpu in gpus.items() if gpu.get("backends") == ["vulkan", "rocm"]]
    strix_halo = [name for name, gpu in gpus.items() if gpu.get("target") == "gfx1151"]
    assert set(strix_halo) <= set(both)
    assert len(strix_halo) == 5
