from hypothesis import given
from hypothesis import strategies as st

from nixwulf.facts import parse_facts

OUTPUT = """\
/usr/bin/ping
--
/proc/sys/kernel/hostname:n1
/proc/sys/kernel/osrelease:6.19.1
/proc/cmdline:quiet ttm.pages_limit=32505856
/proc/meminfo:MemTotal:       131072000 kB
/proc/meminfo:MemAvailable:   120000000 kB
/etc/os-release:PRETTY_NAME="NixOS 26.05"
/sys/devices/system/cpu/online:0-15,20
/sys/class/drm/card1/device/mem_info_gtt_total:133143986176
/sys/bus/thunderbolt/devices/0-2/rx_speed:20.0 Gb/s
/sys/class/net/thunderbolt0/mtu:9000
/proc/net/fib_trie:           |-- 10.10.0.1
/proc/net/fib_trie:              /32 host LOCAL
/proc/net/fib_trie:           |-- 10.10.0.255
/proc/net/fib_trie:              /32 link BROADCAST
/proc/cpuinfo:model name\t: AMD RYZEN AI MAX+ 395
"""


def test_facts_are_read_from_the_scripts_output():
    facts = parse_facts(OUTPUT)
    assert facts.hostname == "n1"
    assert facts.memory_total == 131072000 * 1024
    assert facts.cpus == 17
    assert facts.cpu == "AMD RYZEN AI MAX+ 395"
    assert facts.os == "NixOS 26.05"
    assert facts.programs == {"ping": "/usr/bin/ping"}
    assert facts.mtus == {"thunderbolt0": 9000}
    assert facts.addresses == {"10.10.0.1"}
    assert facts.other["thunderbolt 0-2 rx_speed"] == "20.0 Gb/s"
    assert facts.other["card1 mem_info_gtt_total"] == "133143986176"


@given(st.text())
def test_no_output_of_a_node_breaks_the_parser(text):
    parse_facts(text)
