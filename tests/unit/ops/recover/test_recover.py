"""Recovering nodes: who goes down with whom, and the state that a node prints."""

import os
import socket
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.schema import check
from nixwulf.inventory.cluster import parse_cluster
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.recover import STEPS, await_answer, groups, parse, recover
from nixwulf.plugins import switches
from stand_in import put

NAMES = [f"n{number}" for number in range(6)]


def cluster(kinds, places, **more):
    """Nodes on fabrics f0, f1, ... of some kinds; places: for each fabric the nodes on it."""
    nodes = [
        {
            "name": name,
            "platform": "generic-x86_64",
            "ssh": name,
            "fabrics": {
                f"f{number}": {"interface": "eth0", "address": f"10.{number}.0.{own + 1}"}
                for number, members in enumerate(places)
                if name in members
            },
            **more,
        }
        for own, name in enumerate(NAMES)
    ]
    fabrics = {
        f"f{number}": {"kind": kind, "speed_gbps": 10, "mtu": 1500, "subnet": f"10.{number}.0.0/24"}
        for number, kind in enumerate(kinds)
    }
    document = {"name": "c", "fabrics": fabrics, "nodes": nodes}
    check(document, "cluster", "c.toml")
    return parse_cluster(document, "c.toml")


def test_a_node_goes_down_with_all_that_usb4_rdma_links_it_to():
    linked = cluster(["usb4-rdma", "usb4-rdma", "ethernet"], [{"n0", "n1"}, {"n1", "n2"}, NAMES])
    assert groups(linked, ["n2"]) == [("n0", "n1", "n2")]
    assert groups(linked, ["n4", "n0", "n1"]) == [("n4",), ("n0", "n1", "n2")]


@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=2), max_size=4),
    st.lists(st.sampled_from(NAMES), unique=True),
)
def test_every_node_named_is_in_one_group_and_no_link_crosses_groups(places, names):
    found = groups(cluster(["usb4-rdma"] * len(places) or ["ethernet"], places or [NAMES]), names)
    members = [name for group in found for name in group]
    assert len(members) == len(set(members))
    assert set(names) <= set(members)
    for group in found:
        for place in places:
            assert not place & set(group) or place <= set(group)


def test_a_node_says_which_boot_it_is_in_and_what_runs_there():
    # no output: what our own script prints
    found = parse("n1", "boot abc\nuptime 7500\nowned nixwulf-a-llama\nmotd of somebody\n")
    assert (found.boot, found.uptime_s, found.owned) == ("abc", 7500, ("nixwulf-a-llama",))
    assert found.sentence() == "n1: up for 2 h 5 min, runs nixwulf-a-llama"
    assert parse("n1", "uptime 200000").sentence() == "n1: up for 2 d 7 h"
    assert parse("mac", "boot { sec = 5 }").sentence() == "mac: up"


# no output: a stand-in for ssh
# Refuses a few times, as a machine does whose sshd has not started, and then runs the command here.
BOOTING = """
echo refused >>"$0.calls"
if [ "$(wc -l <"$0.calls")" -le 3 ]; then
  echo 'ssh: connect to host n0 port 22: Connection refused' >&2; exit 255
fi
for command; do :; done
exec sh -c "$command"
"""


@pytest.mark.parametrize(
    ("ssh", "reported"),
    [
        (BOOTING, ["does not answer, and may be booting: waiting up to 60 s", "answers"]),
        ("echo 'n0: Permission denied (publickey).' >&2; exit 255", []),
        ('for command; do :; done; exec sh -c "$command"', []),
    ],
)
def test_a_node_that_may_be_booting_is_waited_for_until_it_answers(
    tmp_path, monkeypatch, ssh, reported
):
    put(tmp_path, "ssh", ssh)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("nixwulf.ops.recover.POLL_S", 0.01)
    node = Connection(cluster(["ethernet"], [NAMES]).nodes[0], ())
    said = []
    await_answer(node, 60, lambda name, words: said.append((name, words)))
    assert said == [("n0", words) for words in reported]


def test_a_node_that_stays_silent_is_waited_for_no_longer_than_the_limit(tmp_path, monkeypatch):
    put(tmp_path, "ssh", "echo 'ssh: connect to host n0 port 22: No route to host' >&2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    node = Connection(cluster(["ethernet"], [NAMES]).nodes[0], ())
    said = []
    await_answer(node, 0, lambda _, words: said.append(words))
    assert said == []


class Relay:
    """A relay that answers once, to 'off', and is then gone."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.answer, daemon=True).start()
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def answer(self):
        client, _ = self.listener.accept()
        self.listener.close()
        with client:
            client.recv(1024)
            # no output: a stand-in for a relay
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def __exit__(self, *_):
        self.listener.close()


@pytest.mark.slow
def test_a_node_that_its_switch_leaves_off_is_said_to_be_off_and_no_gate_is_blamed(
    tmp_path, monkeypatch
):
    put(tmp_path, "ssh", "echo 'ssh: connect to host n0 port 22: No route to host' >&2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("nixwulf.plugins.switches.relays._PAUSES_ON_S", (0, 0))
    monkeypatch.setattr(switches, "cycle", partial(switches.cycle, off_s=0))
    with Relay() as url:
        switch = {"kind": "shelly", "url": url}
        made = cluster(["ethernet"], [NAMES], power_switch=switch)
        nodes = {node.name: Connection(node, ()) for node in made.nodes}
        said = []
        (found,) = recover(
            made, nodes, ["n0"], lambda *words: said.append(words), deadline_s=0.1, steps=STEPS
        )
    assert found.step is None
    assert found.words.startswith("Node 'n0' is OFF: it was not switched on again in 3 attempts")
    assert f": curl '{url}/relay/0?turn=on' (" in found.words
    assert said[-1] == ("n0", f"power: {found.words}")
    assert any(words.startswith("reboot: ") for _, words in said)


@given(st.text())
def test_any_output_of_a_node_is_a_state(text):
    parse("n1", text).sentence()
