#!/bin/sh
# Prints what else a cluster file has of a machine, Linux or macOS, after ../deploy/identity.sh, which is in front of it.
# It needs no root. $@ are the files to print on Linux.
section ssh
echo "$SSH_CONNECTION"

if ! [ -e /proc/meminfo ]; then
  section cpu
  sysctl machdep.cpu.brand_string
  section displays
  system_profiler SPDisplaysDataType
  section interfaces
  ifconfig -a
  section ports
  networksetup -listallhardwareports
  section thunderbolt
  system_profiler SPThunderboltDataType -json
  section rdma-ports
  ibv_devinfo
  exit 0
fi

section cpu
grep -m 1 '^model name' /proc/cpuinfo
section compatible
tr '\000' '\n' </proc/device-tree/compatible
section pci
cut -f 1-2 /proc/bus/pci/devices
section addresses
ip -j -d address
section folders
readlink /sys/class/net/*
for device in /sys/class/infiniband/*/device/net/*; do echo "$device"; done
section files
grep -sH '' "$@"
exit 0
