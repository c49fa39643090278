"""The planted causes are data: each names what 'explain' has one word for."""

import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "campaign"))

from causes import DATA, cluster_of, sweep_of

from nixwulf.inventory.cluster import load_cluster
from nixwulf.perf.explain.diagnostics import LINK_KEYS
from nixwulf.perf.explain.remedies import KINDS
from nixwulf.sweep.plan import load_sweep

NAMED = {*KINDS, *LINK_KEYS, "quota", "affinity", "load", "cache"}


def test_there_are_thirty_of_different_names():
    assert len({trial["name"] for trial in DATA["trial"]}) == 30


@pytest.mark.parametrize("trial", DATA["trial"], ids=lambda trial: trial["name"])
def test_a_planted_cause_is_of_a_sweep_and_a_lab_that_there_can_be(trial, tmp_path):
    assert trial["expect"] in NAMED
    assert trial["metric"] in {"decode", "prompt"}
    (tmp_path / "lab.toml").write_text(cluster_of(trial))
    assert "cable" in load_cluster(str(tmp_path / "lab.toml")).fabrics
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep_of(trial)))
    assert load_sweep(tmp_path / "sweep.yaml").models
