#!/bin/sh
# $SSH_CONNECTION is "client port server port": the third word is the node's own address, whatever
# name, jump host or network led to it. `ip -o` prints one address a line. The connection itself
# counts too: what it carried is the driver's, and nothing that an engine sent.

export LC_ALL=C
# shellcheck disable=SC2086
set -- $SSH_CONNECTION
echo "management:$3"
echo "ports:$2 $4"
if ! [ -e /proc/net/dev ]; then
  echo "system:$(uname -s)"
  ifconfig -a 2>/dev/null
  netstat -ibn 2>/dev/null
  netstat -anv -p tcp 2>/dev/null
  exit
fi
ip -o addr 2>/dev/null
ss -tinHO "dport = :$2 and sport = :$4" 2>/dev/null
exec grep -sH '' /proc/net/dev /sys/class/infiniband/*/ports/1/counters/port_xmit_data \
  /sys/class/infiniband/*/ports/1/counters/port_rcv_data \
  /sys/class/infiniband/*/ports/1/hw_counters/* /sys/class/infiniband/*/device/uevent \
  /sys/class/infiniband/*/parent /sys/kernel/debug/thunderbolt_ibverbs/summary
