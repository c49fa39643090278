"""Explanations of records with counts of nodes that no run of ours has."""

import json
import time
from pathlib import Path

import pytest

from nixwulf.perf.explain.explanation import explain_records
from nixwulf.results.record import sealed

RECORDS = Path("results/published/records")
PI = "raspberry-pi-4-distributed-llama-llama-2-7b-2x-tcp-cf26030e"
DESKTOP = "framework-desktop-llama.cpp-minimax-m2-2x-tcp-78ed51e6"


@pytest.mark.parametrize(
    ("name", "nodes"), [(PI, 2.0), (PI, 52_500.0), (DESKTOP, 65_536)], ids=["2.0", "float", "many"]
)
def test_a_record_of_any_count_of_nodes_is_explained_at_once(name, nodes):
    made = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
    made = sealed({**made, "case": made["case"] | {"nodes": nodes}})
    began = time.process_time()
    explained, rest = explain_records([(made, None)])
    assert explained or rest
    assert time.process_time() - began < 5
