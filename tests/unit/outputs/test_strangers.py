"""What strangers' files have around and inside results, in the forms in which they post them."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.results.importing import UserMetadata, reading_of

ONE = UserMetadata(("generic-x86_64",), nodes=1)
# hand-made: its closing line (form: github.com/LostRuins/koboldcpp, gpttype_adapter.cpp)
KOBOLD = (
    "[14:02:11] CtxLimit:1836/16384, Amt:412/512, Init:0.05s, Process:4.73s (301.06T/s), "
    "Generate:22.39s (18.40T/s), Total:27.12s\n"
)
# hand-made: a server asked over the network (form: github.com/EleutherAI/lm-evaluation-harness)
ASKED = """\
local-completions (model=Qwen/Qwen3-30B,base_url=http://10.1.2.3:8000/v1,num_concurrent=16), limit: None
|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|
|-----|------:|----------------|-----:|-----------|---|-----:|---|-----:|
|gsm8k|      3|flexible-extract|     5|exact_match|↑  |0.9120|±  |0.0078|
"""  # noqa: E501
# hand-made: a difference of two tables (form: the fixture llama-bench/two-depths.md)
DIFFERENCE = """\
@@ -1,4 +1,4 @@
 | model | size | params | backend | ngl | test | t/s |
-| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan | 99 | tg128 | 33.10 ± 0.02 |
-build: 16724b5b (6000)
+| gpt-oss 120B MXFP4 MoE | 59.02 GiB | 116.83 B | Vulkan | 99 | tg128 | 35.90 ± 0.02 |
+build: 7049736b (7050)
"""


def _said(tmp_path, text):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return " ".join(reading_of(path, ONE).sentences())


def test_koboldcpps_line_keeps_its_context_its_answer_and_its_times(records):
    (record,) = records(KOBOLD, ONE)
    for one in record["metrics"]:
        assert one["conditions"] == {"n_gen": 412, "max_context": 16384}
        observed = {"context_used": 1836, "n_gen_limit": 512, "init_s": 0.05, "total_s": 27.12}
        assert one["observed"].items() >= observed.items()
    (record,) = records(KOBOLD.replace("Amt:412/512, ", ""), ONE)
    assert record["metrics"][0]["conditions"] == {"max_context": 16384}


def test_a_model_that_is_asked_over_the_network_is_kept_and_its_address_is_named(tmp_path, records):
    (record,) = records(ASKED, ONE)
    assert record["case"]["model"] == "Qwen/Qwen3-30B"
    said = _said(tmp_path, ASKED)
    assert "line 1: base_url (an address)" in said
    assert "10.1.2.3" not in said + str(record)


def test_a_difference_of_two_tables_is_refused_with_its_line(records):
    with pytest.raises(InputError, match="line 3 .* removed or added"):
        records(DIFFERENCE, ONE)
    with pytest.raises(InputError, match="line 1 .* removed or added"):
        records(DIFFERENCE.partition("s |\n")[2].replace("-|", "+ |"), ONE)
