"""Predicting a cluster from its file: what is told, what is assumed, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from huggingface_hub import HfApi
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm.catalog import find, table
from nixwulf.llm.model_facts import Weights
from nixwulf.perf.scenarios.facts import KEYS, parse
from nixwulf.perf.scenarios.forecast import sizes_of
from nixwulf.perf.scenarios.render import LETTERS, cells, shares
from nixwulf.results import record
from nixwulf.sweep.plan import make_plan, parse_sweep
from predict_command import BIG, PAIR, SMALL, predict, refused, ways
from record_factory import case, ok, write_run


def test_without_options_each_way_has_a_line():
    found = [(one["nodes"], one["parallelism"], one.get("fabric")) for one in ways(*SMALL)]
    assert found == [
        (1, "single", None),
        (2, "pipeline", "office"),
        (2, "tensor", "office"),
        (2, "pipeline", "cable"),
        (2, "tensor", "cable"),
    ]


def test_an_rdma_fabric_has_a_line_for_each_transport():
    asked = (
        "--model",
        "gpt-oss-20b",
        "--nodes",
        "2",
        "--parallelism",
        "tensor",
        "--engine",
        "vllm",
    )
    found = {one["transport"]: one for one in ways(*asked, cluster="fa-ex9-2")}
    assert found["rdma"]["decode"]["predicted"] > found["tcp"]["decode"]["predicted"]


def test_four_macs_on_cables_are_predicted_over_rdma():
    code, output = predict("--model", "gpt-oss-120b", "--engine", "mlx", cluster="mac-studio-4")
    assert code == 0
    assert "4 nodes, tensor, mesh, rdma" in output
    asked = ("--fabric", "mesh", "--nodes", "4")
    found = ways(*SMALL, *asked, "--engine", "mlx", cluster="mac-studio-4")
    assert {one["transport"] for one in found} == {"tcp", "rdma"}


def test_fabrics_that_differ_in_nothing_are_one_line():
    code, output = predict("--model", "gpt-oss-120b", "--engine", "vllm", cluster="dgx-spark-2")
    assert code == 0
    assert "2 nodes, tensor, qsfp-a (and 1 equal), rdma" in output


def test_sockets_of_nccl_do_not_cross_cables_of_three_nodes():
    asked = ("--engine", "vllm", "--nodes", "3", "--fabric", "ring")
    found = ways(*SMALL, *asked, cluster="dgx-spark-3")
    assert {one["transport"] for one in found} == {"rdma"}
    _, output = predict(*SMALL, *asked, cluster="dgx-spark-3")
    words = " ".join(output.split())
    assert words.count("vllm by tcp gives a node one address for all others") == 1


def test_a_speed_has_an_interval_and_a_sign_that_it_is_no_measurement():
    code, output = predict(*SMALL, *PAIR)
    assert code == 0
    assert output.startswith("Predicted, not measured: gpt-oss-20b by llama.cpp on framework-2")
    assert re.search(r"2 nodes, pipeline, cable, tcp +~[\d.]+ \([\d.]+ to [\d.]+\)", output)
    for one in ways(*SMALL):
        for metric in ("decode", "prompt"):
            assert one[metric]["low"] < one[metric]["predicted"] < one[metric]["high"]


def test_the_shares_of_the_time_add_up():
    for one in ways(*SMALL):
        assert sum(one["decode"]["shares"].values()) == pytest.approx(1)
        seconds = sum(one["decode"]["seconds"].values())
        assert seconds == pytest.approx(1 / one["decode"]["predicted"])


@given(st.dictionaries(st.sampled_from(list(LETTERS)), st.floats(1e-9, 1e3), min_size=1))
def test_a_bar_is_as_wide_as_it_should_be_and_each_part_as_its_share(parts):
    found = cells(parts, 32)
    assert sum(found.values()) == 32
    for name, share in shares(parts).items():
        assert abs(found[name] - 32 * share) < 1


def test_what_does_not_fit_says_by_how_much_and_has_no_speed():
    code, output = predict(*BIG)
    assert code == 0
    (line,) = (line for line in output.splitlines() if line.startswith("1 node,"))
    assert re.fullmatch(r"1 node, framework-desktop +[\d.]+ GiB too little *", line)
    one, *two = ways(*BIG)
    assert not one["memory"]["fits"]
    assert one["memory"]["needs_gib"] == pytest.approx(181.5, abs=1)
    assert all(way["memory"]["fits"] for way in two)


def test_sizes_by_facts_alone_come_to_the_bytes_of_the_model():
    for entry in table():
        model = find(entry["name"]).quantized(Weights(4.5, 6.0))
        sizes = sizes_of(model, 4096)
        whole = sum(sizes.layers) + sizes.output + sizes.embedding
        assert whole == pytest.approx(model.weight_bytes, rel=0.001)


def test_a_faster_link_helps_tensors_and_not_a_pipeline():
    found = {
        one["parallelism"]: one["what_if"]["decode"]["predicted"] / one["decode"]["predicted"]
        for one in ways(*SMALL, *PAIR, "--what-if", "fabric.cable.latency_us=7")
    }
    assert found["pipeline"] < 1.03
    assert found["tensor"] > 1.1


def test_what_ifs_go_together_and_the_change_is_in_percent():
    both = ("--what-if", "fabric.cable.latency_us=7",
            "--what-if", "platform.framework-desktop.memory_bandwidth_gbs=500")  # fmt: skip
    (one,) = ways(*SMALL, *PAIR, *both, "--parallelism", "tensor")
    (first,) = ways(*SMALL, *PAIR, *both[:2], "--parallelism", "tensor")
    assert one["what_if"]["decode"]["predicted"] > first["what_if"]["decode"]["predicted"]
    percent = 100 * (one["what_if"]["decode"]["predicted"] / one["decode"]["predicted"] - 1)
    _, output = predict(*SMALL, *PAIR, *both, "--parallelism", "tensor")
    assert f", +{percent:.0f} %" in output
    assert f"With {both[1]}, {both[3]}:" in output


def test_latency_is_one_way_and_the_round_trip_twice_of_it():
    latency, trip = (
        ways(*SMALL, *PAIR, "--what-if", f"fabric.cable.{given}")
        for given in ("latency_us=7", "rtt_us=14")
    )
    assert latency == trip


def test_an_engine_without_host_time_for_a_hop_is_faster_in_a_pipeline():
    (one,) = ways(*SMALL, *PAIR, "--parallelism", "pipeline", "--what-if",
                  "engine.llama.cpp.hop_us=100")  # fmt: skip
    assert one["what_if"]["decode"]["seconds"]["hops"] == pytest.approx(100e-6)


def test_more_memory_makes_room():
    (one,) = ways(*BIG, "--nodes", "1", "--what-if", "platform.framework-desktop.memory_gib=256")
    assert (one["memory"]["fits"], one["what_if"]["memory"]["fits"]) == (False, True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("fabric.cable", "is not GROUP.NAME.KEY=VALUE; give one such as fabric.cable.latency_us=7"),
        ("nodes.fw1.speed=2", "'nodes' is unknown; known: fabric, platform, engine"),
        ("fabric.cable.speed=2", "a fabric has no 'speed'; it has latency_us, rtt_us, bandwidth"),
        ("fabric.usb4.latency_us=7", "there is no fabric 'usb4' in this question; known: office"),
        ("fabric.cable.latency_us=0", "'0' is no number from 1e-06 to 1e+09"),
        ("fabric.cable.latency_us=-3", "'-3' is no number from"),
        ("fabric.cable.latency_us=nan", "'nan' is no number from"),
        ("fabric.cable.latency_us=fast", "'fast' is no number from"),
        ("platform.lab.memory_gib=3", "there is no platform 'lab' in this question"),
    ],
)
def test_an_impossible_what_if_is_refused(given, why):
    assert why in refused(*SMALL, "--what-if", given)


def test_two_what_ifs_about_one_fact_are_refused():
    two = ("--what-if", "fabric.cable.latency_us=7", "--what-if", "fabric.cable.rtt_us=9")
    assert "are about one fact; give one of them" in refused(*SMALL, *two)


@given(st.text())
def test_any_text_is_a_what_if_or_an_error_in_one_sentence(text):
    said = ""
    try:
        found = parse(text)
    except InputError as error:
        said = error.message
    assert "\n" not in said
    assert said or found.key in KEYS[found.group]


@given(
    st.sampled_from([(group, key) for group, keys in KEYS.items() for key in keys]),
    st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True),
    st.floats(1e-6, 1e9),
)
def test_a_what_if_is_read_as_it_is_written(place, name, value):
    group, key = place
    found = parse(f"{group}.{name}.{key}={value!r}")
    assert (found.group, found.name, found.key, found.value) == (group, name, key, value)


def test_what_is_assumed_of_a_link_is_noted_and_what_was_measured_is_not(tmp_path):
    _, output = predict(*SMALL, *PAIR)
    assert "- thunderbolt-net by tcp: 240 us a round trip, 9.34 Gbit/s (https" in output
    measured = ok(case(2, "cable"), {"decode": [10.0]}, rtt_us=110.0, gbps=9.0)
    measured["cluster"]["name"] = "framework-2"
    write_run(tmp_path, [record.sealed(measured)])
    _, output = predict(*SMALL, *PAIR, "--measured", tmp_path)
    assert "a round trip" not in output.partition("Assumed")[2]
    (usual,) = ways(*SMALL, *PAIR, "--parallelism", "tensor")
    (known,) = ways(*SMALL, *PAIR, "--parallelism", "tensor", "--measured", tmp_path)
    ratio = known["decode"]["seconds"]["latency"] / usual["decode"]["seconds"]["latency"]
    assert ratio == pytest.approx(110 / 240)


def test_a_lab_has_the_round_trips_that_its_file_says():
    asked = (*SMALL, "--nodes", "2", "--parallelism", "tensor",
             "--what-if", "platform.lab.memory_bandwidth_gbs=20")  # fmt: skip
    latency = {one["fabric"]: one["decode"]["seconds"]["latency"]
               for one in ways(*asked, cluster="lab")}  # fmt: skip
    assert latency["gbe2g5"] == pytest.approx(latency["rdma-like"] * 1010 / 20, rel=0.1)
    assert "a round trip" not in predict(*asked, cluster="lab")[1]


def test_records_of_another_cluster_tell_nothing_of_this_one(tmp_path):
    write_run(tmp_path, [ok(case(2), {"decode": [10.0]})])
    assert "has no measured link of the cluster 'framework-2' (its records are of lab)" in refused(
        *SMALL, "--measured", tmp_path
    )


def test_a_platform_that_nobody_measured_asks_for_its_memory_and_takes_it():
    given = "platform.generic-x86_64.memory_bandwidth_gbs=60"
    assert f"--what-if {given}" in refused(*SMALL, cluster="mini-3")
    one, *_ = ways(*SMALL, "--what-if", given, cluster="mini-3")
    assert one["decode"]["predicted"] < 60 / 2
    assert "what_if" not in one
    assert "prompt" not in one
    assert any("its compute_tflops are not known" in said for said in one["assumptions"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            ("--model", "Foo-7B"),
            "'Foo-7B' is not known; known: ",
        ),
        (("--model", "Llama-3.1-70B"), "names no quantization; give --quant such as"),
        (("--model", "no.gguf"), "no.gguf: no such file; give a GGUF"),
        ((*SMALL, "--quant", "QQ"), "Quantization 'QQ' is not known"),
        (
            (*SMALL, "--nodes", "3"),
            "the cluster has 2 nodes, not 3; give fewer, or a cluster file",
        ),
        ((*SMALL, "--fabric", "usb4"), "there is no fabric 'usb4'; known: office, cable"),
        ((*SMALL, "--transport", "rdma"), "no fabric carries 'rdma': office is ethernet, cable is"),
        ((*SMALL, "--engine", "foo"), "unknown engine 'foo'; known: "),
        (
            (*SMALL, "--nodes", "1", "--parallelism", "tensor"),
            "No strategy to run 'gpt-oss-20b' is left: 'single' needs one node, other splits need",
        ),
        ((*SMALL, "--nodes", "1", "--fabric", "cable"), "left: one node crosses no fabric; leave"),
        (
            (*SMALL, "--engine", "distributed-llama", "--parallelism", "pipeline"),
            "splits a model by tensor only",
        ),
    ],
)
def test_bad_input_is_one_sentence(given, why):
    assert why in refused(*given)


def test_nodes_that_no_fabric_joins_are_refused_with_the_reasons(tmp_path):
    """Of the shipped Macs each is cabled to each; here to the last one no cable leads."""
    before, last = Path("clusters/mac-studio-4.toml").read_text().split('name = "mac-d"')
    before = re.sub(r"fabrics\.mesh\.links\.mac-d .*\n", "", before)
    path = tmp_path / "mine.toml"
    path.write_text(before + 'name = "mac-d"' + re.sub(r"fabrics\.mesh\.links.*\n", "", last))
    given = (*SMALL, "--engine", "mlx", "--transport", "rdma", "--nodes", "4")
    code, sentence = predict(*given, cluster=path)
    assert (code, sentence.count("\n")) == (2, 1)
    assert "is left: the fabric office (ethernet) carries no rdma; 3 nodes are on the" in sentence


def in_terminal(width, *arguments, cluster="framework-2"):
    """Lines as a terminal of that many columns has them, without their colours."""
    given = ["predict", "--cluster", cluster, *arguments]
    runner = CliRunner(env={"FORCE_COLOR": "1", "COLUMNS": str(width), "TERM": "xterm"})
    done = runner.invoke(cli, given)
    assert done.exit_code == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", done.output).splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_is_whole_in_a_narrow_terminal(width):
    lines = in_terminal(width, *SMALL, "--engine", "vllm", "--nodes", "4", cluster="ms-s1-max-4")
    letter = f"[{''.join(letter for letter, *_ in LETTERS.values())}]"
    bars = [bar for line in lines for bar in re.findall(rf"(?<!\w){letter}{{2,}}(?!\w)", line)]
    assert len(bars) == 12
    assert {len(bar) for bar in bars} == {32}
    sums = [line for line in lines if "http" not in line]
    assert max(len(line) for line in sums) <= width


def test_ways_that_the_engine_cannot_run_are_left_out_with_the_reason():
    """Between NVIDIA's nodes MLX has NCCL, for which it has no send."""
    asked = (*SMALL, "--engine", "mlx")
    found = {one["parallelism"] for one in ways(*asked, cluster="dgx-spark-2")}
    assert found == {"single", "tensor"}
    for form in ("table", "md"):
        _, output = predict(*asked, "--format", form, cluster="dgx-spark-2")
        assert output.count("Left out: 2 nodes, pipeline, qsfp-a, tcp (and 3 more): MLX") == 1
    document = json.loads(predict(*asked, "--format", "json", cluster="dgx-spark-2")[1])
    assert [one["parallelism"] for one in document["left_out"]] == ["pipeline"] * 4
    assert "by NCCL, without send and so no pipeline" in document["left_out"][0]["why"]
    asked32 = ("--model", "Qwen3-32B", "--quant", "Q8_0", "--engine", "vllm", "--nodes", "3")
    assert {one["parallelism"] for one in ways(*asked32, cluster="ms-s1-max-4")} == {"pipeline"}
    assert "gives each node as many heads, and 3 do not divide 64" in predict(
        *asked32, cluster="ms-s1-max-4"
    )[1].replace("\n", " ")
    macs = ways(*asked, "--nodes", "2", "--fabric", "mesh", cluster="mac-studio-4")
    assert {one["transport"] for one in macs} == {"tcp", "rdma"}


@pytest.mark.parametrize(
    ("engine", "cluster", "platform"),
    [
        ("mlx", "framework-2", "framework-desktop"),
        ("exo", "dgx-spark-2", "dgx-spark"),
        ("vllm", "mac-studio-4", "mac-studio-m3-ultra"),
    ],
)
def test_a_gpu_that_the_engine_has_no_kernels_for_is_not_predicted(engine, cluster, platform):
    told = refused(*SMALL, "--engine", engine, cluster=cluster)
    assert f"{engine} has no kernels for the GPU of {platform} and would compute on its CPU" in told


def test_a_sweep_of_mlx_over_another_rdma_than_thunderbolt_leaves_it_out():
    document = {
        "name": "x", "models": {"m": {"id": "a/b"}}, "samples": 1,
        "matrix": {"engine": ["mlx"], "benchmark": ["mlx_lm.benchmark"], "model": ["m"],
                   "nodes": [2], "transport": ["tcp", "rdma"], "parallelism": ["tensor"],
                   "fabric": ["switch"]},
    }  # fmt: skip
    machines = load_cluster("ms-s1-max-4")
    without_gpu = [replace(node, platform="generic-x86_64") for node in machines.nodes]
    plan = make_plan(parse_sweep(document, "x"), replace(machines, nodes=tuple(without_gpu)))
    assert [case.transport for case in plan.cases] == ["tcp"]
    assert "jaccl, MLX's RDMA, crosses thunderbolt5-rdma" in plan.left_out[0].reason


def test_a_fabric_that_not_all_nodes_are_on_is_named(tmp_path):
    *pair, third, fourth = Path("clusters/mac-studio-4.toml").read_text().split("[[nodes]]")
    pair = [re.sub("fabrics.mesh.links.mac-[cd].*", "", part) for part in pair]
    others = [re.sub("fabrics.mesh.*", "", part) for part in (third, fourth)]
    file = tmp_path / "macs.toml"
    file.write_text("[[nodes]]".join([*pair, *others]))
    told = refused(*SMALL, "--nodes", "4", "--fabric", "mesh", cluster=file)
    assert "2 nodes of 4 are on the fabric 'mesh', not 4; give fewer nodes or another" in told


def test_a_memory_that_is_not_known_is_asked_for_and_taken_as_it_is_given():
    asked = ("--model", "Llama-3.1-405B-Q4_K_M", "--nodes", "1")
    (one,) = ways(*asked, cluster="mac-studio-4")
    given = "--what-if platform.mac-studio-m3-ultra.memory_gib="
    assert any(f"whether the model fits; give {given}" in said for said in one["assumptions"])
    (one,) = ways(*asked, *f"{given}512".split(), cluster="mac-studio-4")
    assert (one["memory"]["fits"], "what_if" in one) == (True, False)


def test_a_model_that_fits_no_way_says_so_and_has_no_bars():
    asked = ("--model", "Llama-3.1-405B-BF16")
    for form in ("table", "md"):
        code, output = predict(*asked, "--format", form)
        assert code == 0
        assert (
            "It fits in none of these strategies, the nearest being 2 nodes, tensor, office"
            in output
        )
        assert "WWW" not in output
        assert "weights" not in output.partition("memory of a node")[2]


def test_a_prediction_is_no_record(tmp_path):
    _, output = predict(*SMALL, "--format", "json")
    (tmp_path / "a.json").write_text(output)
    assert json.loads(output)["kind"] == "prediction"
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "a.json")])
    assert done.exit_code == 2
    assert "kind is 'prediction': nothing was measured, so it is no record" in done.output


def test_markdown_has_the_same_lines():
    code, output = predict(*SMALL, "--format", "md")
    assert code == 0
    assert len(re.findall(r"^\| 2 nodes, .* \| \\~\d", output, re.MULTILINE)) == 4
    assert "- memory: all but a sixteenth of it" in output


def test_every_cluster_that_comes_with_the_driver_can_be_asked():
    for path in sorted(Path("clusters").glob("*.toml")):
        platforms = {node.platform for node in load_cluster(path).nodes}
        given = [
            part
            for name in platforms & {"lab", "generic-x86_64"}
            for part in ("--what-if", f"platform.{name}.memory_bandwidth_gbs=20")
        ]
        assert predict(*SMALL, *given, cluster=str(path))[0] == 0, path


def test_a_back_end_is_one_of_the_platform_and_changes_the_speed():
    by = {
        name: ways(*SMALL, "--nodes", "1", "--backend", name)[0]["decode"]["predicted"]
        for name in ("vulkan", "rocm")
    }
    assert by["vulkan"] != by["rocm"]
    assert ways(*SMALL, "--nodes", "1")[0]["decode"]["predicted"] == by["vulkan"]
    assert "has no back end 'cuda'" in refused(*SMALL, "--backend", "cuda")


def test_drafts_need_how_many_are_kept_and_make_decoding_faster():
    asked = ("--model", "Qwen3.6-27B", "--quant", "Q4_K_M", "--nodes", "1")
    plain = ways(*asked)[0]["decode"]["predicted"]
    drafts = ("--draft-tokens", "2", "--draft-acceptance")
    kept = [ways(*asked, *drafts, share)[0]["decode"]["predicted"] for share in ("0.4", "0.8")]

    assert plain < kept[0] < kept[1]
    assert "without drafts" in predict(*asked)[1]
    assert "--draft-acceptance" in refused(*asked, "--draft-tokens", "2")


def test_an_answer_says_how_many_published_configurations_stand_behind_it():
    (one,) = ways("--model", "gpt-oss-20b", "--nodes", "1", "--backend", "vulkan")
    assert one["decode"]["configurations"] > 1
    thin = ways("--model", "Qwen3-8B", "--quant", "BF16", "--engine", "mlx", cluster="mac-studio-4")
    several = next(each for each in thin if each["nodes"] == 2)
    assert several["decode"]["configurations"] <= 1
    assert any("so that its interval is wider" in text for text in several["assumptions"])


def test_an_engine_without_constants_of_its_own_says_whose_it_takes():
    asked = ("--model", "gpt-oss-20b", "--engine", "sglang", "--nodes", "1")
    (one,) = ways(*asked, cluster="dgx-spark-2")
    assert any("by the constants of vllm" in text for text in one["assumptions"])


def test_a_hub_that_does_not_answer_is_one_sentence_with_what_to_give(monkeypatch):
    monkeypatch.setattr(HfApi, "model_info", _no_answer)
    text = refused("--model", "some/unknown-model")
    assert "'some/unknown-model' is not known" in text
    assert "a folder with config.json" in text


def _no_answer(*_, **__):
    raise ConnectionError("Connection refused")
