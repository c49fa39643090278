"""What a table states of its model is taken before what the model's name would mean."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.perf.explain.explanation import explain_records
from nixwulf.perf.explain.subject import RunPlan, subject_of
from nixwulf.results.importing import UserMetadata
from tool_outputs import fixture, records_of

SAID = UserMetadata(
    ("framework-desktop",),
    nodes=2,
    fabric="cable",
    fabric_kind="thunderbolt-net",
    transport="tcp",
    parallelism="pipeline",
)
PRUNED = fixture("posted/pruned-model-explained-as-whole.txt")


@pytest.fixture
def model(tmp_path):
    """The model of a table, as explain sees it."""

    def read(text):
        path = tmp_path / "table.md"
        path.write_text(text)
        (record,) = records_of(path, SAID)
        return subject_of(record, RunPlan()).model

    return read


def test_a_pruned_model_has_the_size_and_the_experts_of_its_row(model):
    found = model(PRUNED)
    assert found.parameters == pytest.approx(138.8e9)
    assert (found.experts, found.experts_used) == (154, 8)
    assert any("154 of its 256 experts" in one for one in found.assumptions)


def test_a_whole_one_is_the_one_of_its_name(model):
    found = model(PRUNED.replace("138.80 B", "228.69 B").replace(" 78.80", "128.52"))
    assert (found.experts, found.parameters) == (256, pytest.approx(228.69e9))


def test_another_model_of_that_name_is_not_explained(model):
    with pytest.raises(InputError, match=r"states 500 B parameters, and MiniMax-M2 has 228.7 B"):
        model(PRUNED.replace("138.80 B", "500.00 B"))


def test_requests_without_their_concurrency_are_not_judged_as_one(tmp_path):
    path = tmp_path / "served.txt"
    path.write_text(fixture("posted/vllm-median-without-p95.txt"))
    said = UserMetadata(
        ("dgx-spark",), nodes=1, engine="vllm", weights="bf16", models=("Llama-3.1-8B",)
    )
    found, _ = explain_records([(one, None) for one in records_of(path, said)])
    assert "how many of its requests ran at once" in repr(found)
