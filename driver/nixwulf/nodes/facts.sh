#!/bin/sh
# $@ are the programs to look for, first where 'nixwulf engines install' puts them; what comes before
# grep is built into the shell, because a process more a node is a tenth of the time. Only some shells
# have the time of day. Set before: hardware, globs of files; values, a Mac's names for sysctl; faults,
# what doctor looks for in the kernel's log, empty where it is not doctor that asks.
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

# What programs print for doctor: each line after @, the name of what it is, and a colon.
show() {
  label=$1
  shift
  if command -v "$1" >/dev/null; then
    $patience "$@" 2>&1 </dev/null | while IFS= read -r line; do printf '@%s:%s\n' "$label" "$line"; done
  else
    echo "@absent:$1"
  fi
}
found() { command -v "$1" >/dev/null; }
engines_python() { # folders of a virtual environment tell which CUDA it has, without a start of Python
  place=$(command -v "$1") && place=$(readlink -f "$place") || return
  for folder in "${place%/bin/*}"/lib*/python3*/site-packages/nvidia_cuda_runtime*.dist-info \
    "${place%/bin/*}"/lib*/python3*/site-packages/torch-*.dist-info; do
    [ ! -d "$folder" ] || echo "@cuda:$1 ${folder##*/}"
  done
}
if [ -n "$faults" ]; then
  PATH=$PATH:/usr/sbin:/sbin
  patience=
  ! found timeout || patience="timeout 10"
  echo "@uid:$(id -u)"
fi
if [ -n "$faults" ] && ! [ -e /proc/meminfo ]; then
  echo "@fast-synch:${MLX_METAL_FAST_SYNCH:-}"
  show ports networksetup -listallhardwareports
  show thunderbolt system_profiler SPThunderboltDataType -json
  ! found ibv_devinfo || show ibv ibv_devinfo
elif [ -n "$faults" ]; then
  log=$($patience dmesg 2>/dev/null) ||
    log=$($patience journalctl -k -b -q -o cat --no-pager 2>/dev/null) || log=
  if [ -n "$log" ]; then
    echo "@log:"
    printf '%s\n' "$log" | grep -E "$faults" | head -n 200 |
      while IFS= read -r line; do printf '@log:%s\n' "$line"; done
  fi
  show shm df -Pk /dev/shm
  show addresses ip -j -d address
  for link in /sys/class/net/*; do echo "@folders:$(readlink "$link")"; done
  for folder in /sys/class/infiniband/*/device/net/*; do
    [ ! -e "$folder" ] || echo "@folders:$folder"
  done
  if [ -d /run/systemd/system ]; then
    login1=org.freedesktop.login1
    show remove-ipc busctl get-property $login1 /org/freedesktop/login1 $login1.Manager RemoveIPC
    show linger loginctl show-user "$(id -un)" --property=Linger
  fi
  for card in /sys/class/drm/card*/device/vendor /proc/driver/nvidia/version; do
    { read -r vendor <"$card"; } 2>/dev/null || continue
    case $vendor in
      0x10de | *NVRM*)
        show nvidia nvidia-smi --format=csv,noheader,nounits "--query-gpu=index,name,clocks.sm,\
clocks.max.sm,utilization.gpu,power.limit,power.default_limit,ecc.errors.uncorrected.volatile.total"
        break
        ;;
    esac
  done
  for program in vllm sglang; do engines_python $program; done
  for program in docker podman nvidia-ctk; do ! found $program || echo "@have:$program"; done
  for socket in /run/docker.sock /var/run/docker.sock; do
    if [ -w $socket ]; then echo "@docker:open"; elif [ -S $socket ]; then echo "@docker:closed"; fi
  done
  for spec in /etc/cdi/*nvidia* /var/run/cdi/*nvidia*; do
    [ ! -r "$spec" ] || echo "@cdi:$spec $(grep -oE 'libcuda\.so\.[0-9.]+[0-9]' "$spec" | head -n 1)"
  done
  for port in /sys/class/net/*; do
    { read -r carrier <"$port/carrier"; } 2>/dev/null && [ "$carrier" = 1 ] && [ -e "$port/device" ] &&
      ! [ -d "$port/wireless" ] || continue
    show "ethtool ${port##*/}" ethtool "${port##*/}"
    found ethtool || break
    show "fec ${port##*/}" ethtool --show-fec "${port##*/}"
    show "driver ${port##*/}" ethtool -i "${port##*/}"
  done
  for device in /sys/class/infiniband/*; do
    if [ -e "$device" ] && ! [ -e "$device/parent" ]; then
      show ibv ibv_devinfo
      break
    fi
  done
fi

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
