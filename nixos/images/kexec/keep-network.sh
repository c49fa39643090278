#!/bin/sh
# Writes what this machine's network has now as files of systemd-networkd to the folder $1: a file for each port with an
# address, found again by its MAC, because an interface may have another name under the installer's kernel.
#
# Addresses from DHCP are kept too: an installer asks with another client identifier and may be given another one, and who
# installs it waits at the old one. Of a bridge or bond its first port gets the addresses, whose MAC they share.
# VLANs are not kept.
set -eu
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin:/run/current-system/sw/bin
export LC_ALL PATH
folder=$1

# "name MAC" of ports that have a MAC of Ethernet's.
ports() {
  for port in /sys/class/net/*; do
    if [ "$(cat "$port/type")" = 1 ]; then echo "${port##*/} $(cat "$port/address")"; fi
  done
}

# systemd-resolved's own address answers nobody after kexec; the servers that it asks are in its other file.
servers() {
  for file in /run/systemd/resolve/resolv.conf /etc/resolv.conf; do
    if [ -r "$file" ]; then cat "$file"; fi
  done | awk '$1 == "nameserver" && $2 !~ /^127\./ && $2 != "::1" && !seen[$2]++ { print $2 }'
}

{
  ports | sed 's/^/port /'
  servers | sed 's/^/server /'
  ip -o -4 address show scope global | sed 's/^/address /'
  ip -o -6 address show scope global | sed 's/^/address /'
  ip -4 route show | sed 's/^/route 4 /'
  ip -6 route show | sed 's/^/route 6 /'
} | awk -v folder="$folder" '
  function after(word,  i) {
    for (i = 3; i < NF; i++) if ($i == word) return $(i + 1)
    return ""
  }
  function has(word,  i) {
    for (i = 3; i <= NF; i++) if ($i == word) return 1
    return 0
  }
  $1 == "port" { mac[$2] = $3 }
  $1 == "server" { dns = dns "DNS=" $2 "\n" }
  # address 2: eth0 inet 192.168.1.31/24 ...; with a peer: inet 10.0.0.1 peer 10.0.0.2/32 ...
  $1 == "address" && !has("temporary") && !has("deprecated") && !has("dadfailed") {
    sub(/@.*/, "", $3)
    addresses[$3] = addresses[$3] "\n[Address]\nAddress=" $5 "\n"
    if (after("peer") != "") addresses[$3] = addresses[$3] "Peer=" after("peer") "\n"
  }
  # What the kernel makes of an address, and what routers announce, comes again by itself.
  $1 == "route" && after("dev") != "" && after("proto") != "kernel" && after("proto") != "ra" {
    to = $3
    if (to ~ /^(unreachable|blackhole|prohibit|throw|broadcast|multicast|local|anycast|none)$/) next
    if (to == "default") to = ($2 == 4 ? "0.0.0.0/0" : "::/0")
    dev = after("dev")
    routes[dev] = routes[dev] "\n[Route]\nDestination=" to "\n"
    if (after("via") != "") routes[dev] = routes[dev] "Gateway=" after("via") "\n"
    if (after("src") != "") routes[dev] = routes[dev] "PreferredSource=" after("src") "\n"
    if (after("metric") != "") routes[dev] = routes[dev] "Metric=" after("metric") "\n"
    if (has("onlink")) routes[dev] = routes[dev] "GatewayOnLink=yes\n"
  }
  END {
    for (name in addresses) {
      if (!(name in mac)) continue
      # It asks for an address all the same: a lease that nobody renews may run out during an installation.
      print "[Match]\nMACAddress=" mac[name] "\n\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n" dns addresses[name] \
        routes[name] >(folder "/20-kept-" name ".network")
    }
  }
'
