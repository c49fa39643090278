#!/bin/sh
# Prints what a machine is, whatever Linux or macOS it runs: sections that begin with a line '== NAME'. It changes
# nothing, and what a machine lacks is an empty section. machine.sh and ../survey/survey.sh go on from here: each is
# sent with this in front of it.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin:/run/current-system/sw/bin
export LC_ALL PATH
exec 2>/dev/null

section() { printf '\n== %s\n' "$1"; }

section kernel
uname -s
section architecture
uname -m
section hostname
uname -n
section boot
cat /proc/sys/kernel/random/boot_id
section product
if [ -r /sys/class/dmi/id/product_name ]; then
  cat /sys/class/dmi/id/product_name
elif [ -r /proc/device-tree/model ]; then
  tr -d '\000' </proc/device-tree/model
else
  sysctl hw.model | sed -n 's/^hw.model: //p'
fi
section disk-ids
for link in /dev/disk/by-id/*; do
  [ -e "$link" ] && printf '%s %s\n' "$link" "$(readlink -f "$link")"
done
section disks
lsblk --json --bytes --output NAME,SIZE,MODEL,SERIAL,TYPE,RM,RO,MOUNTPOINT,PARTLABEL
