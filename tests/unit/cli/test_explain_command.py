"""Explaining records: the bottleneck, what would help, and numbers that cannot be right."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from framework_runs import DECODE, of_frameworks, predicted
from nixwulf.cli.main import cli
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.interfaces import parse_hardware
from nixwulf.perf.explain.measured import MeasuredCase
from nixwulf.perf.explain.remedies import Sensitivity
from nixwulf.perf.inputs import choose
from nixwulf.plugins.runtime.upstream import number
from nixwulf.results import record
from record_factory import case, failed, machines, metric, ok, plan, published, write_run


def explain(path, *options):
    """Exit code and output."""
    done = CliRunner().invoke(cli, ["explain", str(path), *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def told(tmp_path, *records, the_plan=None):
    """All explained metrics of records, as JSON."""
    return told_of(write_run(tmp_path, records, the_plan))


def told_of(tmp_path):
    code, output = explain(tmp_path, "--format", "json")
    assert code == 0, output
    return json.loads(output)["explained"]


def sentences(tmp_path, one):
    (explained,) = told(tmp_path, one)
    return explained["sentences"]


def test_a_speed_as_predicted_names_the_bottleneck_and_what_helps(tmp_path):
    expected = predicted()
    (one,) = told(tmp_path, of_frameworks(expected.value))
    assert one["verdict"] == "as predicted"
    assert one["predicted"] == pytest.approx(expected.value)
    bottleneck, good, useless = one["sentences"]
    share = 100 * expected.parts["weights"] * expected.value
    assert bottleneck == (
        f"Bottleneck: reading weights from memory, {share:.0f} % of the predicted time."
    )
    assert re.fullmatch(r"Would help: twice the bandwidth of memory \+\d\d %\.", good)
    assert re.fullmatch(
        r"Would not: half of the host's time \+[1-4] %, a tenth of the link's latency \+0 %, twice "
        r"the link's bandwidth \+0 %, twice the compute \+0 %\.",
        useless,
    )


def test_tensors_wait_for_the_host_and_the_link_and_memory_does_not_help(tmp_path):
    (one,) = told(tmp_path, of_frameworks(predicted(split="tensor").value, split="tensor"))
    factors = {change["what"]: change["factor"] for change in one["helps"]}
    assert factors["half of the host's time"] > 1.3
    assert factors["a tenth of the link's latency"] > 1.05
    assert factors["twice the link's bandwidth"] < 1.05
    alone, split, bottleneck, *_ = one["sentences"]
    faster = r"~\d\.\d\d tok/s, predicted \(\+\d"
    assert re.match(f"Cheapest remedy: one node, {faster}", alone)
    assert re.match(f"Also faster: pipeline in place of tensor, {faster}", split)
    assert bottleneck.startswith("Bottleneck: the collective's own time")


def test_a_speed_above_the_roof_cannot_be_right(tmp_path):
    (one,) = told(tmp_path, of_frameworks(90.0))
    assert one["verdict"] == "cannot be right"
    assert one["roof"] == pytest.approx(256 / 42, rel=0.1)
    assert one["sentences"][0].startswith("Cannot be right: 90.0 tok/s is above 6.")
    (prompt,) = told(tmp_path / "p", of_frameworks(9000.0, nodes=1, name="prompt"))
    assert prompt["verdict"] == "cannot be right"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"power": {"seconds": 1.0, "covers": "all", "throttled": [
                {"node": "n1", "counter": "thermal", "share": 0.5}]}},
            "Node 'n1' throttled while it was measured: thermal, in 50 % of the samples.",
        ),
        (
            {"gates": [{"gate": "governor", "node": "n1", "state": "waived",
                        "sentences": ["The governor of node 'n1' is 'powersave'."]}]},
            "The gate 'governor' was waived: The governor of node 'n1' is 'powersave'.",
        ),
        (
            {"engine": {"name": "llama.cpp", "backends": "CPU"}},
            "The engine computed on the CPU (backends 'CPU'), not on the GPU.",
        ),
    ],
)  # fmt: skip
def test_half_the_speed_is_explained_by_a_fact_of_the_record(tmp_path, changes, why):
    found = sentences(tmp_path, of_frameworks(0.4 * predicted().low, **changes))
    assert found[0].startswith("Slow: ")
    assert "half of the least that was predicted, or less" in found[0]
    assert any(one.startswith(f"May explain it: {why}") for one in found)
    assert not [one for one in found if one.startswith("Not explained")]


_CABLES = (
    (
        {"cable 0-2 tx_speed": "10.0 Gb/s", "cable 0-2 tx_lanes": "2"},
        "A cable of node 'n1' is trained at 10.0 Gb/s x 2 (cable 0-2 tx_speed), and its ports",
    ),
    (
        {f"cable 0-2 {way}x_speed": "20.0 Gb/s" for way in "tr"},
        "A cable of node 'n1' is trained at 20.0 Gb/s x 1 (cable 0-2 tx_speed, cable 0-2 rx_s",
    ),
)


@pytest.mark.parametrize(("facts", "why"), _CABLES)
def test_a_cable_at_half_speed_is_a_cause_of_what_depends_on_its_rate_and_of_nothing_else(
    tmp_path, facts, why
):
    """'May explain it' stood beside 'twice the link's bandwidth +0 %'."""
    pipeline = of_frameworks(0.4 * predicted().low, facts=facts)
    found = sentences(tmp_path / "pipeline", pipeline)
    assert any(re.fullmatch(rf"Noticed: {re.escape(why)}.*: at most \+0 %\.", one) for one in found)
    assert any(one.startswith("Not explained: it is ") for one in found)
    prompts = of_frameworks(20.0, split="tensor", name="prompt", facts=facts)
    (one,) = told(tmp_path / "prompts", prompts)
    (cause,) = one["causes"]
    assert cause["key"] == "cable"
    assert cause["factor"] > 1.03


def test_a_gate_is_a_cause_of_what_depends_on_what_it_guards(tmp_path):
    usb4 = [{"gate": "usb4", "node": "n1", "state": "unknown",
             "sentences": ["Node 'n1' does not report the speed of its cable."]}]  # fmt: skip
    found = sentences(tmp_path, of_frameworks(0.4 * predicted().low, gates=usb4))
    assert any(one.startswith("Noticed: The gate 'usb4' is unknown") for one in found)
    clock = [{**usb4[0], "gate": "clock", "state": "waived"}]
    (one,) = told(tmp_path / "clock", of_frameworks(0.4 * predicted().low, gates=clock))
    assert (one["causes"], one["explained"]) == ([], False)


def test_a_link_far_below_its_kind_is_reported_with_what_it_costs(tmp_path):
    one = of_frameworks(0.4, split="tensor")
    for link in one["fabric"]["links"]:
        link["bandwidth"]["value"] = 0.9
        for probe in ("rtt_before", "rtt_after"):
            link[probe]["median"] = 2400.0
    found = sentences(tmp_path, record.sealed(one))
    trip = next(text for text in found if "A round trip took 2400 us, and 240 us are usual" in text)
    assert re.fullmatch(r"Slow link: .*\. Without that: \+[5-9]\d %\.", trip)
    assert any("The link carried 0.900 Gbit/s, and 'cable' should carry 9.34" in s for s in found)


def test_tcp_where_rdma_is_possible_costs_tensors_much_and_a_pipeline_nothing(tmp_path):
    costs = {}
    for split in ("tensor", "pipeline"):
        slow = of_frameworks(3.0, split=split, kind="usb4-rdma")
        found = sentences(tmp_path / split, slow)
        said = "It crossed 'cable' by TCP, and this fabric carries RDMA. Without that: "
        (costs[split],) = (text.replace(said, "") for text in found if said in text)
    assert re.fullmatch(r"Slow link: \+\d+ %\.", costs["tensor"])
    assert re.fullmatch(r"Noticed: \+[01] %\.", costs["pipeline"])


def test_how_a_cable_is_trained_is_a_fact_of_the_record():
    files = {
        f"/sys/bus/thunderbolt/devices/0-2/{key}": [value]
        for key, value in {"tx_speed": "20.0 Gb/s", "tx_lanes": "2", "rx_speed": "10.0 Gb/s",
                           "rx_lanes": "1", "device_name": "a-host"}.items()
    }  # fmt: skip
    assert parse_hardware(files).document() == {
        "cable 0-2 tx_speed": "20.0 Gb/s",
        "cable 0-2 tx_lanes": "2",
        "cable 0-2 rx_speed": "10.0 Gb/s",
        "cable 0-2 rx_lanes": "1",
    }


def test_a_slow_speed_that_nothing_explains_says_so(tmp_path):
    ratio = predicted().value / 1.0
    assert (
        f"Not explained: it is {ratio:.2f} times slower than predicted, outside the interval, and "
        "no fact of the record shows why. Next: nixwulf preflight --cluster FILE"
    ) in sentences(tmp_path, of_frameworks(1.0))


@pytest.mark.repository
def test_a_number_of_the_cpu_is_distinguished_from_those_of_the_gpu():
    of_cpu = "results/published/records/framework-desktop-ollama-deepseek-r1-14b-8d0fe353.json"
    (one,) = told_of(Path(of_cpu))
    assert one["clues"] == ["It is of the CPU (device 'CPU'), and the prediction of the GPU."]


def test_a_speed_a_little_above_the_roof_is_not_reported_as_below(tmp_path):
    (one,) = told(tmp_path, of_frameworks(6.5))
    assert one["roof"] < 6.5
    assert re.fullmatch(r"Fast: .* times the prediction, and at 6\.\d+, what the hardware can.",
                        one["sentences"][0])  # fmt: skip


def test_what_is_odd_about_a_good_speed_is_noticed_and_no_explanation(tmp_path):
    odd = {"facts": {"cable 0-2 tx_speed": "10.0 Gb/s", "cable 0-2 tx_lanes": "2"}}
    found = sentences(tmp_path, of_frameworks(predicted().value, **odd))
    assert found[0].startswith("Noticed: A cable of node 'n1' is trained at")


def test_runs_of_one_case_are_explained_by_their_mean(tmp_path):
    first, second = (of_frameworks(speed, repetition=i) for i, speed in enumerate((3.0, 5.0)))
    second = record.sealed({**second, "id": first["id"].replace("-r0", "-r1"),
                            "started": "2026-01-02T01:00:00Z"})  # fmt: skip
    (one,) = told(tmp_path, first, second)
    assert (one["measured"], one["n_runs"]) == (4.0, 2)


def lab(tmp_path, speeds):
    """A lab run of a random model: tok/s of decode (or samples) by nodes, split and round trip."""
    size = RandomModel().parameters
    records = []
    for (nodes, split, fabric, rtt), speed in speeds.items():
        samples = speed if isinstance(speed, list) else [speed]
        one = ok(case(nodes, fabric, split), {"decode": samples}, rtt_us=rtt,
                 asked={"delay_us": rtt / 2})  # fmt: skip
        model = {"name": "tiny", "random_weights": True, "parameters": size, "bytes": 2 * size}
        records.append(record.sealed({**one, "model": model}))
    the_plan = plan([one["case"] for one in records])
    the_plan["sweep"]["document"]["models"] = {"tiny": {"random": {}}}
    return told(tmp_path, *records, the_plan=record.sealed(the_plan))


def test_in_the_lab_one_node_stands_for_the_machine(tmp_path):
    found = lab(tmp_path, {(1, "single", "lan", 0): 200.0, (2, "pipeline", "lan", 100): 110.0})
    one = next(each for each in found if each["case"]["nodes"] == 1)
    two = next(each for each in found if each["case"]["nodes"] == 2)
    assert one["why_not"].startswith("Nobody published facts of 'lab': this speed of one node is")
    hop = choose("llama.cpp", "cpu").hop_us
    assert two["predicted"] == pytest.approx(1e6 / (5000 + 2 * (hop + 100)), rel=0.01)
    assert "roof" not in two
    assert two["assumptions"][0].endswith(
        "the speed of one node measured in this run is taken for it"
    )


def test_in_the_lab_the_fabric_with_the_shortest_trip_gives_the_host_s_time(tmp_path):
    """As measured in a lab: 330 tok/s on one node, 73 by tensors at 10 us, 13.5 at 2000 us."""
    found = lab(
        tmp_path,
        {
            (1, "single", "near", 0): 330.0,
            (2, "tensor", "near", 10): 73.0,
            (2, "tensor", "far", 2000): 13.5,
        },
    )
    far = next(one for one in found if one["case"].get("fabric") == "far")
    assert far["predicted"] == pytest.approx(13.5, rel=0.2)
    assert [(one["kind"], one["speed"], one["measured"]) for one in far["remedies"]] == [
        ("one-node", 330.0, True),
        ("fabric", 73.0, True),
    ]
    alone, fabric, bottleneck, *_ = far["sentences"]
    assert alone == ("Cheapest remedy: one node, 330 tok/s, measured in these records (+2344 %).")
    assert fabric.startswith("Also faster: near in place of far, 73.0 tok/s, measured in")
    assert bottleneck.startswith("Bottleneck: round trips of the link, 8")
    factors = {change["what"]: change["factor"] for change in far["helps"]}
    assert factors["a tenth of the link's latency"] > 3
    assert factors["twice the bandwidth of memory"] < 1.05
    assert "the host's time for an exchange on 'far' is as on 'near' in it" in far["assumptions"][1]


def test_a_lab_run_without_one_node_says_what_to_add(tmp_path):
    (one,) = lab(tmp_path, {(2, "pipeline", "lan", 100): 110.0})
    assert one["why_not"].endswith("add nodes: [1] to the sweep.")


def test_published_numbers_are_explained_where_they_say_enough(tmp_path):
    of = case(2, "cable", "pipeline", model="llama-3.1-70b", parameters={})
    link = {"name": "cable", "kind": "thunderbolt-net", "speed_gbps": 20}
    one = published(of, [metric("decode", [4.9], conditions=DECODE)],
                    platforms=("framework-desktop",), fabric=link)  # fmt: skip
    (lacking,) = told(tmp_path / "a", one)
    assert lacking["why_not"] == (
        "The record lacks the quantization of 'llama-3.1-70b' and the size of its files."
    )
    whole = record.sealed({**one, "model": {**one["model"], "weights": "Q4_K_M"}})
    (full,) = told(tmp_path / "b", whole)
    assert full["verdict"] == "as predicted"
    assert any("thunderbolt-net by tcp: 240 us a round trip" in s for s in full["assumptions"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"platforms": ("cray-1",)}, "The platform 'cray-1' is not known"),
        ({"platforms": ("dgx-spark",) * 3}, "The record names 3 platforms for 2 nodes"),
        ({"model": "eliza"}, "The model 'eliza' is not known by that name"),
        ({"fabric": {"name": "cable"}}, "The record lacks the kind of its fabric"),
        (
            {"conditions": {**DECODE, "concurrency": 4}},
            "whether the speed is of each sequence or of all",
        ),
        ({"conditions": {**DECODE, "speculative": True}}, "It decodes speculatively"),
    ],
)
def test_what_a_record_lacks_is_named_in_a_sentence(tmp_path, changes, why):
    of = case(2, "cable", "pipeline", model=changes.get("model", "gpt-oss-20b"), parameters={})
    one = published(
        of,
        [metric("decode", [4.0], conditions=changes.get("conditions", DECODE))],
        platforms=changes.get("platforms", ("framework-desktop",)),
        fabric=changes.get("fabric", {"name": "cable", "kind": "ethernet"}),
    )
    one["model"] = {"name": of["model"], "weights": "MXFP4"}
    (explained,) = told(tmp_path, record.sealed(one))
    assert why in explained["why_not"]
    assert explained["sentences"] == [explained["why_not"]]


def test_an_output_that_was_imported_is_explained_by_the_name_it_is_given(tmp_path):
    """llama-bench prints 'llama 7B Q4_0' for Llama 2 and 3 alike."""
    row = "| llama 7B Q4_0 | 3.56 GiB | 6.74 B | Vulkan | 99 | tg128 | 45.00 ± 0.10 |"
    # hand-made: no Strix Halo is at hand, which the prediction is for
    # (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/tools/llama-bench/README.md)
    text = "| model | size | params | backend | ngl | test | t/s |\n|-|-|-|-|-|-|-|\n" + row + "\n"
    (tmp_path / "bench.md").write_text(text)
    found = []
    for name, options in (("a", ()), ("b", ("--model", "Llama-2-7B"))):
        given = [str(tmp_path / "bench.md"), "--platform", "framework-desktop", "--nodes", "1"]
        out = ["--out", str(tmp_path / name)]
        done = CliRunner().invoke(cli, ["import", *given, *options, *out])
        assert done.exit_code == 0, done.output
        found += told_of(tmp_path / name)
    assert found[0]["why_not"].endswith("lacks it; import it with --model NAME.")
    assert found[1]["verdict"] in {"as predicted", "faster than predicted"}


def test_records_without_a_speed_are_listed_with_their_reason(tmp_path):
    of = machines("hpl", 2, {})
    records = [
        failed(case(2), "timeout", reason="The run took longer than 60 s."),
        ok(of, [metric("gflops", [9.0], unit="Gflop/s", conditions={})]),
    ]
    write_run(tmp_path, records)
    code, output = explain(tmp_path)
    assert code == 0
    assert "1 record of hpl, 2 nodes: It measured no prompt and no decode in tok/s." in output
    assert (
        "1 record of llama-bench, 2 nodes: It ended 'timeout', so there is no speed to explain. "
        "The run took longer than 60 s."
    ) in output


def test_a_folder_without_records_is_one_sentence(tmp_path):
    code, output = explain(tmp_path)
    assert code == 2
    assert "holds no record" in output


def test_terminal_and_markdown_say_the_same_sentences(tmp_path):
    (one,) = told(tmp_path, of_frameworks(90.0))
    plain, marked = explain(tmp_path)[1], explain(tmp_path, "--format", "md")[1]
    assert f"  decode: measured 90.0, predicted ~{predicted().value:.2f} (" in plain
    for sentence in one["sentences"]:
        assert sentence in plain
    assert "- Bottleneck: reading weights from memory" in marked


# no output: what 'nixwulf explain' prints of them, read by nothing
DELAYS = """\
tiny by llama.cpp, 2 nodes, pipeline, gbe2g5, tcp
  decode: measured 140, predicted ~170 (135 to 211) tok/s: as predicted
    WWWWWWWWWWWWHHHHHHHHHHHHHHLLLLLLLLLLLLLL 5.88 ms: latency 36 %, hops 33 %, weights 30 %
    Bottleneck: round trips of the link, 36 % of the predicted time.
    Would help: a tenth of the link's latency +47 %, half of the host's time +20 %, twice \
the bandwidth of memory +18 %.
    Would not: twice the link's bandwidth +0 %, twice the compute +0 %.

tiny by llama.cpp, 2 nodes, tensor, gbe2g5, tcp
  decode: measured 23.7, predicted ~20.9 (17.0 to 25.4) tok/s: as predicted
    WSSSSSSSSSLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL 47.9 ms: latency 74 %, sync 23 %, weights 2 %
    Bottleneck: round trips of the link, 74 % of the predicted time.
    Would help: a tenth of the link's latency +203 %, half of the host's time +13 %.
    Would not: twice the bandwidth of memory +1 %, twice the link's bandwidth +0 %, twice \
the compute +0 %.
"""


def test_the_numbers_of_the_lab_s_delays_are_explained_by_its_round_trips(tmp_path):
    """Its run again, from what it measured: one node, then round trip, Gbit/s and tok/s."""
    seen = {
        (1, "single", "lan"): (0.0, 1.0, 553.6938),
        (2, "pipeline", "rdma-like"): (82.0, 13.8544, 254.0666),
        (2, "tensor", "rdma-like"): (83.75, 11.4239, 66.60526),
        (2, "pipeline", "gbe2g5"): (1047.5, 2.3031, 140.1262),
        (2, "tensor", "gbe2g5"): (1050.0, 2.3071, 23.6902),
    }
    size = {"parameters": 19667328, "bytes": 40162720}
    records = []
    for (nodes, split, fabric), (rtt, gbps, speed) in seen.items():
        lengths = {"n_prompt": 0, "n_gen": 64, "n_depth": 0, "n_ubatch": 512}
        one = ok(case(nodes, fabric, split), [metric("decode", [speed], conditions=lengths)],
                 rtt_us=rtt or 1.0, gbps=gbps, asked={"delay_us": 0.0})  # fmt: skip
        one["model"] = {"name": "tiny", "random_weights": True, **size}
        records.append(record.sealed(one))
    the_plan = plan([one["case"] for one in records])
    the_plan["sweep"]["document"]["models"] = {"tiny": {"random": {"architecture": "llama"}}}
    write_run(tmp_path, records, record.sealed(the_plan))
    printed = [line.rstrip() for line in explain(tmp_path)[1].splitlines()]
    at = -1
    for line in DELAYS.splitlines():
        at = printed.index(line, at + 1)


def test_the_same_case_on_two_clusters_is_two(tmp_path):
    first = of_frameworks(4.0)
    other = {"name": "three", "platforms": ["framework-desktop"], "lab": False}
    second = record.sealed({**first, "cluster": other, "started": "2026-02-02T00:00:00Z"})
    for name, one in (("a", first), ("b", second)):
        write_run(tmp_path / name, [one])
    assert [(one["measured"], one["n_runs"]) for one in told_of(tmp_path)] == [(4.0, 1)] * 2


@pytest.mark.repository
def test_every_published_record_is_explained_or_says_what_it_lacks():
    found = told_of(Path("results/published/records"))
    explained = [one for one in found if "verdict" in one]
    assert len(explained) > 300
    assert all(one["why_not"].endswith((".", "?")) for one in found if "why_not" in one)
    # Ministral's Instruct files are FP8, where "bf16" was published. Of no other was published
    # what cannot be: a roof that is wrong would show here.
    wrong = [one["case"]["model"] for one in explained if one["verdict"] == "cannot be right"]
    assert sorted(wrong) == ["ministral-3-3b", "ministral-3-8b"]


_WHAT_OF_A_PART = {"reading weights from memory": "memory", "computing": "compute"}
"""By a bottleneck in words: what would have to help against it."""


@pytest.mark.repository
def test_no_explanation_names_a_bottleneck_of_which_twice_as_much_is_no_help():
    for one in told_of(Path("results/published/records")):
        text = " ".join(one["sentences"])
        named = re.search(r"Bottleneck: ([^,]+)", text)
        part = _WHAT_OF_A_PART.get(named[1]) if named else None
        helps = {each["what"]: each["factor"] for each in one.get("helps", ())}
        of_part = [factor for what, factor in helps.items() if part and part in what]
        assert not of_part or max(of_part) >= 1.005, (one["record"], named[1], helps)


@pytest.mark.repository
def test_no_remedy_is_a_split_that_came_after_the_build():
    for one in told_of(Path("results/published/records")):
        record_ = json.loads(Path(f"results/published/records/{one['record']}.json").read_text())
        version = number(record_.get("engine", {}).get("version", ""))
        if one["case"].get("engine") == "llama.cpp" and version < number("b8738"):
            told = [each for each in one["remedies"] if not each["measured"]]
            assert "split" not in {each["kind"] for each in told}, one["record"]


def test_a_build_that_is_newer_than_any_that_was_fitted_is_named_first(tmp_path):
    newer = of_frameworks(5.0, engine={"name": "llama.cpp", "version": "b99999"})
    assert "b99999 is newer" in sentences(tmp_path, newer)[0]


def test_a_record_that_names_no_model_has_a_line_and_a_sentence(tmp_path):
    one = published(case(2), [metric("decode", [25.0], conditions=DECODE)])
    del one["model"], one["case"]["model"]
    write_run(tmp_path, [record.sealed(one)])
    for form in ("table", "md"):
        code, output = explain(tmp_path, "--format", form)
        assert code == 0
        assert "no model named by llama.cpp, 2 nodes, tensor, lan, tcp" in output
        assert "names no model, " in output


def test_metrics_of_one_case_are_distinguished_by_what_differs(tmp_path):
    def at(depth):
        return metric("decode", [4.0], conditions={**DECODE, "n_depth": depth})

    one = of_frameworks(4.0)
    several = record.sealed({**one, "metrics": [at(0), at(4096)]})
    write_run(tmp_path, [several])
    _, output = explain(tmp_path)
    assert re.findall(r"^  (.*): measured", output, re.MULTILINE) == [
        "decode (n_depth 0)",
        "decode (n_depth 4096)",
    ]
    assert [one["conditions"]["n_depth"] for one in told_of(tmp_path)] == [0, 4096]


def test_published_numbers_that_differ_in_nothing_are_distinguished_by_their_record(tmp_path):
    of = case(2, "cable", model="gpt-oss-20b")
    found = [published(of, [metric("decode", [speed])]) for speed in (4.0, 5.0)]
    found[1] = record.sealed({**found[1], "id": f"{found[1]['id']}-b"})
    write_run(tmp_path, found)
    _, output = explain(tmp_path)
    names = re.findall(r"^  decode of (.*): measured", output, re.MULTILINE)
    assert sorted(names) == [one["id"] for one in found]


def test_a_record_of_a_run_is_held_against_the_others_of_its_run(tmp_path):
    """In the lab the speed of one node stands for the machine, whichever record is asked for."""
    speeds = {(1, "single", "lan", 0): 200.0, (2, "pipeline", "lan", 100): 110.0}
    of_all = {one["case"]["nodes"]: one for one in lab(tmp_path, speeds)}
    (path,) = (path for path in (tmp_path / "records").glob("*.json")
               if json.loads(path.read_text())["case"]["nodes"] == 2)  # fmt: skip
    assert told_of(path) == [of_all[2]]


def test_a_case_is_not_compared_with_every_other_of_its_group(tmp_path, monkeypatch):
    """A group of 1,000 took a quarter of a minute: each was described once for each other."""
    seen = []
    described = MeasuredCase.but
    monkeypatch.setattr(
        MeasuredCase, "but", lambda one, keys: seen.append(1) or described(one, keys)
    )
    counts = []
    for many in (10, 20):
        seen.clear()
        speeds = {(2, "tensor", f"lan{i}", 100 + i): 50.0 for i in range(many)}
        lab(tmp_path / str(many), {(1, "single", "lan", 0): 200.0, **speeds})
        counts.append(len(seen))
    assert counts[1] <= 2 * counts[0]


def test_a_change_is_a_help_by_the_percent_that_are_shown():
    assert [Sensitivity("", factor).enough for factor in (1.044, 1.0451, 1.05)] == [
        False,
        True,
        True,
    ]


def test_what_stands_on_samples_that_differ_is_less_sure(tmp_path):
    """Speeds of two nodes are held against that of one, which may be off by its own error."""
    widths = []
    for name, samples in (("same", [100.0] * 4), ("differ", [60.0, 140.0, 60.0, 140.0])):
        speeds = {(1, "single", "lan", 0): samples, (2, "pipeline", "lan", 100): [90.0]}
        one, two = lab(tmp_path / name, speeds)
        assert (one["measured"], two["measured"]) == (100.0, 90.0)
        widths.append(two["high"] / two["low"])
    assert widths[1] > 1.2 * widths[0]


@pytest.mark.parametrize("speed", [1e-9, 1e9])
def test_absurd_speeds_are_explained_too(tmp_path, speed):
    for name in ("decode", "prompt"):
        (one,) = told(tmp_path / name, of_frameworks(speed, name=name))
        assert one["verdict"] == ("cannot be right" if speed > 1 else "half of it or less")


def test_a_prompt_of_one_token_has_no_roof(tmp_path):
    one_token = {"n_prompt": 1, "n_gen": 0, "n_depth": 0}
    (one,) = told(tmp_path, of_frameworks(4.0, name="prompt", conditions=one_token))
    assert "roof" not in one
