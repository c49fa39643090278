"""Settings that are words tell configurations apart, as those that are numbers do."""

import pytest

from nixwulf.results.importing import UserMetadata
from tool_outputs import FIXTURES, by_name, fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)
TABLE = fixture("llama-bench/two-depths.md")
# hand-made: a split and devices that somebody chose (form: the fixture llama-bench/two-depths.md)
CHOSEN = """\
| model | size | params | backend | ngl | sm | dev | test | t/s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| llama 70B Q4_K - Medium | 39.59 GiB | 70.55 B | Vulkan | 99 | layer | auto | tg128 | 9.20 ± 0.01 |
| llama 70B Q4_K - Medium | 39.59 GiB | 70.55 B | Vulkan | 99 | row | Vulkan0/Vulkan1 | tg128 | 12.60 ± 0.02 |
"""  # noqa: E501


def _words(found):
    kept = (metric["conditions"] for one in found for metric in one["metrics"])
    return [{key: one[key] for key in ("split_mode", "devices") if key in one} for one in kept]


def test_a_split_and_devices_are_conditions_unless_they_are_the_programs(records):
    chosen = {"split_mode": "row", "devices": "Vulkan0/Vulkan1"}
    assert _words(records(CHOSEN, ONE)) == [{}, chosen]
    two = CHOSEN.replace("row", "layer").replace("auto", "Vulkan0")
    (record,) = records(two, ONE)
    assert _words([record]) == [{"devices": "Vulkan0"}, {"devices": "Vulkan0/Vulkan1"}]
    assert all("pass" not in metric["conditions"] for metric in record["metrics"])


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "sql"])
def test_every_form_has_them(records, form):
    text = fixture(f"llama-bench/two-depths.{form}")
    assert _words(records(text, ONE)) == [{}] * 4
    row = text.replace('"layer"', '"row"').replace("'layer'", "'row'")
    assert _words(records(row, ONE)) == [{"split_mode": "row"}] * 4


def test_no_address_of_a_device_is_kept(records):
    text = CHOSEN.replace("Vulkan0/Vulkan1", "RPC0[10.0.0.2:50052]/RPC1[10.0.0.3:50052]")
    found = records(text.replace("Vulkan", "Vulkan,RPC"), UserMetadata(("lab",), nodes=3))
    assert {"split_mode": "row", "devices": "RPC0/RPC1"} in _words(found)
    assert "10.0.0" not in str(found)


def test_a_command_above_a_table_states_them_too(records):
    # no output: the command that one types
    command = "llama-bench -m a.gguf -sm row -dev Vulkan0/Vulkan1\n"
    found = records(command + TABLE, ONE)
    assert _words(found) == [{"split_mode": "row", "devices": "Vulkan0/Vulkan1"}] * 4


def test_a_clients_prompts_and_its_way_of_asking_are_kept(records):
    text = (FIXTURES / "posted/vllm-median-without-p95.txt").read_text()
    hf = {one["conditions"]["dataset"] for one in records(text, ONE)[0]["metrics"]}
    assert hf == {"Aeala/ShareGPT_Vicuna_unfiltered"}
    text = text[text.index("====") :]
    # no output: the command that one types
    command = "vllm bench serve --backend openai-chat --dataset-name sharegpt --model q\n"
    (record,) = records(command + text, ONE)
    assert {one["conditions"]["dataset"] for one in record["metrics"]} == {"sharegpt"}
    assert by_name(record)["throughput"]["observed"]["backend"] == "openai-chat"
    (record,) = records(command.replace("sharegpt", "random") + text, ONE)
    assert all("dataset" not in one["conditions"] for one in record["metrics"])
