#!/bin/sh
# $@ are the programs to look for, first where 'nixwulf engines install' puts them; what comes before
# grep is built into the shell, because a process more a node is a tenth of the time. Only some shells
# have the time of day. Set before: hardware, globs of files; values, a Mac's names for sysctl.
# shellcheck disable=SC2086,SC2154,SC3028,SC3045

for folder in "${XDG_CACHE_HOME:-$HOME/.cache}"/nixwulf/engines/*/bin; do
  [ ! -d "$folder" ] || PATH=$folder:$PATH
done
for program; do command -v "$program"; done
echo "--"
export LC_ALL=C
ulimit -l
echo "clock:${EPOCHREALTIME:-}"
cd -P /run/current-system 2>/dev/null && echo "closure:$PWD"
echo "home:$HOME"
echo "login:${LOGNAME:-}"
if ! [ -e /proc/meminfo ]; then
  sysctl $values 2>/dev/null
  vm_stat 2>/dev/null
  ifconfig -a 2>/dev/null
  exit 0
fi
# Of this login's control group and those above it, quota and period in microseconds; the first case
# is version 2, the second version 1.

while IFS=: read -r _ kinds place; do
  case $kinds in
    '') root=/sys/fs/cgroup ;;
    cpu | cpu,*) root=/sys/fs/cgroup/cpu ;;
    *) continue ;;
  esac
  while :; do
    { read -r quota period <"$root$place/cpu.max" && echo "quota:$quota $period"; } 2>/dev/null
    { read -r quota <"$root$place/cpu.cfs_quota_us" &&
      read -r period <"$root$place/cpu.cfs_period_us" && echo "quota:$quota $period"; } 2>/dev/null
    case $place in */?*) place=${place%/*} ;; *) break ;; esac
  done
done </proc/self/cgroup
exec grep -sH '' /proc/sys/kernel/hostname /proc/sys/kernel/osrelease /proc/cmdline /proc/meminfo \
  /proc/sys/kernel/random/boot_id /etc/os-release /sys/class/dmi/id/product_name \
  /sys/class/dmi/id/bios_version /sys/devices/system/cpu/online /sys/class/net/*/mtu \
  /proc/net/fib_trie /proc/self/status $hardware /proc/cpuinfo -m 2000
