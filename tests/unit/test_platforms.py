import pytest

from nixwulf.errors import InputError
from nixwulf.platforms import load_platform, platform_names

FACTS = """
name = "mine"
description = "A machine"
system = "x86_64-linux"
[memory_gib]
value = 128
source = "https://example.org"
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
