"""What a record says of power follows from the samples, and passes the record's schema."""

import json

import pytest

from nixwulf.core.metric import Metric
from nixwulf.nodes.power import parse
from nixwulf.outputs import llama_bench
from nixwulf.plugins.benchmarks.llama_bench import run_times, windows
from nixwulf.report.findings import facts
from nixwulf.results.cost import warnings
from nixwulf.results.record import sealed, validate
from nixwulf.results.table import tidy
from nixwulf.sweep.power import MeterPoints, NodeSamples, document
from record_factory import make_record
from tool_outputs import fixture

WINDOW = (110.0, 120.0)
OFFSET = 100.0  # the node's clock is 100 s behind the driver's


def node(watts=40.0, more="", facts="", **changes):
    """A node whose RAPL counter rises by WATTS, for 30 s from 0 of its clock."""
    lines = [f"{t / 5:.2f} rapl:0 {round(watts * t / 5 * 1e6)}" for t in range(151)]
    text = "\n".join(["# range rapl:0 262143328850", facts, "# ready", *lines, more, ""])
    return NodeSamples(parse(text), OFFSET, **changes)


def speed(unit="tok/s", **changes):
    windows = changes.pop("windows", ((112.0, 114.0), (114.0, 118.0)))
    return Metric("decode", unit, (19.0, 21.0), "warm", {}, windows=windows, **changes)


def made(nodes, meters=(), metrics=(), idle=(), window=WINDOW):
    power = document(nodes, meters, window, dict(idle), metrics)
    validate(sealed({**make_record(), "power": power}), "a record with this power")
    return power


def test_watts_are_kept_by_node_and_source_with_joules_of_exactly_the_measurement():
    power = made({"n1": node(), "n2": node(50.0)}, idle={("n1", "rapl"): 7.0})
    assert power["seconds"] == 10.0
    assert power["nodes"]["n1"]["watts"] == {
        "rapl": {"average": 40.0, "peak": 40.0, "idle": 7.0, "joules": 400.0, "samples": 51}
    }
    assert power["nodes"]["n2"]["watts"]["rapl"]["average"] == 50.0
    assert power["nodes"]["n1"]["window"] == [10.0, 20.0], "in the clock of the raw samples"
    assert "absent" not in power


def test_heat_and_clocks_are_those_of_the_measurement():
    more = (
        # no output: lines of our own sampler.sh
        "9.00 temp:hwmon3 99000\n12.00 temp:hwmon3 61000 khz 3000000 khz_limit 5000000\n"
        "13.00 temp:hwmon3 62500\n13.00 khz 2000000 khz_limit 5000000\n21.00 temp:hwmon3 99000"
    )
    told = made({"n1": node(more=more, facts="# sensor hwmon3 k10temp")})["nodes"]["n1"]
    assert told["celsius"] == {"k10temp (hwmon3)": 62.5}
    assert told["mhz"] == {"cpu": {"average": 2500.0, "lowest": 2000.0, "limit": 5000.0}}
    assert told["absent"] == {"throttling": "no counter or flag of it"}


def test_a_throttled_node_and_its_counter_are_named():
    # no output: lines of our own sampler.sh
    more = "9.00 count:core_throttle 3\n15.00 count:core_throttle 8"
    power = made({"n1": node(), "n2": node(more=more)})
    assert power["throttled"] == [{"node": "n2", "counter": "core_throttle_count", "events": 5}]
    assert "throttling" not in power["nodes"]["n2"].get("absent", {})


def test_nodes_that_tell_nothing_say_why():
    silent = NodeSamples(parse("# ready\n"))
    # no output: lines of our own sampler.sh
    locked = NodeSamples(parse("# unreadable rapl:0\n# ready\n"))
    # no output: lines of our own sampler.sh
    broken = NodeSamples(parse("# refused nvidia-smi Driver not loaded.\n# ready\n"))
    lost = NodeSamples(reason="its sampler ended with 127: sh: not found")
    power = made({"n1": silent, "n2": locked, "n3": broken, "n4": lost})
    absent = {name: told["absent"] for name, told in power["nodes"].items()}
    assert "no RAPL counter" in absent["n1"]["watts"]
    assert absent["n1"].keys() == {"watts", "celsius", "mhz", "throttling"}
    assert "'power-meter.enable = true' below [options]" in absent["n2"]["watts"]
    assert absent["n3"]["nvidia-smi"] == "it printed 'Driver not loaded.'"
    assert absent["n4"]["watts"] == "its sampler ended with 127: sh: not found"
    assert power["absent"].startswith("No source of watts. n1: no RAPL counter")
    assert "efficiency" not in power


def test_a_mac_whose_user_may_not_measure_says_what_to_write():
    # hand-made: no Mac is at hand (form: sudo(8), "a password is required")
    text = "# have powermetrics\n# ready\nsudo: a password is required\n"
    power = made({"m1": NodeSamples(parse(text))})
    assert "NOPASSWD: /usr/bin/powermetrics" in power["absent"]


def test_samples_that_end_before_the_measurement_are_no_watts():
    power = made({"n1": node()}, window=(124.0, 140.0))
    assert "watts" not in power["nodes"]["n1"]
    assert power["nodes"]["n1"]["absent"]["rapl"] == "too few samples while it was measured"
    assert "too few samples" in power["absent"]
    assert power["nodes"]["n1"]["absent"]["sampler"] == "it printed nothing for the last 10.0 s"


def test_a_run_that_was_not_measured_says_so():
    assert made({}, window=None) == {"absent": "The run ended before anything was measured."}


def test_a_speed_is_divided_by_the_watts_of_all_nodes_in_its_own_windows():
    """19 tok/s for 2 s and 21 tok/s for 4 s are 122 tokens, for 600 J."""
    power = made({"n1": node(), "n2": node(60.0)}, metrics=[speed()])
    assert power["efficiency"] == [
        {
            "metric": 0,
            "name": "decode",
            "source": "rapl",
            "seconds": 6.0,
            "watts": 100.0,
            "joules": 600.0,
            "unit": "tok/s/W",
            "value": 0.203333,
            "joules_per_token": 4.918033,
        }
    ]


def test_the_time_between_two_samples_is_no_time_of_the_work():
    apart = speed(windows=((112.0, 114.0), (114.15, 118.15)))
    (entry,) = made({"n1": node()}, metrics=[apart])["efficiency"]
    assert (entry["seconds"], entry["joules"]) == (6.0, 240.0)


def test_gigaflops_have_no_tokens():
    (entry,) = made({"n1": node()}, metrics=[speed("Gflop/s")])["efficiency"]
    assert entry["unit"] == "Gflop/s/W"
    assert entry["value"] == pytest.approx(122 / 240, abs=1e-6)
    assert "joules_per_token" not in entry


def test_a_speed_gets_no_watts_when_its_window_is_unknown_or_too_short_or_a_node_is_silent():
    metrics = [speed(windows=()), speed(windows=((112.0, 112.6),)), speed("us")]
    unknown, short = made({"n1": node()}, metrics=metrics)["efficiency"]
    assert unknown["absent"] == "The benchmark does not report when it measured this."
    assert short["absent"] == "It was measured in less than 5 samples at a time."
    lost = NodeSamples(reason="its sampler printed nothing in 15 s")
    (partial,) = made({"n1": node(), "n2": lost}, metrics=[speed()])["efficiency"]
    assert partial["absent"] == "No source has the watts of all nodes, and of them alone."


def test_two_nodes_that_are_one_machine_are_counted_once():
    twin = NodeSamples(reason="the same machine as n1", twin=True)
    (entry,) = made({"n1": node(), "n2": twin}, metrics=[speed()])["efficiency"]
    assert entry["watts"] == 40.0


def wall(*nodes, others=(), watts=200.0, **changes):
    points = [(100.0 + second, watts) for second in range(31)]
    return MeterPoints(nodes, others, changes.pop("points", points), **changes)


def test_a_wall_meter_of_all_nodes_gives_an_efficiency_of_its_own():
    meters = [wall("n1", key="m")]
    power = made({"n1": node()}, meters, [speed()], idle={("m", "wall"): 90.0})
    assert power["meters"][0]["watts"]["average"] == 200.0
    assert power["meters"][0]["watts"]["idle"] == 90.0
    assert [entry["source"] for entry in power["efficiency"]] == ["rapl", "wall"]
    assert power["efficiency"][1]["joules_per_token"] == pytest.approx(1200 / 122, abs=1e-5)


def test_a_meter_that_feeds_other_nodes_too_says_so_and_is_no_efficiency():
    power = made({"n1": node()}, [wall("n1", others=("n2",))], [speed()])
    assert power["meters"][0]["also_feeds"] == ["n2"]
    assert [entry["source"] for entry in power["efficiency"]] == ["rapl"]


def test_a_meter_that_did_not_answer_leaves_the_reason():
    silent = wall("n1", points=[], error="did not answer (ConnectError)")
    power = made({"n1": NodeSamples(parse("# ready\n"))}, [silent], [speed()])
    assert power["meters"] == [{"nodes": ["n1"], "absent": "It did not answer (ConnectError)."}]
    assert power["absent"].startswith("No source of watts.")


def test_a_report_names_the_sources_or_the_reason():
    power = made({"n1": node()}, [wall("n1")])
    assert dict(facts([{**make_record(), "power": power}]))["Power"] == "rapl of n1, wall of n1"
    nothing = {"absent": "No source of watts."}
    assert dict(facts([{**make_record(), "power": nothing}]))["Power"] == nothing["absent"]


def test_a_throttled_node_is_a_warning_of_the_run():
    # no output: lines of our own sampler.sh
    power = made({"n1": node(more="9.00 count:core_throttle 3\n15.00 count:core_throttle 8")})
    assert warnings(power) == [
        "Node 'n1' was slowed down while it was measured: core_throttle_count."
    ]
    assert warnings(made({"n1": node()})) == []


def test_tables_have_speeds_per_watt_of_the_source_with_the_most_in_it():
    metrics = [speed(), speed(windows=())]
    record = {**make_record(), "power": made({"n1": node()}, [wall("n1")], metrics)}
    table = tidy([record]).set_index("metric")
    assert set(table.index) == {"prompt", "decode", "decode_per_wall_watt"}
    row = table.loc["decode_per_wall_watt"]
    assert (row["unit"], row["value"]) == ("tok/s/W", pytest.approx(122 / 1200, abs=1e-6))
    assert row["conditions"] == table.loc["prompt"]["conditions"], "those of the metric it is of"


PROGRESS = fixture("llama-bench/progress.txt")


def row(nanoseconds):
    # no output: the end of a row as llama-bench/progress.jsonl has it, with other values
    (told,) = llama_bench.parse(
        json.dumps({"n_prompt": 0, "n_gen": 32, "avg_ts": 1.5, "samples_ts": [1.0, 2.0]})[:-1]
        + f', "samples_ns": {nanoseconds}}}\n'
    )
    return told


def test_llama_bench_prints_when_each_sample_began_and_how_long_it_took():
    """Two tests of each metric, the later ones after the depth that they begin at."""
    began = run_times(PROGRESS, [float(second) for second in range(len(PROGRESS.splitlines()))])
    assert began == {"prompt": [2.0, 3.0, 11.0, 13.0], "decode": [6.0, 7.0, 17.0, 19.0]}
    first = {metric: times[:2] for metric, times in began.items()}
    found = windows(row([500_000_000, 250_000_000]), first["decode"])
    assert found == ((6.0, 6.5), (7.0, 7.25))


@pytest.mark.parametrize("nanoseconds", [[], [1], [1, 2, 3], '"1"'])
def test_llama_bench_without_a_line_for_each_sample_has_no_windows(nanoseconds):
    assert windows(row(nanoseconds), [7.0, 8.0]) == ()
