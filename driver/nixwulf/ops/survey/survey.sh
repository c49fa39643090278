#!/bin/sh
# Prints what a cluster file has of a machine, Linux or macOS: sections that begin with a line '== NAME'. It changes
# nothing, needs no root, and what a machine lacks is an empty section. $@ are the files to print on Linux.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin:/run/current-system/sw/bin
export LC_ALL PATH
exec 2>/dev/null

section() { printf '\n== %s\n' "$1"; }

section ssh
echo "$SSH_CONNECTION"
section kernel
uname -s
section architecture
uname -m
section hostname
uname -n

if ! [ -e /proc/meminfo ]; then
  section product
  sysctl hw.model | sed -n 's/^hw.model: //p'
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

section boot
cat /proc/sys/kernel/random/boot_id
section product
if [ -r /sys/class/dmi/id/product_name ]; then
  cat /sys/class/dmi/id/product_name
elif [ -r /proc/device-tree/model ]; then
  tr -d '\000' </proc/device-tree/model
fi
section addresses
ip -j -d address
section folders
readlink /sys/class/net/*
for device in /sys/class/infiniband/*/device/net/*; do echo "$device"; done
section files
grep -sH '' "$@"
section disk-ids
for link in /dev/disk/by-id/*; do
  [ -e "$link" ] && printf '%s %s\n' "$link" "$(readlink -f "$link")"
done
section disks
lsblk --json --bytes --output NAME,SIZE,MODEL,SERIAL,TYPE,RM,RO,MOUNTPOINT,PARTLABEL
exit 0
