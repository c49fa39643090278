#!/bin/sh
# Prints facts of a machine that may be imaged, whatever Linux or macOS it runs: sections that begin
# with a line '== NAME'. It changes nothing, and what a machine lacks is an empty section.
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
section user
if [ "$(id -u)" = 0 ]; then echo root; elif sudo -n true; then echo sudo; else id -un; fi
section system
readlink /run/current-system
section cluster
cat /etc/nixwulf/cluster
section owned
owned # of nodes/process.py

if [ "$(uname -s)" = Darwin ]; then
  section os-release
  printf 'PRETTY_NAME="%s %s (%s)"\n' "$(sw_vers -productName)" "$(sw_vers -productVersion)" \
    "$(sw_vers -buildVersion)"
  section product
  sysctl -n hw.model
  section memory-bytes
  sysctl -n hw.memsize
  section rdma
  rdma_ctl status
  section rdma-devices
  ibv_devices
  exit 0
fi

section boot
cat /proc/sys/kernel/random/boot_id
section os-release
cat /etc/os-release
section product
if [ -r /sys/class/dmi/id/product_name ]; then
  cat /sys/class/dmi/id/product_name
elif [ -r /proc/device-tree/model ]; then
  tr -d '\000' </proc/device-tree/model
fi
section firmware
if [ -d /sys/firmware/efi ]; then
  echo UEFI
elif [ -d /proc/device-tree ]; then
  echo 'device tree'
else
  echo BIOS
fi
section firmware-version
cat /sys/class/dmi/id/bios_version
# An EFI variable is four bytes of attributes and its value.
section secure-boot
od -An -tu1 -j4 -N1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
section lockdown
cat /sys/kernel/security/lockdown
section kexec-disabled
cat /proc/sys/kernel/kexec_load_disabled
section memory
grep MemTotal /proc/meminfo
section programs
for program in tar cpio setsid ip awk lsblk; do command -v "$program"; done
section interfaces
# Each with the other names that systemd has for it: the present system may name it as the kernel does.
for port in /sys/class/net/*; do
  others=$(udevadm info --query=property "$port" | sed -n 's/^ID_NET_NAME_[A-Z]*=//p' | tr '\n' ' ')
  echo "${port##*/} $others"
done
section network-cards-without-driver
for card in /sys/bus/pci/devices/*; do
  case "$(cat "$card/class")" in
  0x02*) [ -e "$card/driver" ] || echo "${card##*/}" ;;
  esac
done
section disk-drivers
# Modules of a disk and of all that it hangs on. An NVMe disk of two controllers hangs on neither, but links to both.
for block in /sys/block/*; do
  modules=
  for device in "$block/device" "$block"/device/nvme[0-9]*; do
    device=$(readlink -f "$device")
    while [ "${device#/sys/devices/}" != "$device" ]; do
      module=$(readlink -f "$device/driver/module") && [ -e "$module/initstate" ] &&
        modules="$modules ${module##*/}"
      device=${device%/*}
    done
  done
  [ -z "$modules" ] || echo "/dev/${block##*/}$modules"
done
section disk-ids
for link in /dev/disk/by-id/*; do
  [ -e "$link" ] && printf '%s %s\n' "$link" "$(readlink -f "$link")"
done
section disks
lsblk --json --bytes --output NAME,SIZE,MODEL,SERIAL,TYPE,RM,RO,MOUNTPOINT,PARTLABEL
exit 0
