"""Which pairs are tried, and what pings printed."""

from ipaddress import IPv4Interface

from hypothesis import given
from hypothesis import strategies as st

from nixwulf.ops.survey import wires
from nixwulf.ops.survey.wires import WireEnd, groups, pairs_between, pairs_to_try
from survey_factory import tried
from tool_outputs import fixture


def test_on_many_nodes_each_tries_some_and_all_are_tried_where_groups_stand_apart():
    ends = [WireEnd(f"n{i}", "eth0", IPv4Interface(f"10.0.0.{i}/24")) for i in range(1, 17)]
    pairs = pairs_to_try(ends)
    assert len(pairs) == len(set(pairs)) == 16 * 7 / 2
    together = tried(pairs, [{(end.node, "eth0") for end in ends}])
    assert [len(group) for group in groups(ends, together)] == [16]
    assert pairs_between(groups(ends, together), together) == []
    apart = tried(pairs, [])
    assert len(pairs) + len(pairs_between(groups(ends, apart), apart)) == 16 * 15 / 2


def test_answers_of_real_pings_are_read_with_the_cards_behind_them():
    source = WireEnd("n1", "eth1", IPv4Interface("10.77.1.11/24"))
    there, nobody = (WireEnd("n2", "eth1", IPv4Interface(f"10.77.1.{end}/24")) for end in (12, 99))
    probes = [(source, there), (source, nobody)]
    found = wires.parse(fixture("linux/reach.txt"), probes)
    assert found.bytes == {(source, there): 1500, (source, nobody): 0}
    assert found.answered_by.keys() == {(source, there)}
    small = wires.parse(fixture("linux/reach-small.txt"), probes[:1])
    assert small.bytes == {(source, there): 1280}


@given(st.text())
def test_no_answer_breaks_the_reader_of_pings(text):
    wires.parse(text, [])
    wires.parse(f"== neighbours\n{text}", [])
