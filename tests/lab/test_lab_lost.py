"""A lab that ends within a sweep: its runs are records."""

from lab_under_test import Silent
from test_placing_in_the_lab import plan_for

from nixwulf.sweep import session as bench


def test_a_lab_that_is_taken_down_within_a_sweep_fails_its_runs(cluster, tmp_path):
    plan = plan_for(cluster, 2)
    with bench.session(plan, Silent()) as connected:
        connected.lab.down()
        record = bench.run_one(connected, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "model"
    assert "Traceback" not in record["failure"]["reason"]
