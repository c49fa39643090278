#!/bin/sh
# Prints more facts of a machine that may be imaged, after identity.sh, which is in front of it.
section user
if [ "$(id -u)" = 0 ]; then echo root; elif sudo -n true; then echo sudo; else id -un; fi
section system
readlink /run/current-system
section cluster
cat /etc/nixwulf/cluster
section owned
owned # of nodes/process.py

if ! [ -e /proc/meminfo ]; then
  section os-release
  printf 'PRETTY_NAME="%s %s (%s)"\n' "$(sw_vers -productName)" "$(sw_vers -productVersion)" \
    "$(sw_vers -buildVersion)"
  section memory-bytes
  sysctl -n hw.memsize
  section rdma
  rdma_ctl status
  section rdma-devices
  ibv_devices
  exit 0
fi

section os-release
cat /etc/os-release
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
exit 0
