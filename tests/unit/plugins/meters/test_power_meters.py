"""Wall meters are read as their makers document, over HTTP; what is no watts is a sentence."""

import time
from contextlib import suppress
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from meter_server import serving, unreachable
from nixwulf.cli.main import cli
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Meter, load_cluster
from nixwulf.plugins.meters import (
    MeterError,
    MeterReader,
    complaints,
    read,
    require_known,
    watts_of,
)

SHELLY = Meter("shelly", "http://meter.test")
SHELLY_2 = Meter("shelly-gen2", "http://meter.test")
TASMOTA = Meter("tasmota", "http://meter.test")
# hand-made: no such plug is at hand (form: https://shelly-api-docs.shelly.cloud/gen1/)
PLUG = {"relays": [{"ison": True}], "meters": [{"power": 51.6, "is_valid": True, "total": 9}]}
# hand-made: as above (form: the same page)
EM = {"emeters": [{"power": 10.5, "is_valid": True}, {"power": 99.0, "is_valid": True}]}
# hand-made: as above (form: https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch)
SWITCH = {"id": 0, "output": True, "apower": 8.9, "voltage": 237.5, "aenergy": {"total": 6.5}}
# hand-made: as above (form: https://tasmota.github.io/docs/Commands/, Status 8)
ENERGY = {"StatusSNS": {"Time": "2026-01-03T10:00:00", "ENERGY": {"Total": 1.3, "Power": 88}}}
ANSWERS = {
    "/status": PLUG,
    "/rpc/Switch.GetStatus?id=0": SWITCH,
    "/cm?cmnd=Status%208": ENERGY,
}


@pytest.mark.parametrize(
    ("meter", "watts"), [(SHELLY, 51.6), (SHELLY_2, 8.9), (TASMOTA, 88.0)], ids=str
)
def test_each_kind_is_asked_its_own_question(meter, watts):
    with serving(ANSWERS) as url:
        assert read(replace(meter, url=url)) == watts
        assert read(replace(meter, url=f"{url}/")) == watts


@pytest.mark.parametrize(
    ("meter", "answer", "watts"),
    [
        (SHELLY, EM, 10.5),
        (replace(SHELLY, channel=1), EM, 99.0),
        (replace(TASMOTA, channel=1), {"StatusSNS": {"ENERGY": {"Power": [1, 2.5]}}}, 2.5),
    ],
)
def test_a_meter_of_several_sockets_is_read_by_channel(meter, answer, watts):
    assert watts_of(meter, answer) == watts


@pytest.mark.parametrize(
    ("meter", "answer", "words"),
    [
        (SHELLY, {"meters": [{"power": 5.0, "is_valid": False}]}, "not valid"),
        (SHELLY, {"relays": []}, "no power for channel 0"),
        (SHELLY, [], "no power for channel 0"),
        (SHELLY_2, {"id": 0, "output": True}, "no power for channel 0"),
        (SHELLY_2, {"apower": "8.9"}, "reports '8.9', expected watts"),
        (SHELLY_2, {"apower": True}, "reports True, expected watts"),
        (SHELLY_2, {"apower": float("nan")}, "reports nan, expected watts"),
        (SHELLY_2, {"apower": -3.0}, "reports -3.0, expected watts"),
        (SHELLY_2, {"apower": 10**4000}, r"^reports 10{,70}\.\.\., expected watts"),
        (SHELLY_2, {"apower": "x" * 900_000}, r"^reports 'x{,70}\.\.\., expected watts"),
        (TASMOTA, {"StatusSNS": {"Switch1": "OFF"}}, "no power for channel 0"),
        (replace(TASMOTA, channel=1), ENERGY, "no power for channel 1"),
    ],
)
def test_an_answer_without_watts_is_a_complaint(meter, answer, words):
    with pytest.raises(MeterError, match=words):
        watts_of(meter, answer)


keys = st.sampled_from(
    ["meters", "emeters", "power", "is_valid", "apower", "StatusSNS", "ENERGY", "Power"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3),
)


@given(st.sampled_from([SHELLY, SHELLY_2, TASMOTA]), st.integers(0, 2), values)
def test_any_json_is_watts_or_a_complaint(meter, channel, answer):
    with suppress(MeterError):
        assert watts_of(replace(meter, channel=channel), answer) >= 0


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ({"/status": b"<html>"}, 200, "not JSON"),
        ({"/status": b"[" * 100_000}, 200, "not JSON"),
        ({"/status": PLUG}, 401, "HTTP 401"),
        ({}, 200, "HTTP 404"),
    ],
)
def test_a_server_that_is_no_meter_is_a_complaint(answers, status, words):
    with (
        serving(answers, status) as url,
        pytest.raises(MeterError, match=words),
    ):
        read(replace(SHELLY, url=url))


def metered(*meters):
    cluster = load_cluster("lab")
    nodes = [replace(n, meter=m) for n, m in zip(cluster.nodes, meters, strict=False)]
    return replace(cluster, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("part", "pause_s", "words"),
    [(b" " * 65536, 0.0, "more than 1 MiB came"), (b" ", 0.05, "nothing whole in 1 s")],
)
def test_what_answers_without_an_end_is_a_complaint_in_bounded_time(
    monkeypatch, part, pause_s, words
):
    monkeypatch.setattr("nixwulf.plugins.meters._TIMEOUT_S", 1.0)
    until = time.monotonic() + 20

    def flow():
        while time.monotonic() < until:
            yield part
            time.sleep(pause_s)

    with serving({"/status": flow()}) as url:
        begin = time.monotonic()
        with pytest.raises(MeterError, match=words):
            read(Meter("shelly", url))
        assert time.monotonic() - begin < 15


def test_a_meter_that_does_not_answer_is_one_sentence_with_all_its_nodes():
    dead = Meter("shelly-gen2", unreachable())
    with serving(ANSWERS) as url:
        cluster = metered(dead, dead, Meter("tasmota", url))
        (sentence,) = complaints(cluster.nodes)
    assert sentence.startswith("The meter of 'n1', 'n2' did not answer (ConnectError);")
    assert f"'curl {dead.url}/rpc/Switch.GetStatus?id=0'" in sentence


def test_a_meter_that_comes_and_goes_leaves_the_points_that_it_gave(tmp_path):
    answers = {"/status": PLUG}
    with serving(answers) as url:
        reader = MeterReader(Meter("shelly", url), tmp_path / "raw" / "meter")
        reader.start()
        deadline = time.monotonic() + 20
        while not reader.points and time.monotonic() < deadline:
            time.sleep(0.01)
        answers["/status"] = b"garbage"
        while not reader.error and time.monotonic() < deadline:
            time.sleep(0.01)
        reader.stop()
    assert reader.error == "answered with something that is not JSON"
    assert {watts for _, watts in reader.points} == {51.6}
    lines = (tmp_path / "raw" / "meter").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["51.6"] * len(reader.points)


# no output: a cluster file
CLUSTER = """\
name = "metered"
[fabrics.lan]
kind = "ethernet"
speed_gbps = 1
mtu = 1500
subnet = "10.9.0.0/24"
[[nodes]]
name = "a"
platform = "generic-x86_64"
ssh = "a.invalid"
meter = { kind = "shelly-gen2", url = "http://192.168.1.50", channel = 1 }
"""


def test_a_cluster_file_names_a_nodes_meter(tmp_path):
    (tmp_path / "mine.toml").write_text(CLUSTER)
    (node,) = load_cluster(tmp_path / "mine.toml").nodes
    assert node.meter == Meter("shelly-gen2", "http://192.168.1.50", 1)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"shelly-gen2"', '"kasa"', "unknown kind of meter 'kasa'; known: shelly, "),
        ('"http://192.168.1.50"', '"http://u:p@x"', "no user, no path"),
        ('"http://192.168.1.50"', '"file:///etc"', "no user, no path"),
        (', url = "http://192.168.1.50"', "", "nodes.0.meter lacks the key 'url'"),
    ],
)
def test_a_meter_that_cannot_be_asked_is_refused(tmp_path, before, after, words):
    (tmp_path / "mine.toml").write_text(CLUSTER.replace(before, after))
    with pytest.raises(InputError) as raised:
        require_known(load_cluster(tmp_path / "mine.toml"))
    assert words in raised.value.message


@pytest.mark.repository
def test_bench_says_first_that_a_meter_is_silent_and_goes_on(tmp_path):
    text = CLUSTER.replace("http://192.168.1.50", unreachable())
    (tmp_path / "mine.toml").write_text(text)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        # no output: a sweep
        "name: one\nmodels: {m: {path: /m.gguf}}\n"
        "matrix: {model: [m], nodes: [1], parallelism: [single]}\n"
    )
    arguments = ["bench", sweep, "--cluster", tmp_path / "mine.toml", "--out", tmp_path / "out"]
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.output.startswith(
        "The meter of 'a' did not answer (ConnectError); the runs go on"
    )
    assert "Node 'a' cannot be reached" in result.output, "it did go on, to the node itself"
