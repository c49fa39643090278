"""Thunderbolt links, ethtool and the kernel's log, as the tools print them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError, ethtool, thunderbolt
from nixwulf.outputs.thunderbolt import Host, Link, link_of
from tool_outputs import fixture

# hand-made: no Thunderbolt is at hand
# (form: https://blog.hellas.ai/blog/thunderbolt-ibverbs/2-scaling/)
LISTED = """\
0-2 right tx=20.0 Gb/sx2 rx=20.0 Gb/sx2
1-2 right tx=20.0 Gb/sx2 rx=10.0 Gb/sx2
"""
# hand-made: no Thunderbolt is at hand
# (form: https://github.com/torvalds/linux/blob/9c3a985/drivers/thunderbolt/xdomain.c and retimer.c)
LOG = """\
[    9.1] thunderbolt 1-0:2.1: new retimer found, vendor=0x1 device=0x2
[    9.2] thunderbolt 1-2: new host found, vendor=0x1d6b device=0x4
[    9.3] thunderbolt 1-2: Linux right
"""
SETTINGS = fixture("ethtool/veth.txt")
PARSERS = (thunderbolt.parse, thunderbolt.parse_log, ethtool.parse)


@pytest.fixture
def reference():
    folder = os.environ.get("NIXWULF_REFERENCE")
    if not folder:
        pytest.skip("NIXWULF_REFERENCE names no folder of reference outputs")
    return lambda name: (Path(folder) / "outputs" / name).read_text()


def lines_of(text):
    lines = text.splitlines(keepends=True)
    return ["".join(lines[:count]) for count in range(len(lines) + 1)]


def survives(text):
    for parse in PARSERS:
        try:
            parse(text)
        except ParseError as error:
            assert error.message.count("\n") == 0  # noqa: PT017


def test_links_are_read_with_both_ways():
    links = thunderbolt.parse(LISTED)
    assert links["0-2"] == Link("right", 20.0, 2, 20.0, 2)
    assert links["1-2"].rx_gbps == 10.0


def test_the_log_names_the_host_at_the_other_end():
    assert thunderbolt.parse_log(LOG) == {"1-2": Host("0x1d6b", "0x4", "right")}


def test_ethtool_gives_the_nominal_speed_or_none():
    assert ethtool.parse(SETTINGS) == ethtool.Settings("eth1", 10.0)
    unknown = ethtool.parse(fixture("ethtool/speed-unknown.txt"))
    assert unknown == ethtool.Settings("bridge0", None)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (thunderbolt.parse, "0-2 right tx=fast rx=20.0 Gb/sx2", "line 1 is '0-2 right tx=fast"),
        (thunderbolt.parse, "", "no link"),
        (ethtool.parse, fixture("ethtool/no-device.txt"), "names no interface"),
        (ethtool.parse, SETTINGS.replace("10000", "x"), r"line \d+ says the speed 'xMb/s'"),
        (ethtool.parse, fixture("ethtool/no-speed.txt"), "no line 'Speed"),
    ],
)
def test_what_is_not_such_an_output_is_named_with_its_line(parse, text, words):
    with pytest.raises(ParseError, match=words):
        parse(text)


def test_a_device_without_one_of_its_files_is_no_link():
    files = {"tx_speed": "20.0 Gb/s", "rx_speed": "20.0 Gb/s", "tx_lanes": "2", "rx_lanes": "2"}
    assert link_of(files) == Link("", 20.0, 2, 20.0, 2)
    assert all(link_of({k: v for k, v in files.items() if k != gone}) is None for gone in files)


def test_the_reference_outputs_have_their_values(reference):
    links = thunderbolt.parse(reference("hellas-thunderbolt-sysfs-linkspeed.txt"))
    assert links["0-2"] == Link("strix-2", 20.0, 2, 20.0, 2)
    assert (links["1-2"].rx_gbps, links["1-2"].rx_lanes) == (10.0, 2)
    assert ethtool.parse(reference("hellas-ethtool-thunderbolt0.txt")).speed_gbps == 40.0
    log = thunderbolt.parse_log(reference("hellas-dmesg-thunderbolt.txt"))
    assert log == {"1-2": Host("0x1d6b", "0x4", "strix-2")}


def test_a_reference_output_cut_at_any_line_breaks_no_parser(reference):
    for name in ("thunderbolt-sysfs-linkspeed", "ethtool-thunderbolt0", "dmesg-thunderbolt"):
        for text in lines_of(reference(f"hellas-{name}.txt")):
            survives(text)


@given(st.text())
def test_no_text_breaks_a_parser(text):
    survives(text)
    # no output: the first words of each output, before any text
    survives(f"0-2 x tx={text}\nSettings for a:\nSpeed: {text}")
