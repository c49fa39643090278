"""What may have slowed a repeat, by its facts beside those of the record that it repeats."""

import copy

import pytest

from nixwulf.llm import Model
from nixwulf.results.record import sealed
from nixwulf.sweep.reproduce.outcome import causes
from record_factory import case, metric, ok, published

CPUS = {"cpus": 8}


def run(*, facts=None, rtt_us=100.0, gbps=9.4, threads=8, **parts):
    decode = metric("decode", [10.0, 10.1, 9.9], conditions={"n_gen": 32, "n_threads": threads})
    document = copy.deepcopy(ok(case(2), [decode], rtt_us=rtt_us, gbps=gbps))
    for node in document["nodes"]:
        node["facts"] = {**CPUS, **(facts or {})}
    for key, value in parts.items():
        document[key] = {**document.get(key, {}), **value}
    return document


PLANTED = [
    ("quota", {"facts": {"cpu_quota": 2.0}}, "a CPU quota allows 2 of 8 CPUs"),
    ("affinity", {"facts": {"cpus_allowed": 4}}, "its processes may run on 4 of 8 CPUs"),
    ("load", {"facts": {"busy_cpus": 6.4}}, "other load: 6.4 of 8 CPUs of node 'n2' were busy"),
    ("rate", {"gbps": 0.47}, "'lan' carried 0.470 Gbit/s, for the record 9.40"),
    ("delay", {"rtt_us": 1100.0}, "a round trip on 'lan' took 1100 us, for the record 100"),
    ("threads", {"threads": 2}, "it computed with 2 threads, the record with 8"),
    (
        "build",
        {"engine": {"version": "b2", "build_commit": "fe"}},
        "llama.cpp is b2, for the record b1",
    ),
    ("back end", {"engine": {"backends": "CPU"}}, "its back ends are CPU, the record's Vulkan"),
    ("size", {"model": {"bytes": 8 << 30}}, "the model has 8 GiB, the record's 4"),
    ("weights", {"model": {"weights": "f32"}}, "its weights are f32, the record's f16"),
    (
        "clock",
        {"power": {"nodes": {"n1": {"mhz": {"nvidia:0": {"average": 800.0, "lowest": 700.0}}}}}},
        "the clock of nvidia:0 on node 'n1' was 800 MHz, for the record 2000",
    ),
    ("MTU", {"fabric": {"mtu": 1500}}, "'lan' has 1500 bytes of MTU, the record's fabric 9000"),
]
GOOD = {
    "engine": {"version": "b1", "build_commit": "0c1e", "backends": "Vulkan"},
    "model": {"bytes": 4 << 30, "weights": "f16"},
    "fabric": {"mtu": 9000},
    "power": {"nodes": {"n1": {"mhz": {"nvidia:0": {"average": 2000.0, "lowest": 1900.0}}}}},
}


def slowed(planted):
    parts = {key: {**GOOD[key], **planted.get(key, {})} for key in GOOD}
    return run(**{**planted, **parts})


@pytest.mark.parametrize(("_", "planted", "sentence"), PLANTED, ids=[one[0] for one in PLANTED])
def test_a_planted_slow_down_is_the_likely_cause_with_a_command(_, planted, sentence):
    (cause,) = causes(slowed(planted), slowed({}), source="mine.toml")
    assert sentence in cause.what
    assert cause.command.split()[0] in {"ssh", "nixwulf", "ls", "sha256sum"}


def test_a_clean_repeat_has_no_cause():
    noise = {"facts": {"busy_cpus": 0.1}, "rtt_us": 140.0, "gbps": 8.0}
    assert causes(slowed(noise), slowed({})) == []


def test_what_slowed_the_record_too_is_no_cause():
    both = {"facts": {"cpu_quota": 2.0, "cpus_allowed": 4}}
    assert causes(slowed(both), slowed(both)) == []


def test_what_the_speed_does_not_depend_on_is_no_cause():
    """A pipeline's decoding with 0 % of its time in bytes over the link."""
    slow = slowed({"gbps": 0.47, "rtt_us": 1100.0})
    assert len(causes(slow, slowed({}))) == 2
    (trip,) = causes(slow, slowed({}), costless={"rate"})
    assert "a round trip" in trip.what
    assert causes(slow, slowed({}), costless={"rate", "trips"}) == []


def test_what_costs_most_comes_first():
    planted = {"facts": {"busy_cpus": 8.0}, "gbps": 0.47, "rtt_us": 250.0}
    found = [cause.left for cause in causes(slowed(planted), slowed({}))]
    assert found == sorted(found)
    assert "carried" in causes(slowed(planted), slowed({}))[0].what


def test_a_lack_of_cpus_comes_before_the_packets_that_it_delays_unless_a_link_is_far_worse():
    for facts, words in (({"cpus_allowed": 4}, "may run on 4 of 8"), ({"busy_cpus": 8.0}, "load")):
        first, second = causes(slowed({"facts": facts, "rtt_us": 300.0}), slowed({}))
        assert words in first.what
        assert "a round trip" in second.what
        first, _ = causes(slowed({"facts": facts, "gbps": 0.47}), slowed({}))
        assert "carried" in first.what
    first, _ = causes(slowed({"facts": {"busy_cpus": 2.0}, "rtt_us": 300.0}), slowed({}))
    assert "a round trip" in first.what, "a quarter of the CPUs delays no packets"


def test_another_file_than_the_sweep_s_is_known_by_its_sha256():
    record = run(model={"file": "/models/m.gguf", "sha256": "a" * 64})
    model = Model("m", path="/models/m.gguf", sha256="b" * 64)
    (cause,) = causes(record, published(case(2), {"decode": [10.0]}), model)
    assert "by its sha256" in cause.what
    assert cause.command == "sha256sum /models/m.gguf"
    same = Model("m", path="/models/m.gguf", sha256="a" * 64)
    assert causes(record, published(case(2), {"decode": [10.0]}), same) == []


def test_beside_a_source_without_links_a_link_is_held_against_the_usual_of_its_kind():
    record = run(fabric={"name": "lan", "kind": "ethernet", "speed_gbps": 10}, gbps=0.9)
    record["fabric"].pop("shaped_by", None)
    (cause,) = causes(sealed(record), published(case(2), {"decode": [10.0]}), source="mine.toml")
    assert "carried 0.900 Gbit/s" in cause.what
    assert cause.command == "nixwulf bench links --cluster mine.toml"
