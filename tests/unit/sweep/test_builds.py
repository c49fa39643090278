"""Whether an engine is made before a sweep runs."""

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins import engines
from nixwulf.plugins.engines.local import Installation
from nixwulf.sweep.plan import load_sweep, make_plan
from nixwulf.sweep.session import builds


@pytest.mark.parametrize(
    ("cluster", "sweep", "there", "expected"),
    [
        ("lab", "lab/demo", False, True),
        ("lab", "lab/demo", True, False),
        ("lab", "lab/hpl", False, False),
        ("framework-2", "smoke", False, False),
    ],
)
def test_an_engine_is_made_for_the_lab_where_it_is_not_there(
    monkeypatch, cluster, sweep, there, expected
):
    installation = Installation("path", {}, "1") if there else None
    monkeypatch.setattr(engines.find("llama.cpp"), "find_local", lambda: installation)
    assert builds(make_plan(load_sweep(sweep), load_cluster(cluster))) is expected
