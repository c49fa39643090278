"""The seeds: each number is one of a published record, and is planned on the cluster it is from."""

import copy
import re
from pathlib import Path

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep
from nixwulf.sweep.reproduce.conditions import expectations, fitted

SEEDS = sorted(path.stem for path in Path("sweeps/seeds").glob("*.yaml"))


def seed(name):
    return load_sweep(Path(f"sweeps/seeds/{name}.yaml"))


def test_there_is_a_seed_for_each_of_the_five_systems():
    assert SEEDS == ["fa-ex9-2", "framework-4", "mac-studio-4", "ms-s1-max-4", "pi-cm5-10"]


@pytest.mark.parametrize("name", SEEDS)
def test_each_number_of_a_seed_is_planned_on_its_cluster_over_a_fabric_like_its_record_s(name):
    cluster = load_cluster(name)
    sweep = seed(name)
    plan = make_plan(fitted(sweep, cluster), cluster)
    for one in expectations(sweep):
        (case,) = [case for case in plan.cases if one.of(case)]
        record = one.references[0]
        assert case.nodes == record["case"]["nodes"]
        assert (case.transport or "tcp") == record["case"].get("transport", "tcp")
        platforms = {node.platform for node in case.nodes_of(cluster)}
        assert platforms == set(record["cluster"]["platforms"])


def test_an_unknown_record_is_refused_with_the_nearest_ids():
    document = copy.deepcopy(seed("framework-4").document)
    document["expect"][0]["record"] = "framework-desktop-hpl-4x-tcp-689aea36"
    with pytest.raises(InputError, match=re.escape("framework-desktop-hpl-4x-tcp-689aea35")):
        expectations(parse_sweep(document, "mine.yaml"))


def test_a_number_that_its_record_does_not_have_is_refused_with_the_one_it_has():
    document = copy.deepcopy(seed("framework-4").document)
    document["expect"][0]["value"] = 9.25
    with pytest.raises(InputError, match=r"'decode' of the record .* is 8\.25, not 9\.25"):
        expectations(parse_sweep(document, "mine.yaml"))
    document["expect"][0]["metric"] = "speed"
    with pytest.raises(InputError, match="has no 'speed' with these conditions; it has decode"):
        expectations(parse_sweep(document, "mine.yaml"))


def test_a_sweep_that_expects_nothing_is_sent_to_bench():
    with pytest.raises(InputError, match=r"run it by 'nixwulf bench sweeps/smoke\.yaml'"):
        expectations(load_sweep("smoke"))
