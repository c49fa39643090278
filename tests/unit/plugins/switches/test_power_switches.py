"""Power switches: what each kind is asked, and what a cluster file may say of one."""

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from healthy_pair import CLUSTER
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import PowerSwitch, load_cluster
from nixwulf.plugins.switches import cycle, require_known
from nixwulf.plugins.switches.wake_on_lan import packet_of

SILENT = 0


class Relay(http.server.BaseHTTPRequestHandler):
    """Answers with a status, and keeps the paths of its requests."""

    asked: list[str] = []  # noqa: RUF012
    status = 200
    of_next: list[int] = []  # noqa: RUF012
    endless_s = 0.0

    def do_GET(self):
        self.asked.append(self.path)
        status = self.of_next.pop(0) if self.of_next else self.status
        if status == SILENT:
            self.close_connection = True
            return
        self.send_response(status)
        self.end_headers()
        until = time.monotonic() + self.endless_s
        with suppress(OSError):
            while time.monotonic() < until:
                self.wfile.write(b"frame ")
                time.sleep(0.05)

    def log_message(self, *_):
        pass


@pytest.fixture
def relay():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    Relay.asked, Relay.status, Relay.of_next = [], 200, []
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("shelly", ["/relay/2?turn=off", "/relay/2?turn=on"]),
        ("shelly-gen2", ["/rpc/Switch.Set?id=2&on=false", "/rpc/Switch.Set?id=2&on=true"]),
        ("tasmota", ["/cm?cmnd=Power3%20Off", "/cm?cmnd=Power3%20On"]),
    ],
)
def test_each_kind_of_relay_is_turned_off_and_then_on(relay, kind, paths):
    cycle("n1", PowerSwitch(kind, relay, channel=2), off_s=0)
    assert Relay.asked == paths


def test_a_relay_that_refuses_or_is_not_there_is_named_with_what_to_try(relay):
    Relay.status = 401
    with pytest.raises(NixwulfError, match=r"switch of 'n1' answered with HTTP 401; try 'curl "):
        cycle("n1", PowerSwitch("tasmota", relay), off_s=0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NixwulfError, match=r"did not answer \(ConnectError\); try 'curl "):
            cycle("n1", PowerSwitch("shelly-gen2", nobody), off_s=0)


@pytest.fixture
def pauses(monkeypatch):
    """Those after each attempt, which the test does not wait for."""
    found = []
    monkeypatch.setattr("nixwulf.plugins.switches.relays.sleep", found.append)
    return found


@pytest.mark.parametrize("off", [200, SILENT])
def test_a_relay_that_dies_between_off_and_on_is_asked_again(relay, pauses, off):
    Relay.of_next = [off, SILENT, 503]
    cycle("n1", PowerSwitch("shelly", relay), off_s=7)
    assert Relay.asked == ["/relay/0?turn=off", *["/relay/0?turn=on"] * 3]
    assert pauses == [7, 1, 4]


def test_a_node_that_is_not_switched_on_again_is_off_and_the_command_is_named(relay, pauses):
    Relay.of_next = [200, 503]
    Relay.status = SILENT
    with pytest.raises(NixwulfError) as error:
        cycle("n1", PowerSwitch("shelly-gen2", relay, channel=1), off_s=0)
    assert error.value.message.startswith(
        "Node 'n1' is OFF: it was not switched on again in 5 attempts; switch it on by hand, or by"
        f": curl '{relay}/rpc/Switch.Set?id=1&on=true' (The power switch of 'n1' did not answer"
    )
    assert len(Relay.asked) == 6
    assert sum(pauses) == 45


def test_where_the_relay_was_never_reached_nothing_is_switched(relay, pauses):
    Relay.status = 401
    with pytest.raises(NixwulfError, match="answered with HTTP 401"):
        cycle("n1", PowerSwitch("shelly", relay), off_s=0)
    assert Relay.asked == ["/relay/0?turn=off"]


def test_what_answers_without_an_end_does_not_keep_a_node_off(relay, monkeypatch):
    monkeypatch.setattr(Relay, "endless_s", 5.0)
    begin = time.monotonic()
    cycle("n1", PowerSwitch("shelly", relay), off_s=0)
    assert Relay.asked == ["/relay/0?turn=off", "/relay/0?turn=on"]
    assert time.monotonic() - begin < 5


def test_a_sleeping_node_is_sent_its_address_sixteen_times(monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(10)
        port = listener.getsockname()[1]
        monkeypatch.setattr("nixwulf.plugins.switches.wake_on_lan._PORT", port)
        cycle("n1", PowerSwitch("wake-on-lan", mac="9c:bf:0d:01:02:03", broadcast="127.0.0.1"))
        packet = listener.recv(1024)
    assert packet == packet_of("9C:BF:0D:01:02:03")
    assert packet == b"\xff" * 6 + b"\x9c\xbf\x0d\x01\x02\x03" * 16


def test_a_command_of_the_users_is_run_as_it_stands(tmp_path):
    mark = tmp_path / "a file"
    cycle("n1", PowerSwitch("command", command=("touch", str(mark))))
    assert mark.exists()
    with pytest.raises(NixwulfError, match="with 3: no; the node may be OFF; try: sh -c 'echo no"):
        cycle("n1", PowerSwitch("command", command=("sh", "-c", "echo no >&2; exit 3")))
    with pytest.raises(NixwulfError, match=r"cannot be run: '/nowhere': No such file"):
        cycle("n1", PowerSwitch("command", command=("/nowhere",)))


def test_ctrl_c_at_a_terminal_does_not_end_a_command_between_off_and_on(tmp_path):
    off, on = tmp_path / "off", tmp_path / "on"
    words = ("sh", "-c", f"touch {off}; sleep 1; touch {on}")
    program = (
        "from nixwulf.inventory.cluster import PowerSwitch\n"
        "from nixwulf.nodes.ssh import each\n"
        "from nixwulf.plugins.switches import cycle\n"
        f"each(lambda name: cycle(name, PowerSwitch('command', command={words})), ['n1'])"
    )
    driver = subprocess.Popen([sys.executable, "-c", program], process_group=0)
    while not off.exists():
        assert driver.poll() is None
        time.sleep(0.01)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does, to all of the group in front
    driver.wait(30)
    until = time.monotonic() + 30
    while not on.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ('kind = "shelly"', "of kind 'shelly' lacks 'url'"),
        ('kind = "shelly", url = "http://user@10.0.0.1"', "power_switch.url"),
        ('kind = "wake-on-lan"', "of kind 'wake-on-lan' lacks 'mac'"),
        ('kind = "wake-on-lan", mac = "9c:bf:0d:01:02"', "power_switch.mac"),
        ('kind = "command", command = []', "power_switch.command"),
        ('kind = "command", command = ["x"], mac = "9c:bf:0d:01:02:03"', "has no 'mac'"),
        ('kind = "ipmi"', "unknown kind of power switch 'ipmi'; known: command, shelly"),
    ],
)
def test_a_switch_that_cannot_work_is_refused_with_its_node(tmp_path, switch, words):
    # no output: a cluster file
    more = f'name = "fw1"\npower_switch = {{ {switch} }}\n'
    path = tmp_path / "mine.toml"
    path.write_text(Path(CLUSTER.source).read_text().replace('name = "fw1"\n', more))
    with pytest.raises(InputError) as error:
        require_known(load_cluster(path))
    assert words in error.value.message
