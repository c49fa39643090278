"""Which engines ran is what the records of this project's own runs say."""

import tomllib

import pytest
from click.testing import CliRunner

import engines_ran
from nixwulf.cli.bench import bench
from nixwulf.plugins.engines import all_engines, engines_without_run, runs_of
from record_factory import make_record

pytestmark = pytest.mark.repository


def record(outcome="ok", devices="n1: CPU, n2: CPU", lab=True, **more):
    made = make_record()
    made["case"] |= {"engine": "mlx", "nodes": 2, "parallelism": "tensor"}
    made["engine"] = {"name": "mlx", "version": "1.2", "devices": devices}
    made["cluster"]["lab"] = lab
    return {**made, "outcome": outcome, "started": "2026-11-27T10:00:00.000Z", **more}


def test_a_run_that_ended_ok_is_a_row_with_its_devices_and_place():
    assert engines_ran.row_of(record()) == {
        "engine": "mlx",
        "version": "1.2",
        "nodes": 2,
        "parallelism": "tensor",
        "devices": "cpu",
        "place": "lab",
        "day": "2026-11-27",
    }
    on_gpu = engines_ran.row_of(record(devices="n1: Vulkan0", lab=False))
    assert (on_gpu["devices"], on_gpu["place"]) == ("vulkan0", "machines")


@pytest.mark.parametrize("other", [{"outcome": "failed"}, {"source": {"name": "somebody"}}])
def test_what_failed_or_what_others_measured_is_none(other):
    assert engines_ran.row_of(record() | other) is None


def test_of_rows_that_differ_in_their_day_the_newest_is_kept_and_the_text_reads_back():
    old, new = (engines_ran.row_of(record()) | {"day": day} for day in ("2026-01-02", "2026-11-27"))
    assert engines_ran.merged([new, old]) == [new]
    assert tomllib.loads(engines_ran.text_of([new]))["runs"] == [new]


def test_the_shipped_table_is_sorted_and_of_engines_that_are_there():
    rows = tomllib.loads(engines_ran.TABLE.read_text())["runs"]
    assert rows == engines_ran.merged(rows)
    assert {row["engine"] for row in rows} <= all_engines().keys()
    assert {row["parallelism"] for row in runs_of("vllm")} >= {"single", "tensor"}


def test_an_engine_without_a_run_is_named_in_the_first_line(tmp_path):
    assert engines_without_run(["sglang", "vllm", "endpoint", None]) == ["sglang"]
    sweep = tmp_path / "s.yaml"
    sweep.write_text(
        "{name: s, models: {m: {id: o/m}}, matrix: {engine: [sglang], benchmark: [serve], "
        "model: [m], nodes: [1], parallelism: [single]}}"
    )
    shown = CliRunner().invoke(bench, [str(sweep), "--cluster", "dgx-spark-2", "--dry-run"])
    assert shown.output.startswith("sglang: described, never run"), shown.output
