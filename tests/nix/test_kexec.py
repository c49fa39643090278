"""What a machine keeps across kexec: the scripts of the installer's tarball, run here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "nixos" / "images" / "kexec"

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("ip") is None, reason="networks of one's own take root and ip"
)

# Beside what is kept: a port without an address, and a route that leads nowhere.
NETWORK = """
set -e
mount -t sysfs sysfs /sys
ip link add name wan address 52:54:00:00:00:01 type veth peer name far
ip link add name lan address 52:54:00:00:00:02 type veth peer name away
ip link set lo up
for port in wan far lan away; do ip link set "$port" up; done
ip address add 192.168.1.31/24 dev wan
ip address add 192.168.1.32/24 dev wan valid_lft 600 preferred_lft 600
ip address add fd00::5/64 dev wan nodad
ip address add 10.9.0.1 peer 10.9.0.2/32 dev lan
ip route add default via 192.168.1.1 dev wan proto dhcp metric 100
ip route add 10.0.0.0/8 via 192.168.1.254 dev wan src 192.168.1.31
ip route add 172.16.0.0/12 via 203.0.113.1 dev wan onlink
ip -6 route add default via fd00::1 dev wan
ip route add unreachable 10.77.0.0/16
printf 'nameserver 127.0.0.53\\nnameserver 192.168.1.1\\n' >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
sh "$2" "$1/kept"
"""

WAN = """\
[Match]
MACAddress=52:54:00:00:00:01

[Network]
DHCP=yes
IPv6AcceptRA=yes
DNS=192.168.1.1

[Address]
Address=192.168.1.31/24

[Address]
Address=192.168.1.32/24

[Address]
Address=fd00::5/64

[Route]
Destination=0.0.0.0/0
Gateway=192.168.1.1
Metric=100

[Route]
Destination=10.0.0.0/8
Gateway=192.168.1.254
PreferredSource=192.168.1.31

[Route]
Destination=172.16.0.0/12
Gateway=203.0.113.1
GatewayOnLink=yes

[Route]
Destination=::/0
Gateway=fd00::1
Metric=1024
"""
LAN = """\
[Match]
MACAddress=52:54:00:00:00:02

[Network]
DHCP=yes
IPv6AcceptRA=yes
DNS=192.168.1.1

[Address]
Address=10.9.0.1
Peer=10.9.0.2/32
"""


def test_addresses_and_routes_are_kept_as_files_of_systemd_networkd(tmp_path):
    (tmp_path / "kept").mkdir()
    done = subprocess.run(
        [
            *("unshare", "--net", "--mount", "sh", "-c", NETWORK),
            *("sh", str(tmp_path), str(FOLDER / "keep-network.sh")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {file.name: file.read_text().rstrip() + "\n" for file in (tmp_path / "kept").iterdir()}
    assert found == {"20-kept-wan.network": WAN, "20-kept-lan.network": LAN}
