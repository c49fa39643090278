"""What macOS's own programs print, and stand-ins that print it on a Linux machine.

The forms are those of macOS 13 to 26 on Apple silicon as its manual pages and published outputs show
them; the values are made up. No Mac was at hand. Where the forms were seen:
netstat -ibn: https://github.com/shirou/gopsutil/blob/master/net/net_darwin.go and netstat(1);
a link without an address (lo0, utun, gif) has one column less, and rows of addresses say '-'.
vm_stat: vm_stat(1), https://github.com/apple-oss-distributions/system_cmds. ifconfig: ifconfig(8).
sysctl: sysctl(8); iogpu.wired_limit_mb is 0 for the system's own choice.
networksetup, system_profiler, ibv_devinfo: captured from two Macs with a cable, macOS 27, in the tests
of https://github.com/osaurus-ai/osaurus (DistributedFixtures.swift).
"""

# ruff: noqa: E501 - rows are as wide as netstat makes them

import os
import shutil
import subprocess

from stand_in import put

# The stand-ins come first on PATH; the shell is the real one, wherever it is.
BASH = shutil.which("bash") or "bash"

# hand-made: no Mac is at hand (form: sysctl(8), and what the docstring names)
SYSCTL = """\
kern.ostype: Darwin
kern.osrelease: 25.2.0
kern.osproductversion: 26.2
kern.osversion: 25C56
kern.hostname: mac-a.local
hw.model: Mac15,14
hw.memsize: 549755813888
hw.ncpu: 32
machdep.cpu.brand_string: Apple M3 Ultra
iogpu.wired_limit_mb: 507904
"""
# hand-made: no Mac is at hand (form: vm_stat(1), and what the docstring names)
VM_STAT = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                             28000000.
Pages active:                            1900000.
Pages inactive:                          1850000.
Pages speculative:                         40000.
Pages throttled:                               0.
Pages wired down:                         900000.
Pages purgeable:                             500.
"Translation faults":                  574921966.
Pages copy-on-write:                    38671927.
File-backed pages:                       1500000.
Anonymous pages:                         2290000.
Pages stored in compressor:              1022243.
Pages occupied by compressor:             454496.
Swapouts:                                      0.
"""
# hand-made: no Mac is at hand (form: ifconfig(8), and what the docstring names)
IFCONFIG = """\
lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384
	options=1203<RXCSUM,TXCSUM,TXSTATUS,SW_TIMESTAMP>
	inet 127.0.0.1 netmask 0xff000000
	inet6 ::1 prefixlen 128
	inet6 fe80::1%lo0 prefixlen 64 scopeid 0x1
	nd6 options=201<PERFORMNUD,DAD>
gif0: flags=8010<POINTOPOINT,MULTICAST> mtu 1280
en0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500
	options=567<RXCSUM,TXCSUM,VLAN_MTU,TSO4,TSO6,AV,CHANNEL_IO>
	ether 02:00:5e:00:53:10
	inet6 fe80::10aa:1bff:fe5c:77%en0 prefixlen 64 secured scopeid 0xb
	inet 192.168.1.51 netmask 0xffffff00 broadcast 192.168.1.255
	nd6 options=201<PERFORMNUD,DAD>
	media: autoselect (10Gbase-T <full-duplex,flow-control>)
	status: active
en3: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500
	options=460<TSO4,TSO6,CHANNEL_IO>
	ether 02:00:5e:00:53:13
	inet 10.50.12.1 netmask 0xfffffffc broadcast 10.50.12.3
	media: autoselect <full-duplex>
	status: active
utun0: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1380
	inet6 fe80::2222:33ff:fe44:5555%utun0 prefixlen 64 scopeid 0x10
"""
# hand-made: no Mac is at hand (form: netstat(1), and what the docstring names)
NETSTAT = """\
Name       Mtu   Network       Address            Ipkts Ierrs     Ibytes    Opkts Oerrs     Obytes  Coll
lo0        16384 <Link#1>                        481910     0  466453111   481910     0  466453111     0
lo0        16384 127           127.0.0.1         481910     -  466453111   481910     -  466453111     -
gif0*      1280  <Link#2>                             0     0          0        0     0          0     0
en0        1500  <Link#11>   02:00:5e:00:53:10 30128622     0 23308376472 29417243     0 26102435913     0
en0        1500  fe80::10aa: fe80:b::10aa:1bff 30128622     - 23308376472 29417243     - 26102435913     -
en0        1500  192.168.1     192.168.1.51    30128622     - 23308376472 29417243     - 26102435913     -
en3        1500  <Link#14>   02:00:5e:00:53:13      100     3       5000      200    12        300     0
en3        1500  10.50.12/30   10.50.12.1           100     -       5000      200     -        300     -
utun0      1380  <Link#16>                            7     0        700        9     0        900     0
"""
# hand-made: no Mac is at hand (form: networksetup(8), and what the docstring names)
HARDWARE_PORTS = """\
Hardware Port: Ethernet
Device: en0
Ethernet Address: 02:00:5e:00:53:10

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 02:00:5e:00:53:11

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 02:00:5e:00:53:12

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 02:00:5e:00:53:12

Hardware Port: Thunderbolt 2
Device: en3
Ethernet Address: 02:00:5e:00:53:13

VLAN Configurations
===================
"""
# hand-made: no Mac is at hand (form: system_profiler(8), and what the docstring names)
THUNDERBOLT = """\
{"SPThunderboltDataType": [
  {"_name": "thunderboltusb4_bus_1", "device_name_key": "Mac Studio",
   "domain_uuid_key": "00000004-0000-4000-8000-00000000000A",
   "receptacle_1_tag": {"current_speed_key": "80 Gb/s", "receptacle_id_key": "2",
                        "receptacle_status_key": "receptacle_connected"},
   "_items": [{"_name": "Mac Studio", "device_name_key": "Mac15,14",
               "domain_uuid_key": "00000004-0000-4000-8000-00000000000B"}]},
  {"_name": "thunderboltusb4_bus_0", "device_name_key": "Mac Studio",
   "domain_uuid_key": "00000004-0000-4000-8000-00000000000C",
   "receptacle_1_tag": {"current_speed_key": "Up to 80 Gb/s", "receptacle_id_key": "1",
                        "receptacle_status_key": "receptacle_no_devices_connected"}}
]}
"""
# hand-made: no Mac is at hand (form: ibv_devinfo(1), and what the docstring names)
RDMA_PORTS = """\
hca_id:\trdma_en2
\ttransport:\t\t\tThunderbolt (100)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tThunderbolt

hca_id:\trdma_en3
\ttransport:\t\t\tThunderbolt (100)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tlink_layer:\t\tThunderbolt
"""
# no output: the texts above by program
PRINTED = {
    "sysctl": SYSCTL,
    "vm_stat": VM_STAT,
    "ifconfig": IFCONFIG,
    "netstat": NETSTAT,
    "networksetup": HARDWARE_PORTS,
    "system_profiler": THUNDERBOLT,
    "ibv_devinfo": RDMA_PORTS,
}


def on_a_mac(script, folder, *arguments, printed=PRINTED, linux=False, **environment):
    """What a script prints in the shell that macOS calls sh, with Linux's files out of reach.

    The stand-ins are for macOS's own tools only. linux: those files are where they are.
    """
    folder.mkdir(exist_ok=True)
    for name, text in printed.items():
        (folder / f"{name}.txt").write_text(text)
        put(folder, name, f'exec cat "{folder}/{name}.txt"')
    put(
        folder,
        "uname",
        "case $1 in -m) echo arm64 ;; -n) echo mac-a.local ;; *) echo Darwin ;; esac",
    )
    text = script if linux else script.replace("/proc/", "/no-proc/").replace("/sys/", "/no-sys/")
    done = subprocess.run(
        [BASH, "--posix", "-c", text, "sh", *arguments],
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    return done.stdout
